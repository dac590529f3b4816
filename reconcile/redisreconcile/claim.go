package redisreconcile

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/reconcile"
)

//go:embed claim.lua
var claimText string

var claimScript = script(ledgerText, claimText)

// Claim implements [reconcile.Store]. On a server that is alone it is one call; the package
// comment says what it is elsewhere. It takes at most 512 operations, and stops behind the
// one that brings them to 8 MiB; when more were asked for, the rest can be claimed at once.
func (s *Store) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, failed(ctx, "claim", err)
	}
	c := claims{store: s, kind: p.Kind, nonce: hexadecimal(a.Nonce), lease: span(p.Lease)}
	l, err := c.take(ctx, min(a.N, maxBatch))
	if err != nil {
		return nil, 0, failed(ctx, "claim", err)
	}
	slices.SortFunc(l.entries, func(a, b reconcile.Entry) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Key, b.Key)) })
	next := micros(l.later)
	switch n := len(l.entries); {
	case n >= a.N:
		next = 0
	case n == maxBatch:
		next = time.Microsecond
	}
	return l.entries, next, nil
}

// claims are the calls of one claim.
type claims struct {
	store              *Store
	kind, nonce, lease string
}

// A look is the answer of one partition, or of all of them.
type look struct {
	entries []reconcile.Entry
	later   int64    // microseconds until the next operation can be taken; zero: not known
	due     []string // since when operations are due, with their keys, if nothing was taken
}

// take takes n operations. Where no script can touch all partitions, it asks all of them
// what is due, and then takes from those whose operations come first.
func (c *claims) take(ctx context.Context, n int) (l look, err error) {
	if c.store.parts.OneServer(ctx) {
		var keys []string
		for _, some := range c.store.ledger {
			keys = append(keys, some...)
		}
		looks, err := c.run(ctx, []redispart.Call{c.call(keys, n, maxBytes, false)})
		return gather(looks), err
	}
	calls := make([]redispart.Call, len(c.store.ledger))
	for i, keys := range c.store.ledger {
		calls[i] = c.call(keys, n, maxBytes, true)
	}
	looks, err := c.run(ctx, calls)
	if err != nil {
		return l, err
	}
	if l = gather(looks); len(l.entries) > 0 { // the ask was sent before
		l.later = 0
		return l, nil
	}
	calls = calls[:0]
	counts, asked := shares(looks, n)
	for part, n := range counts {
		if n > 0 {
			calls = append(calls, c.call(c.store.ledger[part], n, maxBytes/len(asked), false))
		}
	}
	if len(calls) == 0 {
		return l, nil
	}
	taken, err := c.run(ctx, calls)
	if err != nil {
		return l, err
	}
	for i, part := range asked {
		looks[part] = taken[i]
	}
	return gather(looks), nil
}

func (c *claims) call(keys []string, n, bytes int, peek bool) redispart.Call {
	return redispart.Call{Keys: keys, Args: []any{c.kind, c.nonce, c.lease, decimal(int64(n)), decimal(int64(bytes)), flag(peek)}}
}

// run returns the answers to calls. A call without an answer among others that have one is
// an error: what it took comes back when its lease ends, or when the ask is sent again.
func (c *claims) run(ctx context.Context, calls []redispart.Call) ([]look, error) {
	replies, err := c.store.all(ctx, claimScript, calls)
	if err != nil {
		return nil, err
	}
	looks := make([]look, len(replies))
	for i, r := range replies {
		now := r.int()
		looks[i].later = r.int()
		for n := r.int(); n > 0 && !r.bad; n-- {
			e, found, err := r.entry(c.kind, r.text(), now)
			if err != nil {
				return nil, err
			}
			r.bad = r.bad || !found
			looks[i].entries = append(looks[i].entries, e)
		}
		for r.more() {
			looks[i].due = append(looks[i].due, r.text())
		}
		if r.bad {
			return nil, errReply
		}
	}
	return looks, nil
}

func gather(looks []look) (all look) {
	for _, l := range looks {
		all.entries = append(all.entries, l.entries...)
		if l.later > 0 && (all.later == 0 || l.later < all.later) {
			all.later = l.later
		}
	}
	return all
}

// shares says how many of n operations each partition is to give, those that are due for
// the longest time, and which partitions are to give any.
func shares(looks []look, n int) (counts, asked []int) {
	type operation struct {
		since string
		part  int
	}
	var due []operation
	for part, l := range looks {
		for _, since := range l.due {
			due = append(due, operation{since, part})
		}
	}
	slices.SortFunc(due, func(a, b operation) int { return cmp.Compare(a.since, b.since) })
	counts = make([]int, len(looks))
	for _, o := range due[:min(n, len(due))] {
		counts[o.part]++
	}
	for part, n := range counts {
		if n > 0 {
			asked = append(asked, part)
		}
	}
	return counts, asked
}
