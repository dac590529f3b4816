package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// A memoryStore is what a case of the memory comparisons has to offer: whether
// an ID is new, for good, in one atomic step.
type memoryStore interface {
	// Claim reports whether id was new, and remembers it.
	Claim(ctx context.Context, id string) (bool, error)
	// Len returns how many IDs are held, expired ones that still take room
	// included.
	Len() int
}

const (
	memoryIDs = 1_000_000
	longTTL   = time.Hour // nothing expires while the fill is measured

	stallTTL   = 2 * time.Second
	stallFor   = 4 * time.Second
	stallPause = 50 * time.Microsecond
)

func memoryComparisons() []Comparison {
	var all []Comparison
	for _, workers := range []int{1, 2} {
		all = append(all, Comparison{
			Name: fmt.Sprintf("memory/fill/g=%d", workers),
			What: fmt.Sprintf("%d goroutines claim 1 000 000 new IDs of 36 bytes in an empty store without a size hint. "+
				"B/ID is the live heap that the store keeps, after GC, when the caller has dropped the IDs.", workers),
			Metrics: []Metric{
				{Name: "ns/claim", Lower: true, Bar: Bar{Ratio: 1}},
				{Name: "B/ID", Lower: true, Bar: Bar{Value: 130}},
			},
			Open: memoryCases(func(open openMemory) func(context.Context, time.Duration) ([]float64, error) {
				return func(ctx context.Context, _ time.Duration) ([]float64, error) {
					return fillMemory(ctx, open, workers)
				}
			}),
		})
	}
	all = append(all, Comparison{
		Name: "memory/stall",
		What: "1 000 000 IDs that live 2 s are claimed; then one goroutine claims new IDs for 4 s with pauses of 50 us, while the million expires. " +
			"Counted is the slowest single call. \"still held\" is how many of the million the store had not dropped by then.",
		Metrics: []Metric{
			{Name: "ms, slowest claim", Lower: true, Bar: Bar{Ratio: 1, OfMedians: true}},
			{Name: "still held", Lower: true},
		},
		Open: stallCases,
	})
	return append(all, doComparison())
}

// openMemory opens an empty store whose IDs are forgotten ttl after their claim.
type openMemory func(ttl time.Duration) (memoryStore, error)

// memoryCases makes a case of every in-memory store.
func memoryCases(run func(openMemory) func(context.Context, time.Duration) ([]float64, error)) func(context.Context, *Env) ([]Case, error) {
	return func(context.Context, *Env) ([]Case, error) {
		return []Case{
			{Name: "pawl", Role: Pawl, Isolated: true, Run: run(openPawlMemory)},
			{Name: "watermill", Role: Peer, Isolated: true, Run: run(openWatermill)},
			{Name: "sync.Map", Role: Peer, Isolated: true, Run: run(openSyncMap)},
			{Name: "otter", Role: Peer, Isolated: true, Run: run(openOtter)},
		}, nil
	}
}

// stallCases leaves out sync.Map, which forgets nothing. The peer is otter;
// watermill's clean-up holds its one lock for the whole map.
func stallCases(ctx context.Context, env *Env) ([]Case, error) {
	all, err := memoryCases(func(open openMemory) func(context.Context, time.Duration) ([]float64, error) {
		return func(ctx context.Context, _ time.Duration) ([]float64, error) { return stallMemory(ctx, open) }
	})(ctx, env)
	var cases []Case
	for _, c := range all {
		switch c.Name {
		case "sync.Map":
			continue
		case "watermill":
			c.Role = Shown
		}
		cases = append(cases, c)
	}
	return cases, err
}

// fillMemory returns the nanoseconds per claim and the bytes kept per ID.
func fillMemory(ctx context.Context, open openMemory, workers int) ([]float64, error) {
	before := liveHeap()
	ids := make([][]string, workers)
	for w := range ids {
		ids[w] = batchOf(memoryIDs/workers, randomIDs())
	}
	store, err := open(longTTL)
	if err != nil {
		return nil, err
	}
	runtime.GC()

	var all sync.WaitGroup
	failed := make([]error, workers)
	start := time.Now()
	for w := range ids {
		all.Go(func() { failed[w] = claimAll(ctx, store, ids[w]) })
	}
	all.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}

	clear(ids)
	kept := liveHeap() - before
	if n := store.Len(); n != memoryIDs {
		return nil, fmt.Errorf("the store holds %d IDs of %d", n, memoryIDs)
	}
	return []float64{float64(elapsed.Nanoseconds()) / memoryIDs, float64(kept) / memoryIDs}, nil
}

// stallMemory returns the milliseconds of the slowest claim and the number of
// expired IDs that still take room.
func stallMemory(ctx context.Context, open openMemory) ([]float64, error) {
	store, err := open(stallTTL)
	if err != nil {
		return nil, err
	}
	next := randomIDs()
	if err := claimAll(ctx, store, batchOf(memoryIDs, next)); err != nil {
		return nil, err
	}
	runtime.GC()
	var slowest time.Duration
	claims := 0
	var recent []time.Time // of claims that have not expired by the end
	for start := time.Now(); time.Since(start) < stallFor; claims++ {
		id := next()
		before := time.Now()
		isNew, err := store.Claim(ctx, id)
		took := time.Since(before)
		if err != nil {
			return nil, err
		}
		if !isNew {
			return nil, errNotNew
		}
		slowest = max(slowest, took)
		recent = append(recent, before)
		time.Sleep(stallPause)
	}
	alive := 0
	for _, t := range recent {
		if time.Since(t) < stallTTL {
			alive++
		}
	}
	return []float64{slowest.Seconds() * 1000, float64(max(0, store.Len()-alive))}, nil
}

func claimAll(ctx context.Context, store memoryStore, ids []string) error {
	for _, id := range ids {
		isNew, err := store.Claim(ctx, id)
		if err != nil {
			return err
		}
		if !isNew {
			return errNotNew
		}
	}
	return nil
}

// liveHeap returns the bytes in use after garbage collection. Two rounds, so
// that what the first one finalises is gone too.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
