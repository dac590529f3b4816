package order_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// skip makes a buffer skip number 2 of key a, with 1 and 3 delivered.
func skip(t *testing.T, b *order.Buffer) {
	t.Helper()
	push(t, b, order.Buffered, msgs("a", 1, 3)...)
	synctest.Wait()
	gaps, err := b.Gaps(t.Context(), order.Query{})
	if err != nil || len(gaps) != 1 {
		t.Fatal(gaps, err)
	}
	if err := b.ResolveGap(t.Context(), gaps[0], order.ResolutionLost, "ops", ""); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// What comes after its number was skipped is handed over out of order, and the
// cursor does not go back.
func TestLateMessage(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		var got, late record
		b := newBuffer(t, s, &order.Options{OnLate: late.handle})
		stop := start(t, b, got.handle, nil)
		skip(t, b)
		push(t, b, order.Late, msg("a", 2))
		push(t, b, order.Buffered, msg("a", 4))
		late.want(t, "a:2")
		got.want(t, "a:1", "a:3", "a:4")
		push(t, b, order.Duplicate, msg("a", 2))
		stop()
		if m := late.messages()[0]; !m.Late || m.Attempt != 1 || string(m.Payload) != "a2" {
			t.Errorf("got %+v", m)
		} else if g := m.Gap; g == nil || g.From != 2 || g.To != 3 || g.Reason != order.ReasonResolved || g.Actor != "ops" {
			t.Errorf("its gap is %+v", g)
		}
		if l := wantCursor(t, b, "a", 5, 3); l.Late != 1 || l.Skipped != 0 {
			t.Errorf("%+v", l)
		}
		if gaps, _ := b.Gaps(t.Context(), order.Query{}); len(gaps) != 1 || gaps[0].Arrived != 1 {
			t.Errorf("gaps %+v", gaps)
		}
		if n := b.Stats(); n.Late != 1 || n.LateDelivered != 1 {
			t.Errorf("stats %+v", n)
		}
	})
}

// A late message that fails, panics or ends the goroutine is tried again, is
// parked at last, and holds up nothing.
func TestLateMessageThatFails(t *testing.T) {
	for name, bad := range map[string]func() error{
		"error":  func() error { return errBroken },
		"panic":  func() error { panic("boom") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				var got, late record
				fails := true
				b := newBuffer(t, s, &order.Options{OnLate: func(_ context.Context, m order.Message) error {
					if late.add(m); fails {
						return bad()
					}
					return nil
				}})
				stop := start(t, b, got.handle, &order.RunOptions{MaxAttempts: 3, Backoff: retry.Constant(10 * time.Second)})
				skip(t, b)
				push(t, b, order.Late, msg("a", 2))
				later(time.Second)
				push(t, b, order.Buffered, msgs("a", 4, 5)...)
				later(time.Second)
				got.want(t, "a:1", "a:3", "a:4", "a:5")
				later(time.Hour)
				late.want(t, "a:2", "a:2", "a:2")
				if m := late.messages()[1]; m.Attempt != 2 || m.Error == "" || !m.Late {
					t.Errorf("the second attempt was %+v", m)
				}
				list, err := b.Parked(t.Context(), order.Query{})
				if err != nil || len(list) != 1 || !list[0].Late || list[0].Attempt != 3 {
					t.Fatalf("parked %+v, %v", list, err)
				}
				push(t, b, order.Buffered, msg("a", 6))
				later(time.Second)
				got.want(t, "a:1", "a:3", "a:4", "a:5", "a:6")
				fails = false
				wantErr(t, b.Resume(t.Context(), "a", list[0].Position, "ops", ""), nil)
				later(time.Second)
				late.want(t, "a:2", "a:2", "a:2", "a:2")
				stop()
				if a := account(t, b, "a"); a.LateWaiting != 0 {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// While the message in order waits for its next attempt, a late one is handed over,
// and while a late one waits, the others are delivered.
func TestLateAndFailingAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		var got, late record
		b := newBuffer(t, s, &order.Options{OnLate: late.handle})
		stop := start(t, b, func(_ context.Context, m order.Message) error {
			if got.add(m); m.Position.Number == 4 && m.Attempt == 1 {
				return errBroken
			}
			return nil
		}, &order.RunOptions{Backoff: retry.Constant(time.Minute)})
		skip(t, b)
		push(t, b, order.Buffered, msg("a", 4))
		synctest.Wait()
		push(t, b, order.Late, msg("a", 2))
		late.want(t, "a:2")
		got.want(t, "a:1", "a:3", "a:4")
		later(61 * time.Second)
		got.want(t, "a:1", "a:3", "a:4", "a:4")
		stop()
	})
}

// Without OnLate, late messages are counted and not stored; those stored under
// other options park in the end.
func TestNoOnLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := order.NewMemory()
		b := newBuffer(t, mem, nil)
		var got record
		stop := start(t, b, got.handle, &order.RunOptions{MaxAttempts: 2, Backoff: retry.Constant(time.Second)})
		skip(t, b)
		push(t, b, order.Late, msg("a", 2))
		later(time.Minute)
		if a := account(t, b, "a"); a.LateWaiting != 0 || a.Ledgers[0].Late != 1 {
			t.Errorf("%+v", a)
		}
		with := newBuffer(t, mem, &order.Options{OnLate: got.handle})
		push(t, with, order.Buffered, msg("a", 5))
		gaps, err := b.Gaps(t.Context(), order.Query{After: order.Cursor{Key: "a", Position: order.Position{Epoch: 1, Number: 3}}})
		if err != nil || len(gaps) != 1 {
			t.Fatal(gaps, err)
		}
		wantErr(t, b.ResolveGap(t.Context(), gaps[0], order.ResolutionIgnore, "ops", ""), nil)
		push(t, with, order.Late, msg("a", 4))
		later(time.Minute)
		list, err := b.Parked(t.Context(), order.Query{})
		if err != nil || len(list) != 1 || list[0].Error == "" {
			t.Errorf("parked %+v, %v", list, err)
		}
		stop()
	})
}

// A late message is in the hands of OnLate, which takes long: what is in order
// waits for it, and not for the others.
func TestLateMessagesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		begin, late := time.Now(), 0
		b := newBuffer(t, s, &order.Options{OnLate: func(ctx context.Context, m order.Message) error {
			if late++; m.Attempt != 1 {
				t.Errorf("number %d was handed over with attempt %d", m.Position.Number, m.Attempt)
			}
			time.Sleep(10 * time.Second)
			return nil
		}})
		took := map[uint64]time.Duration{}
		stop := start(t, b, func(_ context.Context, m order.Message) error {
			took[m.Position.Number] = time.Since(begin)
			return nil
		}, &order.RunOptions{MaxAttempts: 2, Poll: time.Minute})
		skipUpTo(t, b, 102)
		push(t, b, order.Late, msgs("a", numbers(2, 66)...)...)
		later(time.Second)
		begin = time.Now()
		push(t, b, order.Buffered, msg("a", 103))
		later(12 * time.Second)
		if took[103] != 9*time.Second {
			t.Errorf("number 103 was delivered after %v, want 9s: when OnLate has returned", took[103])
		}
		later(time.Hour)
		stop()
		if a := account(t, b, "a"); late != 64 || a.LateWaiting != 0 {
			t.Errorf("%d late messages were handed over, %d wait", late, a.LateWaiting)
		}
	})
}

// An OnLate that does not return holds its key no longer than its context allows.
func TestOnLateIsBounded(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 2 * time.Second: 2 * time.Second} {
		bubble(t, func(t *testing.T, s order.Store) {
			var took time.Duration
			b := newBuffer(t, s, &order.Options{OnLate: func(ctx context.Context, m order.Message) error {
				begin := time.Now()
				<-ctx.Done()
				took = time.Since(begin)
				return ctx.Err()
			}})
			var got record
			stop := start(t, b, got.handle, &order.RunOptions{Timeout: timeout, MaxAttempts: 1})
			skip(t, b)
			push(t, b, order.Late, msg("a", 2))
			synctest.Wait()
			push(t, b, order.Buffered, msg("a", 4))
			later(10 * time.Second)
			got.want(t, "a:1", "a:3", "a:4")
			if took != want {
				t.Errorf("with a timeout of %v OnLate had %v, want %v", timeout, took, want)
			}
			stop()
		})
	}
}

// A gap that is to be skipped closes while a late message of its key is handed
// over: the skip is refused, and nothing else is.
func TestSkipIsRefusedBesideALateMessage(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		late := 0
		var b *order.Buffer
		b = newBuffer(t, s, &order.Options{AlertAfter: time.Hour, OnLate: func(context.Context, order.Message) error {
			if late++; late == 1 {
				push(t, b, order.Buffered, msg("a", 6)) // of the gap
			}
			time.Sleep(150 * time.Millisecond)
			return nil
		}})
		n := newNotes()
		stop := start(t, b, n.handle, nil)
		skipUpTo(t, b, 4)
		stop()
		push(t, b, order.Buffered, msg("a", 7)) // 5 and 6 are missing
		later(6 * time.Minute)
		push(t, b, order.Late, msgs("a", 2, 3)...)
		begin := time.Now()
		n.list = nil
		stop = start(t, b, n.handle, nil)
		later(5 * time.Second)
		at := begin.Sub(n.begin).Round(time.Second)
		n.want(t, at.String()+" a:6", at.String()+" a:7")
		stop()
		if late != 2 {
			t.Errorf("2 late messages were handed over %d times", late)
		}
		if l := wantCursor(t, b, "a", 8, 4); l.Skipped != 1 || l.Late != 2 {
			t.Errorf("%+v", l)
		}
	})
}

// skipUpTo makes a buffer skip the numbers from 2 to below n of key a, with 1 and n
// delivered.
func skipUpTo(t *testing.T, b *order.Buffer, n uint64) {
	t.Helper()
	push(t, b, order.Buffered, msgs("a", 1, n)...)
	later(6 * time.Minute)
	wantCursor(t, b, "a", n+1, 2)
}

// numbers are those in [from, to).
func numbers(from, to uint64) (list []uint64) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}
