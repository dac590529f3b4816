package seqgen_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// BenchmarkNext compares numbers of mode Block, by handle and by key, with a
// counter under a mutex, on one goroutine and on two. Numbers are handed out of
// blocks of 65,536, which are reserved meanwhile.
func BenchmarkNext(b *testing.B) {
	ctx := context.Background()
	for _, procs := range []int{1, 2} {
		b.Run(fmt.Sprintf("mutex/%d", procs), func(b *testing.B) {
			var c counter
			onGoroutines(b, procs, func() error { c.next(); return nil })
		})
		b.Run(fmt.Sprintf("handle/%d", procs), func(b *testing.B) {
			s, _ := benchGenerator(b).Key("lane")
			onGoroutines(b, procs, func() error { _, err := s.Next(ctx); return err })
		})
		b.Run(fmt.Sprintf("key/%d", procs), func(b *testing.B) {
			g := benchGenerator(b)
			onGoroutines(b, procs, func() error { _, err := g.Next(ctx, "lane"); return err })
		})
	}
}

// A counter is what a program without a durable sequence would use.
type counter struct {
	mu sync.Mutex
	n  uint64
}

func (c *counter) next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

func benchGenerator(b *testing.B) *seqgen.Generator {
	g, err := seqgen.New(seqgen.NewMemory(), &seqgen.Options{Mode: seqgen.Block, Block: seqgen.MaxBlock})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.Next(context.Background(), "lane"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// onGoroutines shares b.N calls between n goroutines on as many processors.
func onGoroutines(b *testing.B, n int, call func() error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range b.N / n {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkOffered offers a million numbers a second to a store that takes 5 ms
// for a reservation, and reports how long the calls of all its runs took and how
// many of them waited. When the machine stops the caller for a while, what was due
// meanwhile is drawn at once: a burst, which a larger first block stands longer.
func BenchmarkOffered(b *testing.B) {
	for _, block := range []int{16_384, seqgen.MaxBlock} {
		b.Run(fmt.Sprint(block), func(b *testing.B) {
			var all []time.Duration
			waits := 0
			for b.Loop() {
				took, n := offered(b, block, time.Second)
				all, waits = append(all, took...), waits+n
			}
			slices.Sort(all)
			b.ReportMetric(float64(waits), "waits")
			b.ReportMetric(float64(percentile(all, 0.5)), "p50-ns")
			b.ReportMetric(float64(percentile(all, 0.9999)), "p99.99-ns")
			b.ReportMetric(float64(all[len(all)-1]), "max-ns")
			b.ReportMetric(float64(len(all)), "numbers")
		})
	}
}

// offered draws 1,000 numbers every millisecond for a while, and returns the time
// of each call and how many waited for a reservation.
func offered(tb testing.TB, block int, d time.Duration) (took []time.Duration, waits int) {
	var waited atomic.Int64
	g, err := seqgen.New(slow{seqgen.NewMemory(), 5 * time.Millisecond}, &seqgen.Options{
		Mode: seqgen.Block, Block: block,
		Hooks: &seqgen.Hooks{Waited: func(context.Context, string, time.Duration) { waited.Add(1) }},
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer g.Close(context.Background())
	ctx := context.Background()
	s, _ := g.Key("lane")
	if _, err := s.Next(ctx); err != nil { // takes the key, which takes a reservation
		tb.Fatal(err)
	}
	waited.Store(0)
	took = make([]time.Duration, 0, int(d/time.Microsecond)+1000)
	for begin := time.Now(); time.Since(begin) < d; {
		due := int(time.Since(begin) / time.Microsecond)
		for len(took) < due {
			before := time.Now()
			if _, err := s.Next(ctx); err != nil {
				tb.Fatal(err)
			}
			took = append(took, time.Since(before))
		}
		time.Sleep(50 * time.Microsecond)
	}
	return took, int(waited.Load())
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(float64(len(sorted))*p), len(sorted)-1)]
}

// slow is a store whose reservations take a while.
type slow struct {
	seqgen.Store
	d time.Duration
}

func (s slow) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	time.Sleep(s.d)
	return s.Store.Reserve(ctx, p, asks)
}

// BenchmarkSingle is numbers of mode Single from 64 goroutines on a store that
// takes a millisecond.
func BenchmarkSingle(b *testing.B) {
	g, err := seqgen.New(slow{seqgen.NewMemory(), time.Millisecond}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(context.Background(), "lane"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
