package order_test

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-go/pawl/order"
)

// shuffled returns the offsets 0 to 63 in a random order.
func shuffled() (order [64]uint64) {
	for i, n := range mrand.New(mrand.NewPCG(1, 2)).Perm(64) {
		order[i] = uint64(n)
	}
	return order
}

// BenchmarkMemoryReorder pushes numbers shuffled within 64, claims runs and
// delivers them, with the number of messages pending that its name says. One
// operation is one message.
func BenchmarkMemoryReorder(b *testing.B) {
	for _, pending := range []int{0, 1_000, 1_000_000} {
		b.Run(fmt.Sprint("pending=", pending), func(b *testing.B) { benchmarkMemory(b, uint64(pending)/64*64) })
	}
}

func benchmarkMemory(b *testing.B, pending uint64) {
	ctx, m, p := context.Background(), order.NewMemory(), memoryParams
	p.MaxBuffered, p.MaxAhead = 2_000_000, 2_000_000
	shuffle, payload := shuffled(), bytes.Repeat([]byte("x"), 64)
	arrivals := make([]order.Arrival, 64)
	push := func(from uint64) {
		for i := range arrivals {
			a := &arrivals[i]
			a.Key, a.Position, a.Payload = "key", order.Position{Epoch: 1, Number: from + shuffle[i]}, payload
			a.Digest[0], a.Digest[1] = byte(i), byte(from)
		}
		if _, err := m.Push(ctx, p, arrivals); err != nil {
			b.Fatal(err)
		}
	}
	next, want := uint64(1), uint64(1)
	for ; next < pending; next += 64 {
		push(next)
	}
	runtime.GC()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%64 != 0 {
			continue
		}
		push(next)
		next += 64
		ask := order.Ask{Keys: 1, Messages: 64, Bytes: 1 << 20, Lease: time.Minute}
		rand.Read(ask.Nonce[:])
		c, err := m.Claim(ctx, p, ask)
		if err != nil || len(c.Claims) != 1 || len(c.Claims[0].Run) != 64 {
			b.Fatal(c, err)
		}
		for _, msg := range c.Claims[0].Run {
			if msg.Position.Number != want {
				b.Fatal("out of order")
			}
			want++
		}
		s := []order.Settlement{
			{Kind: order.KindDeliver, Key: "key", Token: c.Claims[0].Token, Epoch: 1, To: want},
			{Kind: order.KindRelease, Key: "key", Token: c.Claims[0].Token},
		}
		if errs, err := m.Settle(ctx, p, s); err != nil || errs != nil {
			b.Fatal(errs, err)
		}
	}
}

// BenchmarkHeapReorder is the bare reordering that it is measured against: a
// container/heap, and what is next is taken out. It keeps a payload of its own.
func BenchmarkHeapReorder(b *testing.B) {
	for _, pending := range []int{0, 1_000, 1_000_000} {
		b.Run(fmt.Sprint("pending=", pending), func(b *testing.B) { benchmarkHeap(b, uint64(pending)/64*64) })
	}
}

func benchmarkHeap(b *testing.B, pending uint64) {
	shuffle, payload := shuffled(), bytes.Repeat([]byte("x"), 64)
	var h waiting
	next, want := uint64(1), uint64(1)
	push := func(from uint64) {
		for i := range shuffle {
			heap.Push(&h, item{from + shuffle[i], bytes.Clone(payload)})
		}
	}
	for ; next < pending; next += 64 {
		push(next)
	}
	runtime.GC()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%64 != 0 {
			continue
		}
		push(next)
		next += 64
		for range 64 {
			if h[0].number != want {
				b.Fatal("out of order")
			}
			want++
			heap.Pop(&h)
		}
	}
}

type item struct {
	number  uint64
	payload []byte
}

type waiting []item

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].number < w[j].number }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)        { *w = append(*w, x.(item)) }
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}
