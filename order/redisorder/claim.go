package redisorder

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

//go:embed claim.lua
var claimText string

var claimScript = script(claimText)

// Claim implements [order.Store]. On a server that is alone it is one call; the
// package comment says what it is elsewhere.
func (s *Store) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	claimed, err := s.claim(ctx, p, a)
	if err != nil {
		return order.Claimed{}, failed(ctx, "claim", err)
	}
	return claimed, nil
}

func (s *Store) claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	keys := s.keys(p.Scope)
	if s.parts.OneServer(ctx) {
		call := claimCall(a, a.Keys, false)
		for _, k := range keys {
			call.Keys = append(call.Keys, k[:3]...)
		}
		part, err := s.runClaims(ctx, []redispart.Call{call})
		if err != nil {
			return order.Claimed{}, err
		}
		return order.Claimed{Claims: part[0].claims, Next: part[0].next()}, nil
	}
	calls := make([]redispart.Call, len(keys))
	for i, k := range keys {
		calls[i] = claimCall(a, a.Keys, true)
		calls[i].Keys = k[:3]
	}
	looks, err := s.runClaims(ctx, calls)
	if err != nil {
		return order.Claimed{}, err
	}
	claimed := gather(looks)
	if len(claimed.Claims) > 0 {
		return claimed, nil // the ask was sent before
	}
	calls = calls[:0]
	for i, n := range shares(looks, a.Keys) {
		if n > 0 {
			call := claimCall(a, n, false)
			call.Keys = keys[i][:3]
			calls = append(calls, call)
		}
	}
	if len(calls) == 0 {
		return claimed, nil
	}
	parts, err := s.runClaims(ctx, calls)
	if err != nil {
		return order.Claimed{}, err
	}
	next := claimed.Next
	claimed = gather(parts)
	if next > 0 && (claimed.Next == 0 || next < claimed.Next) {
		claimed.Next = next
	}
	return claimed, nil
}

func claimCall(a order.Ask, keys int, look bool) redispart.Call {
	late := a.Messages
	if a.Late > 0 {
		late = min(a.Late, late)
	}
	return redispart.Call{Args: []any{hex.EncodeToString(a.Nonce[:]), decimal(micros(a.Lease)), decimal(int64(a.Messages)),
		decimal(int64(a.Bytes)), decimal(int64(keys)), string(flag(look)), decimal(int64(late))}}
}

// A claimPart is the answer of one partition, or of all of them.
type claimPart struct {
	claims []order.Claim
	later  int64   // microseconds until the next key is due; zero or less: not known
	due    []int64 // since when keys are due, if nothing was taken
}

func (p claimPart) next() time.Duration { return time.Duration(max(p.later, 0)) * time.Microsecond }

func gather(parts []claimPart) (c order.Claimed) {
	for _, p := range parts {
		c.Claims = append(c.Claims, p.claims...)
		if next := p.next(); next > 0 && (c.Next == 0 || next < c.Next) {
			c.Next = next
		}
	}
	return c
}

// shares says how many of n keys each partition is to give: those that are due for
// the longest time.
func shares(parts []claimPart, n int) []int {
	type key struct {
		since int64
		part  int
	}
	var due []key
	for i, p := range parts {
		for _, since := range p.due {
			due = append(due, key{since, i})
		}
	}
	slices.SortStableFunc(due, func(a, b key) int { return cmp.Compare(a.since, b.since) })
	counts := make([]int, len(parts))
	for _, k := range due[:min(n, len(due))] {
		counts[k.part]++
	}
	return counts
}

// runClaims returns the answers of the calls. A call without an answer among
// others that have one is an error: what it claimed comes back when its lease
// ends, or when the ask is sent again.
func (s *Store) runClaims(ctx context.Context, calls []redispart.Call) ([]claimPart, error) {
	if err := s.parts.Run(ctx, claimScript, calls); err != nil {
		return nil, err
	}
	parts := make([]claimPart, len(calls))
	for i := range calls {
		if calls[i].Err != nil {
			return nil, calls[i].Err
		}
		var err error
		if parts[i], err = readClaims(calls[i].Reply); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func readClaims(reply []string) (p claimPart, err error) {
	r := &reader{values: reply}
	now := r.int()
	p.later = r.int()
	for n := r.int(); n > 0 && !r.bad; n-- {
		c, ok := readClaim(r, now)
		if !ok {
			return p, errReply
		}
		p.claims = append(p.claims, c)
	}
	for len(r.values) > 0 && !r.bad {
		p.due = append(p.due, r.int())
	}
	if r.bad {
		return p, errReply
	}
	return p, nil
}

func readClaim(r *reader, now int64) (c order.Claim, ok bool) {
	w := words(r.text(), 8)
	c.Token, c.Left, c.Epoch = w.uint(), time.Duration(w.int())*time.Microsecond, w.uint()
	cursor, attempts, run, late := w.uint(), int(w.int()), int(w.int()), int(w.int())
	c.More = w.flag()
	c.Key = r.text()
	lastError, gap := r.text(), r.text()
	if w.bad || r.bad || run < 0 || late < 0 || len(r.values) < 2*run+4*late {
		return c, false
	}
	if gap != "" {
		c.Gap = &order.Gap{Key: c.Key, Epoch: c.Epoch, From: cursor}
		if !readOpen(c.Gap, now, gap) {
			return c, false
		}
	}
	if run > 0 {
		c.Run = make([]order.Message, run)
	}
	for i := range c.Run {
		m := &c.Run[i]
		m.Key, m.Position, m.Attempt = c.Key, order.Position{Epoch: c.Epoch, Number: cursor + uint64(i)}, 1
		if i == 0 {
			m.Attempt, m.Error = attempts, lastError
		}
		if !readMessage(m, now, r.text(), r.text()) {
			return c, false
		}
	}
	for range late {
		m := order.Message{Key: c.Key}
		var ok bool
		if m.Position, ok = readPlace(r.text()); !ok || !readMessage(&m, now, r.text(), r.text()) || !readAttempts(&m, r.text()) {
			return c, false
		}
		c.Late = append(c.Late, m)
	}
	return c, true
}
