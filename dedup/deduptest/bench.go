package deduptest

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/pawl-go/pawl/dedup"
)

// Bench runs the same loops over any store, so that stores can be compared:
//
//	go test -bench . -run '^$' ./dedup/...
//
// newStore makes a fresh store for each of them, and registers its clean-up with
// b.Cleanup. A loop counts IDs, so ns/op is the time of one ID also in batches.
func Bench(b *testing.B, newStore func(b *testing.B) dedup.Store) {
	b.Run("ClaimComplete", func(b *testing.B) { benchClaimComplete(b, newStore(b)) })
	b.Run("ClaimCompleteParallel", func(b *testing.B) { benchParallel(b, newStore(b)) })
	b.Run("Duplicate", func(b *testing.B) { benchDuplicate(b, newStore(b)) })
	b.Run("ClaimBatch100", func(b *testing.B) { benchBatch(b, newStore(b), false) })
	b.Run("CompleteBatch100", func(b *testing.B) { benchCompleteBatch(b, newStore(b)) })
	b.Run("DuplicateBatch100", func(b *testing.B) { benchBatch(b, newStore(b), true) })
}

const batchSize = 100

func benchParams() dedup.Params {
	return dedup.Params{Scope: newScope(), Lease: longLease, Retention: longRetention}
}

// benchClaimComplete is the life of a message that comes once.
func benchClaimComplete(b *testing.B, s dedup.Store) {
	p := benchParams()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		claimAndComplete(b, s, p, n)
	}
}

func benchParallel(b *testing.B, s dedup.Store) {
	p := benchParams()
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			claimAndComplete(b, s, p, int(n.Add(1)))
		}
	})
}

func claimAndComplete(b *testing.B, s dedup.Store, p dedup.Params, n int) {
	asks := [1]dedup.Ask{benchAsk(n)}
	cs, err := s.Claim(context.Background(), p, asks[:])
	if err != nil || cs[0].State != dedup.Acquired {
		b.Errorf("Claim: %v, %v", cs, err)
		return
	}
	ends := [1]dedup.Settlement{cs[0].Complete(nil)}
	if errs, err := s.Settle(context.Background(), p, ends[:]); err != nil || errs != nil {
		b.Errorf("Settle: %v, %v", errs, err)
	}
}

// benchDuplicate asks for what is done, with a result of 100 bytes.
func benchDuplicate(b *testing.B, s dedup.Store) {
	p := benchParams()
	prepareDone(b, s, p, batchSize)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		asks := [1]dedup.Ask{benchAsk(n % batchSize)}
		if cs, err := s.Claim(context.Background(), p, asks[:]); err != nil || cs[0].State != dedup.Done {
			b.Fatalf("Claim: %v, %v", cs, err)
		}
	}
}

// benchBatch asks for a hundred IDs in one call, all new or all done.
func benchBatch(b *testing.B, s dedup.Store, duplicates bool) {
	p := benchParams()
	want := dedup.Acquired
	if duplicates {
		want = dedup.Done
		prepareDone(b, s, p, batchSize)
	}
	asks := make([]dedup.Ask, batchSize)
	b.ReportAllocs()
	b.ResetTimer()
	for first := 0; first < b.N; first += batchSize {
		for i := range asks {
			n := first + i
			if duplicates {
				n = i
			}
			asks[i] = benchAsk(n)
		}
		cs, err := s.Claim(context.Background(), p, asks)
		if err != nil || cs[batchSize-1].State != want {
			b.Fatalf("Claim: %v", err)
		}
	}
}

// benchCompleteBatch completes a hundred claims in one call; claiming them is
// not timed.
func benchCompleteBatch(b *testing.B, s dedup.Store) {
	p := benchParams()
	b.ReportAllocs()
	b.ResetTimer()
	for first := 0; first < b.N; first += batchSize {
		b.StopTimer()
		ends := claimForCompletion(b, s, p, first, batchSize, nil)
		b.StartTimer()
		if errs, err := s.Settle(context.Background(), p, ends); err != nil || errs != nil {
			b.Fatalf("Settle: %v, %v", errs, err)
		}
	}
}

func prepareDone(b *testing.B, s dedup.Store, p dedup.Params, n int) {
	b.Helper()
	ends := claimForCompletion(b, s, p, 0, n, make([]byte, 100))
	if errs, err := s.Settle(context.Background(), p, ends); err != nil || errs != nil {
		b.Fatalf("Settle: %v, %v", errs, err)
	}
}

func claimForCompletion(b *testing.B, s dedup.Store, p dedup.Params, first, n int, result []byte) []dedup.Settlement {
	b.Helper()
	asks := make([]dedup.Ask, n)
	for i := range asks {
		asks[i] = benchAsk(first + i)
	}
	cs, err := s.Claim(context.Background(), p, asks)
	if err != nil {
		b.Fatalf("Claim: %v", err)
	}
	ends := make([]dedup.Settlement, n)
	for i, c := range cs {
		ends[i] = c.Complete(result)
	}
	return ends
}

// benchAsk makes an ask with an ID as long as those that providers give messages.
// Its nonce costs nothing, so that the loops measure the store.
func benchAsk(n int) dedup.Ask {
	const prefix = "wamid.HBgLNTUxMTk5OTk5OTk5FQIAERgS"
	a := dedup.Ask{Request: dedup.Request{ID: prefix + strconv.Itoa(1_000_000_000+n)}}
	binary.LittleEndian.PutUint64(a.Nonce[:], uint64(n))
	return a
}
