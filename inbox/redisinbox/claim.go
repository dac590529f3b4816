package redisinbox

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed claim.lua
var claimText string

var claimScript = script(claimText)

// Claim implements [inbox.Store]. On a server that is alone it is one call; the
// package comment says what it is elsewhere.
func (s *Store) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	claimed, err := s.claim(ctx, a)
	if err != nil {
		return inbox.Claimed{}, failed(ctx, "claim", err)
	}
	return claimed, nil
}

func (s *Store) claim(ctx context.Context, a inbox.Ask) (c inbox.Claimed, err error) {
	if err := ctx.Err(); err != nil {
		return c, err
	}
	if s.parts.OneServer(ctx) {
		call := claimCall(a, a.Keys, false)
		for _, keys := range s.keys {
			call.Keys = append(call.Keys, keys...)
		}
		looks, err := s.runClaims(ctx, []redispart.Call{call}, []int{0})
		if err != nil {
			return c, err
		}
		return gather(looks, a.Keys), nil
	}
	calls := make([]redispart.Call, len(s.keys))
	for i := range calls {
		calls[i] = claimCall(a, a.Keys, true)
		calls[i].Keys = s.keys[i]
	}
	looks, err := s.runClaims(ctx, calls, upTo(len(calls)))
	if err != nil {
		return c, err
	}
	if c = gather(looks, a.Keys); len(c.Claims) > 0 { // the ask was sent before
		c.Next = 0
		return c, nil
	}
	calls = calls[:0]
	var parts []int
	for part, n := range shares(looks, a.Keys) {
		if n > 0 {
			call := claimCall(a, n, false)
			call.Keys = s.keys[part]
			calls, parts = append(calls, call), append(parts, part)
		}
	}
	if len(calls) == 0 {
		return c, nil
	}
	taken, err := s.runClaims(ctx, calls, parts)
	if err != nil {
		return c, err
	}
	for i, part := range parts {
		looks[part] = taken[i]
	}
	return gather(looks, a.Keys), nil
}

func claimCall(a inbox.Ask, keys int, peek bool) redispart.Call {
	return redispart.Call{Args: []any{hexadecimal(a.Nonce), a.Stream, micros(a.Lease), decimal(int64(a.Events)), decimal(int64(a.Bytes)),
		decimal(int64(keys)), string(flag(peek))}}
}

// A look is the answer of one partition, or of all of them.
type look struct {
	claims []inbox.Claim
	later  int64    // microseconds until the next key is due; zero: none is
	due    []string // since when keys are due, and their first records, if nothing was taken
}

// gather joins the answers to an ask for this many keys.
func gather(looks []look, keys int) (c inbox.Claimed) {
	var later int64
	for _, l := range looks {
		c.Claims = append(c.Claims, l.claims...)
		if l.later > 0 && (later == 0 || l.later < later) {
			later = l.later
		}
	}
	if len(c.Claims) < keys {
		c.Next = span(later)
	}
	return c
}

// shares says how many of n keys each partition is to give: those that are due for
// the longest time.
func shares(looks []look, n int) []int {
	type key struct {
		since string
		part  int
	}
	var due []key
	for part, l := range looks {
		for _, since := range l.due {
			due = append(due, key{since, part})
		}
	}
	slices.SortStableFunc(due, func(a, b key) int { return cmp.Compare(a.since, b.since) })
	counts := make([]int, len(looks))
	for _, k := range due[:min(n, len(due))] {
		counts[k.part]++
	}
	return counts
}

// runClaims returns the answers of calls whose keys begin with these partitions. A
// call without an answer among others that have one is an error: what it claimed
// comes back when its lease ends, or when the ask is sent again.
func (s *Store) runClaims(ctx context.Context, calls []redispart.Call, first []int) ([]look, error) {
	if err := s.parts.Run(ctx, claimScript, calls); err != nil {
		return nil, err
	}
	looks := make([]look, len(calls))
	for i := range calls {
		if calls[i].Err != nil {
			return nil, calls[i].Err
		}
		var err error
		if looks[i], err = s.readClaims(calls[i], first[i]); err != nil {
			return nil, err
		}
	}
	return looks, nil
}

func (s *Store) readClaims(call redispart.Call, first int) (l look, err error) {
	r := &reader{values: call.Reply}
	now := r.int()
	l.later = r.int()
	stream := call.Args[1].(string)
	for n := r.int(); n > 0 && !r.bad; n-- {
		w := words(r.text(), 5)
		part := first + int(w.int()) - 1
		token, err := strconv.ParseUint(w.text(), 10, 64)
		c := inbox.Claim{Stream: stream, Token: token, Left: span(w.int()), More: w.int() == 1}
		records := int(w.int())
		c.Key = r.text()
		if w.bad || r.bad || err != nil || part < 0 || part >= len(s.keys) || records < 0 || len(r.values) < rowsOf*records {
			return l, errReply
		}
		if c.Records, err = s.readRecords(part, now, r.values[:rowsOf*records]); err != nil {
			return l, err
		}
		r.values = r.values[rowsOf*records:]
		l.claims = append(l.claims, c)
	}
	for len(r.values) > 0 && !r.bad {
		l.due = append(l.due, r.text())
	}
	if r.bad {
		return l, errReply
	}
	return l, nil
}

// readRecords reads the records of a partition from the values of a reply.
func (s *Store) readRecords(part int, now int64, values []string) ([]inbox.Record, error) {
	if len(values)%rowsOf != 0 {
		return nil, errReply
	}
	records := make([]inbox.Record, len(values)/rowsOf)
	for i := range records {
		var err error
		if records[i], err = readRecord(part, now, values[rowsOf*i:rowsOf*(i+1)]); err != nil {
			return nil, err
		}
		s.saw(records[i].Seq >> partBits)
	}
	return records, nil
}
