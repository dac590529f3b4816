package order_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/pawl-go/pawl/order"
)

// BenchmarkBuffer pushes numbers shuffled within 64, in batches of 64, and has
// them delivered by a worker, with digests and all accounting, while as many
// messages are pending as its name says. One operation is one message. Compare it
// with BenchmarkHeapReorder.
func BenchmarkBuffer(b *testing.B) {
	for _, pending := range []int{0, 1_000, 10_000, 100_000, 990_000} {
		b.Run(fmt.Sprint("pending=", pending), func(b *testing.B) { benchmarkBuffer(b, pending/64) })
	}
}

func benchmarkBuffer(b *testing.B, pending int) {
	buffer, err := order.New(order.NewMemory(), &order.Options{MaxBuffered: 1_000_000, MaxAhead: 1_000_000})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	shuffle, payload := shuffled(), bytes.Repeat([]byte("x"), 64)
	msgs := make([]order.Message, 64)
	next := uint64(1)
	push := func() {
		for i := range msgs {
			msgs[i] = order.Message{Key: "key", Position: order.Position{Epoch: 1, Number: next + shuffle[i]}, Payload: payload}
		}
		if _, err := buffer.Push(ctx, msgs...); err != nil {
			b.Fatal(err)
		}
		next += 64
	}
	for range pending {
		push()
	}
	runtime.GC()
	batches, due := b.N/64+1, make(chan bool, 4) // the worker delivers a batch for each that is pushed
	worked, done := make(chan error, 1), make(chan bool)
	want := uint64(0)
	go func() {
		worked <- buffer.Run(ctx, func(_ context.Context, m order.Message) error {
			if want%64 == 0 {
				if want/64 == uint64(batches) {
					close(done)
					<-ctx.Done()
					return ctx.Err()
				}
				<-due
			}
			if want++; m.Position.Number != want {
				panic("out of order")
			}
			return nil
		}, &order.RunOptions{Concurrency: 1, Batch: 64})
	}()
	b.ReportAllocs()
	b.ResetTimer()
	for range batches {
		push()
		due <- true
	}
	push() // so that the handler is called once more
	<-done
	b.StopTimer()
	cancel()
	if err := <-worked; err != nil {
		b.Fatal(err)
	}
}
