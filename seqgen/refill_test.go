package seqgen_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// At a million numbers a second and 5 ms per reservation no call waits for a
// refill: from the first when blocks begin large enough, else after they have
// grown.
func TestNoCallWaitsForARefill(t *testing.T) {
	for _, c := range []struct {
		block  int
		warmUp time.Duration
	}{{16_384, 0}, {0, 100 * time.Millisecond}} {
		t.Run(fmt.Sprint(c.block), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := slow{seqgen.NewMemory(), 5 * time.Millisecond}
				g := newGenerator(t, store, &seqgen.Options{Mode: seqgen.Block, Block: c.block})
				s, _ := g.Key("lane")
				draw := func(d time.Duration) {
					for begin := time.Now(); time.Since(begin) < d; {
						time.Sleep(100 * time.Microsecond)
						for range 100 {
							if _, err := s.Next(ctx); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				draw(max(c.warmUp, time.Nanosecond))
				before := g.Stats()
				draw(2 * time.Second)
				after := g.Stats()
				if n := after.Waits - before.Waits; n != 0 {
					t.Errorf("%d calls waited", n)
				}
				if n := after.Block - before.Block; n != 2_000_000 {
					t.Errorf("%d numbers were handed out", n)
				}
				if n := after.Reserves - before.Reserves; n > 200 {
					t.Errorf("%d reservations were made", n)
				}
				shut(t, g)
			})
		})
	}
}

// A key that was busy once does not leave large holes for ever: blocks shrink
// again.
func TestBlocksShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := seqgen.NewMemory()
		var last atomic.Uint64
		opts := &seqgen.Options{Mode: seqgen.Block, MaxBlock: 4096, Hooks: &seqgen.Hooks{
			Reserved: func(_ string, r seqgen.Range, _ time.Duration) { last.Store(r.Len()) },
		}}
		g := newGenerator(t, slow{memory, 5 * time.Millisecond}, opts)
		for range 40_000 {
			next(t, g, "lane")
		}
		synctest.Wait()
		if last.Load() < 1024 {
			t.Fatalf("a busy key has blocks of %d", last.Load())
		}
		for range 20_000 {
			next(t, g, "lane")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if last.Load() > 512 {
			t.Errorf("a quiet key has blocks of %d", last.Load())
		}
		shut(t, g)
	})
}

// The memory of a key is bounded, and a key without a refill under way has no
// goroutine.
func TestMemoryOfAKey(t *testing.T) {
	const keys = 20_000
	for _, opts := range []*seqgen.Options{nil, block} {
		memory := seqgen.NewMemory()
		g := newGenerator(t, memory, opts)
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint("key-", i)
			if _, err := g.Key(names[i]); err != nil {
				t.Fatal(err)
			}
			// What the store keeps is made before it is measured.
			if _, err := memory.Settle(ctx, seqgen.Params{Scope: "default", Retention: time.Hour},
				[]seqgen.Change{{Kind: seqgen.KindRaise, Key: names[i], Epoch: 1, Hi: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, g)
		g = newGenerator(t, memory, opts)
		before, goroutines := heap(), runtime.NumGoroutine()
		for _, key := range names {
			if _, err := g.Key(key); err != nil {
				t.Fatal(err)
			}
		}
		each := float64(heap()-before) / keys
		if n := runtime.NumGoroutine(); n > goroutines {
			t.Errorf("%d goroutines for %d idle keys", n-goroutines, keys)
		}
		t.Logf("%.0f bytes a key", each)
		if each > 700 {
			t.Errorf("a key takes %.0f bytes", each)
		}
		shut(t, g)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
