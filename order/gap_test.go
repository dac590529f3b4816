package order_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// notes are what happened, and when.
type notes struct {
	mu    sync.Mutex
	begin time.Time
	list  []string
}

// slowly is for tests that last for days: what the store says is due is found in
// time, and nothing is asked in between.
var slowly = &order.RunOptions{Poll: time.Minute}

func newNotes() *notes { return &notes{begin: time.Now()} }

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf("%v ", time.Since(n.begin).Round(time.Second))+fmt.Sprintf(format, args...))
}

func (n *notes) want(t testing.TB, want ...string) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.list, want) {
		t.Errorf("noted\n%q, want\n%q", n.list, want)
	}
}

func (n *notes) alert(_ context.Context, g order.Gap) {
	n.add("alert %s %d-%d", g.Key, g.From, g.To)
}

func (n *notes) handle(_ context.Context, m order.Message) error {
	n.add("%s:%d", m.Key, m.Position.Number)
	return nil
}

// The default: five minutes, an alert, and the number is skipped with a record
// that a person resolves.
func TestGapIsSkippedAfterFiveMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 4, 5)...)
		synctest.Wait()
		push(t, b, order.Buffered, msgs("b", 1)...)
		later(time.Hour)
		n.want(t, "0s a:1", "0s b:1", "30s alert a 2-4", "5m0s a:4", "5m0s a:5")
		gaps, err := b.Gaps(t.Context(), order.Query{Unresolved: true})
		if err != nil || len(gaps) != 1 || gaps[0].Open || gaps[0].From != 2 || gaps[0].To != 4 || gaps[0].Reason != order.ReasonTimeout {
			t.Fatalf("gaps %+v, %v", gaps, err)
		}
		wantErr(t, b.ResolveGap(t.Context(), gaps[0], order.ResolutionLost, "ops", "the sender lost them"), nil)
		if gaps, _ = b.Gaps(t.Context(), order.Query{Unresolved: true}); len(gaps) != 0 {
			t.Errorf("unresolved %+v", gaps)
		}
		if gaps, _ = b.Gaps(t.Context(), order.Query{}); len(gaps) != 1 || gaps[0].Actor != "ops" || gaps[0].Resolution != order.ResolutionLost {
			t.Errorf("resolved %+v", gaps)
		}
		found, err := b.Where(t.Context(), "a", order.Position{Epoch: 1, Number: 2}, order.Position{Epoch: 1, Number: 4})
		if err != nil || found[0].State != order.StateSkipped || found[1].State != order.StateDelivered {
			t.Errorf("found %+v, %v", found, err)
		}
		stop()
		if l := wantCursor(t, b, "a", 6, 3); l.Skipped != 2 {
			t.Errorf("%+v", l)
		}
		if st := b.Stats(); st.GapsOpened != 1 || st.GapsAlerted != 1 || st.GapsSkipped != 1 || st.SkippedNumbers != 2 || st.GapsResolved != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A restart does not start the clock of a gap again, nor is anybody told twice.
func TestGapAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, n := order.NewMemory(), newNotes()
		for range 4 { // each process lives for a minute
			b := newBuffer(t, newFaulty(mem), &order.Options{Alert: n.alert})
			stop := start(t, b, n.handle, slowly)
			b.Push(t.Context(), msgs("a", 1, 3)...)
			later(time.Minute)
			stop()
			later(10 * time.Second)
		}
		b := newBuffer(t, newFaulty(mem), &order.Options{Alert: n.alert})
		stop := start(t, b, n.handle, slowly)
		later(time.Hour)
		stop()
		n.want(t, "0s a:1", "30s alert a 2-3", "5m0s a:3")
	})
}

// A gap that fills in part keeps its age.
func TestGapIsFilled(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 5)...)
		later(10 * time.Second)
		push(t, b, order.Buffered, msgs("a", 4)...)
		later(25 * time.Second)
		push(t, b, order.Buffered, msgs("a", 3, 2)...)
		n.want(t, "0s a:1", "30s alert a 2-4", "35s a:2", "35s a:3", "35s a:4", "35s a:5")
		stop()
	})
}

func TestStopWaitsForAPerson(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert, AfterTimeout: order.Stop})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(48 * time.Hour)
		n.want(t, "0s a:1", "30s alert a 2-3")
		gaps, err := b.Gaps(t.Context(), order.Query{Key: "a"})
		if err != nil || len(gaps) != 1 || !gaps[0].Open || !gaps[0].Alerted {
			t.Fatalf("gaps %+v, %v", gaps, err)
		}
		wantErr(t, b.ResolveGap(t.Context(), gaps[0], order.ResolutionResent, "ops", "they send it again"), nil)
		later(time.Minute) // it waits as if it had just opened
		n.want(t, "0s a:1", "30s alert a 2-3", "48h0m30s alert a 2-3")
		wantErr(t, b.ResolveGap(t.Context(), gaps[0], order.ResolutionIgnore, "ops", ""), nil)
		n.want(t, "0s a:1", "30s alert a 2-3", "48h0m30s alert a 2-3", "48h1m0s a:3")
		stop()
	})
}

func TestResendIsAskedForWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{
			GapTimeout: 40 * time.Second, Alert: n.alert,
			Resend: func(_ context.Context, g order.Gap) error {
				n.add("ask %d-%d (%d)", g.From, g.To, g.Asked)
				switch g.Asked {
				case 0:
					return errBroken
				case 1:
					panic("boom")
				}
				return nil
			},
			ResendBackoff: retry.Exponential(2*time.Second, 10*time.Second, retry.NoJitter),
		})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(time.Hour)
		stop()
		n.want(t, "0s a:1", "2s ask 2-3 (0)", "6s ask 2-3 (1)", "14s ask 2-3 (2)", "24s ask 2-3 (3)", "30s alert a 2-3",
			"34s ask 2-3 (4)", "40s a:3")
		if st := b.Stats(); st.GapsAsked != 5 || st.Callbacks != 2 || st.GapsOpened != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A certain void is crossed at once, an orphaned one after OrphanWait without an
// arrival next to it.
func TestVoids(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert, Voids: func(_ context.Context, key string, epoch, from, to uint64) ([]order.Void, error) {
			if key != "a" || epoch != 1 {
				t.Errorf("asked for key %s, epoch %d", key, epoch)
			}
			return []order.Void{{From: 2, To: 4}, {From: 5, To: 20, Orphaned: true}}, nil
		}})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 4)...)
		later(time.Second)
		n.want(t, "0s a:1", "0s a:4")
		push(t, b, order.Buffered, msgs("a", 20)...)
		later(8 * time.Second)
		push(t, b, order.Buffered, msgs("a", 12)...) // at 9s: some of it was used after all
		later(8 * time.Second)
		n.want(t, "0s a:1", "0s a:4")
		later(2500 * time.Millisecond)
		n.want(t, "0s a:1", "0s a:4", "19s a:12", "19s a:20")
		stop()
		l := wantCursor(t, b, "a", 21, 4)
		if l.Void != 16 {
			t.Errorf("%+v", l)
		}
	})
}

// Voids that fail, panic or end the goroutine do not stop what else is due.
func TestVoidsFail(t *testing.T) {
	for name, voids := range map[string]func() error{
		"error":  func() error { return errBroken },
		"panic":  func() error { panic("boom") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				n := newNotes()
				b := newBuffer(t, s, &order.Options{Alert: n.alert, Voids: func(context.Context, string, uint64, uint64, uint64) ([]order.Void, error) {
					return nil, voids()
				}})
				stop := start(t, b, n.handle, slowly)
				push(t, b, order.Buffered, msgs("a", 1, 3)...)
				later(time.Hour)
				stop()
				n.want(t, "0s a:1", "30s alert a 2-3", "5m0s a:3")
				if calls := b.Stats().Callbacks; calls < 10 || calls > 100 {
					t.Errorf("voids were asked %d times", calls)
				}
			})
		})
	}
}

// A function of the options that ends its goroutine has failed, as one that panics:
// the gap is told of once, asked for, and skipped in time.
func TestGapCallbacksGoexit(t *testing.T) {
	for name, set := range map[string]func(*order.Options){
		"Alert": func(o *order.Options) { o.Alert = func(context.Context, order.Gap) { runtime.Goexit() } },
		"Resend": func(o *order.Options) {
			o.Resend = func(context.Context, order.Gap) error { runtime.Goexit(); return nil }
		},
		"Voids": func(o *order.Options) {
			o.Voids = func(context.Context, string, uint64, uint64, uint64) ([]order.Void, error) {
				runtime.Goexit()
				return nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				n, o := newNotes(), &order.Options{}
				set(o)
				b := newBuffer(t, s, o)
				stop := start(t, b, n.handle, slowly)
				push(t, b, order.Buffered, msgs("a", 1, 3)...)
				later(time.Hour)
				stop()
				n.want(t, "0s a:1", "5m0s a:3")
				if st := b.Stats(); st.Callbacks == 0 || st.Callbacks > 100 || st.GapsAlerted != 1 {
					t.Errorf("%d callbacks failed, %d alerts", st.Callbacks, st.GapsAlerted)
				}
			})
		})
	}
}

// Nobody is told twice if the record of an alert has no answer, and somebody is
// told at least once.
func TestAlertWhoseRecordIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newFaulty(order.NewMemory()), newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert})
		lost := 0
		s.before = func(st step) error {
			if st.op == "settle" && st.s[len(st.s)-1].Kind == order.KindWait && lost < 3 {
				lost++
				return errBroken
			}
			return nil
		}
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(time.Hour)
		stop()
		n.want(t, "0s a:1", "30s alert a 2-3", "5m0s a:3")
	})
}

func TestOldEpochPolicies(t *testing.T) {
	in := func(epoch, number uint64) order.Message {
		m := msg("a", number)
		m.Position.Epoch = epoch
		return m
	}
	handle := func(n *notes) func(context.Context, order.Message) error {
		return func(_ context.Context, m order.Message) error {
			n.add("%d/%d", m.Position.Epoch, m.Position.Number)
			return nil
		}
	}
	for policy, want := range map[order.EpochPolicy][]string{
		order.Drain:   {"0s 1/1", "30s alert a 2-3", "5m0s 1/3", "5m0s 2/1"},
		order.Abandon: {"0s 1/1", "0s 2/1"},
		order.Keep:    {"0s 1/1", "30s alert a 2-3"},
	} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				n := newNotes()
				b := newBuffer(t, s, &order.Options{OldEpoch: policy, Alert: n.alert})
				stop := start(t, b, handle(n), &order.RunOptions{Poll: time.Second / 3})
				push(t, b, order.Buffered, in(1, 1), in(1, 3))
				synctest.Wait()
				push(t, b, order.Buffered, in(2, 1))
				later(time.Hour)
				n.want(t, want...)
				if policy == order.Keep { // what arrives ends it
					push(t, b, order.Buffered, in(1, 2))
					b.Wake()
					synctest.Wait()
					b.Wake()
					n.want(t, append(slices.Clone(want), "1h0m0s 1/2", "1h0m0s 1/3", "1h0m0s 2/1")...)
				}
				push(t, b, order.StaleEpoch, in(1, 4))
				stop()
				account(t, b, "a")
			})
		})
	}
}

// The key whose sender begins again has a new epoch, and no other key does; a
// customer who moves from one account to another and back disturbs nobody.
func TestOneKeyRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		var got record
		stop := start(t, b, got.handle, nil)
		restarted := msg("A", 1)
		restarted.Position.Epoch = 2
		for _, m := range []order.Message{
			msg("A", 1), msg("A", 2), msg("B", 1),
			msg("B", 2),                         // the customer of A moves to B, which goes on counting
			msg("A", 3), restarted, msg("B", 3), // and back
		} {
			push(t, b, order.Buffered, m)
			synctest.Wait()
		}
		push(t, b, order.StaleEpoch, msg("A", 1)) // the old epoch has ended
		got.want(t, "A:1", "A:2", "B:1", "B:2", "A:3", "A:1", "B:3")
		stop()
		wantCursor(t, b, "B", 4, 3)
		if a := account(t, b, "A"); len(a.Ledgers) != 2 || a.Ledgers[0].Epoch != 2 || a.Ledgers[0].Cursor != 2 || !a.Ledgers[1].Ended {
			t.Errorf("%+v", a)
		}
	})
}

// A gap that is filled from below, one number after another, is one gap: nobody is
// told again, and nobody is asked before it is time.
func TestGapIsFilledFromBelow(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		alerts, asks := 0, 0
		b := newBuffer(t, s, &order.Options{
			Alert:  func(context.Context, order.Gap) { alerts++ },
			Resend: func(context.Context, order.Gap) error { asks++; return nil },
		})
		var got record
		stop := start(t, b, got.handle, nil)
		push(t, b, order.Buffered, msgs("a", 1, 102)...)
		later(32 * time.Second) // asked after 1, 3, 7, 15 and 31 seconds
		if alerts != 1 || asks != 5 {
			t.Fatalf("%d alerts and %d asks before anything arrives", alerts, asks)
		}
		for n := uint64(2); n < 102; n++ {
			push(t, b, order.Buffered, msg("a", n))
			later(300 * time.Millisecond)
		}
		got.want(t, names("a", 1, 102)...)
		stop()
		if alerts != 1 || asks != 5 { // the next is due after 63 seconds
			t.Errorf("%d alerts and %d asks after the gap was filled in 30 seconds", alerts, asks)
		}
		if n := b.Stats(); n.GapsOpened != 1 {
			t.Errorf("%d gaps opened", n.GapsOpened)
		}
	})
}

// The alert and the skip fall into one look, and the record has both.
func TestAlertOfTheLookThatSkips(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert, GapTimeout: 20 * time.Second})
		stop := start(t, b, n.handle, slowly)
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(time.Minute)
		stop()
		n.want(t, "0s a:1", "20s alert a 2-3", "20s a:3")
		gaps, err := b.Gaps(t.Context(), order.Query{})
		if err != nil || len(gaps) != 1 || gaps[0].Open || !gaps[0].Alerted || gaps[0].Asked != 0 {
			t.Errorf("gaps %+v, %v", gaps, err)
		}
	})
}

// The time of a gap is over before anybody could do anything about it, because no
// worker ran or its key was held up: it is not skipped before somebody was told, and
// the sender asked, and had a moment.
func TestGapThatTimedOutUnseen(t *testing.T) {
	resend := retry.Exponential(3*time.Second, time.Minute, retry.NoJitter)
	for name, test := range map[string]struct {
		opts   order.Options
		resend bool
		at     []uint64      // what is pushed
		down   time.Duration // for how long no worker runs
		want   []string
		asked  int
	}{
		"asked": {resend: true, opts: order.Options{ResendBackoff: resend}, at: []uint64{3}, down: 10 * time.Minute,
			want: []string{"10m0s alert a 1-3", "10m0s ask 1-3 (0)", "10m3s a:3"}, asked: 1},
		"first ask is after the deadline": {resend: true, opts: order.Options{ResendBackoff: resend, GapTimeout: time.Second, AlertAfter: 20 * time.Second}, at: []uint64{3},
			want: []string{"1s alert a 1-3", "1s ask 1-3 (0)", "2s a:3"}, asked: 1},
		"told": {at: []uint64{3}, down: 10 * time.Minute,
			want: []string{"10m0s alert a 1-3", "10m1s a:3"}},
		"voids do not shorten it": {opts: order.Options{ResendBackoff: resend, Voids: func(context.Context, string, uint64, uint64, uint64) ([]order.Void, error) { return nil, nil }},
			at: []uint64{3}, down: 10 * time.Minute,
			want: []string{"10m0s alert a 1-3", "10m3s a:3"}},
		"short deadline": {opts: order.Options{ResendBackoff: resend, GapTimeout: 2 * time.Second, AlertAfter: time.Second}, at: []uint64{3}, down: time.Minute,
			want: []string{"1m0s alert a 1-3", "1m2s a:3"}},
		"stop asks for ever": {resend: true, opts: order.Options{AfterTimeout: order.Stop, ResendBackoff: retry.Exponential(time.Hour, time.Hour, retry.NoJitter)}, at: []uint64{3}, down: 30 * time.Minute,
			want: []string{"30m0s alert a 1-3", "1h0m0s ask 1-3 (0)"}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				n, o := newNotes(), test.opts
				o.Alert = n.alert
				if test.resend {
					o.Resend = func(_ context.Context, g order.Gap) error {
						n.add("ask %d-%d (%d)", g.From, g.To, g.Asked)
						return nil
					}
				}
				b := newBuffer(t, s, &o)
				push(t, b, order.Buffered, msgs("a", test.at...)...)
				later(test.down)
				stop := start(t, b, n.handle, slowly)
				later(90*time.Minute - test.down)
				stop()
				n.want(t, test.want...)
				gaps, err := b.Gaps(t.Context(), order.Query{})
				if err != nil || len(gaps) != 1 || !gaps[0].Alerted || gaps[0].Asked != test.asked {
					t.Errorf("gaps %+v, %v", gaps, err)
				}
			})
		})
	}
}

// What comes in the moment that a gap is given is in order.
func TestGapIsFilledWhenAskedAtLast(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		var b *order.Buffer
		b = newBuffer(t, s, &order.Options{Resend: func(_ context.Context, g order.Gap) error {
			go b.Push(context.Background(), msgs("a", 2)...)
			return nil
		}})
		broken := true
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if m.Position.Number == 1 && broken {
				return errBroken
			}
			return n.handle(ctx, m)
		}, &order.RunOptions{MaxAttempts: 1, Poll: time.Minute})
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(time.Hour)
		broken = false
		wantErr(t, b.Resume(t.Context(), "a", order.Position{Epoch: 1, Number: 1}, "ops", ""), nil)
		later(time.Minute)
		stop()
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.list) != 3 || b.Stats().GapsSkipped != 0 {
			t.Errorf("noted %q, %d gaps skipped", n.list, b.Stats().GapsSkipped)
		}
	})
}

// Behind a message that was parked, a gap that is told of only at its end is given
// the moment, too.
func TestGapBehindParkedIsGivenAMoment(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		n := newNotes()
		b := newBuffer(t, s, &order.Options{Alert: n.alert, GapTimeout: 10 * time.Second})
		broken := true
		stop := start(t, b, func(ctx context.Context, m order.Message) error {
			if m.Position.Number == 1 && broken {
				return errBroken
			}
			return n.handle(ctx, m)
		}, &order.RunOptions{MaxAttempts: 1, Poll: 100 * time.Millisecond})
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		later(time.Hour)
		broken = false
		wantErr(t, b.Resume(t.Context(), "a", order.Position{Epoch: 1, Number: 1}, "ops", ""), nil)
		later(time.Minute)
		stop()
		n.want(t, "1h0m0s a:1", "1h0m0s alert a 2-3", "1h0m1s a:3")
	})
}

// What a worker has in hand when a new epoch abandons its epoch is skipped, and
// nothing else is said of it.
func TestAbandonWhatIsInHand(t *testing.T) {
	for _, mode := range []order.Mode{order.Idempotent, order.AtMostOnce} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				var hook, got record
				b := newBuffer(t, s, &order.Options{OldEpoch: order.Abandon, Hooks: &order.Hooks{
					Delivered: func(_ context.Context, m order.Message) { hook.add(m) },
				}})
				stop := start(t, b, func(_ context.Context, m order.Message) error {
					if m.Position.Epoch == 1 {
						time.Sleep(time.Second)
					}
					got.add(m)
					return nil
				}, &order.RunOptions{Mode: mode, Poll: time.Minute})
				push(t, b, order.Buffered, msgs("a", 1, 2, 3)...)
				later(1500 * time.Millisecond)
				second := msg("a", 1)
				second.Position.Epoch = 2
				push(t, b, order.Buffered, second)
				later(5 * time.Second)
				stop()
				got.want(t, "a:1", "a:2", "a:1") // 3 is not begun
				a := account(t, b, "a")
				if len(a.Ledgers) != 2 {
					t.Fatalf("%+v", a)
				}
				total := a.Ledgers[0].Delivered + a.Ledgers[1].Delivered
				if n := b.Stats(); n.Delivered != total || uint64(len(hook.got())) != total || a.Ledgers[1].Skipped == 0 || a.Claimed {
					t.Errorf("%d counted as delivered, %v told, but the ledgers are %+v", n.Delivered, hook.got(), a.Ledgers)
				}
			})
		})
	}
}
