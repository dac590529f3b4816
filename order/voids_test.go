package order_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

// never returns Options.Voids of numbers that were never used.
func never(voids ...order.Void) func(context.Context, string, uint64, uint64, uint64) ([]order.Void, error) {
	return func(context.Context, string, uint64, uint64, uint64) ([]order.Void, error) { return voids, nil }
}

// An orphaned range of which a message arrives every second, in order, is in use:
// it is not crossed, whether its messages have IDs or not.
func TestOrphanedRangeInUse(t *testing.T) {
	for _, ids := range []bool{false, true} {
		t.Run(fmt.Sprint("ids=", ids), func(t *testing.T) {
			bubble(t, func(t *testing.T, s order.Store) {
				b := newBuffer(t, s, &order.Options{Voids: never(order.Void{From: 1, To: 101, Orphaned: true})})
				var got record
				stop := start(t, b, got.handle, nil)
				in := func(n uint64) order.Message {
					m := msg("a", n)
					if ids {
						m.ID = fmt.Sprint("id", n)
					}
					return m
				}
				push(t, b, order.Buffered, in(101))
				for n := range uint64(30) {
					later(time.Second)
					push(t, b, order.Buffered, in(n+1))
				}
				later(9 * time.Second)
				if l := wantCursor(t, b, "a", 31, 30); l.Void != 0 {
					t.Errorf("%+v", l)
				}
				later(2 * time.Second)
				stop()
				if l := wantCursor(t, b, "a", 102, 31); l.Void != 70 {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// What is left of an orphaned range with many holes is crossed at once, as far as
// nothing of it arrived for a while.
func TestOrphanedRangeWithHoles(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{Voids: never(order.Void{From: 1, To: 101, Orphaned: true})})
		var got record
		stop := start(t, b, got.handle, nil)
		for n := uint64(2); n <= 100; n += 2 {
			push(t, b, order.Buffered, msg("a", n))
		}
		later(12 * time.Second)
		wantCursor(t, b, "a", 101, 50)
		stop()
	})
}

// A void behind numbers that are missing: those are skipped, and it is not.
func TestVoidWithinASkippedGap(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		f := newFaulty(s)
		voids := 0
		f.before = func(st step) error {
			for _, x := range st.s {
				if x.Kind == order.KindVoid {
					voids++
				}
			}
			return nil
		}
		b := newBuffer(t, f, &order.Options{Voids: never(order.Void{From: 5, To: 8}, order.Void{From: 3, To: 6}, order.Void{From: 6, To: 9})})
		var got record
		stop := start(t, b, got.handle, nil)
		push(t, b, order.Buffered, msgs("a", 1, 10)...)
		later(time.Hour)
		stop()
		n, l := b.Stats(), wantCursor(t, b, "a", 11, 2)
		if n.SkippedNumbers != 2 || n.GapsSkipped != 1 || l.Skipped != 2 || l.Void != 6 {
			t.Errorf("%d gaps and %d numbers counted as skipped, the ledger is %+v", n.GapsSkipped, n.SkippedNumbers, l)
		}
		if voids != 3 || n.Voided != 3 {
			t.Errorf("3 ranges were sent %d times and counted %d times", voids, n.Voided)
		}
	})
}

// A void behind a number that arrives after all is crossed then.
func TestVoidBehindAMissingNumber(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{Voids: never(order.Void{From: 3, To: 6}, order.Void{From: 6, To: 9})})
		var got record
		stop := start(t, b, got.handle, nil)
		push(t, b, order.Buffered, msgs("a", 1, 9)...)
		later(time.Minute)
		push(t, b, order.Buffered, msg("a", 2))
		later(10 * time.Second)
		got.want(t, "a:1", "a:2", "a:9")
		stop()
		synctest.Wait()
	})
}
