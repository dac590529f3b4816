package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/work"
	"github.com/pawl-go/pawl/retry"
)

// WorkOptions set up [Box.Work]. The zero value of each field is a working
// default.
type WorkOptions struct {
	// Stream is what is worked. Empty means DefaultStream.
	Stream string

	// Concurrency is how many keys are worked at once. Zero means 16.
	Concurrency int

	// MaxAttempts is how often an event is tried before it is dead; attempts that
	// were interrupted, by a crash or the end of Work, count as well. Make the attempts
	// last longer than the longest outage of what the handler needs: a dead event
	// waits for a person to replay it. Zero means 30, which with the default backoff
	// takes about two and a half hours.
	MaxAttempts int

	// DeadLetter is called with an event that is given up on, before it is recorded
	// as dead: the last attempt has failed, was interrupted, or its handler returned
	// [Dead]. The record has the failures of all attempts, this one included, as far
	// as MaxFailures goes. When it returns nil, the event is dead. When it
	// fails, panics or has not returned after Lease, the event is not: it is tried
	// again after the backoff, the handler only if it has attempts left, and until
	// then the key waits. So an event is never dead without it, and it can be called
	// more than once for an event, also while an earlier call has not returned: make
	// it safe to repeat. Its context carries the fencing token and ends after Lease,
	// or when the lease is lost. Nil: the record in [StateDead] is all there is.
	DeadLetter func(ctx context.Context, r Record) error

	// Backoff is the time between attempts. Zero means exponential from 1 second,
	// at most 10 minutes, with equal jitter.
	Backoff retry.Backoff

	// Lease is how long a key is held without renewal; it is renewed at every
	// third. Shorter finds dead workers sooner and survives shorter pauses. Zero
	// means 30 seconds; the least is one millisecond.
	Lease time.Duration

	// Batch is how many events of a key are taken at once, before other keys have
	// their turn. Zero means 16; the most is 1,000.
	Batch int

	// Poll is how often the store is asked when nothing wakes the worker: for what
	// other processes accepted. What this box accepts wakes it at once. Zero means
	// 1 second.
	Poll time.Duration

	// Grace is how long running handlers have to end when ctx has ended. Zero means
	// 10 seconds.
	Grace time.Duration
}

// Work hands stored events to handle until ctx ends. The events of a key come one
// at a time and in the order of acceptance; the keys are worked side by side, by
// this call and by others, here and in other processes. When an event fails, its
// key waits for the next attempt, and no other key does.
//
// What handle returns decides what becomes of the event: see [Outcome]. A panic
// is a failure. The attempt is counted before handle runs, so an event that kills
// the process runs out of attempts like any other; it is then dead.
//
// The context of handle carries the fencing token of the key ([TokenFrom]). It
// ends when the lease is lost, with a cause that wraps [ErrStale]: another worker
// may have taken over, and what this one answers is not recorded. A handler may
// run more than once for an event, so guard its effects.
//
// When ctx ends, nothing new is begun. Running handlers have Grace to end; then
// their contexts are cancelled with [ErrDraining]. Keys are released as their
// handlers return, for other workers to take at once. An attempt that fails after
// that was interrupted: it counts as one of MaxAttempts, and there is no [Failure] of
// it and no backoff. Work then returns nil, or [ErrAbandoned] if a handler has not
// returned after Grace once more. [ErrInvalid] is returned at once.
//
// A store that does not answer, or answers that this process may not claim, does not
// end Work: it is counted (Stats.Errors) and logged, and asked again. So without a
// Logger a worker that lacks a right looks idle: watch Stats.Errors.
func (b *Box) Work(ctx context.Context, handle func(context.Context, Record) Outcome, opts *WorkOptions) error {
	if handle == nil {
		return invalid("nil handler")
	}
	if b.bound {
		return invalid("work in a transaction")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	w := &worker{box: b, opts: o, handle: handle}
	loop := work.New(work.Config[Claim]{
		Claim: w.claim, Left: func(c Claim) time.Duration { return c.Left },
		Run: w.run, Extend: w.extend, Lost: ErrStale, OnLost: b.leaseLost, OnError: w.claimFailed, Draining: ErrDraining,
		Concurrency: o.Concurrency, Lease: o.Lease, Poll: o.Poll, Grace: o.Grace, Timeout: b.opts.StoreTimeout,
	})
	b.enlist(loop, true)
	defer b.enlist(loop, false)
	if n := loop.Work(ctx); n > 0 {
		return fmt.Errorf("%w: %d of them, %v after their contexts had ended; their keys stay claimed until the leases lapse",
			ErrAbandoned, n, o.Grace)
	}
	return nil
}

// TokenFrom returns the fencing token under which an event was handed to a
// handler. Pass it to systems that can compare it with the last one they saw for
// the same ordering key and refuse a smaller one.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	if r, is := ctx.Value(runKey{}).(*run); is {
		return r.claim.Token, true
	}
	return 0, false
}

// Complete records the event whose handler ctx was handed to as done, before the
// handler returns. On a box that is bound to a transaction ([Box.With]) the
// completion commits with the effect, which is then not repeated: the handler
// returns Done after the commit, and the error of the transaction if it failed.
//
// The error is [ErrStale] if the lease of the key was lost: roll back.
// [ErrInvalid] means that ctx is no handler's.
func (b *Box) Complete(ctx context.Context) error {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return invalid("the context is not one that Work handed to a handler")
	}
	s := r.settlement(KindDone)
	errs, err := b.send(ctx, []Settlement{s})
	if err == nil && errs != nil {
		err = errs[0]
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStale):
		return fmt.Errorf("complete event %s: %w", short(r.record.ID), err)
	}
	return unavailable(ctx, "complete event "+short(r.record.ID), err)
}

// withDefaults returns a validated copy.
func (o *WorkOptions) withDefaults() (WorkOptions, error) {
	var c WorkOptions
	if o != nil {
		c = *o
	}
	c.Stream = or(c.Stream, DefaultStream)
	c.Concurrency = or(c.Concurrency, 16)
	c.MaxAttempts = or(c.MaxAttempts, 30)
	c.Lease = or(c.Lease, 30*time.Second)
	c.Batch = or(c.Batch, 16)
	c.Poll = or(c.Poll, time.Second)
	c.Grace = or(c.Grace, 10*time.Second)
	if c.Backoff.IsZero() {
		c.Backoff = retry.Exponential(time.Second, 10*time.Minute, retry.EqualJitter)
	}
	if err := c.Backoff.Validate(); err != nil {
		return c, invalid("%w", err)
	}
	switch {
	case !validName(c.Stream):
		return c, invalid("stream of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Stream))
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return c, invalid("concurrency %d, not 1 to %d", c.Concurrency, maxConcurrency)
	case c.MaxAttempts < 1:
		return c, invalid("%d attempts", c.MaxAttempts)
	case c.Batch < 1 || c.Batch > maxPage:
		return c, invalid("batch of %d, not 1 to %d", c.Batch, maxPage)
	case c.Lease < time.Millisecond || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, time.Millisecond, MaxDuration)
	case c.Poll < time.Millisecond || c.Grace < 0:
		return c, invalid("poll %v or grace %v", c.Poll, c.Grace)
	}
	return c, nil
}

const maxConcurrency = 1 << 16
