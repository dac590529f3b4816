package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A HandlerFunc works a letter. Nil means that the message is processed; any
// error is a failure, see [GiveUp].
type HandlerFunc = func(ctx context.Context, l Letter) error

// Sandbox says how a handler is being run.
type Sandbox struct {
	// Try is Letter.Tries: 1 for the first retry. It is zero in a dry run.
	Try int
	// Rehearsal is set where effects are recorded instead of run: in a dry run, and in
	// [Queue.Run] with RunOptions.Return.
	Rehearsal bool
}

// InSandbox says whether ctx is one that a handler got from this package, and how it
// is being run.
func InSandbox(ctx context.Context) (s Sandbox, ok bool) {
	b, ok := ctx.Value(boxKey{}).(*box)
	if !ok {
		return Sandbox{}, false
	}
	return Sandbox{Try: b.try, Rehearsal: b.rehearsal}, true
}

// Effect runs an effect of a handler, and returns its error. In a rehearsal it does
// not run it: it records the name and returns nil. Outside of a sandbox it runs it, so
// that the normal flow and the retries can share a handler. An effect that is not
// under Effect, and not in the transaction of a sandbox function, happens in a
// rehearsal, too. One that is under Effect is taken to succeed: a rehearsal says that
// the message can be worked up to its effects, not that the remote is well. At most 256
// names are kept, of at most 128 bytes each.
//
// The guard of an effect belongs inside of it. A guard around it would take an effect
// that was only recorded for one that happened, and refuse the real one:
//
//	dlq.Effect(ctx, "charge", func(ctx context.Context) error {
//		return guard.Do(ctx, dedup.Request{ID: l.ID}, charge)
//	})
func Effect(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	b, ok := ctx.Value(boxKey{}).(*box)
	if !ok || !b.rehearsal {
		return fn(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.effects) < maxEffects {
		b.effects = append(b.effects, cut(name, maxTextual))
	}
	return nil
}

const maxEffects = 256

// GiveUp wraps an error with which trying again is of no use, such as that of a
// message whose handler no longer exists: the letter goes to review at once. It may be
// wrapped in others: [Queue.Run] looks at the first 64 errors of a chain.
func GiveUp(err error) error { return &giveUp{err} }

type giveUp struct{ err error }

func (e *giveUp) Error() string { return textOf(e.err) }
func (e *giveUp) Unwrap() error { return e.err }

// givenUp says whether an error is, or wraps, that of GiveUp.
func givenUp(err error) (found bool) {
	walk(err, func(e error) (more bool) {
		_, found = e.(*giveUp)
		return !found
	})
	return found
}

// A Wrap runs a handler within something that is undone afterwards: a transaction
// with a savepoint that is rolled back. It calls run once, with a context made of its own
// from which the handler gets the transaction, and returns an error only if it could
// not do its own part. It is used in rehearsals alone.
type Wrap func(ctx context.Context, run func(ctx context.Context) error) error

// box is the sandbox of one run.
type box struct {
	try       int
	rehearsal bool
	token     uint64
	claim     *Claim // nil in a dry run

	mu      sync.Mutex
	effects []string
}

// recorded are the effects until now: a goroutine of the handler may go on.
func (b *box) recorded() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.effects)
}

type boxKey struct{}

// TokenFrom returns the fencing token under which a letter was handed to a handler by
// [Queue.Run]. Pass it to systems that can compare it with the last one they saw for
// the same ordering key and refuse a smaller one.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	b, ok := ctx.Value(boxKey{}).(*box)
	return tokenOf(b), ok && b.token != 0
}

func tokenOf(b *box) uint64 {
	if b == nil {
		return 0
	}
	return b.token
}

// errDeadline is the cause with which a sandbox ends whose time is up.
var errDeadline = errors.New("dlq: the handler took longer than the sandbox allows")

// play runs a handler in a sandbox, and returns what went wrong. Neither a panic nor
// the end of the handler's goroutine leaves it. It returns when the handler does.
func (c *core) play(ctx context.Context, handle HandlerFunc, l Letter, b *box, timeout time.Duration, wrap Wrap) error {
	if l.Unopened != nil {
		return l.Unopened
	}
	if b.rehearsal { // whatever the handler does with it, what is put back is the letter's
		l.Payload, l.Headers = bytes.Clone(l.Payload), maps.Clone(l.Headers)
	}
	ctx = context.WithValue(ctx, boxKey{}, b)
	ctx = c.extract(ctx, l.Headers)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errDeadline)
	defer cancel()
	if wrap == nil || !b.rehearsal {
		return apart(func() error { return handle(ctx, l) })
	}
	ran, outcome := false, error(nil)
	err := apart(func() error {
		return wrap(ctx, func(ctx context.Context) error {
			ran = true
			if ctx.Value(boxKey{}) != b { // effects would happen
				outcome = errors.New("dlq: the sandbox function handed on a context that is not of the one it got; the handler was not run")
			} else {
				outcome = guarded(func() error { return handle(ctx, l) })
			}
			return outcome
		})
	})
	switch {
	case !ran && err == nil:
		return errors.New("dlq: the sandbox function did not run the handler")
	case outcome != nil:
		return outcome
	case err != nil:
		return fmt.Errorf("dlq: the sandbox function failed: %w", err)
	}
	return nil
}

// apart runs a function on a goroutine of its own, since it may end that.
func apart(fn func() error) error {
	ended := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { ended <- err }()
		err = guarded(fn)
	}()
	return <-ended
}

// guarded makes an error of a panic.
func guarded(fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = recovered(value)
		}
	}()
	return fn()
}

// extract returns the context of a handler with the trace of its letter. It must be of
// ctx, or the handler would not know that it is in a sandbox, nor when to end.
func (c *core) extract(ctx context.Context, headers map[string]string) (traced context.Context) {
	if c.opts.Trace == nil || c.opts.Trace.Extract == nil {
		return ctx
	}
	defer func() {
		if recover() != nil || traced == nil || traced.Value(boxKey{}) != ctx.Value(boxKey{}) {
			c.warn(ctx, "Options.Trace.Extract panicked, or returned a context that is not of the one it got; the letter goes without a trace")
			traced = ctx
		}
	}()
	return c.opts.Trace.Extract(ctx, headers)
}

// DryRunOptions set up [Queue.DryRun]. The zero value of each field is a working
// default.
type DryRunOptions struct {
	// Timeout is the deadline of the handler. Zero means 1 minute.
	Timeout time.Duration
	// Sandbox runs the handler within something that is undone. Nil: effects that are
	// not under [Effect] happen.
	Sandbox Wrap
}

// A Verdict is what a dry run has found.
type Verdict string

// The verdicts.
const (
	WouldPass    Verdict = "would pass"
	SameFailure  Verdict = "same failure"      // its fingerprint is the letter's
	OtherFailure Verdict = "different failure" // it has another
)

// A Rehearsal is the outcome of a dry run.
type Rehearsal struct {
	Verdict Verdict
	Attempt *Attempt // what failed; nil if it would pass
	Effects []string // the names of the effects that would have happened, in order
}

// DryRun runs a handler on a letter as a rehearsal, and says what would become of it.
// Nothing is recorded, and the letter does not change. Get the letter from
// [Queue.Get] or [Review.Reveal]; it may be edited before, and need not be stored. The
// error is [ErrInvalid] or, when ctx has ended, its error.
func (q *Queue) DryRun(ctx context.Context, handle HandlerFunc, l Letter, opts *DryRunOptions) (Rehearsal, error) {
	var o DryRunOptions
	if opts != nil {
		o = *opts
	}
	o.Timeout = or(o.Timeout, time.Minute)
	if handle == nil || o.Timeout < 0 {
		return Rehearsal{}, invalid("a dry run without handler, or with a timeout of %v", o.Timeout)
	}
	if err := ctx.Err(); err != nil {
		return Rehearsal{}, err
	}
	b := &box{rehearsal: true}
	err := q.play(ctx, handle, l, b, o.Timeout, o.Sandbox)
	if ctx.Err() != nil {
		return Rehearsal{}, ctx.Err()
	}
	r := Rehearsal{Verdict: WouldPass, Effects: b.recorded()}
	if err != nil {
		a := q.attempt(err, nil)
		r.Attempt, r.Verdict = &a, OtherFailure
		if a.Fingerprint == l.Fingerprint {
			r.Verdict = SameFailure
		}
	}
	return r, nil
}
