package dlq

import (
	"context"
	"time"
)

// driveJobs drives the redrive jobs of a stream while Run works it. A round that fails
// is tried again at the next.
func (q *Queue) driveJobs(ctx context.Context, o *RunOptions, nudge <-chan struct{}) {
	d := &driver{queue: q, opts: o, seen: map[string]*seen{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-nudge:
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

// keepPins renews the pins of a stream while Run works it: jobs do not wait for a slow
// Pin.
func (q *Queue) keepPins(ctx context.Context, stream string) {
	for ctx.Err() == nil {
		next := q.opts.PinEvery
		if !q.pinAll(ctx, stream) {
			next = min(next, pinAgain)
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// pinAgain is how long a round waits that did not see all letters.
const pinAgain = 10 * time.Second

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
		q.warn(ctx, "a letter could not be pinned; trying again at the next round", "stream", stream, "id", short(id), "cause", kindOf(err))
		return
	}
	q.counts.pinned.Add(1)
}

// unpin says that a letter has ended. If there is another of its ID by now, or there
// was all the time, that one's pin is made again.
func (q *Queue) unpin(ctx context.Context, stream, id string) {
	if q.opts.Unpin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.opts.StoreTimeout) // also when a client has gone
	defer cancel()
	if err := guarded(func() error { return q.opts.Unpin(ctx, stream, id) }); err != nil {
		q.counts.pinsFailed.Add(1)
		q.warn(ctx, "a letter that has ended could not be unpinned", "stream", stream, "id", short(id), "cause", kindOf(err))
	}
	if q.opts.Pin != nil && q.mayBeUnresolved(ctx, stream, id) {
		q.pin(ctx, stream, id)
	}
}

// mayBeUnresolved says whether an ID has an unresolved letter, also when the store does
// not answer.
func (q *Queue) mayBeUnresolved(ctx context.Context, stream, id string) bool {
	for query := (Query{Stream: stream, ID: id, N: maxPage, Heads: true}); ; {
		p, err := q.store.List(ctx, query)
		if err != nil {
			return true
		}
		for i := range p.Records {
			if p.Records[i].State.Unresolved() {
				return true
			}
		}
		if query.After = p.Next; p.Next == 0 {
			return false
		}
	}
}
