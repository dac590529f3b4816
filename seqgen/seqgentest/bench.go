package seqgentest

import (
	"context"
	"testing"

	"github.com/pawl-go/pawl/seqgen"
)

// Bench runs the same loops over any store, so that stores can be compared:
//
//	go test -bench . -run '^$' ./seqgen/...
//
// newStore makes a fresh store for each of them, and registers its clean-up with
// b.Cleanup. A loop counts numbers, so ns/op is the time of one number.
func Bench(b *testing.B, newStore func(b *testing.B) seqgen.Store) {
	b.Run("One", func(b *testing.B) { benchReserve(b, newStore(b), 1) })
	b.Run("Block1000", func(b *testing.B) { benchReserve(b, newStore(b), 1000) })
	b.Run("Single64Goroutines", func(b *testing.B) { benchSingle(b, newStore(b)) })
}

// benchReserve is one caller that reserves n numbers at a time.
func benchReserve(b *testing.B, s seqgen.Store, n int) {
	p := seqgen.Params{Scope: newScope(), Retention: seqgen.MaxDuration}
	b.ReportAllocs()
	for done := 0; done < b.N; done += n {
		grants, err := s.Reserve(context.Background(), p, []seqgen.Ask{single("key", n)})
		if err != nil || grants[0].Err != nil {
			b.Fatalf("Reserve: %v, %v", grants, err)
		}
	}
}

// benchSingle is the numbers of a generator in mode Single, for 64 goroutines.
func benchSingle(b *testing.B, s seqgen.Store) {
	g, err := seqgen.New(s, &seqgen.Options{Scope: newScope()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(context.Background(), "key"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
