package dlq

import (
	"context"
	"time"
)

// tend looks after a stream while Run works it: it drives redrive jobs and renews
// pins. A round that fails is tried again at the next.
func (q *Queue) tend(ctx context.Context, o *RunOptions, nudge <-chan struct{}) {
	d := &driver{queue: q, opts: o, seen: map[string]*seen{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var pinned time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-nudge:
		}
		if q.opts.Pin != nil && (pinned.IsZero() || time.Since(pinned) >= q.opts.PinEvery) {
			if q.pinAll(ctx, o.Stream) {
				pinned = time.Now()
			}
		}
		if err := d.round(ctx); err != nil && ctx.Err() == nil {
			q.counts.errors.Add(1)
			q.warn(ctx, "a redrive job could not go on; trying again", "stream", o.Stream, "error", err)
		}
		if len(d.seen) > 0 {
			timer.Reset(o.Poll)
		} else {
			timer.Reset(max(o.Poll, lookForJobs))
		}
	}
}

// lookForJobs is how often a stream without running jobs is looked at.
const lookForJobs = 10 * time.Second

// pinAll pins the unresolved letters of a stream, and says whether it saw them all.
func (q *Queue) pinAll(ctx context.Context, stream string) bool {
	for _, state := range []State{StateWaiting, StateReview} {
		query := Query{Stream: stream, State: state, N: 500, Heads: true}
		for {
			p, err := q.store.List(ctx, query)
			if err != nil {
				if ctx.Err() == nil {
					q.counts.errors.Add(1)
					q.warn(ctx, "letters could not be listed to be pinned; trying again", "stream", stream, "error", err)
				}
				return false
			}
			for _, r := range p.Records {
				if ctx.Err() != nil {
					return false
				}
				q.pin(ctx, stream, r.ID)
			}
			if query.After = p.Next; p.Next == 0 {
				break
			}
		}
	}
	return true
}

// pin makes a guard remember an ID for longer.
func (q *Queue) pin(ctx context.Context, stream, id string) {
	if q.opts.Pin == nil {
		return
	}
	if err := guarded(func() error { return q.opts.Pin(ctx, stream, id) }); err != nil {
		q.counts.pinsFailed.Add(1)
		q.warn(ctx, "a letter could not be pinned; trying again at the next round", "stream", stream, "id", short(id), "error", err)
		return
	}
	q.counts.pinned.Add(1)
}

// unpin says that a letter has ended.
func (q *Queue) unpin(ctx context.Context, stream, id string) {
	if q.opts.Unpin == nil {
		return
	}
	if err := guarded(func() error { return q.opts.Unpin(ctx, stream, id) }); err != nil {
		q.counts.pinsFailed.Add(1)
		q.warn(ctx, "a letter that has ended could not be unpinned", "stream", stream, "id", short(id), "error", err)
	}
}
