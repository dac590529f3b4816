package dedup_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Everything at once: for the race detector, and for the check at the end of the
// tests that nothing is left running.
func TestEverythingAtOnce(t *testing.T) {
	m := dedup.NewMemory()
	primary := &flaky{Store: m}
	f, err := dedup.NewFailover(primary, dedup.NewMemory(), &dedup.FailoverOptions{RetryEvery: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]dedup.Store{"memory": m, "other": &flaky{Store: m}, "failover": f} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, store, &dedup.Options{Scope: name, Lease: 5 * time.Millisecond,
				Retention: 20 * time.Millisecond, SettleTimeout: 50 * time.Millisecond})
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for range 30 {
						anything(g, m)
						_, _ = f.Stats(), g.Stats()
						if name == "failover" && rand.IntN(50) == 0 {
							primary.set(func(f *flaky) { f.down = !f.down })
						}
					}
				})
			}
			wg.Wait()
			primary.set(func(f *flaky) { f.down = false })
			if n := g.Stats().Running; n != 0 {
				t.Errorf("%d effects are running", n)
			}
		})
	}
}

// anything makes a call, of which many are given up.
func anything(g *dedup.Guard, m *dedup.Memory) {
	id := fmt.Sprint(rand.IntN(200))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3000))*time.Microsecond)
	defer cancel()
	switch rand.IntN(8) {
	case 0:
		_, _ = g.FirstSeen(ctx, id)
	case 1:
		_, _ = g.ClaimBatch(ctx, []dedup.Request{{ID: id}, {ID: id + "x"}})
	case 2:
		_ = g.Forget(ctx, id)
	case 3:
		_, _ = g.Held(ctx, "", 10)
	case 4:
		if c, err := g.Claim(ctx, dedup.Request{ID: id}); err == nil && c.State == dedup.Acquired {
			_ = g.Settle(ctx, c.Hold())
			_ = g.Settle(ctx, c.Release())
		}
	case 5:
		_, _ = m.Sweep(ctx, 100)
	default:
		_, _ = dedup.DoValue(ctx, g, dedup.Request{ID: id}, func(ctx context.Context) (int, error) {
			if rand.IntN(3) == 0 {
				<-ctx.Done()
			}
			return 1, ctx.Err()
		})
	}
}

// However often the primary goes and comes, no effect runs twice in one process
// as long as no lease lapses.
func TestFailoverRunsNothingTwiceWhileItFlaps(t *testing.T) {
	primary := &flaky{Store: dedup.NewMemory()}
	f, err := dedup.NewFailover(primary, dedup.NewMemory(), &dedup.FailoverOptions{RetryEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard(t, f, &dedup.Options{SettleTimeout: 10 * time.Second})
	var runs [400]atomic.Int32
	var workers, flapping sync.WaitGroup
	done := make(chan struct{})
	flapping.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				primary.set(func(f *flaky) { f.down = false })
				return
			case <-tick.C:
				primary.set(func(f *flaky) { f.down = !f.down })
			}
		}
	})
	for range 16 {
		workers.Go(func() {
			for n := 0; n < len(runs) || f.Stats().Granted == 0 && n < 1_000_000; n++ {
				i := rand.IntN(len(runs))
				_ = g.Do(context.Background(), dedup.Request{ID: fmt.Sprint(i)}, func(context.Context) error {
					runs[i].Add(1)
					return nil
				})
			}
		})
	}
	workers.Wait()
	close(done)
	flapping.Wait()
	for i := range runs {
		if n := runs[i].Load(); n > 1 {
			t.Errorf("effect %d ran %d times", i, n)
		}
	}
	s := f.Stats()
	if s.Failovers == 0 || s.Granted == 0 {
		t.Errorf("no outage was noticed: %+v", s)
	}
}

// Clearing in the background takes nothing that lives.
func TestMemoryUnderSweep(t *testing.T) {
	m := dedup.NewMemory()
	g := newGuard(t, m, nil)
	const n = 5000
	var firsts atomic.Int32
	var callers, sweeping sync.WaitGroup
	stop := make(chan struct{})
	sweeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = m.Sweep(context.Background(), 5000)
			}
		}
	})
	for range 4 {
		callers.Go(func() {
			for i := range n {
				first, err := g.FirstSeen(context.Background(), fmt.Sprint(i))
				if err != nil {
					t.Error(err)
				} else if first[0] {
					firsts.Add(1)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	sweeping.Wait()
	if firsts.Load() != n || m.Len() != n {
		t.Errorf("%d IDs were first and %d are held, want %d", firsts.Load(), m.Len(), n)
	}
}
