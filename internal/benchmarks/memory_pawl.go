package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// pawlMemory is Guard.Claim over the store in memory; the claims are not
// completed, so that the measured bytes hold nonce, token, lease and attempt.
type pawlMemory struct {
	guard *dedup.Guard
	store *dedup.Memory
}

func openPawlMemory(ttl time.Duration) (memoryStore, error) {
	store := dedup.NewMemory()
	guard, err := dedup.New(store, &dedup.Options{Scope: "benchmark", Lease: ttl, Retention: ttl})
	return pawlMemory{guard, store}, err
}

func (p pawlMemory) Claim(ctx context.Context, id string) (bool, error) {
	c, err := p.guard.Claim(ctx, dedup.Request{ID: id})
	return c.State == dedup.Acquired, err
}

func (p pawlMemory) Len() int { return p.store.Len() }

const doRuns = 100_000

// doComparison counts what Guard.Do allocates for a message that is new. No peer
// offers the same, so the bar is a number.
func doComparison() Comparison {
	return Comparison{
		Name: "memory/do",
		What: "One goroutine calls Guard.Do with a new ID and a function that returns nil. " +
			"allocs/Do is testing.AllocsPerRun over 100 000 calls, which rounds down; the others are averages of the same calls, " +
			"and hold what the store allocates to grow.",
		Metrics: []Metric{
			{Name: "allocs/Do", Lower: true, Bar: Bar{Value: 4}},
			{Name: "allocs/Do, not rounded", Lower: true},
			{Name: "ns/Do", Lower: true},
			{Name: "B/Do", Lower: true},
		},
		Open: func(context.Context, *Env) ([]Case, error) {
			return []Case{{Name: "pawl", Role: Pawl, Isolated: true, Run: measureDo}}, nil
		},
	}
}

func measureDo(ctx context.Context, _ time.Duration) ([]float64, error) {
	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "benchmark"})
	if err != nil {
		return nil, err
	}
	ids := batchOf(doRuns+1, randomIDs()) // AllocsPerRun calls once more, to warm up
	ran, n := 0, 0
	var failed error
	effect := func(context.Context) error { ran++; return nil }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	allocs := testing.AllocsPerRun(doRuns, func() {
		if err := guard.Do(ctx, dedup.Request{ID: ids[n]}, effect); err != nil {
			failed = err
		}
		n++
	})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if failed != nil {
		return nil, failed
	}
	if ran != len(ids) {
		return nil, fmt.Errorf("the effect ran %d times for %d new IDs", ran, len(ids))
	}
	average := func(total uint64) float64 { return float64(total) / float64(len(ids)) }
	return []float64{
		allocs, average(after.Mallocs - before.Mallocs), average(uint64(took.Nanoseconds())), average(after.TotalAlloc - before.TotalAlloc),
	}, nil
}
