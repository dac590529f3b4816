package retry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// exit is one way for a call to end without success.
type exit struct {
	name    string
	opts    retry.Options
	ctx     func(*testing.T) context.Context
	fn      func(context.Context) error // nil: fails with err1, err2, err3
	reason  retry.StopReason
	made    int
	took    time.Duration
	next    time.Duration
	is      []error // what errors.Is finds
	isNot   []error
	message string
}

func exits(t *testing.T) []exit {
	background := func(t *testing.T) context.Context { return t.Context() }
	timeout := func(d time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeoutCause(t.Context(), d, errShutdown)
			t.Cleanup(cancel)
			return ctx
		}
	}
	cancelled := func(d time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(d, func() { cancel(errShutdown) })
			synctest.Wait() // for a d of zero
			return ctx
		}
	}
	// hanging fails twice and then waits for its context, as a call of a server
	// that went away does. It returns only the context's error.
	hanging := func() func(context.Context) error {
		n := 0
		return func(ctx context.Context) error {
			if n++; n <= 2 {
				return []error{err1, err2}[n-1]
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return []exit{
		{
			name: "permanent", ctx: background,
			fn:     func(context.Context) error { return retry.Permanent(err1) },
			reason: retry.StopPermanent, made: 1, is: []error{err1},
			message: "retry: the failure is permanent; tried once: e1",
		},
		{
			name: "permanent, on the last attempt", ctx: background, opts: retry.Options{MaxAttempts: 1},
			fn:     func(context.Context) error { return retry.Permanent(err1) },
			reason: retry.StopPermanent, made: 1, is: []error{err1},
			message: "retry: the failure is permanent; tried once: e1",
		},
		{
			name: "attempts", ctx: background, opts: retry.Options{MaxAttempts: 3},
			reason: retry.StopAttempts, made: 3, took: 2 * time.Second, next: time.Second,
			is: []error{err3}, isNot: []error{err1, err2},
			message: "retry: out of attempts; tried 3 times in 2s, not to be tried again for 1s: e3",
		},
		{
			name: "a single attempt", ctx: background, opts: retry.Options{MaxAttempts: 1},
			reason: retry.StopAttempts, made: 1, next: time.Second, is: []error{err1},
			message: "retry: out of attempts; tried once, not to be tried again for 1s: e1",
		},
		{
			name: "elapsed", ctx: background, opts: retry.Options{MaxElapsed: 1500 * time.Millisecond},
			reason: retry.StopElapsed, made: 2, took: time.Second, next: time.Second, is: []error{err2}, isNot: []error{err1},
			message: "retry: out of time for retries; tried 2 times in 1s, not to be tried again for 1s: e2",
		},
		{
			name: "deadline before the next attempt", ctx: timeout(1500 * time.Millisecond),
			reason: retry.StopDeadline, made: 2, took: time.Second, next: time.Second,
			is: []error{err2, context.DeadlineExceeded}, isNot: []error{err1, context.Canceled},
			message: "retry: no time left before the deadline; tried 2 times in 1s, not to be tried again for 1s: " +
				"e2: context deadline exceeded",
		},
		{
			name: "deadline at the next attempt", ctx: timeout(time.Second),
			reason: retry.StopDeadline, made: 1, next: time.Second, is: []error{err1, context.DeadlineExceeded},
			message: "retry: no time left before the deadline; tried once, not to be tried again for 1s: " +
				"e1: context deadline exceeded",
		},
		{
			name: "deadline during an attempt", ctx: timeout(5 * time.Second), fn: hanging(),
			reason: retry.StopDeadline, made: 3, took: 5 * time.Second, next: time.Second,
			is: []error{err2, context.DeadlineExceeded, errShutdown}, isNot: []error{err1, context.Canceled},
			message: "retry: no time left before the deadline; tried 3 times in 5s, not to be tried again for 1s: " +
				"context deadline exceeded: e2: context deadline exceeded: shutdown",
		},
		{
			name: "deadline before the first attempt", ctx: timeout(0),
			reason: retry.StopDeadline, made: 0, is: []error{context.DeadlineExceeded, errShutdown}, isNot: []error{err1},
			message: "retry: no time left before the deadline; not tried at all: context deadline exceeded: shutdown",
		},
		{
			name: "cancelled without a cause",
			ctx: func(t *testing.T) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return ctx
			},
			reason: retry.StopCancelled, made: 0, is: []error{context.Canceled}, isNot: []error{err1},
			message: "retry: cancelled; not tried at all: context canceled",
		},
		{
			name: "cancelled before the first attempt", ctx: cancelled(0),
			reason: retry.StopCancelled, made: 0, is: []error{context.Canceled, errShutdown}, isNot: []error{err1},
			message: "retry: cancelled; not tried at all: context canceled: shutdown",
		},
		{
			name: "cancelled during the wait", ctx: cancelled(1500 * time.Millisecond),
			reason: retry.StopCancelled, made: 2, took: 1500 * time.Millisecond, next: time.Second,
			is: []error{err2, context.Canceled, errShutdown}, isNot: []error{err1, context.DeadlineExceeded},
			message: "retry: cancelled; tried 2 times in 1s, not to be tried again for 1s: e2: context canceled: shutdown",
		},
		{
			name: "cancelled during an attempt", ctx: cancelled(5 * time.Second), fn: hanging(),
			reason: retry.StopCancelled, made: 3, took: 5 * time.Second,
			is: []error{err2, context.Canceled, errShutdown}, isNot: []error{err1},
			message: "retry: cancelled; tried 3 times in 5s: context canceled: e2: context canceled: shutdown",
		},
		{
			name: "cancelled without a wait", ctx: cancelled(time.Second), opts: retry.Options{Backoff: retry.Constant(0)},
			fn:     func(context.Context) error { time.Sleep(time.Second); synctest.Wait(); return err1 },
			reason: retry.StopCancelled, made: 1, took: time.Second, is: []error{err1, context.Canceled, errShutdown},
			message: "retry: cancelled; tried once: e1: context canceled: shutdown",
		},
		{
			name: "budget", ctx: background, opts: retry.Options{Budget: budget(t, retry.BudgetOptions{Share: 0.001, Floor: 0.1})},
			reason: retry.StopBudget, made: 2, took: time.Second, next: time.Second, is: []error{err2}, isNot: []error{err1},
			message: "retry: the retry budget is used up; tried 2 times in 1s, not to be tried again for 1s: e2",
		},
		{
			name: "server wait", ctx: background,
			fn:     func(context.Context) error { return retry.After(err1, 10*365*24*time.Hour) },
			reason: retry.StopServerWait, made: 1, is: []error{err1},
			message: "retry: the server asks for too long a wait; tried once, not to be tried again for 87600h0m0s: e1",
			next:    10 * 365 * 24 * time.Hour, opts: retry.Options{Throttled: retry.Constant(time.Second)},
		},
		{
			name: "nested", ctx: func(t *testing.T) context.Context { return retry.WithAttempt(t.Context(), 2) },
			reason: retry.StopNested, made: 1, next: time.Second, is: []error{err1},
			message: "retry: left to the caller that is retrying; tried once, not to be tried again for 1s: e1",
		},
	}
}

// Every exit keeps the cause and the context's cause, says why it stopped, and
// waits for nothing that it does not use.
func TestExits(t *testing.T) {
	seen := map[retry.StopReason]bool{}
	for i := range exits(t) {
		t.Run(exits(t)[i].name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := exits(t)[i]
				seen[x.reason] = true
				calls := 0
				fn := failing(&calls, err1, err2, err3)
				if x.fn != nil {
					fn = func(ctx context.Context) error { calls++; return x.fn(ctx) }
				}
				var hooked *retry.Error
				retrying := 0
				x.opts.Hooks = &retry.Hooks{
					Retrying: func(context.Context, retry.Attempt) { retrying++ },
					Stopped:  func(_ context.Context, e *retry.Error) { hooked = e },
				}
				p, ctx, start := policy(t, x.opts), x.ctx(t), time.Now()
				err := retry.Do(ctx, p, fn)
				x.check(t, err, calls, time.Since(start))
				if hooked != err {
					t.Errorf("the hook got %v, the caller %v", hooked, err)
				}
				// The one exception: an announced attempt that the context prevented.
				if retrying != max(x.made-1, 0) && !(x.name == "cancelled during the wait" && retrying == x.made) {
					t.Errorf("%d retries announced for %d attempts", retrying, x.made)
				}
				s := p.Stats()
				if sum := s.Permanent + s.Attempts + s.Elapsed + s.Deadline + s.Cancelled + s.Budget + s.ServerWait + s.Nested; sum != 1 || s.Recovered != 0 {
					t.Errorf("stats %+v after one exit", s)
				}
				if want := uint64(max(x.made-1, 0)); s.Retries != want {
					t.Errorf("%d retries counted, want %d", s.Retries, want)
				}
			})
		})
	}
	for r := retry.StopPermanent; r <= retry.StopNested; r++ {
		if !seen[r] {
			t.Errorf("no row for %v", r)
		}
	}
}

// DoValue has the same exits, and no value on any of them.
func TestExitsOfDoValue(t *testing.T) {
	for i := range exits(t) {
		t.Run(exits(t)[i].name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := exits(t)[i]
				calls := 0
				fn := failing(&calls, err1, err2, err3)
				if x.fn != nil {
					fn = func(ctx context.Context) error { calls++; return x.fn(ctx) }
				}
				p, ctx, start := policy(t, x.opts), x.ctx(t), time.Now()
				value, err := retry.DoValue(ctx, p, func(ctx context.Context) (string, error) { return "not to be used", fn(ctx) })
				x.check(t, err, calls, time.Since(start))
				if value != "" {
					t.Errorf("value %q with an error", value)
				}
			})
		})
	}
}

func (x exit) check(t *testing.T, err error, calls int, took time.Duration) {
	t.Helper()
	e := stopped(t, err)
	if e.Reason != x.reason || e.Made != x.made || calls != x.made || len(e.Attempts) != x.made {
		t.Errorf("%v after %d attempts, %d kept, %d calls; want %v after %d", e.Reason, e.Made, len(e.Attempts), calls, x.reason, x.made)
	}
	if took != x.took {
		t.Errorf("took %v, want %v", took, x.took)
	}
	if e.Next != x.next {
		t.Errorf("next in %v, want %v", e.Next, x.next)
	}
	for _, want := range x.is {
		if !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	for _, not := range x.isNot {
		if errors.Is(err, not) {
			t.Errorf("%v matches %v", err, not)
		}
	}
	if err.Error() != x.message {
		t.Errorf("message\n%s\nwant\n%s", err, x.message)
	}
	if x.made > 0 && x.name != "cancelled during the wait" && e.Attempts[x.made-1].Wait != 0 {
		t.Errorf("a wait of %v is kept that was not waited", e.Attempts[x.made-1].Wait)
	}
	for n, a := range e.Attempts {
		if a.Number != n+1 || a.Err == nil || a.At.IsZero() {
			t.Errorf("attempt %d is kept as %+v", n+1, a)
		}
	}
	if strings.Contains(x.reason.String(), "reason ") {
		t.Errorf("%v has no words", x.reason)
	}
}
