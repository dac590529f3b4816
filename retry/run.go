package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// again goes on after a first attempt that failed with err.
//
// What it knows of the attempts stays on its stack until the call ends with an
// error: a call that recovers allocates the contexts of its retries and no more.
func (p *Policy) again(ctx context.Context, fn func(context.Context) error, err error) error {
	var room [4]Attempt
	h := history{kept: room[:0]}
	random := rand.Uint64() // one for all waits, as decorrelated jitter wants it
	for {
		h.kept = oneMore(h.kept)
		failed := &h.kept[len(h.kept)-1]
		h.made++
		failed.Number, failed.At = h.made, time.Now()
		if h.made == 1 {
			h.began = failed.At
		}
		p.judge(failed, err)
		if failed.Class != ClassPermanent {
			failed.Wait = p.curve(failed.Class).delayAfter(h.made, random, failed.After)
		}
		reason, spent := p.decide(ctx, failed, h.began)
		if reason != 0 {
			next := failed.Wait
			failed.Wait = 0
			return p.stop(ctx, reason, h, next)
		}
		if hooks := p.opts.Hooks; hooks != nil && hooks.Retrying != nil {
			hooks.Retrying(ctx, *failed)
		}
		if failed.Wait > 0 && !sleep(ctx, failed.Wait) {
			if p.opts.Budget != nil {
				p.opts.Budget.giveBack(failed.Class, spent)
			}
			return p.stop(ctx, ended(ctx), h, failed.Wait)
		}
		if err = p.call(WithAttempt(ctx, h.made+1), fn); err == nil {
			p.counts.retries.Add(uint64(h.made))
			p.counts.recovered.Add(1)
			return nil
		}
	}
}

// call makes one attempt.
func (p *Policy) call(ctx context.Context, fn func(context.Context) error) error {
	if p.opts.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.AttemptTimeout)
		defer cancel()
	}
	return fn(ctx)
}

// judge says of what class a failure is and how long the server asked to wait.
func (p *Policy) judge(failed *Attempt, err error) {
	f := inspect(err)
	if p.opts.Classify != nil && !f.marked {
		f.class = min(p.opts.Classify(err), ClassPermanent)
		f = f.orThrottled()
	}
	failed.Err, failed.Class, failed.After = bare(err), f.class, f.after
}

func (p *Policy) curve(c Class) *Backoff {
	if c == ClassThrottled {
		return &p.opts.Throttled
	}
	return &p.opts.Backoff
}

// decide returns why there is no attempt after the failed one, or zero if there
// is one; spent is then where the budget keeps what it costs. The budget is asked
// last, so that nothing is spent on an attempt that another bound forbids.
func (p *Policy) decide(ctx context.Context, failed *Attempt, began time.Time) (reason StopReason, spent int64) {
	switch {
	case ctx.Err() != nil:
		return ended(ctx), 0
	case failed.Class == ClassPermanent:
		return StopPermanent, 0
	case failed.Number >= p.opts.MaxAttempts:
		return StopAttempts, 0
	case failed.Number == 1 && !p.opts.Nested && AttemptFrom(ctx) > 1:
		return StopNested, 0
	case failed.After > p.opts.MaxServerWait:
		return StopServerWait, 0
	case add(failed.At.Sub(began), failed.Wait) > p.opts.MaxElapsed:
		return StopElapsed, 0
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(failed.At) <= failed.Wait {
		return StopDeadline, 0
	}
	if p.opts.Budget != nil {
		spent, ok := p.opts.Budget.spend(failed.Class)
		if !ok {
			return StopBudget, 0
		}
		return 0, spent
	}
	return 0, 0
}

// ended says how a context that has ended did so.
func ended(ctx context.Context) StopReason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return StopDeadline
	}
	return StopCancelled
}

// sleep waits for d and reports whether ctx is still going on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// history is what a call knows of its attempts.
type history struct {
	kept  []Attempt
	made  int
	began time.Time // when the first attempt failed
}

// oneMore makes room for another attempt at the end. When there are too many, it
// drops one from the middle, so that the first and the last stay.
func oneMore(kept []Attempt) []Attempt {
	if len(kept) < MaxKept {
		return append(kept, Attempt{})
	}
	copy(kept[MaxKept/2:], kept[MaxKept/2+1:])
	kept[MaxKept-1] = Attempt{}
	return kept
}

// stop makes the error of a call.
func (p *Policy) stop(ctx context.Context, reason StopReason, h history, next time.Duration) error {
	e := &Error{Reason: reason, Made: h.made, Next: next, Attempts: make([]Attempt, len(h.kept))}
	copy(e.Attempts, h.kept) // h.kept is on the stack of again
	if h.made > 0 {
		e.Elapsed = e.Attempts[len(e.Attempts)-1].At.Sub(h.began)
	}
	if e.ctxErr = ctx.Err(); e.ctxErr != nil {
		e.ctxCause = context.Cause(ctx)
	} else if reason == StopDeadline {
		e.ctxErr = context.DeadlineExceeded // known before it happens
	}
	p.counts.retries.Add(uint64(max(h.made-1, 0)))
	p.counts.stopped[reason].Add(1)
	if hooks := p.opts.Hooks; hooks != nil && hooks.Stopped != nil {
		hooks.Stopped(ctx, e)
	}
	return e
}
