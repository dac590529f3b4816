// Package retry says when to try again and when to stop.
//
// [Do] runs a function until it succeeds or until one of its bounds is reached:
//
//  1. Attempts and time are always bounded, by defaults where the caller says
//     nothing: no more than MaxAttempts, and none begins later than MaxElapsed
//     after the first failure.
//  2. No time is waited in vain. Whether the next attempt could begin before the
//     context's deadline, within MaxElapsed and within the [Budget] is found out
//     before waiting for it; if not, Do returns at once.
//  3. No attempt begins before a server's Retry-After has passed, nor after the
//     context has ended.
//  4. No cause is lost. On every exit the error is an [*Error] that matches, with
//     errors.Is, the last failure of the function itself and, where the context
//     had its part in it, the context's error and cause.
//  5. Layers add and do not multiply: inside the second and later attempts of one
//     Do, another makes one attempt.
//  6. A first attempt that succeeds costs no allocation and reads no clock, if the
//     policy has neither a budget nor an attempt timeout.
//
// What is not guaranteed: that the function's effect happens once. An attempt that
// failed may have had its effect all the same, so retry what is idempotent, or
// guard it by its ID. Do runs the function on its own goroutine and cannot stop
// one that ignores its context: the last attempt may end after MaxElapsed. The
// attempts are lost with the process; for retries that survive it, keep the number
// of failures and compute the times with [Backoff].
//
// Most callers make one [Policy] for each dependency and use Do, or [DoValue] for
// a function with a result:
//
//	policy, err := retry.New(&retry.Options{Budget: budget})
//	...
//	err = retry.Do(ctx, policy, func(ctx context.Context) error {
//		return crm.Update(ctx, contact)
//	})
//
// # What is tried again
//
// Each failure has a [Class]. Transient ones are tried again after Options.Backoff,
// throttled ones after the slower Options.Throttled, unknown ones as transient,
// permanent ones not at all. [Classify] is the rule unless Options.Classify is
// another; [Permanent], [Transient] and [Throttled] mark an error whatever the
// rule, and [After] says how long the server asked to wait.
//
// # Time between retries
//
// A [Backoff] is a pure function from the number of a retry to the time before it.
// It holds no state and reads no clock, so one value serves any number of callers,
// retries within a process and schedules that survive a restart alike.
package retry

import "context"

// Do calls fn until it returns nil, and returns nil then. The error is an
// [*Error], whose Reason says why there was no further attempt; [ErrInvalid] for
// a nil function is the exception.
//
// A nil policy, like the zero Policy, has the defaults of [Options]. fn's context
// is ctx, with the number of the attempt ([AttemptFrom]) from the second on. When
// ctx has ended before the first attempt, fn is not called at all; when fn returns
// nil, Do does, whether ctx has ended or not. A panic of fn goes through.
func Do(ctx context.Context, p *Policy, fn func(context.Context) error) error {
	if fn == nil {
		return invalid("nil function")
	}
	p = p.orDefault()
	if ctx.Err() != nil {
		return p.stop(ctx, ended(ctx), history{}, 0)
	}
	if p.opts.Budget != nil {
		p.opts.Budget.called()
	}
	var err error
	if p.opts.AttemptTimeout > 0 {
		err = p.call(ctx, fn)
	} else {
		err = fn(ctx) // the way of most calls, a tenth quicker
	}
	if err == nil {
		return nil
	}
	return p.again(ctx, fn, err)
}

// DoValue is [Do] for a function with a result. It returns the result of the
// attempt that succeeded, and with an error always the zero value.
func DoValue[T any](ctx context.Context, p *Policy, fn func(context.Context) (T, error)) (T, error) {
	var value, none T
	if fn == nil {
		return none, invalid("nil function")
	}
	err := Do(ctx, p, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return value, nil
}
