package dedup_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/pawl-go/pawl/dedup"
)

// The first Do of an ID on memory: its context, which two objects make
// cancellable, and the store's answer.
func TestDoAllocates(t *testing.T) {
	g, err := dedup.New(dedup.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 20_000)
	for i := range ids {
		ids[i] = "message-" + strconv.Itoa(i)
	}
	next := 0
	fn := func(context.Context) error { return nil }
	allocs := testing.AllocsPerRun(len(ids)-2, func() {
		if err := g.Do(context.Background(), dedup.Request{ID: ids[next]}, fn); err != nil {
			t.Fatal(err)
		}
		next++
	})
	if allocs > 4 {
		t.Errorf("Do allocates %v times, want at most 4", allocs)
	}
	t.Logf("%v allocations", allocs)
}

func BenchmarkDo(b *testing.B) {
	g, _ := dedup.New(dedup.NewMemory(), nil)
	fn := func(context.Context) error { return nil }
	ids := make([]string, b.N)
	for i := range ids {
		ids[i] = "message-" + strconv.Itoa(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := g.Do(context.Background(), dedup.Request{ID: ids[i]}, fn); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClaim(b *testing.B) {
	g, _ := dedup.New(dedup.NewMemory(), nil)
	ids := make([]string, b.N)
	for i := range ids {
		ids[i] = "message-" + strconv.Itoa(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, err := g.Claim(context.Background(), dedup.Request{ID: ids[i]}); err != nil {
			b.Fatal(err)
		}
	}
}
