package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dlq"
)

func TestEffectRunsOutsideOfARehearsal(t *testing.T) {
	ran := 0
	effect := func(context.Context) error { ran++; return errDown }
	if err := dlq.Effect(ctx, "x", effect); !errors.Is(err, errDown) || ran != 1 {
		t.Errorf("outside of a sandbox an effect ran %d times and returned %v", ran, err)
	}
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		put(t, q, "", "a")
		var ran atomic.Int64
		run(t, q, nil, func(ctx context.Context, _ dlq.Letter) error {
			return dlq.Effect(ctx, "x", func(context.Context) error { ran.Add(1); return nil })
		})
		time.Sleep(6 * time.Minute)
		if ran.Load() != 1 {
			t.Errorf("in a retry an effect ran %d times", ran.Load())
		}
	})
}

func TestDryRun(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	put(t, q, "k", "a")
	l := get(t, q, "a")
	var undone []string
	sandbox := func(ctx context.Context, run func(context.Context) error) error {
		err := run(ctx)
		undone = append(undone, "rolled back")
		return err
	}
	effects := func(ctx context.Context, l dlq.Letter) error {
		if s, ok := dlq.InSandbox(ctx); !ok || !s.Rehearsal || s.Try != 0 {
			t.Errorf("the sandbox is %+v, %t", s, ok)
		}
		for _, name := range []string{"charge", "mail"} {
			if err := dlq.Effect(ctx, name, func(context.Context) error { t.Error("an effect happened"); return nil }); err != nil {
				return err
			}
		}
		return nil
	}
	for name, tc := range map[string]struct {
		handle  func(context.Context, dlq.Letter) error
		verdict dlq.Verdict
		effects int
		opts    *dlq.DryRunOptions
	}{
		"passes":               {effects, dlq.WouldPass, 2, &dlq.DryRunOptions{Sandbox: sandbox}},
		"passes without":       {effects, dlq.WouldPass, 2, nil},
		"same":                 {func(context.Context, dlq.Letter) error { return errDown }, dlq.SameFailure, 0, &dlq.DryRunOptions{Sandbox: sandbox}},
		"other":                {func(context.Context, dlq.Letter) error { return errors.New("else") }, dlq.OtherFailure, 0, nil},
		"panics":               {func(context.Context, dlq.Letter) error { panic("x") }, dlq.OtherFailure, 0, &dlq.DryRunOptions{Sandbox: sandbox}},
		"sandbox does not run": {effects, dlq.OtherFailure, 0, &dlq.DryRunOptions{Sandbox: func(context.Context, func(context.Context) error) error { return nil }}},
		"sandbox fails": {effects, dlq.OtherFailure, 2, &dlq.DryRunOptions{Sandbox: func(ctx context.Context, run func(context.Context) error) error {
			run(ctx)
			return errors.New("cannot roll back")
		}}},
		"sandbox hides the failure": {func(context.Context, dlq.Letter) error { return errDown }, dlq.SameFailure, 0, &dlq.DryRunOptions{Sandbox: func(ctx context.Context, run func(context.Context) error) error {
			run(ctx)
			return nil
		}}},
		"deadline": {func(ctx context.Context, _ dlq.Letter) error { <-ctx.Done(); return ctx.Err() }, dlq.OtherFailure, 0, &dlq.DryRunOptions{Timeout: time.Millisecond}},
	} {
		undone = nil
		r, err := q.DryRun(ctx, tc.handle, l, tc.opts)
		if err != nil || r.Verdict != tc.verdict || len(r.Effects) != tc.effects || (r.Attempt == nil) != (tc.verdict == dlq.WouldPass) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if strings.HasPrefix(name, "passes") && tc.opts != nil && len(undone) != 1 {
			t.Errorf("%s: the sandbox was undone %d times", name, len(undone))
		}
	}
	if after := get(t, q, "a"); after.Tries != 0 || len(after.Attempts) != 1 || !after.Next.Equal(l.Next) {
		t.Errorf("dry runs changed the letter: %+v", after)
	}
	if _, err := q.DryRun(ctx, nil, l, nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a dry run without handler: %v", err)
	}
	many := func(ctx context.Context, _ dlq.Letter) error {
		for i := range 1000 {
			dlq.Effect(ctx, strings.Repeat("x", 1000)+fmt.Sprint(i), nil)
		}
		return nil
	}
	if r, err := q.DryRun(ctx, many, l, nil); err != nil || len(r.Effects) != 256 || len(r.Effects[0]) != 128 {
		t.Errorf("1000 effects are %d in the rehearsal, %v", len(r.Effects), err)
	}
}

// TestReturnToTheNormalFlow rehearses, puts back under the original ID, and shows that
// the dedup guard of the flow makes one effect of it.
func TestReturnToTheNormalFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := dedup.New(dedup.NewMemory(), nil)
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(t, dlq.NewMemory(), exact())
		j := newJournal()
		effects := 0
		flow := func(ctx context.Context, m dlq.Message) error { // the normal flow, with the guard of its effect
			if a, err := q.Park(ctx, m); err != nil || a[0] != dlq.NotBlocked {
				return fmt.Errorf("parked: %v, %w", a, err)
			}
			return guard.Do(ctx, dedup.Request{ID: m.ID}, func(context.Context) error { effects++; return nil })
		}
		put(t, q, "k", "a", "b")
		fail := true
		lostOnce := false
		stop := run(t, q, &dlq.RunOptions{
			Return: func(ctx context.Context, l dlq.Letter) error {
				j.add("return %s (%s, %s)", l.ID, l.Payload, l.Headers["h"])
				err := flow(ctx, dlq.Message{Stream: l.Stream, ID: l.ID, Key: l.Key, Payload: l.Payload, Headers: l.Headers})
				if l.ID == "a" && !lostOnce && err == nil {
					lostOnce = true
					return errors.New("the answer was lost")
				}
				return err
			},
		}, func(ctx context.Context, l dlq.Letter) error {
			s, _ := dlq.InSandbox(ctx)
			j.add("rehearse %s %t", l.ID, s.Rehearsal)
			if fail {
				fail = false
				return errDown
			}
			return dlq.Effect(ctx, "effect", func(context.Context) error { t.Error("an effect in a rehearsal"); return nil })
		})
		time.Sleep(31 * time.Minute)
		stop()
		want := "rehearse a true " + "rehearse a true return a (payload of a, of a) " + "rehearse a true return a (payload of a, of a) " +
			"rehearse b true return b (payload of b, of b)"
		if j.String() != want {
			t.Errorf("what happened:\n%s\nwant\n%s", j, want)
		}
		if effects != 2 {
			t.Errorf("%d effects of two messages", effects)
		}
		wantState(t, q, "a", dlq.StateResolved)
		wantState(t, q, "b", dlq.StateResolved)
	})
}

// TestPinnedRecordOutlivesTheGuard redrives a letter after 30 days. The guard forgets
// after 8, unless the pin makes it retain what it knows.
func TestPinnedRecordOutlivesTheGuard(t *testing.T) {
	const retained = 72 * time.Hour // three rounds of pinning
	for name, tc := range map[string]struct {
		pinned, charged bool // charged: the effect happened, and what came after it failed
		charges         int  // after the redrive
	}{
		"pinned":                          {pinned: true, charged: true, charges: 1},
		"not pinned":                      {pinned: false, charged: true, charges: 2},
		"pinned, and it did not happen":   {pinned: true, charged: false, charges: 1},
		"unpinned, and it did not happen": {pinned: false, charged: false, charges: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := dedup.NewMemory()
				guard, err := dedup.New(records, &dedup.Options{Scope: "charges"})
				if err != nil {
					t.Fatal(err)
				}
				sweep := func() {
					for n := 1; n > 0; {
						if n, err = records.Sweep(ctx, 1000); err != nil {
							t.Fatal(err)
						}
					}
				}
				opts := exact()
				calls := newJournal()
				opts.Unpin = func(_ context.Context, _, id string) error { calls.add("unpin %s", id); return nil }
				if tc.pinned {
					opts.Pin = func(ctx context.Context, _, id string) error {
						calls.timed("pin")
						return guard.Retain(ctx, retained, id)
					}
				}
				q := newQueue(t, dlq.NewMemory(), opts)
				charges, broken := 0, true
				handle := func(ctx context.Context, l dlq.Letter) error {
					if broken && !tc.charged {
						return errDown // before the charge
					}
					err := guard.Do(ctx, dedup.Request{ID: l.ID}, func(context.Context) error { charges++; return nil })
					if broken && err == nil {
						err = errDown // after it
					}
					return err
				}
				put(t, q, "", "order 1")
				run(t, q, &dlq.RunOptions{Poll: 5 * time.Minute}, handle)
				for range 30 {
					time.Sleep(24 * time.Hour)
					sweep()
				}
				if known := records.Len() == 1; known != (tc.pinned && tc.charged) {
					t.Errorf("after 30 days the guard knows the message: %t", known)
				}
				l := wantState(t, q, "order 1", dlq.StateReview)
				broken = false
				if err := newReview(t, q).Approve(ctx, l.Ref(), "the mail server is back"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				wantState(t, q, "order 1", dlq.StateResolved)
				if charges != tc.charges {
					t.Errorf("%d charges after a redrive after 30 days, want %d", charges, tc.charges)
				}
				if tc.pinned && (!strings.HasSuffix(calls.String(), "unpin order 1") || strings.Count(calls.String(), "pin@") < 30) {
					t.Errorf("the pins were %s", calls)
				}
				pins := strings.Count(calls.String(), "pin@")
				time.Sleep(9 * 24 * time.Hour) // the pin ends by itself: 8 days from the redrive, or 3 from the last pin
				sweep()
				if n := records.Len(); n != 0 || strings.Count(calls.String(), "pin@") != pins {
					t.Errorf("9 days after the letter has ended the guard knows %d messages; pinned %s", n, calls)
				}
			})
		})
	}
}

func TestPinThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := exact()
		var pinned []string
		fail := true
		log, text := logged()
		opts.Logger = log
		opts.Pin = func(_ context.Context, stream, id string) error {
			if fail {
				panic("no")
			}
			pinned = append(pinned, stream+"/"+id)
			return nil
		}
		opts.Unpin = func(context.Context, string, string) error { return errDown }
		q := newQueue(t, dlq.NewMemory(), opts)
		put(t, q, "", "a", "b")
		fail = false
		stop := run(t, q, nil, func(context.Context, dlq.Letter) error { return errDown })
		time.Sleep(time.Second)
		stop()
		if slices.Sort(pinned); !slices.Equal(pinned, []string{"orders/a", "orders/b"}) {
			t.Errorf("the pins are %q", pinned)
		}
		l := get(t, q, "a")
		if err := newReview(t, q).Discard(ctx, l.Ref(), "x"); err != nil {
			t.Errorf("a failing Unpin: %v", err)
		}
		if s := q.Stats(); s.PinsFailed != 3 || s.Pinned != 2 {
			t.Errorf("the stats are %+v", s)
		}
		if !strings.Contains(text(), "could not be pinned") || strings.Contains(text(), "id=a") {
			t.Errorf("the log says %s", text())
		}
	})
}
