package seqgen

import (
	"context"
	"sync/atomic"
	"time"
)

// Hooks are functions that a generator calls at the events they name, outside of
// its locks; they must not block. Each may be nil. Keys can be personal data: see
// what you log. Fields may be added.
type Hooks struct {
	// Reserved is called for every reservation that the store granted, outside of
	// transactions, with how long the call took.
	Reserved func(key string, r Range, took time.Duration)

	// Voided is called for what became void by a step of this generator: its own
	// numbers, or those of an owner that it replaced.
	Voided func(key string, r Range, kind VoidKind, reason Reason)

	// Waited is called when a call of Next in mode Block had to wait for a
	// reservation: the first, or one that came too late.
	Waited func(ctx context.Context, key string, d time.Duration)

	// Lost is called when the generator finds that a key was taken over (ErrStale)
	// or that the store has gone back (*RolledBackError).
	Lost func(key string, err error)
}

// Stats are what a generator and its views have counted since New.
type Stats struct {
	// Numbers that were handed out, by mode. Gapless counts those of transactions
	// that were rolled back, too.
	Single, Block, Gapless uint64
	// Reserves counts reservations that the store granted, outside of
	// transactions; Waits the calls in mode Block that waited for one.
	Reserves, Waits uint64
	// Answers of the store that were no numbers: to keys that another process had
	// taken, in another mode, of a store that has gone back, at the end of an epoch.
	Stale, Mode, RolledBack, Exhausted uint64
	// Errors counts reservations and changes that had no answer, of the store or of
	// the witness, each time they were tried.
	Errors uint64
	// Numbers that became void by steps of this generator.
	CertainVoids, OrphanedVoids uint64
	// Returned counts the keys whose rest was returned.
	Returned uint64
	// Unrecorded counts holes that could not be recorded as void.
	Unrecorded uint64
	// Keys is how many keys are in memory, Waiting how many calls wait for the
	// store, Unsettled how many voids wait to be recorded.
	Keys, Waiting, Unsettled int
}

// Stats returns a snapshot.
func (g *Generator) Stats() Stats {
	n := &g.counts
	s := Stats{
		Single: n.single.Load(), Gapless: n.gapless.Load(),
		Reserves: n.reserves.Load(), Waits: n.waits.Load(),
		Stale: n.stale.Load(), Mode: n.mode.Load(), RolledBack: n.rolledBack.Load(), Exhausted: n.exhausted.Load(),
		Errors: n.errors.Load(), CertainVoids: n.certain.Load(), OrphanedVoids: n.orphaned.Load(),
		Returned: n.returned.Load(), Unrecorded: n.unrecorded.Load(),
		Waiting: g.singles.Len() + g.blocks.Len(),
	}
	for _, seq := range g.keys.list() {
		seq.mu.Lock()
		s.Block += seq.next - seq.base
		s.Waiting += seq.waiting
		s.Keys++
		seq.mu.Unlock()
	}
	s.Block += n.block.Load()
	g.later.mu.Lock()
	s.Unsettled = len(g.later.pending) + g.later.sending
	g.later.mu.Unlock()
	return s
}

type counts struct {
	single, block, gapless              atomic.Uint64
	reserves, waits                     atomic.Uint64
	stale, mode, rolledBack, exhausted  atomic.Uint64
	errors, certain, orphaned, returned atomic.Uint64
	unrecorded                          atomic.Uint64
}

func (c *core) reserved(asks []Ask, grants []Grant, took time.Duration) {
	for i := range grants {
		g := &grants[i]
		if g.Err != nil {
			continue
		}
		c.counts.reserves.Add(1)
		if h := c.opts.Hooks; h != nil && h.Reserved != nil {
			h.Reserved(asks[i].Key, Range{g.Epoch, g.Lo, g.Hi}, took)
		}
	}
}

func (c *core) voided(key string, r Range, kind VoidKind, reason Reason) {
	if r.Len() == 0 {
		return
	}
	if kind == Certain {
		c.counts.certain.Add(r.Len())
	} else {
		c.counts.orphaned.Add(r.Len())
	}
	if h := c.opts.Hooks; h != nil && h.Voided != nil {
		h.Voided(key, r, kind, reason)
	}
}

func (c *core) waited(ctx context.Context, key string, d time.Duration) {
	c.counts.waits.Add(1)
	if h := c.opts.Hooks; h != nil && h.Waited != nil {
		h.Waited(ctx, key, d)
	}
}

func (c *core) lost(key string, err error) {
	c.warn("a key was lost", key, err)
	if h := c.opts.Hooks; h != nil && h.Lost != nil {
		h.Lost(key, err)
	}
}
