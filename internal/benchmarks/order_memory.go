package main

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/pawl-go/pawl/order"
)

// orderMessages is how many messages one measurement puts in order.
const orderMessages = 1 << 20

var errOutOfOrder = errors.New("a message was delivered out of order")

func orderMemoryComparisons() []Comparison {
	var all []Comparison
	for _, pending := range []int{0, 1_000, 990_000} { // a key may buffer a million
		all = append(all, Comparison{
			Name: fmt.Sprintf("order/memory/pending=%d", pending),
			What: fmt.Sprintf("%d messages of 64 bytes of one key, shuffled within 64, arrive in batches of 64 and are delivered in order, "+
				"while %d more wait. pawl is Buffer.Push and Buffer.Run over the store in memory, which runs on a goroutine of its own, "+
				"with digests, duplicates and the whole account; heap is a container/heap that keeps a copy of the payload and nothing else, "+
				"on one goroutine.", orderMessages, pending),
			Metrics: []Metric{{Name: "ns/message", Lower: true, Bar: Bar{Ratio: 2}}},
			Open: func(context.Context, *Env) ([]Case, error) {
				return []Case{
					{Name: "pawl", Role: Pawl, Isolated: true, Run: func(ctx context.Context, _ time.Duration) ([]float64, error) {
						return orderInMemory(ctx, pending)
					}},
					{Name: "heap", Role: Peer, Isolated: true, Run: func(context.Context, time.Duration) ([]float64, error) {
						return orderInHeap(pending)
					}},
				}, nil
			},
		})
	}
	return all
}

// shuffledWithin64 returns the places of a batch in a random order.
func shuffledWithin64() []int { return rand.New(rand.NewPCG(1, 2)).Perm(64) }

// orderInMemory keeps as many messages pending as it is told: the handler takes a
// batch for each that was pushed.
func orderInMemory(ctx context.Context, pending int) ([]float64, error) {
	buffer, err := order.New(order.NewMemory(), &order.Options{Scope: "benchmark", MaxBuffered: 1_000_000, MaxAhead: 1_000_000})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shuffle, payload := shuffledWithin64(), bytes.Repeat([]byte("x"), 64)
	batch, next := make([]order.Message, 64), uint64(1)
	push := func() error {
		for i, n := range shuffle {
			batch[i] = order.Message{Key: "account", Position: order.Position{Number: next + uint64(n)}, Payload: payload}
		}
		next += 64
		answers, err := buffer.Push(ctx, batch...)
		for _, a := range answers {
			if a.State != order.Buffered && err == nil {
				err = fmt.Errorf("a message was answered %v", a.State)
			}
		}
		return err
	}
	for range pending / 64 {
		if err := push(); err != nil {
			return nil, err
		}
	}
	runtime.GC()

	due, worked := make(chan bool, 4), make(chan error, 1)
	delivered, want := make(chan bool), uint64(0)
	go func() {
		worked <- buffer.Run(ctx, func(_ context.Context, m order.Message) error {
			if want%64 == 0 {
				select {
				case <-due:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if want++; m.Position.Number != want {
				return errOutOfOrder
			}
			if want == orderMessages {
				close(delivered)
			}
			return nil
		}, &order.RunOptions{Concurrency: 1})
	}()
	start := time.Now()
	for range orderMessages / 64 {
		if err := push(); err != nil {
			return nil, err
		}
		due <- true
	}
	select {
	case <-delivered:
	case <-time.After(time.Minute):
		err = fmt.Errorf("%w, or not at all", errOutOfOrder)
	}
	took := time.Since(start)
	cancel()
	return []float64{float64(took.Nanoseconds()) / orderMessages}, errors.Join(err, <-worked)
}

func orderInHeap(pending int) ([]float64, error) {
	shuffle, payload := shuffledWithin64(), bytes.Repeat([]byte("x"), 64)
	var h waitingMessages
	next, want := uint64(1), uint64(0)
	push := func() {
		for _, n := range shuffle {
			heap.Push(&h, waitingMessage{next + uint64(n), bytes.Clone(payload)})
		}
		next += 64
	}
	for range pending / 64 {
		push()
	}
	runtime.GC()
	start := time.Now()
	for range orderMessages / 64 {
		push()
		for range 64 {
			m := heap.Pop(&h).(waitingMessage)
			if want++; m.number != want {
				return nil, errOutOfOrder
			}
		}
	}
	return []float64{float64(time.Since(start).Nanoseconds()) / orderMessages}, nil
}

type waitingMessage struct {
	number  uint64
	payload []byte
}

type waitingMessages []waitingMessage

func (w waitingMessages) Len() int           { return len(w) }
func (w waitingMessages) Less(i, j int) bool { return w[i].number < w[j].number }
func (w waitingMessages) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waitingMessages) Push(x any)        { *w = append(*w, x.(waitingMessage)) }
func (w *waitingMessages) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}
