package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

// TestALostLeaseEndsTheHandler has a store that does not renew a lease in time, so that
// another process takes the letter over: the first handler is told, and what comes of
// its try is not recorded.
func TestALostLeaseEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		var cut atomic.Bool
		opts := exact()
		j := newJournal()
		opts.Hooks = &dlq.Hooks{
			LeaseLost: func(c dlq.Claim, cause error) { j.add("lost %s %t", c.Record.ID, errors.Is(cause, dlq.ErrStale)) },
			Tried: func(_ context.Context, l dlq.Letter, k dlq.Kind, took time.Duration, failure, err error) {
				j.add("tried %s %v %v %t %t", l.ID, k, took, errors.Is(failure, dlq.ErrStale), errors.Is(err, dlq.ErrStale))
			},
		}
		first := newQueue(t, &dlqtest.Faulty{Store: m, Before: func(dlqtest.Step) error {
			if cut.Load() {
				return dlqtest.ErrFault
			}
			return nil
		}}, opts)
		second := newQueue(t, m, exact())
		put(t, first, "k", "a")
		run(t, first, &dlq.RunOptions{Timeout: time.Hour}, func(ctx context.Context, l dlq.Letter) error {
			cut.Store(true)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, dlq.ErrStale) || !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("the context ended with %v, %v", ctx.Err(), cause)
			}
			time.AfterFunc(2*time.Second, func() { cut.Store(false) })
			time.Sleep(time.Second)
			return context.Cause(ctx)
		})
		time.Sleep(5*time.Minute + time.Second)
		var token uint64
		run(t, second, nil, func(ctx context.Context, l dlq.Letter) error {
			token, _ = dlq.TokenFrom(ctx)
			time.Sleep(10 * time.Second)
			return nil
		})
		time.Sleep(time.Minute)
		l := wantState(t, second, "a", dlq.StateResolved)
		if l.Tries != 2 || len(l.Attempts) != 1 || token == 0 {
			t.Errorf("the letter has %d tries and %d attempts, the second token is %d", l.Tries, len(l.Attempts), token)
		}
		if want := "lost a true tried a retry 31s true true"; j.String() != want {
			t.Errorf("the hooks were told %q, want %q", j, want)
		}
		if s := first.Stats(); s.LeasesLost != 1 || s.Stale != 1 || s.Retried != 0 || s.LongestTry != 31*time.Second {
			t.Errorf("the stats are %+v", s)
		}
	})
}

// TestAnAbandonedHandler ignores the end of its context, and Run says so.
func TestAnAbandonedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		put(t, q, "k", "a", "b")
		release := make(chan struct{})
		cause := make(chan error, 1)
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- q.Run(running, func(ctx context.Context, _ dlq.Letter) error {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				<-release
				return nil
			}, &dlq.RunOptions{Stream: stream, Grace: 3 * time.Second, Timeout: time.Hour})
		}()
		time.Sleep(6 * time.Minute)
		start := time.Now()
		cancel()
		err := <-ended
		if took := time.Since(start); !errors.Is(err, dlq.ErrAbandoned) || took != 6*time.Second || !strings.Contains(err.Error(), "1 of them") {
			t.Errorf("Run returned %v after %v", err, took)
		}
		if cause := <-cause; !errors.Is(cause, dlq.ErrDraining) {
			t.Errorf("the context ended with %v", cause)
		}
		if c, err := m.Claim(ctx, dlq.Ask{Nonce: [16]byte{1}, Stream: stream, N: 9, Bytes: 1, Lease: time.Minute}); err != nil || len(c.Claims) != 0 {
			t.Errorf("the key of a handler that still runs was claimed: %+v, %v", c, err)
		}
		close(release)
		synctest.Wait()
		wantState(t, q, "a", dlq.StateResolved) // it did return nil, and its lease had not lapsed
	})
}

// TestWhatAnApplicationAddsMayPanic shows that the functions of the options which the
// doc says are caught are.
func TestWhatAnApplicationAddsMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := exact()
		log, text := logged()
		opts.Logger = log
		opts.Trace = &dlq.Trace{
			Inject:  func(context.Context, map[string]string) { panic("confidential") },
			Extract: func(context.Context, map[string]string) context.Context { panic("confidential") },
		}
		q := newQueue(t, dlq.NewMemory(), opts)
		put(t, q, "", "a", "b")
		var alerts atomic.Int64
		stop := run(t, q, &dlq.RunOptions{
			Alert:  func(context.Context, dlq.Letter, dlq.Attempt) { alerts.Add(1); panic("confidential") },
			Return: func(context.Context, dlq.Letter) error { panic("no way back") },
		}, func(_ context.Context, l dlq.Letter) error { return map[string]error{"a": errDown}[l.ID] })
		time.Sleep(6 * time.Minute)
		stop()
		wantState(t, q, "a", dlq.StateWaiting)
		if l := wantState(t, q, "b", dlq.StateWaiting); len(l.Attempts) != 2 || !strings.Contains(l.Attempts[1].Error, "no way back") {
			t.Errorf("the letter whose Return panics has the attempts %+v", l.Attempts)
		}
		for _, want := range []string{"Inject panicked", "Extract panicked", "Alert panicked"} {
			if !strings.Contains(text(), want) || strings.Contains(text(), "confidential") {
				t.Errorf("the log does not say %q, or says what a panic said: %s", want, text())
			}
		}
		if s := q.Stats(); alerts.Load() != 2 || s.Alerts != 2 || s.Retried != 2 {
			t.Errorf("%d alerts, and the stats are %+v", alerts.Load(), s)
		}
	})
}

// TestATraceThatDoesNotFit has an Inject that adds more than the headers may hold.
func TestATraceThatDoesNotFit(t *testing.T) {
	opts := exact()
	log, text := logged()
	opts.Logger = log
	opts.Trace = &dlq.Trace{Inject: func(_ context.Context, h map[string]string) {
		for i := range 1000 {
			h[fmt.Sprint("baggage ", i)] = "x"
		}
	}}
	q := newQueue(t, dlq.NewMemory(), opts)
	put(t, q, "", "a")
	if l := get(t, q, "a"); len(l.Headers) != 1 || !strings.Contains(text(), "does not fit") {
		t.Errorf("the letter has %d headers, and the log says %s", len(l.Headers), text())
	}
}

// TestAJobOfAnotherProcessIsFound has a worker that nothing wakes.
func TestAJobOfAnotherProcessIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		setup := newQueue(t, m, exact())
		inReview(t, setup, 3)
		run(t, newQueue(t, m, exact()), nil, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute + 100*time.Millisecond)
		r := newReview(t, setup)
		redrive(t, r, dlq.Redrive{ID: "j", Canary: 3})
		time.Sleep(10 * time.Second)
		if j := status(t, r, "j"); j.Released != 3 {
			t.Errorf("ten seconds later the job is %+v", j)
		}
	})
}

// TestWakeLooksAtOnce has a worker that looks once an hour, and a letter that another
// process put.
func TestWakeLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q, other := newQueue(t, m, exact()), newQueue(t, m, exact())
		run(t, q, &dlq.RunOptions{Poll: time.Hour}, func(context.Context, dlq.Letter) error { return nil })
		time.Sleep(time.Minute)
		put(t, other, "k", "a")
		l := get(t, q, "a")
		if err := newReview(t, other).Approve(ctx, l.Ref(), "now"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantState(t, q, "a", dlq.StateWaiting)
		q.Wake()
		synctest.Wait()
		wantState(t, q, "a", dlq.StateResolved)
	})
}
