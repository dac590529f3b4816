package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// RunOptions set up [Ledger.Run]. The zero value of each field is a working default.
type RunOptions struct {
	// Concurrency is how many operations are worked at once. Zero means 4.
	Concurrency int
	// Timeout is the deadline of a probe and a call together. Zero means 1 minute.
	Timeout time.Duration
	// Poll is how often the store is asked for what is due. Zero means 1 second.
	Poll time.Duration
	// Grace is how long running calls have to end when ctx has ended. Zero means 10
	// seconds.
	Grace time.Duration
}

// Run works the compensation queue until ctx ends: each operation that is due is
// claimed, looked for with probe, and sent again with call where the rules allow it (see
// the package). They get the operation as it was recorded, with its payload. A nil
// probe means that the remote cannot be asked. Any number of processes may run.
//
// A panic in either counts as no answer. When ctx ends, nothing new is begun; what runs
// has Grace to end, and its context then ends with a cause that wraps [ErrDraining]. Run
// returns nil, [ErrAbandoned] if something has not returned after Grace once more, or at
// once [ErrInvalid].
func (l *Ledger) Run(ctx context.Context, call CallFunc, probe ProbeFunc, opts *RunOptions) error {
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	switch {
	case call == nil:
		return invalid("nil call")
	case l.bound:
		return errBound
	}
	w := &worker{ledger: l, opts: o, call: call, probe: probe}
	loop := work.New(work.Config[*turn]{
		Claim: w.claim, Left: func(t *turn) time.Duration { return t.entry.Left },
		Run: w.run, Extend: l.extend, Lost: ErrStale, OnLost: l.leaseLost, OnError: w.claimFailed, Draining: ErrDraining,
		Concurrency: o.Concurrency, Lease: l.opts.Lease, Poll: o.Poll, Grace: o.Grace, Timeout: l.opts.SettleTimeout,
	})
	if n := loop.Work(ctx); n > 0 {
		return fmt.Errorf("%w: %d of them, %v after their contexts had ended; they are Unknown once their leases have lapsed", ErrAbandoned, n, o.Grace)
	}
	return nil
}

// withDefaults returns a validated copy.
func (o *RunOptions) withDefaults() (RunOptions, error) {
	var c RunOptions
	if o != nil {
		c = *o
	}
	c.Concurrency = cmp.Or(c.Concurrency, 4)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	switch {
	case c.Concurrency < 1 || c.Concurrency > maxPage:
		return c, invalid("concurrency %d, not 1 to %d", c.Concurrency, maxPage)
	case c.Timeout < 0 || c.Poll < minLease || c.Grace < 0:
		return c, invalid("timeout %v, poll %v or grace %v", c.Timeout, c.Poll, c.Grace)
	}
	return c, nil
}

// A worker is one call of Run.
type worker struct {
	ledger     *Ledger
	opts       RunOptions
	call       CallFunc
	probe      ProbeFunc
	unanswered bool // the last claim had no answer, and is sent again as it was
	ask        ClaimAsk
}

// claim takes at most n operations, and one at a time while the remote gives no answer. It
// is called by the loop alone, one call at a time.
func (w *worker) claim(ctx context.Context, n int) ([]*turn, time.Duration, error) {
	l := w.ledger
	wait, one := l.outage.pause()
	if wait > 0 {
		return nil, wait, nil
	}
	if one {
		n = 1
	}
	if !w.unanswered {
		w.ask = ClaimAsk{Nonce: newNonce()}
	}
	w.ask.N = n
	entries, next, err := l.store.Claim(ctx, l.params(), w.ask)
	w.unanswered = err != nil
	if err != nil {
		return nil, 0, err
	}
	if one && len(entries) > 0 {
		l.outage.trying(w.opts.Timeout + time.Second) // which its end comes before
	}
	turns := make([]*turn, len(entries))
	for i, e := range entries {
		e.Err = l.open(&e)
		turns[i] = l.turn(e, w.call, w.probe)
		turns[i].quiet = true
	}
	return turns, next, nil
}

func (w *worker) claimFailed(err error) {
	w.ledger.counts.errors.Add(1)
	if log := w.ledger.opts.Logger; log != nil {
		log.Warn("reconcile: could not look for due operations; trying again", "kind", w.ledger.opts.Kind, "error", err)
	}
}

// run works one operation.
func (w *worker) run(ctx context.Context, t *turn, draining <-chan struct{}, settling func()) (again time.Duration) {
	t.settling = settling
	select {
	case <-draining: // nothing was asked and nothing sent
		w.ledger.settle(ctx, t, Settlement{Verb: VerbDefer, By: "probe"})
		return work.Never
	default:
	}
	if t.entry.Err != nil { // it could not be sent as it was
		w.ledger.settle(ctx, t, Settlement{Verb: VerbAsk, By: "probe", Note: "its payload or result cannot be opened"})
		return work.Never
	}
	limited, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	w.ledger.look(limited, t)
	if t.err != nil || errors.Is(context.Cause(ctx), ErrDraining) {
		return work.Never
	}
	if t.wait > 0 {
		return t.wait
	}
	return work.Never
}
