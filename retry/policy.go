package retry

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// A Policy says how often, how long and at what intervals to try. Make one for
// each dependency and operation, so that the trouble of one slows no other. The
// zero Policy and a nil one have the defaults of [Options]. Its methods, and [Do]
// with it, are safe for concurrent use. Do not copy it.
type Policy struct {
	opts   Options
	counts counts
}

// Options set up a [Policy]. The zero value of each field is a working default.
type Options struct {
	// MaxAttempts is how often the function is called, the first time included.
	// Zero means 5; 1 means that nothing is tried again.
	MaxAttempts int

	// MaxElapsed is how long after the first failure the last attempt may begin.
	// The first attempt does not count, so that a slow one leaves time for retries:
	// bound the whole call by a deadline of its context. Zero means one minute.
	MaxElapsed time.Duration

	// AttemptTimeout bounds the context of each attempt. It also ends that context
	// when the attempt returns, so read a response within the function. Zero means
	// that an attempt has the time that the caller's context has.
	AttemptTimeout time.Duration

	// Backoff is the time before a retry of a transient or unknown failure. Zero
	// means exponential from 100 ms, at most 10 s, with full jitter.
	Backoff Backoff

	// Throttled is the time before a retry of a throttled failure. Zero means
	// exponential from 1 s, at most 30 s, with equal jitter.
	Throttled Backoff

	// MaxServerWait is the longest Retry-After that is waited for. A longer one ends
	// the call with StopServerWait; the error holds it. Zero means 30 seconds.
	MaxServerWait time.Duration

	// Budget bounds the retries of all calls that share it. Nil: nothing does.
	Budget *Budget

	// Classify says of what class a failure is, unless the error is marked. Nil
	// means [Classify], which also serves a function of your own for the rest.
	Classify func(error) Class

	// Nested lets calls try again although they are part of another Do's retry.
	// Their attempts multiply. False: they make one attempt (StopNested).
	Nested bool

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// Hooks are functions that a policy calls at the events they name, on the
// goroutine of the call; Do waits for them. Each may be nil. Fields may be added.
type Hooks struct {
	// Retrying is called before the wait for another attempt, when it is certain
	// that only the context can prevent it. Attempt.Wait is the wait.
	Retrying func(ctx context.Context, failed Attempt)

	// Stopped is called for every error that Do returns, ErrInvalid excepted.
	Stopped func(ctx context.Context, err *Error)
}

// New returns a policy. Nil options mean defaults. It fails with [ErrInvalid] on
// an option outside its range. The options are copied; a Budget is shared.
func New(opts *Options) (*Policy, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Policy{opts: o}, nil
}

// Stats are what a policy has counted since New. Calls that succeed at once are
// not counted.
type Stats struct {
	// Retries is the number of attempts after a first one, and Recovered the number
	// of calls that succeeded with one.
	Retries, Recovered uint64
	// Calls that failed, by reason.
	Permanent, Attempts, Elapsed, Deadline, Cancelled, Budget, ServerWait, Nested uint64
}

// Stats returns a snapshot. That of a nil policy is about all calls without one.
func (p *Policy) Stats() Stats {
	n := &p.orDefault().counts
	return Stats{
		Retries: n.retries.Load(), Recovered: n.recovered.Load(),
		Permanent: n.stopped[StopPermanent].Load(), Attempts: n.stopped[StopAttempts].Load(),
		Elapsed: n.stopped[StopElapsed].Load(), Deadline: n.stopped[StopDeadline].Load(),
		Cancelled: n.stopped[StopCancelled].Load(), Budget: n.stopped[StopBudget].Load(),
		ServerWait: n.stopped[StopServerWait].Load(), Nested: n.stopped[StopNested].Load(),
	}
}

type counts struct {
	retries, recovered atomic.Uint64
	stopped            [StopNested + 1]atomic.Uint64
}

var defaults, _ = New(nil)

// orDefault stands in for a policy that New did not make.
func (p *Policy) orDefault() *Policy {
	if p == nil || p.opts.MaxAttempts == 0 {
		return defaults
	}
	return p
}

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Hooks != nil {
		hooks := *c.Hooks
		c.Hooks = &hooks
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.MaxElapsed = cmp.Or(c.MaxElapsed, time.Minute)
	c.MaxServerWait = cmp.Or(c.MaxServerWait, 30*time.Second)
	if c.Backoff.IsZero() {
		c.Backoff = Exponential(100*time.Millisecond, 10*time.Second, FullJitter)
	}
	if c.Throttled.IsZero() {
		c.Throttled = Gradient().WithJitter(EqualJitter)
	}
	if err := c.Backoff.Validate(); err != nil {
		return c, err
	}
	if err := c.Throttled.Validate(); err != nil {
		return c, err
	}
	switch {
	case c.MaxAttempts < 1:
		return c, invalid("%d attempts", c.MaxAttempts)
	case c.MaxElapsed < 0 || c.AttemptTimeout < 0 || c.MaxServerWait < 0:
		return c, invalid("negative elapsed time %v, attempt timeout %v or server wait %v",
			c.MaxElapsed, c.AttemptTimeout, c.MaxServerWait)
	case c.Budget != nil && c.Budget.width == 0:
		return c, invalid("a budget that NewBudget did not make")
	}
	return c, nil
}
