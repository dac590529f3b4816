package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Hooks are functions that a guard calls at the events they name, on the
// goroutine at which it happens and outside of its locks; they must not block.
// Each may be nil. Claims hold IDs and results, which are personal data: see what
// you log. Fields may be added.
type Hooks struct {
	// Claimed is called for every answer to a claim. For Done and InFlight,
	// Claim.Age says how late the duplicate came; compare it with the retention.
	Claimed func(ctx context.Context, c Claim)

	// Settled is called for every settlement that was sent, with what became of
	// it: nil, ErrStale, or another error when its fate is not known. Renewals by
	// Do are not reported.
	Settled func(ctx context.Context, s Settlement, err error)

	// LeaseLost is called when a running effect was cancelled because its lease was
	// lost. It runs on a goroutine of the guard's, where a panic ends the process.
	LeaseLost func(ctx context.Context, c Claim, cause error)
}

// Stats are what a guard and its views have counted since New. The counters are
// totals: Held counts settlements, and [Guard.HeldStats] the IDs that are held
// now.
type Stats struct {
	// Claims by answer.
	Acquired, InFlight, Done, Conflict, Unknown uint64
	// Reruns are those of Acquired that were not the first attempt.
	Reruns uint64
	// Settlements that were applied, by kind. Extended includes renewals by Do.
	// Forgotten and Retained include IDs of which there was no record.
	Completed, Released, Held, Extended, Forgotten, Retained uint64
	// Stale counts settlements that came too late, LeasesLost effects that were
	// cancelled, Errors steps that the store gave no answer to.
	Stale, LeasesLost, Errors uint64
	// Running is the number of effects under way in Do, outside of transactions.
	Running int
	// Waiting is the number of single claims that wait for a call of the store,
	// those included whose callers have given up. At 100,000 more are refused.
	Waiting int
	// OldestDuplicate is the greatest age of a completed message at the arrival of
	// a duplicate, since New. When it comes near Retention, a later duplicate would
	// run again.
	OldestDuplicate, Retention time.Duration
}

// Stats returns a snapshot.
func (g *Guard) Stats() Stats {
	n := &g.counts
	return Stats{
		Acquired: n.claims[Acquired].Load(), InFlight: n.claims[InFlight].Load(), Done: n.claims[Done].Load(),
		Conflict: n.claims[Conflict].Load(), Unknown: n.claims[Unknown].Load(), Reruns: n.reruns.Load(),
		Completed: n.settled[KindComplete].Load(), Released: n.settled[KindRelease].Load(), Held: n.settled[KindHold].Load(),
		Extended: n.settled[KindExtend].Load() + n.extended.Load(), Forgotten: n.settled[KindForget].Load(),
		Retained: n.settled[KindRetain].Load(),
		Stale:    n.stale.Load(), LeasesLost: n.leasesLost.Load(), Errors: n.errors.Load(), Running: g.leases.Len(),
		Waiting:         g.claims.Len() + g.firsts.Len(),
		OldestDuplicate: time.Duration(n.oldest.Load()), Retention: g.opts.Retention,
	}
}

type counts struct {
	claims            [Unknown + 1]counter
	settled           [KindRetain + 1]counter
	reruns, extended  atomic.Uint64
	stale, leasesLost atomic.Uint64
	errors            atomic.Uint64
	oldest            atomic.Int64
}

// A counter spreads its additions, so that processors do not wait for each
// other's cache lines.
type counter [8]struct {
	n atomic.Uint64
	_ [56]byte
}

func (c *counter) Add(n uint64) { c[rand.Uint32()%uint32(len(c))].n.Add(n) }

func (c *counter) Load() (sum uint64) {
	for i := range c {
		sum += c[i].n.Load()
	}
	return sum
}

// counted counts an answer and calls the hook.
func (g *Guard) counted(ctx context.Context, c Claim) {
	g.counts.claims[min(c.State, Unknown)].Add(1)
	if c.State == Acquired && c.Attempt > 1 {
		g.counts.reruns.Add(1)
	}
	if c.State == Done {
		for old := g.counts.oldest.Load(); int64(c.Age) > old; old = g.counts.oldest.Load() {
			if g.counts.oldest.CompareAndSwap(old, int64(c.Age)) {
				break
			}
		}
	}
	if h := g.opts.Hooks; h != nil && h.Claimed != nil {
		h.Claimed(ctx, c)
	}
}

// settled counts the fate of a settlement and calls the hook.
func (g *Guard) settled(ctx context.Context, s Settlement, err error) {
	switch {
	case err == nil:
		g.counts.settled[s.Kind].Add(1)
	case errors.Is(err, ErrStale):
		g.counts.stale.Add(1)
	}
	if h := g.opts.Hooks; h != nil && h.Settled != nil {
		h.Settled(ctx, s, err)
	}
}

// failed counts a step that the store gave no answer to.
func (g *Guard) failed(err error) {
	if errors.Is(err, ErrUnavailable) {
		g.counts.errors.Add(1)
	}
}

func (g *Guard) renewed(*run) { g.counts.extended.Add(1) }

func (g *Guard) leaseLost(r *run, cause error) {
	g.counts.leasesLost.Add(1)
	g.warn(r, "a running effect lost its lease and is cancelled", r.claim.ID, cause)
	if h := g.opts.Hooks; h != nil && h.LeaseLost != nil {
		h.LeaseLost(r, r.claim, cause)
	}
}
