package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

func TestDoSucceedsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var announced []retry.Attempt
		p := policy(t, retry.Options{
			Backoff: retry.Gradient(),
			Hooks:   &retry.Hooks{Retrying: func(_ context.Context, a retry.Attempt) { announced = append(announced, a) }},
		})
		calls, start := 0, time.Now()
		if err := retry.Do(t.Context(), p, failing(&calls, err1, err2, nil)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); calls != 3 || took != 3*time.Second {
			t.Errorf("%d calls in %v, want 3 in 1 s + 2 s", calls, took)
		}
		// The first delay is the first one of the backoff, and not twice that.
		want := []retry.Attempt{
			{Number: 1, At: start, Err: err1, Wait: time.Second},
			{Number: 2, At: start.Add(time.Second), Err: err2, Wait: 2 * time.Second},
		}
		if fmt.Sprint(announced) != fmt.Sprint(want) {
			t.Errorf("announced %v, want %v", announced, want)
		}
		if got, want := p.Stats(), (retry.Stats{Retries: 2, Recovered: 1}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

func TestDoValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		got, err := retry.DoValue(t.Context(), nil, func(context.Context) (int, error) {
			if calls++; calls < 3 {
				return -1, err1
			}
			return 42, nil
		})
		if got != 42 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// Nil and the zero Policy have the documented defaults.
func TestDefaults(t *testing.T) {
	for name, p := range map[string]*retry.Policy{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, before := 0, p.Stats().Attempts
				e := stopped(t, retry.Do(t.Context(), p, failing(&calls, err1)))
				if calls != 5 || e.Reason != retry.StopAttempts || p.Stats().Attempts != before+1 {
					t.Errorf("%d calls, %v, stats %+v", calls, e.Reason, p.Stats())
				}
				for n, a := range e.Attempts[:4] {
					if most := 100 * time.Millisecond << n; a.Wait > most {
						t.Errorf("wait %v after attempt %d, at most %v", a.Wait, n+1, most)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // the slower curve, and a minute of retries
		p, err := retry.New(&retry.Options{MaxAttempts: math.MaxInt})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		e := stopped(t, retry.Do(t.Context(), p, func(context.Context) error { return retry.Throttled(err1) }))
		if took := time.Since(start); e.Reason != retry.StopElapsed || took > time.Minute || took < 30*time.Second {
			t.Errorf("%v after %v, want a minute at most", e.Reason, took)
		}
		if w := e.Attempts[0].Wait; w < time.Second/2 || w > time.Second {
			t.Errorf("the first wait of a throttled call is %v, want half a second to one", w)
		}
	})
}

// Throttled failures wait longer than transient ones.
func TestTwoCurves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, retry.Options{
			Backoff: retry.Steps(1, 2, 3), Throttled: retry.Steps(time.Second, 2*time.Second, 3*time.Second),
		})
		calls := 0
		e := stopped(t, retry.Do(t.Context(), p, failing(&calls,
			retry.Throttled(err1), retry.Transient(err1), err1, retry.Throttled(err1), retry.Permanent(err2))))
		for n, want := range []time.Duration{time.Second, 2, 3, 3 * time.Second, 0} {
			if got := e.Attempts[n].Wait; got != want {
				t.Errorf("after attempt %d (%v) waited %v, want %v", n+1, e.Attempts[n].Class, got, want)
			}
		}
	})
}

// The time for retries begins with the first failure: a slow first attempt gets
// its retries (cenkalti/backoff #188).
func TestSlowFirstAttemptGetsItsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, retry.Options{MaxElapsed: 10 * time.Second})
		calls := 0
		err := retry.Do(t.Context(), p, func(context.Context) error {
			if calls++; calls == 1 {
				time.Sleep(time.Hour)
				return err1
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

// An attempt may begin at the end of the time, and not after it. A wait too long
// to be added up is longer than any time (cenkalti/backoff #190).
func TestMaxElapsed(t *testing.T) {
	for _, tt := range []struct {
		elapsed time.Duration
		backoff retry.Backoff
		want    int
	}{
		{2 * time.Second, retry.Constant(time.Second), 3},
		{2*time.Second - 1, retry.Constant(time.Second), 2},
		{time.Hour, retry.Steps(time.Second, forever), 2},
		{time.Hour, retry.Constant(forever), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			e := stopped(t, retry.Do(t.Context(), policy(t, retry.Options{MaxElapsed: tt.elapsed, Backoff: tt.backoff}), failing(&calls, err1)))
			if e.Reason != retry.StopElapsed || calls != tt.want {
				t.Errorf("%v, %v: %v after %d calls, want %d", tt.elapsed, tt.backoff, e.Reason, calls, tt.want)
			}
		})
	}
}

// No attempt begins with a context that has ended, and a success counts even
// then.
func TestEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := retry.Do(ctx, nil, func(context.Context) error { calls++; cancel(); return nil })
		if err != nil || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if e := stopped(t, retry.Do(ctx, nil, func(context.Context) error { calls++; return nil })); calls != 1 || e.Made != 0 {
			t.Errorf("called with a context that has ended: %v", e)
		}
	})
	for range 200 { // a timer that is up does not win over the context
		ctx, cancel := context.WithCancel(t.Context())
		p := policy(t, retry.Options{
			Backoff: retry.Constant(1),
			Hooks:   &retry.Hooks{Retrying: func(context.Context, retry.Attempt) { cancel() }},
		})
		calls := 0
		err := retry.Do(ctx, p, failing(&calls, err1))
		if calls != 1 || !errors.Is(err, err1) || !errors.Is(err, context.Canceled) {
			t.Fatalf("%d calls, %v", calls, err)
		}
	}
}

// A context outlives its successful attempt, so that what fn returned can be read
// (failsafe-go #65).
func TestContextOutlivesTheAttempt(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} { // with a timeout, it ends
		calls := 0
		ctx, err := retry.DoValue(t.Context(), policy(t, retry.Options{Backoff: retry.Constant(0), AttemptTimeout: timeout}),
			func(ctx context.Context) (context.Context, error) {
				if calls++; calls == 1 {
					return nil, err1
				}
				return ctx, nil
			})
		if err != nil || (ctx.Err() != nil) != (timeout > 0) {
			t.Errorf("timeout %v: %v, the context: %v", timeout, err, ctx.Err())
		}
	}
}

// A timeout of one attempt is a failure like any other, and not the end of the
// call.
func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, retry.Options{AttemptTimeout: time.Second, MaxAttempts: 3})
		calls, start := 0, time.Now()
		err := retry.Do(t.Context(), p, func(ctx context.Context) error {
			calls++
			<-ctx.Done()
			return fmt.Errorf("attempt %d: %w", calls, ctx.Err())
		})
		e := stopped(t, err)
		if e.Reason != retry.StopAttempts || calls != 3 || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %d calls in %v, want 3 in 5 s", e.Reason, calls, time.Since(start))
		}
		if e.Attempts[0].Class != retry.ClassTransient || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", e.Attempts[0].Class, err)
		}
	})
}

func TestPanicGoesThrough(t *testing.T) {
	b := budget(t, retry.BudgetOptions{})
	p := policy(t, retry.Options{Budget: b, AttemptTimeout: time.Hour, Backoff: retry.Constant(0)})
	for name, fn := range map[string]func(context.Context) error{
		"first attempt": func(context.Context) error { panic("first") },
		"second attempt": func(ctx context.Context) error {
			if retry.AttemptFrom(ctx) == 1 {
				return err1
			}
			panic("second")
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic is gone", name)
				}
			}()
			_ = retry.Do(t.Context(), p, fn)
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = retry.Do(t.Context(), p, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	if err := retry.Do(t.Context(), p, succeed); err != nil { // nothing is held
		t.Error(err)
	}
	if s := b.Stats(); s.Calls != 4 || s.Spent != 1 {
		t.Errorf("budget %+v", s)
	}
}

// The first and the last attempts are kept; the middle is bounded.
func TestAttemptsAreBounded(t *testing.T) {
	for _, made := range []int{1, 4, 5, retry.MaxKept - 1, retry.MaxKept, retry.MaxKept + 1, 1000} {
		p := policy(t, retry.Options{MaxAttempts: made, Backoff: retry.Constant(0)})
		calls := 0
		e := stopped(t, retry.Do(t.Context(), p, func(context.Context) error {
			calls++
			return fmt.Errorf("e%d", calls)
		}))
		if e.Made != made || len(e.Attempts) != min(made, retry.MaxKept) {
			t.Fatalf("%d made and %d kept of %d", e.Made, len(e.Attempts), made)
		}
		for i, a := range e.Attempts {
			want := i + 1
			if i >= retry.MaxKept/2 {
				want = made - len(e.Attempts) + i + 1
			}
			if a.Number != want || a.Err.Error() != fmt.Sprintf("e%d", want) {
				t.Errorf("of %d, number %d in the list is %d (%v), want %d", made, i, a.Number, a.Err, want)
			}
		}
	}
}

// A place in the list that is used again keeps nothing of the attempt before.
func TestPermanentAfterMany(t *testing.T) {
	p := policy(t, retry.Options{MaxAttempts: 100, Backoff: retry.Constant(1)})
	errs := make([]error, 2*retry.MaxKept+1)
	for i := range errs {
		errs[i] = err1
	}
	errs[len(errs)-1] = retry.Permanent(err2)
	calls := 0
	if e := stopped(t, retry.Do(t.Context(), p, failing(&calls, errs...))); e.Made != len(errs) || e.Next != 0 {
		t.Errorf("%d made, next in %v", e.Made, e.Next)
	}
}

// What a caller gets is the cause, not the wrapper that marked it, on the last
// attempt, too (backoff 5.0.3).
func TestMarksAreTakenOff(t *testing.T) {
	for name, err := range map[string]error{
		"permanent": retry.Permanent(err1), "after": retry.After(err1, time.Hour), "both": retry.After(retry.Transient(retry.Permanent(err1)), 1),
	} {
		e := stopped(t, retry.Do(t.Context(), policy(t, retry.Options{MaxAttempts: 1}), func(context.Context) error { return err }))
		if e.Attempts[0].Err != err1 || e.Unwrap()[0] != err1 {
			t.Errorf("%s: %#v", name, e.Attempts[0].Err)
		}
	}
}

func TestNilFunction(t *testing.T) {
	if err := retry.Do(t.Context(), nil, nil); !errors.Is(err, retry.ErrInvalid) {
		t.Error(err)
	}
	if _, err := retry.DoValue[int](t.Context(), nil, nil); !errors.Is(err, retry.ErrInvalid) {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]retry.Options{
		"negative attempts":        {MaxAttempts: -1},
		"least attempts":           {MaxAttempts: math.MinInt},
		"negative elapsed":         {MaxElapsed: -1},
		"negative attempt timeout": {AttemptTimeout: -1},
		"negative server wait":     {MaxServerWait: math.MinInt64},
		"backoff":                  {Backoff: retry.Constant(-1)},
		"throttled backoff":        {Throttled: retry.Fibonacci(0, 0)},
		"a budget of nothing":      {Budget: new(retry.Budget)},
	} {
		if p, err := retry.New(&o); !errors.Is(err, retry.ErrInvalid) || p != nil {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func TestOptionsAreCopied(t *testing.T) {
	hooked := 0
	o := retry.Options{MaxAttempts: 1, Hooks: &retry.Hooks{Stopped: func(context.Context, *retry.Error) { hooked++ }}}
	p := policy(t, o)
	again, _ := retry.New(&o)
	o.Hooks.Stopped = nil
	if o.Backoff.String() != (retry.Backoff{}).String() || o.MaxElapsed != 0 {
		t.Error("New wrote into the caller's options")
	}
	for _, p := range []*retry.Policy{p, again} {
		calls := 0
		_ = retry.Do(t.Context(), p, failing(&calls, err1))
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	}
	if hooked != 2 {
		t.Errorf("%d hooks called, want those that New was given", hooked)
	}
}
