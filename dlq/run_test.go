package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/retry"
)

// exact has no spread, so that times are those of the schedule.
func exact() *dlq.Options { return &dlq.Options{Spread: -1} }

func TestScheduleIsFiveTenFifteenTwentyFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		j := newJournal()
		put(t, q, "", "a")
		stop := run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			j.timed(fmt.Sprint("try", l.Tries))
			return errDown
		})
		time.Sleep(24 * time.Hour)
		// 5, then 10, 15 and 25 minutes after each other; then a person has to look.
		if want := "try1@5m0s try2@15m0s try3@30m0s try4@55m0s"; j.String() != want {
			t.Errorf("the tries were %s, want %s", j, want)
		}
		l := wantState(t, q, "a", dlq.StateReview)
		if l.Tries != 4 || len(l.Attempts) != 5 {
			t.Errorf("after four failed retries the letter has %d tries and %d attempts", l.Tries, len(l.Attempts))
		}
		stop()
		if s := q.Stats(); s.Retried != 3 || s.Reviewed != 1 {
			t.Errorf("the stats are %+v", s)
		}
	})
}

// TestReviewBeginsWhenFailuresExceedTheMost shows the boundary: three failed retries are not too many, four are.
func TestReviewBeginsWhenFailuresExceedTheMost(t *testing.T) {
	for _, tc := range []struct{ maxFailures, option, tries int }{{3, 0, 4}, {1, 1, 2}, {0, -1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			opts := exact()
			opts.MaxFailures = tc.option
			q := newQueue(t, dlq.NewMemory(), opts)
			put(t, q, "", "a", "b")
			run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
				if l.ID == "b" && l.Tries == tc.tries {
					return nil // the last try that it has
				}
				return errDown
			})
			time.Sleep(time.Second) // the letters are looked at between tries
			for range 120 {
				time.Sleep(time.Minute)
				if l := get(t, q, "a"); l.State == dlq.StateWaiting && l.Tries > tc.maxFailures || l.State == dlq.StateReview && l.Tries <= tc.maxFailures {
					t.Fatalf("with at most %d failures a letter is %v after %d", tc.maxFailures, l.State, l.Tries)
				}
			}
			if l := wantState(t, q, "a", dlq.StateReview); l.Tries != tc.maxFailures+1 {
				t.Errorf("with at most %d failures a letter goes to review after %d", tc.maxFailures, l.Tries)
			}
			wantState(t, q, "b", dlq.StateResolved)
		})
	}
}

func TestSpreadIsOfTheIDAndNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := func() (d []time.Duration) {
			q := newQueue(t, dlq.NewMemory(), &dlq.Options{Backoff: retry.Constant(time.Hour)})
			for i := range 50 {
				put(t, q, "", fmt.Sprint("l", i))
				l := get(t, q, fmt.Sprint("l", i))
				d = append(d, l.Next.Sub(l.Put))
			}
			return d
		}
		first, second := delays(), delays()
		if !slices.Equal(first, second) {
			t.Error("the delay of a letter is not the same in two queues")
		}
		if shortest, longest := slices.Min(first), slices.Max(first); shortest < time.Hour || longest > 66*time.Minute || longest-shortest < 4*time.Minute {
			t.Errorf("delays of an hour are spread from %v to %v", shortest, longest)
		}
	})
}

func TestLettersOfAKeyParkBehindTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		j := newJournal()
		put(t, q, "k", "a")
		for _, id := range []string{"b", "c"} {
			if a, err := q.Park(ctx, message(id, "k"), message("free of "+id, "other"), message("alone "+id, "")); err != nil ||
				fmt.Sprint(a) != "[added not blocked not blocked]" {
				t.Fatalf("Park answered %v, %v", a, err)
			}
		}
		healed := atomic.Bool{}
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			j.timed(l.ID)
			if l.ID == "a" && !healed.Load() {
				return errDown
			}
			return nil
		})
		time.Sleep(3 * time.Hour)
		if want := "a@5m0s a@15m0s a@30m0s a@55m0s"; j.String() != want {
			t.Fatalf("while the first fails, these were tried: %s", j)
		}
		l := wantState(t, q, "a", dlq.StateReview)
		healed.Store(true)
		if err := r.Approve(ctx, l.Ref(), "the remote is back"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if want := "a@5m0s a@15m0s a@30m0s a@55m0s a@3h0m0s b@3h0m0s c@3h0m0s"; j.String() != want {
			t.Errorf("the tries were %s, want %s", j, want)
		}
		if a, err := q.Park(ctx, message("d", "k")); err != nil || a[0] != dlq.NotBlocked {
			t.Errorf("when all is resolved, Park answers %v, %v", a, err)
		}
	})
}

func TestSkippedLetterLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		put(t, q, "k", "a")
		if _, err := q.Park(ctx, message("b", "k")); err != nil {
			t.Fatal(err)
		}
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error { return map[string]error{"a": errDown}[l.ID] })
		time.Sleep(6 * time.Minute)
		l := wantState(t, q, "a", dlq.StateWaiting)
		wantState(t, q, "b", dlq.StateWaiting)
		if err := r.Skip(ctx, l.Ref(), "b is urgent"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantState(t, q, "b", dlq.StateResolved)
		if l := wantState(t, q, "a", dlq.StateReview); !l.Aside {
			t.Errorf("a skipped letter is %+v", l)
		}
		entries, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10})
		if err != nil || len(entries) != 1 || entries[0].Verb != "skip" || entries[0].Reason != "b is urgent" || entries[0].Actor != "ana" {
			t.Errorf("the audit has %+v, %v", entries, err)
		}
	})
}

// TestKilledTriesCount shows that a letter which kills its process ends in review: the
// try is written before the handler runs.
func TestKilledTriesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		put(t, q, "", "a")
		time.Sleep(5 * time.Minute)
		for i := range 4 { // a worker that claims and dies
			c, err := m.Claim(ctx, dlq.Ask{Nonce: [16]byte{byte(i + 1)}, Stream: stream, N: 1, Bytes: 1, Lease: time.Second})
			if err != nil || len(c.Claims) != 1 {
				t.Fatalf("Claim %d: %+v, %v", i, c, err)
			}
			time.Sleep(2 * time.Second)
		}
		run(t, q, nil, func(context.Context, dlq.Letter) error {
			t.Error("the handler is run a fifth time")
			return nil
		})
		time.Sleep(time.Minute)
		l := wantState(t, q, "a", dlq.StateReview)
		if last := l.Attempts[len(l.Attempts)-1]; !strings.Contains(last.Error, "interrupted") {
			t.Errorf("the last attempt says %q", last.Error)
		}
	})
}

func TestSandboxHasADeadlineAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "a")
		if _, ok := dlq.InSandbox(ctx); ok {
			t.Error("a context of no handler is in a sandbox")
		}
		var box dlq.Sandbox
		var token uint64
		stop := run(t, q, &dlq.RunOptions{Timeout: 3 * time.Second}, func(ctx context.Context, l dlq.Letter) error {
			var ok bool
			if box, ok = dlq.InSandbox(ctx); !ok {
				t.Error("the handler's context does not say that it is in a sandbox")
			}
			token, _ = dlq.TokenFrom(ctx)
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took != 3*time.Second {
				t.Errorf("the deadline came after %v", took)
			}
			return context.Cause(ctx)
		})
		time.Sleep(6 * time.Minute)
		stop()
		if box.Try != 1 || box.Rehearsal || token == 0 {
			t.Errorf("the sandbox was %+v, the token %d", box, token)
		}
		if l := wantState(t, q, "a", dlq.StateWaiting); !strings.Contains(l.Attempts[1].Error, "longer than the sandbox allows") {
			t.Errorf("the attempt says %q", l.Attempts[1].Error)
		}
	})
}

func TestPanicsAndExitsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "panics", "exits", "fails")
		run(t, q, nil, func(_ context.Context, l dlq.Letter) error {
			switch l.ID {
			case "panics":
				panic("order 4711 has no lines")
			case "exits":
				runtime.Goexit()
			}
			return errDown
		})
		time.Sleep(6 * time.Minute)
		l := wantState(t, q, "panics", dlq.StateWaiting)
		a := l.Attempts[1]
		if !strings.Contains(a.Error, "panicked: order 4711 has no lines") || !strings.Contains(a.Stack, "TestPanicsAndExits") || a.Types[0] != "*dlq.PanicError" {
			t.Errorf("the attempt that panicked is %+v", a)
		}
		if a := wantState(t, q, "exits", dlq.StateWaiting).Attempts[1]; !strings.Contains(a.Error, "ended its goroutine") {
			t.Errorf("the attempt that ended its goroutine is %+v", a)
		}
		if s := q.Stats(); s.Panics != 1 || s.Retried != 3 || s.Running != 0 {
			t.Errorf("the stats are %+v", s)
		}
	})
}

func TestGiveUpGoesToReviewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "a")
		run(t, q, nil, func(context.Context, dlq.Letter) error {
			return fmt.Errorf("wrapped: %w", dlq.GiveUp(errors.New("there is no handler for this any more")))
		})
		time.Sleep(6 * time.Minute)
		if l := wantState(t, q, "a", dlq.StateReview); l.Tries != 1 {
			t.Errorf("the letter has %d tries", l.Tries)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		for i := range 50 {
			put(t, q, "", fmt.Sprint("l", i))
		}
		var running, most atomic.Int64
		run(t, q, &dlq.RunOptions{Concurrency: 3}, func(context.Context, dlq.Letter) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		})
		time.Sleep(10 * time.Minute)
		if most.Load() != 3 {
			t.Errorf("%d handlers ran at once, want 3", most.Load())
		}
		if totals, err := q.Totals(ctx, "", 10); err != nil || totals[0].Resolved != 50 {
			t.Errorf("the totals are %+v, %v", totals, err)
		}
	})
}

func TestDrainDoesNotCountTheTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "a")
		stop := run(t, q, &dlq.RunOptions{Grace: time.Second}, func(ctx context.Context, _ dlq.Letter) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.Sleep(5*time.Minute + 10*time.Second)
		stop()
		if l := wantState(t, q, "a", dlq.StateWaiting); l.Tries != 0 || len(l.Attempts) != 1 {
			t.Errorf("after a drain the letter has %d tries and %d attempts", l.Tries, len(l.Attempts))
		}
		if s := q.Stats(); s.Interrupted != 1 {
			t.Errorf("the stats are %+v", s)
		}
	})
}

func TestALetterTakenByAPersonIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		r := newReview(t, newQueue(t, m, exact())) // in another process
		put(t, q, "k", "a", "b")
		run(t, q, &dlq.RunOptions{Poll: time.Hour}, func(_ context.Context, l dlq.Letter) error {
			if l.ID == "a" {
				time.Sleep(time.Minute)
			}
			return nil
		})
		time.Sleep(5*time.Minute + time.Second)
		l := get(t, q, "a")
		if err := r.Discard(ctx, l.Ref(), "not wanted"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		wantState(t, q, "b", dlq.StateWaiting) // the handler of a still runs
		time.Sleep(30 * time.Second)
		wantState(t, q, "a", dlq.StateDiscarded)
		wantState(t, q, "b", dlq.StateResolved)
		if s := q.Stats(); s.Stale != 1 {
			t.Errorf("the stats are %+v", s)
		}
	})
}

func TestAlertOnceForAFingerprintAndWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		j := newJournal()
		alert := func(_ context.Context, l dlq.Letter, a dlq.Attempt) {
			j.timed(a.Error)
			if l.Payload != nil || l.Headers != nil {
				t.Error("an alert has the content")
			}
		}
		handle := func(_ context.Context, l dlq.Letter) error { return errors.New(strings.SplitN(l.ID, "-", 2)[0]) }
		first, second := newQueue(t, m, exact()), newQueue(t, m, exact())
		for i := range 6 { // two kinds of failure, seen by two processes
			put(t, first, "", fmt.Sprint([]string{"red", "blue"}[i%2], "-", i))
		}
		run(t, first, &dlq.RunOptions{Alert: alert, Concurrency: 1, AlertWindow: 20 * time.Minute}, handle)
		run(t, second, &dlq.RunOptions{Alert: alert, Concurrency: 1, AlertWindow: 20 * time.Minute}, handle)
		time.Sleep(24 * time.Minute) // tries after 5 and 15 minutes
		got := strings.Fields(j.String())
		slices.Sort(got)
		if want := "[blue@5m0s red@5m0s]"; fmt.Sprint(got) != want {
			t.Errorf("the alerts were %v, want %s", got, want)
		}
		time.Sleep(10 * time.Minute) // and after 30, beyond the window
		if got := strings.Fields(j.String()); len(got) != 4 {
			t.Errorf("the alerts were %v, want each once more", got)
		}
		if a, b := first.Stats().Alerts, second.Stats().Alerts; a+b != 4 {
			t.Errorf("%d and %d alerts are counted", a, b)
		}
	})
}

// TestCompleteInTheHandler resolves a letter before its handler returns, as one does in
// a transaction.
func TestCompleteInTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dlq.NewMemory()
		q := newQueue(t, m, exact())
		put(t, q, "k", "a", "b")
		var late error
		stop := run(t, q, nil, func(ctx context.Context, l dlq.Letter) error {
			if l.ID == "b" {
				if err := newReview(t, q).Discard(ctx, l.Ref(), "not wanted"); err != nil {
					t.Error(err)
				}
				late = q.With(m).Complete(ctx)
				return late
			}
			if err := q.With(m).Complete(ctx); err != nil {
				t.Errorf("Complete: %v", err)
			}
			wantState(t, q, "a", dlq.StateResolved)
			return nil
		})
		time.Sleep(6 * time.Minute)
		stop()
		wantState(t, q, "a", dlq.StateResolved)
		wantState(t, q, "b", dlq.StateDiscarded)
		if !errors.Is(late, dlq.ErrStale) {
			t.Errorf("Complete of a letter that a person has discarded: %v", late)
		}
		if s := q.Stats(); s.Resolved != 1 || s.Stale != 1 {
			t.Errorf("the stats are %+v", s)
		}
		if err := q.Complete(ctx); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("Complete outside of a handler: %v", err)
		}
		put(t, q, "", "c")
		var rehearsed error
		stop = run(t, q, &dlq.RunOptions{Return: func(context.Context, dlq.Letter) error { return errDown }}, func(ctx context.Context, _ dlq.Letter) error {
			rehearsed = q.Complete(ctx)
			return nil
		})
		time.Sleep(6 * time.Minute)
		stop()
		if wantState(t, q, "c", dlq.StateWaiting); !errors.Is(rehearsed, dlq.ErrInvalid) {
			t.Errorf("Complete in a rehearsal: %v", rehearsed)
		}
	})
}

func TestRunRefusesOptions(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	ok := func(context.Context, dlq.Letter) error { return nil }
	for name, err := range map[string]error{
		"no handler":   q.Run(ctx, nil, &dlq.RunOptions{Stream: stream}),
		"no stream":    q.Run(ctx, ok, nil),
		"bad stream":   q.Run(ctx, ok, &dlq.RunOptions{Stream: "a b"}),
		"concurrency":  q.Run(ctx, ok, &dlq.RunOptions{Stream: stream, Concurrency: -1}),
		"lease":        q.Run(ctx, ok, &dlq.RunOptions{Stream: stream, Lease: time.Nanosecond}),
		"timeout":      q.Run(ctx, ok, &dlq.RunOptions{Stream: stream, Timeout: -1}),
		"alert window": q.Run(ctx, ok, &dlq.RunOptions{Stream: stream, AlertWindow: -1}),
		"bound":        q.With(dlq.NewMemory()).Run(ctx, ok, &dlq.RunOptions{Stream: stream}),
	} {
		if !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
