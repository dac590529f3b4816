package dlq

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Hooks are functions that a queue calls at the events they name, on the goroutine at
// which it happens and outside of its locks; they must not block, and must not panic.
// Each may be nil. IDs and letters are personal data: see what you log. Fields may be
// added.
type Hooks struct {
	// Put is called for every message that was put or parked, with its answer.
	Put func(ctx context.Context, stream, id string, a Answer)

	// Tried is called when a try was settled, with how (KindResolve, KindRetry,
	// KindReview, or KindRelease if it was interrupted), the time it took, what went wrong
	// in it, and the error if the settlement was not applied.
	Tried func(ctx context.Context, l Letter, k Kind, took time.Duration, failure, err error)

	// LeaseLost is called when a running handler is cancelled because the lease of its
	// key was lost.
	LeaseLost func(c Claim, cause error)

	// Acted is called for what a [Review] was asked to do: with who did it and nil, or
	// the error. It is [ErrUnauthorized], and there is no actor, if it was refused.
	Acted func(ctx context.Context, a Action, actor string, err error)

	// JobChanged is called when a redrive job was paused by its failures, went on to its
	// next stage, or was done.
	JobChanged func(j JobStatus)
}

// Stats are what a queue and its views have counted since New.
type Stats struct {
	// Messages that were put or parked, by answer.
	Added, Duplicates, NotBlocked, Refused uint64
	// Tries by what they led to, as far as they were settled. Interrupted ones were
	// released.
	Resolved, Retried, Reviewed, Interrupted uint64
	// Panics are tries that panicked; they are counted by outcome, too.
	Panics uint64
	// Alerts is how often RunOptions.Alert was called.
	Alerts uint64
	// Actions counts what reviewers did, Unauthorized what they were refused. Redriven
	// counts letters that jobs released, again when a step is repeated: JobStatus.Released
	// is exact.
	Actions, Unauthorized, Redriven uint64
	// Pinned counts calls of Options.Pin that succeeded, PinsFailed those of Pin and
	// Unpin that did not.
	Pinned, PinsFailed uint64
	// Stale counts settlements that came too late, LeasesLost handlers that were
	// cancelled, Errors steps that the store gave no answer to.
	Stale, LeasesLost, Errors uint64
	// Running is the number of letters that this queue is trying.
	Running int
	// LongestTry is the longest time that a try took.
	LongestTry time.Duration
}

// Stats returns a snapshot.
func (q *Queue) Stats() Stats {
	n := &q.counts
	return Stats{
		Added: n.answers[Added].Load(), Duplicates: n.answers[Duplicate].Load(),
		NotBlocked: n.answers[NotBlocked].Load(), Refused: n.answers[Full].Load(),
		Resolved: n.settled[KindResolve].Load(), Retried: n.settled[KindRetry].Load(),
		Reviewed: n.settled[KindReview].Load(), Interrupted: n.settled[KindRelease].Load(),
		Panics: n.panics.Load(), Alerts: n.alerts.Load(),
		Actions: n.actions.Load(), Unauthorized: n.unauthorized.Load(), Redriven: n.redriven.Load(),
		Pinned: n.pinned.Load(), PinsFailed: n.pinsFailed.Load(),
		Stale: n.stale.Load(), LeasesLost: n.leasesLost.Load(), Errors: n.errors.Load(),
		Running: int(n.running.Load()), LongestTry: time.Duration(n.longest.Load()),
	}
}

type tallies struct {
	answers                         [Full + 1]atomic.Uint64
	settled                         [KindExtend + 1]atomic.Uint64
	panics, alerts                  atomic.Uint64
	actions, unauthorized, redriven atomic.Uint64
	pinned, pinsFailed              atomic.Uint64
	stale, leasesLost, errors       atomic.Uint64
	running                         atomic.Int64
	longest                         atomic.Int64
}

// put counts a message that was answered.
func (q *Queue) put(ctx context.Context, p *Put, a Answer) {
	if int(a) < len(q.counts.answers) {
		q.counts.answers[a].Add(1)
	}
	if a == Full {
		q.warn(ctx, "a letter was not stored, since there is no room; it is still its caller's", "stream", p.Stream, "id", short(p.ID))
	}
	if h := q.opts.Hooks; h != nil && h.Put != nil {
		h.Put(ctx, p.Stream, p.ID, a)
	}
}

// tried counts a try and the fate of its settlement.
func (q *Queue) tried(ctx context.Context, l Letter, k Kind, took time.Duration, failure, err error) {
	for old := q.counts.longest.Load(); int64(took) > old && !q.counts.longest.CompareAndSwap(old, int64(took)); {
		old = q.counts.longest.Load()
	}
	if _, ok := failure.(*PanicError); ok {
		q.counts.panics.Add(1)
	}
	args := []any{"stream", l.Stream, "id", short(l.ID), "try", l.Tries}
	switch {
	case err == nil:
		q.counts.settled[k].Add(1)
		if k == KindReview {
			q.warn(ctx, "a letter failed too often, or was given up, and waits for review; its attempts say why", args...)
		}
	case errors.Is(err, ErrStale):
		q.counts.stale.Add(1)
		q.warn(ctx, "a try ended after its lease was lost, or a person changed the letter; it may be worked more than once", args...)
	default:
		q.counts.errors.Add(1)
		q.warn(ctx, "a try ended, but its outcome is not known to be recorded; the letter may be worked more than once", append(args, "error", err)...)
	}
	if h := q.opts.Hooks; h != nil && h.Tried != nil {
		h.Tried(ctx, l, k, took, failure, err)
	}
}

func (q *Queue) leaseLost(c Claim, cause error) {
	q.counts.leasesLost.Add(1)
	q.warn(context.Background(), "the lease of a key was lost and its handler is cancelled", "stream", c.Record.Stream, "lane", short(c.Lane), "error", cause)
	if h := q.opts.Hooks; h != nil && h.LeaseLost != nil {
		h.LeaseLost(c, cause)
	}
}
