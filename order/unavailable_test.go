package order_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

// The degraded mode: no order while the store is down, and an account
// that adds up afterwards.
func TestDegradedMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		var got, direct record
		var switches []bool
		b := newBuffer(t, s, &order.Options{
			OnUnavailable: func(_ context.Context, ms []order.Message) []error {
				for _, m := range ms {
					direct.add(m)
				}
				return nil
			},
			Hooks: &order.Hooks{Unavailable: func(down bool) { switches = append(switches, down) }},
		})
		stop := start(t, b, got.handle, nil)
		push(t, b, order.Buffered, msgs("a", 1, 2)...)
		got.want(t, "a:1", "a:2")

		s.set(func(f *faulty) { f.before = func(step) error { return errBroken } })
		push(t, b, order.Unordered, msgs("a", 4, 3)...)
		push(t, b, order.Unordered, msgs("b", 1)...)
		direct.want(t, "a:4", "a:3", "b:1")
		later(time.Minute)
		push(t, b, order.Unordered, msgs("a", 6)...) // 5 is still on its way
		if n := b.Stats(); n.Unordered != 4 || n.Unreported != 4 {
			t.Errorf("stats %+v", n)
		}

		var steps []order.Kind
		s.set(func(f *faulty) {
			f.before = nil
			f.after = func(st step) error {
				if st.op == "push" {
					steps = append(steps, 0)
				} else if st.op == "settle" {
					steps = append(steps, st.s[0].Kind)
				}
				return nil
			}
		})
		time.Sleep(1100 * time.Millisecond) // without letting the worker run first
		push(t, b, order.Buffered, msgs("a", 5, 7)...)
		later(10 * time.Second) // the worker had given up on the store for some seconds
		got.want(t, "a:1", "a:2", "a:5", "a:7")
		direct.want(t, "a:4", "a:3", "b:1", "a:6")
		stop()
		if len(steps) == 0 || steps[0] != order.KindUnordered {
			t.Errorf("the first step of the store that answered again was %v", steps)
		}
		if l := wantCursor(t, b, "a", 8, 7); l.OutOfOrder != 3 {
			t.Errorf("%+v", l)
		}
		wantCursor(t, b, "b", 2, 1)
		if n := b.Stats(); n.Unreported != 0 || n.Reported != 4 || n.Forgotten != 0 {
			t.Errorf("stats %+v", n)
		}
		if !slices.Equal(switches, []bool{true, false}) {
			t.Errorf("switches %v", switches)
		}
	})
}

// Workers report what was handed over when nobody pushes.
func TestReportWithoutAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(context.Context, []order.Message) []error { return nil }})
		s.before = func(step) error { return errBroken }
		push(t, b, order.Unordered, msgs("a", 2, 1)...)
		s.before = nil
		var got record
		stop := start(t, b, got.handle, nil)
		later(2 * time.Second)
		stop()
		got.want(t)
		wantCursor(t, b, "a", 3, 2)
	})
}

// A store that hangs is given up on after UnavailableAfter, once, and is not waited
// for by every push.
func TestDegradedModeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(context.Context, []order.Message) []error { return nil }})
		s.hang = func(step) bool { return true }
		begin := time.Now()
		for n := range 100 {
			push(t, b, order.Unordered, msg(fmt.Sprint("key", n), 1))
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("100 pushes took %v, want 1s", took)
		}
	})
}

// A message that OnUnavailable does not take has no answer, and one that panics
// takes none.
func TestOnUnavailableFails(t *testing.T) {
	for name, f := range map[string]func(ms []order.Message) []error{
		"error":  func(ms []order.Message) []error { return []error{nil, errors.New("dedup is down, too")} },
		"short":  func(ms []order.Message) []error { return []error{nil} },
		"panics": func(ms []order.Message) []error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty(order.NewMemory())
				b := newBuffer(t, s, &order.Options{OnUnavailable: func(_ context.Context, ms []order.Message) []error { return f(ms) }})
				s.before = fail("push")
				answers, err := b.Push(t.Context(), msgs("a", 1, 2)...)
				if !errors.Is(err, order.ErrUnavailable) || answers[1].Err == nil || (answers[0].Err == nil) != (name == "error") {
					t.Errorf("got %+v, %v", answers, err)
				}
			})
		})
	}
}

// Messages are handed over one call at a time and in the order of their arrival.
func TestOnUnavailableIsCalledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		var direct record
		busy := false
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(_ context.Context, ms []order.Message) []error {
			if busy {
				t.Error("two calls at once")
			}
			busy = true
			for _, m := range ms {
				time.Sleep(time.Second)
				direct.add(m)
			}
			busy = false
			return nil
		}})
		s.before = fail("push")
		var wg sync.WaitGroup
		var want []string
		for n := range uint64(20) {
			wg.Go(func() { push(t, b, order.Unordered, msg("a", n+1)) })
			time.Sleep(time.Millisecond)
			want = append(want, fmt.Sprint("a:", n+1))
		}
		wg.Wait()
		direct.want(t, want...)
	})
}

// One part of the store is down: the others are not touched, and a key of that
// part goes on without order until its messages are reported.
func TestPartOfTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partial{Store: order.NewMemory(), down: true}
		var direct record
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(_ context.Context, ms []order.Message) []error {
			for _, m := range ms {
				direct.add(m)
			}
			return nil
		}})
		answers, err := b.Push(t.Context(), msg("down", 1), msg("up", 1), msg("down", 2))
		if err != nil || answers[0].State != order.Unordered || answers[1].State != order.Buffered || answers[2].State != order.Unordered {
			t.Fatalf("got %+v, %v", answers, err)
		}
		s.down = false
		push(t, b, order.Unordered, msg("down", 3)) // it is too early to ask again
		push(t, b, order.Buffered, msg("up", 2))
		time.Sleep(time.Second)
		push(t, b, order.Buffered, msg("down", 4))
		direct.want(t, "down:1", "down:2", "down:3")
		if l := account(t, b, "down").Ledgers[0]; l.Cursor != 4 || l.OutOfOrder != 3 {
			t.Errorf("%+v", l)
		}
	})
}

// A partial store has no answer for the key "down".
type partial struct {
	order.Store
	down bool
}

func (s *partial) Push(ctx context.Context, p order.Params, a []order.Arrival) ([]order.Answer, error) {
	answers := make([]order.Answer, len(a))
	for i := range a {
		if s.down && a[i].Key == "down" {
			answers[i].Err = errBroken
			continue
		}
		one, err := s.Store.Push(ctx, p, a[i:i+1])
		if err != nil {
			return nil, err
		}
		answers[i] = one[0]
	}
	return answers, nil
}

// Settled is for callers that deliver without the buffer by themselves.
func TestSettled(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{MaxAhead: 100})
		var got record
		stop := start(t, b, got.handle, nil)
		at := func(n uint64) order.Position { return order.Position{Epoch: 1, Number: n} }
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		wantErr(t, b.Settled(t.Context(), "a", at(2), at(4)), nil)
		later(time.Second)
		got.want(t, "a:1", "a:3")
		push(t, b, order.Duplicate, msg("a", 2))
		wantErr(t, b.Settled(t.Context(), "a", at(1000)), order.ErrTooFar)
		wantErr(t, b.Settled(t.Context(), "a", at(0)), order.ErrInvalid)
		wantErr(t, b.Settled(t.Context(), "", at(1)), order.ErrInvalid)
		stop()
		if l := wantCursor(t, b, "a", 5, 4); l.OutOfOrder != 2 {
			t.Errorf("%+v", l)
		}
	})
}

// Much is to be reported: a push does not wait for all of it, and its key's order
// is kept.
func TestReportInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(context.Context, []order.Message) []error { return nil }})
		s.before = fail("push")
		const n = 20_000
		push(t, b, order.Unordered, msgs("a", numbers(1, n+1)...)...)
		s.before = func(step) error { // a store that takes its time
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		time.Sleep(time.Second)
		begin := time.Now()
		push(t, b, order.Buffered, msg("b", 1))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("a push waited %v for the report of others", took)
		}
		push(t, b, order.Unordered, msg("a", n+1))
		for range n / 1000 {
			push(t, b, order.Buffered, msg("c", 1+b.Stats().Buffered))
		}
		if st := b.Stats(); st.Unreported != 0 || st.Reported != n+1 || st.Forgotten != 0 {
			t.Errorf("stats %+v", st)
		}
		push(t, b, order.Buffered, msg("a", n+2))
		wantCursor(t, b, "a", n+2, n+1)
	})
}

// One position that cannot be noted holds up no other, in its batch or behind it.
func TestSettledGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{MaxAhead: 2000})
		positions := []order.Position{{Epoch: 1, Number: 5000}}
		for n := range uint64(1100) {
			positions = append(positions, order.Position{Epoch: 1, Number: n + 1})
		}
		positions = append(positions, order.Position{Epoch: 1, Number: 6000})
		err := b.Settled(t.Context(), "a", positions...)
		wantErr(t, err, order.ErrTooFar)
		if text := fmt.Sprint(err); !strings.Contains(text, "number 5000 of") || !strings.Contains(text, "number 6000 of") {
			t.Errorf("the error names not both: %v", err)
		}
		if l := account(t, b, "a").Ledgers[0]; l.OutOfOrder != 1100 {
			t.Errorf("%d of 1100 were noted", l.OutOfOrder)
		}
	})
}

// What was handed over of a key that is forgotten is not reported, unless the key is
// not known to be forgotten.
func TestForgetDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, &order.Options{OnUnavailable: func(context.Context, []order.Message) []error { return nil }})
		unreported := func(want int) {
			t.Helper()
			if n := b.Stats().Unreported; n != want {
				t.Errorf("%d are to be reported, want %d", n, want)
			}
		}
		s.set(func(f *faulty) { f.before = func(step) error { return errBroken } })
		push(t, b, order.Unordered, msgs("a", 1, 2)...)
		push(t, b, order.Unordered, msgs("b", 1)...)
		push(t, b, order.Unordered, msgs("c", 1)...)
		wantErr(t, b.Forget(t.Context(), "a"), order.ErrUnavailable)
		wantErr(t, b.Forget(t.Context(), "unknown"), order.ErrUnavailable)
		unreported(4)
		s.set(func(f *faulty) { f.before = fail("push") })
		wantErr(t, b.Forget(t.Context(), "a"), nil)
		unreported(2)
		push(t, b, order.Unordered, msgs("c", 2)...) // the push reports the others first
		unreported(1)
		s.set(func(f *faulty) { f.before = nil })
		later(5 * time.Second)
		push(t, b, order.Buffered, msgs("d", 1)...)
		unreported(0)
		if a := account(t, b, "a"); len(a.Ledgers) > 0 {
			t.Errorf("the forgotten key is there again: %+v", a.Ledgers)
		}
		for key, want := range map[string]uint64{"b": 1, "c": 2} {
			if l := account(t, b, key).Ledgers[0]; l.OutOfOrder != want {
				t.Errorf("key %s: %+v", key, l)
			}
		}
		push(t, b, order.Buffered, msgs("a", 1)...) // it is new, and nothing holds it back
	})
}
