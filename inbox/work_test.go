package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/retry"
)

func TestWorkOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("it failed")
		b := newBox(t, inbox.NewMemory(), nil)
		for _, id := range []string{"done", "failed once", "retry", "dead", "quarantine", "unknown", "panic", "nothing", "exit", "always fails"} {
			accept(t, b, events(id, id)...)
		}
		w := work(t, b, &inbox.WorkOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Second)}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			switch id := short(r); {
			case id == "dead":
				return inbox.Dead(failure)
			case id == "quarantine":
				return inbox.Quarantine(failure)
			case id == "unknown":
				return inbox.Unknown(failure)
			case id == "always fails":
				return inbox.Failed(failure)
			case r.Attempts > 1 || id == "done":
				return inbox.Done()
			case id == "failed once":
				return inbox.OutcomeOf(failure)
			case id == "retry":
				return inbox.Retry(time.Hour, failure)
			case id == "panic":
				panic("at the disco")
			case id == "exit":
				runtime.Goexit()
			}
			return inbox.Outcome{}
		})
		time.Sleep(time.Hour + time.Second)
		w.stop()
		for id, want := range map[string]string{
			"done":         "done 1 ",
			"failed once":  "done 2 it failed",
			"retry":        "done 2 it failed",
			"dead":         "dead 1 it failed",
			"quarantine":   "quarantined 1 it failed",
			"unknown":      "unknown 1 it failed",
			"panic":        "done 2 inbox: the handler panicked: at the disco",
			"nothing":      "done 2 the handler gave no reason",
			"exit":         "done 2 inbox: the handler ended its goroutine",
			"always fails": "dead 3 it failed",
		} {
			rs, err := b.Get(t.Context(), "test/"+id)
			if err != nil || len(rs) != 1 {
				t.Fatalf("%s has the records %+v, %v", id, rs, err)
			}
			if got := fmt.Sprintf("%v %d %s", rs[0].State, rs[0].Attempts, rs[0].LastError); got != want {
				t.Errorf("%s: %q, want %q", id, got, want)
			}
		}
		s := b.Stats()
		if s.Done != 6 || s.Retried != 7 || s.Dead != 2 || s.GivenToQuarantine != 1 || s.Unknown != 1 || s.Panics != 1 || s.Errors+s.Stale+s.LeasesLost != 0 || s.Running != 0 {
			t.Errorf("the counts are %+v", s)
		}
	})
}

func TestWorkKeepsTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		var j journal
		work(t, b, &inbox.WorkOptions{Batch: 2, Backoff: retry.Constant(time.Minute)}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			time.Sleep(time.Second)
			if id := short(r); id == "b" && r.Attempts < 3 {
				return inbox.Failed(nil)
			} else if id == "d" {
				return inbox.Dead(nil)
			}
			return inbox.Done()
		})
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			accept(t, b, events("k", id)...)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		if got, want := j.String(), "a1 b1 b2 b3 c1 d1 e1"; got != want {
			t.Errorf("the events of a key were worked as %q, want %q", got, want)
		}
		wantTotals(t, b, inbox.Totals{Done: 4, Dead: 1})
	})
}

func TestWorkGoesOnWithOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("stuck", "s1", "s2")...)
		accept(t, b, events("fails", "f1", "f2")...)
		work(t, b, &inbox.WorkOptions{Concurrency: 2, Lease: 10 * time.Second}, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			switch r.Key {
			case "stuck":
				<-ctx.Done()
			case "fails":
				return inbox.Failed(nil)
			}
			return inbox.Done()
		})
		time.Sleep(time.Second)
		for i := range 100 {
			accept(t, b, events(fmt.Sprint("k", i), fmt.Sprint("e", i))...)
		}
		synctest.Wait() // no time passes
		wantTotals(t, b, inbox.Totals{Pending: 4, Done: 100})
		if s := b.Stats(); s.LongestWait > time.Second {
			t.Errorf("an event waited %v", s.LongestWait)
		}
	})
}

func TestWorkIsWokenByAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		worked := make(chan time.Duration, 1)
		work(t, b, &inbox.WorkOptions{Poll: time.Hour}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			worked <- r.Age
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		for i := range 5 {
			accept(t, b, events("k", fmt.Sprint("e", i))...)
			if age := <-worked; age != 0 {
				t.Errorf("event %d was worked after %v", i, age)
			}
			time.Sleep(time.Minute)
		}
	})
}

// What another box accepts is found by polling, and so is what was accepted in a
// transaction, unless its committer calls Wake.
func TestWorkPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		other, b := newBox(t, store, nil), newBox(t, store, nil)
		var j journal
		work(t, b, &inbox.WorkOptions{Poll: 10 * time.Second}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s", short(r))
			return inbox.Done()
		})
		time.Sleep(time.Second)
		accept(t, other, events("k", "a")...)
		time.Sleep(8 * time.Second)
		if got := j.String(); got != "" {
			t.Errorf("before the poll %q were worked", got)
		}
		time.Sleep(2 * time.Second)
		if got := j.String(); got != "a" {
			t.Errorf("after the poll %q were worked", got)
		}
		accept(t, b.With(store), events("k", "b")...)
		synctest.Wait()
		if got := j.String(); got != "a" {
			t.Errorf("what a transaction accepted was worked before its end: %q", got)
		}
		b.Wake()
		synctest.Wait()
		if got := j.String(); got != "a b" {
			t.Errorf("after the wake-up %q were worked", got)
		}
	})
}

// A handler that kills its process never returns: the event is tried again when
// the lease has lapsed, and runs out of attempts like any other.
func TestWorkOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logged()
		b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: log, Streams: func(e inbox.Event) []string {
			switch e.Key {
			case "both":
				return []string{"routing", "crm", "crm"}
			case "none":
				return nil
			case "bad":
				return []string{"not a name"}
			}
			return []string{"routing"}
		}})
		accept(t, b, events("both", "a", "b")...)
		accept(t, b, events("one", "c")...)
		accept(t, b, events("none", "d")...)
		accept(t, b, events("bad", "e")...)
		var crm, routing, rest journal
		note := func(j *journal, o inbox.Outcome) func(context.Context, inbox.Record) inbox.Outcome {
			return func(_ context.Context, r inbox.Record) inbox.Outcome {
				j.add("%s%d", short(r), r.Attempts)
				return o
			}
		}
		down := note(&crm, inbox.Failed(errors.New("the CRM is down")))
		work(t, b, &inbox.WorkOptions{Stream: "crm", Backoff: retry.Constant(20 * time.Second), MaxAttempts: 2}, down)
		work(t, b, &inbox.WorkOptions{Stream: "routing", Concurrency: 1}, note(&routing, inbox.Done()))
		work(t, b, nil, note(&rest, inbox.Done()))
		synctest.Wait()
		if got := routing.String(); got != "a1 b1 c1" {
			t.Errorf("routing worked %q", got)
		}
		if got := rest.String(); got != "d1 e1" && got != "e1 d1" {
			t.Errorf("the default stream worked %q", got)
		}
		time.Sleep(time.Minute)
		if got := crm.String(); got != "a1 a2 b1 b2" { // two attempts each, in the order of their key
			t.Errorf("the CRM's stream worked %q", got)
		}
		wantTotals(t, b, inbox.Totals{Done: 5, Dead: 2})
		if n := strings.Count(text(), "Options.Streams"); n != 2 {
			t.Errorf("%d bad answers of Streams were logged, want 2", n)
		}
	})
}

// A busy key takes its turn with others, and comes again at once.
func TestWorkOfALongKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("long", "l1", "l2", "l3", "l4", "l5")...)
		time.Sleep(time.Millisecond)
		accept(t, b, events("short", "s1")...)
		var j journal
		work(t, b, &inbox.WorkOptions{Concurrency: 1, Batch: 2, Poll: time.Hour}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s", short(r))
			time.Sleep(time.Millisecond)
			return inbox.Done()
		})
		time.Sleep(time.Second)
		if got, want := j.String(), "l1 l2 s1 l3 l4 l5"; got != want {
			t.Errorf("worked were %q, want %q", got, want)
		}
	})
}

func TestWorkOfALongKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("long", "l1", "l2", "l3", "l4", "l5")...)
		work(t, b, &inbox.WorkOptions{Batch: 2, Poll: time.Hour}, func(context.Context, inbox.Record) inbox.Outcome {
			return inbox.Done()
		})
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Done: 5})
	})
}

// A handler that ends its goroutine takes the rest of its key with it; another
// goroutine goes on.
func TestWorkGoesOnAfterAHandlerThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("k", "a", "exit", "b")...)
		work(t, b, &inbox.WorkOptions{MaxAttempts: 1, Poll: time.Hour}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			if short(r) == "exit" {
				runtime.Goexit()
			}
			return inbox.Done()
		})
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Done: 2, Dead: 1})
	})
}

// The next record of a key is not handled unless it was begun.
// What was claimed while the worker was told to stop is given back and not begun.
func TestWorkIsRefused(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	ok := func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() }
	for name, err := range map[string]error{
		"nil handler":       b.Work(t.Context(), nil, nil),
		"in a transaction":  b.With(inbox.NewMemory()).Work(t.Context(), ok, nil),
		"bad stream":        b.Work(t.Context(), ok, &inbox.WorkOptions{Stream: "a b"}),
		"concurrency":       b.Work(t.Context(), ok, &inbox.WorkOptions{Concurrency: -1}),
		"huge concurrency":  b.Work(t.Context(), ok, &inbox.WorkOptions{Concurrency: 1 << 30}),
		"attempts":          b.Work(t.Context(), ok, &inbox.WorkOptions{MaxAttempts: -1}),
		"backoff":           b.Work(t.Context(), ok, &inbox.WorkOptions{Backoff: retry.Constant(-1)}),
		"lease":             b.Work(t.Context(), ok, &inbox.WorkOptions{Lease: 1}),
		"negative lease":    b.Work(t.Context(), ok, &inbox.WorkOptions{Lease: -time.Second}),
		"batch":             b.Work(t.Context(), ok, &inbox.WorkOptions{Batch: 1001}),
		"poll":              b.Work(t.Context(), ok, &inbox.WorkOptions{Poll: -1}),
		"grace":             b.Work(t.Context(), ok, &inbox.WorkOptions{Grace: -1}),
		"lease of 10^5 yrs": b.Work(t.Context(), ok, &inbox.WorkOptions{Lease: 1<<63 - 1}),
	} {
		if !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if !errors.Is(b.Work(t.Context(), ok, &inbox.WorkOptions{Backoff: retry.Constant(-1)}), retry.ErrInvalid) {
		t.Error("the error for a bad backoff does not wrap the one of package retry")
	}
}

func TestComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "a", "b", "c")...)
		var j journal
		work(t, b, &inbox.WorkOptions{Poll: time.Hour}, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s%d", short(r), r.Attempts)
			if err := b.With(store).Complete(ctx); err != nil {
				t.Errorf("Complete: %v", err)
			}
			if short(r) == "b" { // it does not know that its transaction was committed
				return inbox.Failed(errors.New("no answer"))
			}
			return inbox.Done()
		})
		time.Sleep(time.Second) // much shorter than a lease
		if got := j.String(); got != "a1 b1 c1" {
			t.Errorf("worked were %q, want each once", got)
		}
		wantTotals(t, b, inbox.Totals{Done: 3})
		if err := b.Complete(t.Context()); !errors.Is(err, inbox.ErrInvalid) {
			t.Errorf("Complete outside of a handler returned %v, want ErrInvalid", err)
		}
		if _, ok := inbox.TokenFrom(t.Context()); ok {
			t.Error("a context that is no handler's has a token")
		}
	})
}

// The CRM is down for an hour: every delivery is stored and answered 200 all the
// same, and all are worked when it is back.
func TestADeadDependencyDoesNotReachTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		h := newHandler(t, b, provider{}, nil)
		begin := time.Now()
		up := func() bool { return time.Since(begin) >= time.Hour }
		work(t, b, nil, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			if up() {
				return inbox.Done()
			}
			select { // it hangs, and then fails
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
			}
			return inbox.Failed(errors.New("the CRM is down"))
		})
		n := 0
		for ; time.Since(begin) < 59*time.Minute; n++ {
			before := time.Now()
			if w := post(h, fmt.Sprintf(`[{"id":"%d","key":"k%d"}]`, n, n%500)); w.Code != 200 {
				t.Fatalf("delivery %d was answered %d", n, w.Code)
			}
			if d := time.Since(before); d != 0 {
				t.Fatalf("delivery %d was answered after %v", n, d)
			}
			time.Sleep(2 * time.Second)
		}
		wantTotals(t, b, inbox.Totals{Pending: n})
		if got := totals(t, b).Oldest; got < 59*time.Minute {
			t.Errorf("the oldest pending event is %v old", got)
		}
		time.Sleep(20 * time.Minute) // it is up in one, and the longest backoff is 10
		wantTotals(t, b, inbox.Totals{Done: n})
	})
}

// The record behind the one that is being worked is forgotten meanwhile: the rest of
// the key goes on at once, and not when the lease has lapsed.
func TestNextRecordIsForgottenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "first", "second", "third")...)
		start := time.Now()
		var worked []string
		w := work(t, b, nil, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			worked = append(worked, short(r))
			if short(r) == "first" {
				errs, err := store.Change(ctx, inbox.Params{Retention: time.Hour, Keep: time.Hour}, []inbox.Change{{Kind: inbox.ChangeForget, ID: "test/second", Actor: "a"}})
				if err != nil || errs != nil {
					t.Errorf("forget: %v, %v", errs, err)
				}
			}
			return inbox.Done()
		})
		synctest.Wait()
		if got := fmt.Sprint(worked); got != "[first third]" || time.Since(start) > 0 {
			t.Errorf("worked were %s after %v", got, time.Since(start))
		}
		w.stop()
	})
}

// An event that waits in the hands of a worker is forgotten and comes again with
// other content: the worker does not end the new one with the old one in its hands.
func TestEventIsForgottenAndComesAgainMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "first", "second")...)
		var worked []string
		w := work(t, b, nil, func(ctx context.Context, r inbox.Record) inbox.Outcome {
			worked = append(worked, string(r.Payload))
			if short(r) == "first" {
				errs, err := store.Change(ctx, inbox.Params{Retention: time.Hour, Keep: time.Hour}, []inbox.Change{{Kind: inbox.ChangeForget, ID: "test/second", Actor: "a"}})
				if err != nil || errs != nil {
					t.Errorf("forget: %v, %v", errs, err)
				}
				again := events("k", "second")[0]
				again.Payload = []byte("again")
				accept(t, b, again)
			}
			return inbox.Done()
		})
		synctest.Wait()
		w.stop()
		if n := len(worked); n != 2 || worked[1] != "again" {
			t.Errorf("worked were %q", worked)
		}
	})
}
