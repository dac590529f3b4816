package order_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/retry"
)

// A process works a key over a shared store until it dies at a step of that store:
// from then on nothing it does has an effect.
type process struct {
	*faulty
	dead atomic.Bool
}

// newProcess returns a process that dies at its n-th step, before or after the
// step is applied. Zero: it does not.
func newProcess(mem order.Store, n int, applied bool) *process {
	p := &process{faulty: newFaulty(mem)}
	die := func(st step) error {
		if n > 0 && st.n >= n {
			p.dead.Store(true)
		}
		if p.dead.Load() {
			return errBroken
		}
		return nil
	}
	if applied {
		p.after = die
		p.before = func(step) error {
			if p.dead.Load() {
				return errBroken
			}
			return nil
		}
	} else {
		p.before = die
	}
	return p
}

// effects are what handlers do to the world.
type effects struct {
	mu   sync.Mutex
	list []uint64
}

// handler returns a handler whose messages have an effect while its process lives:
// the second fails once, the fourth panics once, the sixth takes long.
func (e *effects) handler(p *process) func(context.Context, order.Message) error {
	return func(ctx context.Context, m order.Message) error {
		n := m.Position.Number
		if n == 6 {
			time.Sleep(150 * time.Millisecond)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if p.dead.Load() {
			return errBroken
		}
		e.list = append(e.list, n)
		switch {
		case n == 2 && m.Attempt == 1:
			return errBroken
		case n == 4 && m.Attempt == 1:
			panic("boom")
		}
		return nil
	}
}

// The process dies between any two steps, with the last one applied or not, and
// another one goes on: every message has its effect at least once, none before the
// one in front of it, and the sums hold.
func TestCrashBetweenAnyTwoSteps(t *testing.T) {
	for _, mode := range []order.Mode{order.Idempotent, order.AtMostOnce} {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("mode=%d,applied=%v", mode, applied), func(t *testing.T) {
				steps := 1
				for died := true; died; steps++ {
					synctest.Test(t, func(t *testing.T) { died = crashAt(t, steps, applied, mode) })
				}
				if steps < 8 {
					t.Errorf("there were only %d steps to die at", steps)
				}
			})
		}
	}
}

func crashAt(t *testing.T, n int, applied bool, mode order.Mode) (died bool) {
	mem := order.NewMemory()
	var world effects
	first := newProcess(mem, n, applied)
	opts := &order.RunOptions{Mode: mode, Batch: 4, Backoff: retry.Constant(time.Second)}
	b := newBuffer(t, first, &order.Options{StoreTimeout: time.Second})
	push := func(b *order.Buffer) {
		for _, m := range msgs("a", 2, 1, 3, 5, 4, 8, 7, 6) { // the sender sends until it has an answer
			b.Push(t.Context(), m)
		}
	}
	stop := start(t, b, world.handler(first), opts)
	push(b)
	later(10 * time.Second)
	stop()
	later(time.Minute)

	second := newProcess(mem, 0, false)
	b = newBuffer(t, second, nil)
	stop = start(t, b, world.handler(second), opts)
	push(b)
	later(time.Minute)
	stop()
	wantCursor(t, b, "a", 9, 8)

	seen := map[uint64]int{}
	for i, n := range world.list {
		if seen[n]++; n > 1 && seen[n-1] == 0 && mode == order.Idempotent {
			t.Fatalf("died at %d: number %d before the one in front of it: %v", n, n, world.list)
		}
		if i > 0 && n < world.list[i-1] && mode == order.AtMostOnce {
			t.Fatalf("died at %d: the order is broken: %v", n, world.list)
		}
	}
	for n := uint64(1); n <= 8; n++ {
		switch {
		case mode == order.Idempotent && seen[n] == 0:
			t.Errorf("died at step %d: number %d had no effect: %v", n, n, world.list)
		case mode == order.AtMostOnce && seen[n] > 1:
			t.Errorf("died at step %d: number %d had %d effects: %v", n, n, seen[n], world.list)
		}
	}
	return first.dead.Load()
}

// Every reply is lost now and then, and every step is sent twice: nothing is
// delivered out of order, lost, or left undelivered.
func TestLossyStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(3, 4))
		numbers := r.Perm(300)
		lossy := func(step) error {
			mu.Lock()
			defer mu.Unlock()
			if r.IntN(4) == 0 {
				return errBroken
			}
			return nil
		}
		s.before, s.after = lossy, lossy
		b := newBuffer(t, s, nil)
		var got record
		stop := start(t, b, got.handle, &order.RunOptions{Batch: 7, Lease: 10 * time.Second})
		for _, n := range numbers {
			for {
				if _, err := b.Push(t.Context(), msg("a", uint64(n+1))); err == nil {
					break
				}
			}
		}
		later(10 * time.Minute)
		s.set(func(f *faulty) { f.before, f.after = nil, nil })
		stop()
		wantCursor(t, b, "a", 301, 300)
		if list := slices.Compact(got.got()); !slices.Equal(list, names("a", 1, 300)) {
			t.Errorf("delivered %v", list)
		}
	})
}

// The clock of the store jumps by an hour, either way, while a lease, a backoff and
// a gap are open: they end by the store's time, nothing is lost or out of order, and
// no age is negative.
func TestClockOfTheStoreJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, n := order.NewMemory(), newNotes()
				b := newBuffer(t, newFaulty(mem), &order.Options{Alert: n.alert})
				stop := start(t, b, func(ctx context.Context, m order.Message) error {
					if m.Age < 0 {
						t.Errorf("%s:%d is %v old", m.Key, m.Position.Number, m.Age)
					}
					switch {
					case m.Key == "backoff" && m.Position.Number == 1 && m.Attempt == 1:
						return errBroken
					case m.Key == "lease":
						time.Sleep(3 * time.Minute)
						n.add("lease of number %d: %v", m.Position.Number, context.Cause(ctx))
					}
					return n.handle(ctx, m)
				}, &order.RunOptions{Poll: time.Second, Backoff: retry.Constant(10 * time.Minute)})
				push(t, b, order.Buffered, msgs("lease", 1)...)
				push(t, b, order.Buffered, msgs("backoff", 1, 2)...)
				push(t, b, order.Buffered, msgs("gap", 1, 3)...)
				later(time.Minute)
				mem.ShiftClock(jump)
				push(t, b, order.Buffered, msgs("lease", 2)...)
				later(500 * time.Millisecond)
				push(t, b, order.Buffered, msgs("new", 1)...)
				gaps, err := b.Gaps(t.Context(), order.Query{})
				for _, g := range gaps {
					if g.Age < 0 || g.Since < 0 {
						t.Errorf("a gap is %v old and was come to %v ago", g.Age, g.Since)
					}
				}
				wantErr(t, err, nil)
				later(2 * time.Hour)
				stop()
				want := []string{ // forth: all that waits is due, and number 1 of lease is handed over again
					"0s gap:1", "30s alert gap 2-3", "1m0s gap:3", "1m0s backoff:1", "1m0s backoff:2", "1m1s new:1",
					"3m0s lease of number 1: lease lost: order: stale claim", "3m0s lease:1",
					"4m0s lease of number 1: <nil>", "4m0s lease:1", "7m0s lease of number 2: <nil>", "7m0s lease:2",
				}
				if jump < 0 { // back: all waits an hour longer, but for what is new and the lease, which is renewed
					want = []string{
						"0s gap:1", "30s alert gap 2-3", "1m1s new:1", "3m0s lease of number 1: <nil>", "3m0s lease:1",
						"6m0s lease of number 2: <nil>", "6m0s lease:2", "1h5m0s gap:3", "1h10m0s backoff:1", "1h10m0s backoff:2",
					}
				}
				slices.Sort(want) // keys are worked side by side
				slices.Sort(n.list)
				n.want(t, want...)
				for key, count := range map[string]uint64{"lease": 2, "backoff": 2, "gap": 2, "new": 1} {
					if a := account(t, b, key); a.Claimed || a.Ledgers[0].Delivered != count || a.Ledgers[0].Cursor != a.Ledgers[0].Head {
						t.Errorf("%+v", a)
					}
				}
			})
		})
	}
}
