package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

func TestWorkGivesUpOnAnEventThatKillsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "killer", "next")...)
		for range 3 { // workers that die
			c, err := store.Claim(t.Context(), inbox.Ask{Nonce: [16]byte{1}, Stream: inbox.DefaultStream, Keys: 1, Events: 1, Bytes: 1, Lease: time.Second})
			if err != nil || len(c.Claims) != 1 {
				t.Fatalf("a claim got %+v, %v", c, err)
			}
			time.Sleep(2 * time.Second)
		}
		var j journal
		work(t, b, &inbox.WorkOptions{MaxAttempts: 3}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		if got := j.String(); got != "next1" {
			t.Errorf("worked were %q, want the next event alone", got)
		}
		rs, _ := b.List(t.Context(), inbox.StateDead, 0, 10)
		if len(rs) != 1 || !strings.Contains(rs[0].LastError, "given up after 3 attempts") {
			t.Errorf("dead are %+v", rs)
		}
	})
}

func TestWorkRenewsAndStopsWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		log, text := logged()
		lost := make(chan inbox.Claim, 1)
		b := newBox(t, store, &inbox.Options{Logger: log, Hooks: &inbox.Hooks{LeaseLost: func(c inbox.Claim, _ error) { lost <- c }}})
		accept(t, b, events("49123", "long", "next")...)
		began, cancelled, taken := make(chan uint64, 1), make(chan error, 1), make(chan struct{})
		work(t, b, &inbox.WorkOptions{Lease: 30 * time.Second}, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			if short(r) == "next" || r.Attempts > 1 {
				return inbox.Done()
			}
			token, _ := inbox.TokenFrom(ctx)
			began <- token
			<-ctx.Done()
			cancelled <- context.Cause(ctx)
			return inbox.Done() // too late
		})
		token := <-began
		time.Sleep(10*time.Minute + 100*time.Millisecond) // renewed all the time; and between two polls
		rival := newBox(t, store, nil)
		wantTotals(t, rival, inbox.Totals{Pending: 2})

		// A rival gets the key: as if this process had been paused for long.
		s := inbox.Settlement{Kind: inbox.KindRelease, Stream: inbox.DefaultStream, Key: "49123", Token: token}
		if errs, err := store.Settle(t.Context(), inbox.Params{}, []inbox.Settlement{s}); errs != nil || err != nil {
			t.Fatal(errs, err)
		}
		work(t, rival, nil, func(context.Context, inbox.Record) inbox.Outcome {
			<-taken
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		if cause := <-cancelled; !errors.Is(cause, inbox.ErrStale) {
			t.Errorf("the handler was cancelled with %v, want ErrStale", cause)
		}
		if st, c := b.Stats(), <-lost; st.LeasesLost != 1 || st.Stale != 1 || st.Done != 0 || c.Key != "49123" {
			t.Errorf("the counts are %+v, and the hook was told of %q", st, c.Key)
		}
		wantTotals(t, b, inbox.Totals{Pending: 2}) // the late Done has changed nothing
		close(taken)
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Done: 2})
		if strings.Contains(text(), "49123") || strings.Contains(text(), "test/long") {
			t.Errorf("the log has keys or IDs: %s", text())
		}
	})
}

func TestWorkDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("quick", "q1", "q2")...)
		accept(t, b, events("slow", "s1", "s2")...)
		var j journal
		handle := func(ctx context.Context, r inbox.Record) inbox.Outcome {
			d := 4 * time.Second
			if r.Key == "slow" {
				d = time.Hour
			}
			select {
			case <-time.After(d):
				j.add("%s%d", short(r), r.Attempts)
				return inbox.Done()
			case <-ctx.Done():
				if !errors.Is(context.Cause(ctx), inbox.ErrDraining) {
					t.Errorf("the cause is %v, want ErrDraining", context.Cause(ctx))
				}
				return inbox.Failed(ctx.Err())
			}
		}
		w := work(t, b, &inbox.WorkOptions{Grace: 5 * time.Second}, handle)
		time.Sleep(time.Second)
		begin := time.Now()
		if err := w.stop(); err != nil {
			t.Errorf("Work returned %v", err)
		}
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("the drain took %v, want the grace of 5 s", got)
		}
		if got := j.String(); got != "q11" {
			t.Errorf("%q were worked to their end, want the first quick one", got)
		}
		wantTotals(t, b, inbox.Totals{Pending: 3, Done: 1})

		// All keys are free at once, without a backoff.
		work(t, newBox(t, store, nil), nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			return inbox.Done()
		})
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Done: 4})
		if got := j.String(); !strings.Contains(got, "q21") || !strings.Contains(got, "s12") || strings.Index(got, "s12") > strings.Index(got, "s21") {
			t.Errorf("after the drain the journal is %q, want s1 at its second attempt and then s2", got)
		}
	})
}

func TestWorkAbandonsAHandlerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "a")...)
		blocked := make(chan struct{})
		w := work(t, b, &inbox.WorkOptions{Lease: 30 * time.Second, Grace: time.Second}, func(context.Context, inbox.Record) inbox.Outcome {
			<-blocked
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		if err := w.stop(); !errors.Is(err, inbox.ErrAbandoned) {
			t.Errorf("Work returned %v, want ErrAbandoned", err)
		}
		var j journal
		work(t, newBox(t, store, nil), nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			return inbox.Done()
		})
		synctest.Wait()
		if got := j.String(); got != "" {
			t.Errorf("%q were worked beside a handler that still runs", got)
		}
		time.Sleep(31 * time.Second) // its lease is not renewed any more
		if got := j.String(); got != "a2" {
			t.Errorf("after the lease %q were worked, want a", got)
		}
		close(blocked)
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Done: 1})
	})
}

func TestWorkDoesNotGoOnWithoutABegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inbox.NewMemory()
		// The store applies neither the begin nor a release, as if the lease had been
		// lost just then.
		b := newBox(t, beginless{memory}, nil)
		accept(t, b, events("k", "a", "b")...)
		var j journal
		w := work(t, b, &inbox.WorkOptions{Poll: time.Hour}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s", short(r))
			return inbox.Done()
		})
		time.Sleep(time.Second)
		w.stop()
		if got := j.String(); got != "a" {
			t.Errorf("worked were %q, want the first alone", got)
		}
	})
}

type beginless struct{ inbox.Store }

func (s beginless) Settle(ctx context.Context, p inbox.Params, ss []inbox.Settlement) ([]error, error) {
	errs := make([]error, len(ss))
	for i, one := range ss {
		if one.Kind == inbox.KindBegin || one.Kind == inbox.KindRelease {
			errs[i] = inbox.ErrStale
			continue
		}
		got, err := s.Store.Settle(ctx, p, []inbox.Settlement{one})
		if err != nil {
			return nil, err
		}
		if got != nil {
			errs[i] = got[0]
		}
	}
	return errs, nil
}

func TestWorkGivesBackWhatItClaimedWhileItWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inbox.NewMemory()
		b := newBox(t, &inboxtest.Faulty{Store: memory, After: func(s inboxtest.Step) error {
			if s.Ask != nil {
				time.Sleep(time.Second) // the answer is on its way
			}
			return nil
		}}, nil)
		accept(t, b, events("k", "a")...)
		w := work(t, b, nil, func(context.Context, inbox.Record) inbox.Outcome {
			t.Error("a handler was begun after the stop")
			return inbox.Done()
		})
		time.Sleep(time.Second / 2)
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		c, err := memory.Claim(t.Context(), inbox.Ask{Stream: inbox.DefaultStream, Keys: 1, Events: 1, Lease: time.Minute})
		if err != nil || len(c.Claims) != 1 {
			t.Errorf("the key cannot be claimed: %+v, %v", c, err)
		}
	})
}
