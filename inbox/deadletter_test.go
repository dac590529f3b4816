package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/retry"
)

// A handler that cannot tell ends the event, and its key goes on.
func TestAnUnknownOutcomeWaitsForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logged()
		var hooked inbox.Outcome
		store := inbox.NewMemory()
		b := newBox(t, store, &inbox.Options{Logger: log, Hooks: &inbox.Hooks{
			Worked: func(_ context.Context, r inbox.Record, o inbox.Outcome, _ time.Duration, _ error) {
				if short(r) == "49123" {
					hooked = o
				}
			},
		}})
		accept(t, b, events("k", "49123", "next")...)
		w := work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			if short(r) == "49123" {
				return inbox.Unknown(errors.New("the bank gave no answer"))
			}
			return inbox.Done()
		})
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Done: 1, Unknown: 1})
		if s := b.Stats(); s.Unknown != 1 || s.Done != 1 || hooked.String() != "unknown" || hooked.Err() == nil {
			t.Errorf("the counts are %+v, and the hook was told %v", s, hooked)
		}
		if !strings.Contains(text(), "a person has to look") {
			t.Errorf("logged is %q", text())
		}
		w.stop()
		time.Sleep(1000 * 24 * time.Hour)
		for range 3 {
			if _, err := b.Sweep(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		wantTotals(t, b, inbox.Totals{Unknown: 1})
		rs, err := b.List(t.Context(), inbox.StateUnknown, 0, 10)
		if err != nil || len(rs) != 1 || rs[0].LastError != "the bank gave no answer" || len(rs[0].Failures) != 1 {
			t.Errorf("unknown are %+v, %v", rs, err)
		}
	})
}

// The first failure is kept, and the last ones, each with its attempt and time.
func TestFailuresAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, attempts := range []int{1, 7, 8, 9, 20} {
			b := newBox(t, inbox.NewMemory(), nil)
			begin := time.Now()
			accept(t, b, events("k", "a")...)
			w := work(t, b, &inbox.WorkOptions{MaxAttempts: attempts, Backoff: retry.Constant(time.Minute)}, func(_ context.Context, r inbox.Record) inbox.Outcome {
				return inbox.Failed(fmt.Errorf("failure %d", r.Attempts))
			})
			time.Sleep(time.Hour)
			w.stop()
			rs, err := b.Get(t.Context(), "test/a")
			if err != nil || len(rs) != 1 || rs[0].State != inbox.StateDead {
				t.Fatalf("after %d attempts the records are %+v, %v", attempts, rs, err)
			}
			var want []int
			for i := 1; i <= attempts; i++ {
				if i == 1 || i > attempts-(inbox.MaxFailures-1) {
					want = append(want, i)
				}
			}
			got := rs[0].Failures
			if len(got) != len(want) || len(got) > inbox.MaxFailures {
				t.Fatalf("after %d attempts the failures are %+v, want those of %v", attempts, got, want)
			}
			for i, f := range got {
				at := begin.Add(time.Duration(want[i]-1) * time.Minute)
				if f.Attempt != want[i] || f.Error != fmt.Sprint("failure ", want[i]) || !f.At.Equal(at) {
					t.Errorf("failure %d is %+v, want attempt %d at %v", i, f, want[i], at)
				}
			}
		}
	})
}

// A long error, one that panics, and one with NUL are stored as far as they go.
func TestFailuresAreStorable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("k", "long", "odd")...)
		work(t, b, nil, func(_ context.Context, r inbox.Record) inbox.Outcome {
			if short(r) == "long" {
				return inbox.Dead(errors.New(strings.Repeat("é", 1000)))
			}
			return inbox.Dead(errors.New("a\x00\xff"))
		})
		synctest.Wait()
		rs, _ := b.List(t.Context(), inbox.StateDead, 0, 10)
		if len(rs) != 2 || len(rs[0].Failures) != 1 || len(rs[1].Failures) != 1 {
			t.Fatalf("dead are %+v", rs)
		}
		if got := rs[0].Failures[0].Error; len(got) > inbox.MaxError || got != rs[0].LastError || got == "" {
			t.Errorf("a long error is stored with %d bytes", len(got))
		}
		if got := rs[1].Failures[0].Error; got != "a\uFFFD\uFFFD" {
			t.Errorf("an odd error is stored as %q", got)
		}
	})
}

func TestDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("k", "exhausted", "dead", "quarantined", "unknown", "done")...)
		var letters []inbox.Record
		work(t, b, &inbox.WorkOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Second), DeadLetter: func(ctx context.Context, r inbox.Record) error {
			if got := totals(t, b); got.Dead != len(letters) {
				t.Errorf("it is called with %d dead and %d letters", got.Dead, len(letters))
			}
			if _, ok := inbox.TokenFrom(ctx); !ok {
				t.Error("its context has no token")
			}
			letters = append(letters, r)
			return nil
		}}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			switch short(r) {
			case "exhausted":
				return inbox.Failed(fmt.Errorf("failure %d", r.Attempts))
			case "dead":
				return inbox.Dead(errors.New("of no use"))
			case "quarantined":
				return inbox.Quarantine(nil)
			case "unknown":
				return inbox.Unknown(nil)
			}
			return inbox.Done()
		})
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Dead: 2, Quarantined: 1, Unknown: 1, Done: 1})
		if len(letters) != 2 || short(letters[0]) != "exhausted" || short(letters[1]) != "dead" {
			t.Fatalf("the letters are %+v", letters)
		}
		l := letters[0]
		if l.LastError != "failure 3" || len(l.Failures) != 3 || l.Failures[2].Attempt != 3 || l.Failures[2].Error != "failure 3" || string(l.Payload) != "payload of exhausted" {
			t.Errorf("the first letter is %+v", l)
		}
		if l := letters[1]; l.LastError != "of no use" || len(l.Failures) != 1 {
			t.Errorf("the second letter is %+v", l)
		}
		if rs, _ := b.Get(t.Context(), "test/exhausted"); len(rs) != 1 || len(rs[0].Failures) != 3 {
			t.Errorf("the record keeps %+v", rs)
		}
	})
}

// An event that is given up on without its last attempt having returned goes to the
// dead-letter function, too, and the handler does not see it again.
func TestDeadLetterOfAnEventThatKillsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inbox.NewMemory()
		b := newBox(t, store, nil)
		accept(t, b, events("k", "killer", "next")...)
		for range 3 { // workers that die
			ask := inbox.Ask{Nonce: [16]byte{1}, Stream: inbox.DefaultStream, Keys: 1, Events: 1, Bytes: 1, Lease: time.Second}
			if c, err := store.Claim(t.Context(), ask); err != nil || len(c.Claims) != 1 {
				t.Fatalf("a claim got %+v, %v", c, err)
			}
			time.Sleep(2 * time.Second)
		}
		calls, fails := 0, 2
		var last inbox.Record
		var j journal
		work(t, b, &inbox.WorkOptions{MaxAttempts: 3, Backoff: retry.Constant(time.Minute), DeadLetter: func(_ context.Context, r inbox.Record) error {
			last = r
			if calls++; calls <= fails {
				return errors.New("the queue is down")
			}
			return nil
		}}, func(_ context.Context, r inbox.Record) inbox.Outcome {
			j.add("%s", short(r))
			return inbox.Done()
		})
		synctest.Wait()
		wantTotals(t, b, inbox.Totals{Pending: 2}) // the key waits
		time.Sleep(time.Hour)
		wantTotals(t, b, inbox.Totals{Dead: 1, Done: 1})
		if calls != 3 || j.String() != "next" {
			t.Errorf("%d calls, and handled were %q", calls, j.String())
		}
		if len(last.Failures) != 1 || last.Failures[0].Attempt != 3 || !strings.Contains(last.Failures[0].Error, "given up after 3 attempts") || last.LastError != last.Failures[0].Error {
			t.Errorf("the letter has %q and the failures %+v", last.LastError, last.Failures)
		}
	})
}

// While the dead-letter function fails in whatever way, the event is not dead.
func TestADeadLetterFunctionThatFails(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"an error":   func(context.Context) error { return errors.New("topsecret") },
		"a panic":    func(context.Context) error { panic("topsecret") },
		"an exit":    func(context.Context) error { runtime.Goexit(); return nil },
		"too late":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"not at all": func(context.Context) error { time.Sleep(20 * time.Minute); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, text := logged()
				b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: log})
				accept(t, b, events("k", "a")...)
				begin := time.Now()
				handled := 0
				w := work(t, b, &inbox.WorkOptions{MaxAttempts: 2, Lease: 10 * time.Second, Backoff: retry.Constant(time.Minute), DeadLetter: func(ctx context.Context, r inbox.Record) error {
					if time.Since(begin) < time.Hour {
						return fail(ctx)
					}
					if r.LastError != "failure 2" || len(r.Failures) != 2 || r.Failures[1].Error != "failure 2" {
						t.Errorf("the letter is %+v", r)
					}
					return nil
				}}, func(_ context.Context, r inbox.Record) inbox.Outcome {
					handled++
					return inbox.Failed(fmt.Errorf("failure %d", r.Attempts))
				})
				time.Sleep(30 * time.Minute)
				wantTotals(t, b, inbox.Totals{Pending: 1})
				rs, _ := b.Get(t.Context(), "test/a")
				if len(rs) != 1 || !strings.Contains(rs[0].LastError, "not dead, since the dead-letter function failed") || !strings.Contains(rs[0].LastError, "failure 2") || len(rs[0].Failures) != 2 {
					t.Errorf("meanwhile the record is %+v", rs)
				}
				if s := b.Stats(); s.DeadLettersFailed < 20 || s.Dead != 0 {
					t.Errorf("the counts are %+v", s)
				}
				time.Sleep(time.Hour)
				wantTotals(t, b, inbox.Totals{Dead: 1})
				if handled != 2 {
					t.Errorf("the handler had %d attempts, want 2", handled)
				}
				if strings.Contains(text(), "topsecret") {
					t.Errorf("the log repeats what was said: %s", text())
				}
				w.stop()
				time.Sleep(48 * time.Hour) // what does not return, returns
			})
		})
	}
}

// Calls that do not return are bounded.
func TestDeadLetterCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBox(t, inbox.NewMemory(), nil)
		accept(t, b, events("", "a", "b", "c", "d", "e")...)
		release := make(chan struct{})
		var running atomic.Int64
		w := work(t, b, &inbox.WorkOptions{Concurrency: 1, MaxAttempts: 1, Lease: 3 * time.Second, Backoff: retry.Constant(time.Second), DeadLetter: func(context.Context, inbox.Record) error {
			running.Add(1)
			<-release
			return nil
		}}, func(context.Context, inbox.Record) inbox.Outcome { return inbox.Failed(nil) })
		time.Sleep(10 * time.Minute)
		if n := running.Load(); n != 2 {
			t.Errorf("%d calls are under way, want 2", n)
		}
		wantTotals(t, b, inbox.Totals{Pending: 5})
		close(release)
		time.Sleep(time.Minute)
		wantTotals(t, b, inbox.Totals{Dead: 5})
		w.stop()
	})
}
