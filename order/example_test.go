package order_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pawl-go/pawl/order"
)

// Messages arrive in any order and are delivered in the order of their numbers.
func Example() {
	buffer, err := order.New(order.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	for _, m := range []order.Message{
		{Key: "account-7", Position: order.Position{Number: 2}, Payload: []byte("world")},
		{Key: "account-7", Position: order.Position{Number: 1}, Payload: []byte("hello")},
		{Key: "account-7", Position: order.Position{Number: 2}, Payload: []byte("world")},
	} {
		answers, err := buffer.Push(ctx, m)
		if err != nil {
			log.Fatal(err) // not known to be stored: do not acknowledge
		}
		if !answers[0].Taken() {
			log.Fatal(answers[0].State) // full, or nothing that can be stored
		}
		fmt.Println("number", m.Position.Number, "is", answers[0].State)
	}
	err = buffer.Run(ctx, func(ctx context.Context, m order.Message) error {
		fmt.Printf("%d: %s\n", m.Position.Number, m.Payload)
		if m.Position.Number == 2 {
			cancel() // enough for an example
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	account, err := buffer.Account(context.Background(), "account-7")
	if err != nil {
		log.Fatal(err)
	}
	l := account.Ledgers[0]
	fmt.Println("delivered", l.Delivered, "of", l.Cursor-l.Base, "and", account.Arrivals.Duplicate, "duplicate")
	// Output:
	// number 2 is buffered
	// number 1 is buffered
	// number 2 is duplicate
	// 1: hello
	// 2: world
	// delivered 2 of 2 and 1 duplicate
}

// A number that does not come is skipped after a time, and a person resolves the
// record of it.
func ExampleBuffer_ResolveGap() {
	delivered := make(chan uint64, 2)
	buffer, err := order.New(order.NewMemory(), &order.Options{
		GapTimeout: 50 * time.Millisecond, // five minutes by default
		Alert: func(_ context.Context, g order.Gap) {
			fmt.Printf("alert: numbers %d to %d are missing\n", g.From, g.To-1)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- buffer.Run(ctx, func(_ context.Context, m order.Message) error {
			delivered <- m.Position.Number
			return nil
		}, nil)
	}()
	answers, err := buffer.Push(ctx,
		order.Message{Key: "account-7", Position: order.Position{Number: 1}},
		order.Message{Key: "account-7", Position: order.Position{Number: 4}})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range answers {
		if !a.Taken() {
			log.Fatal(a.State)
		}
	}
	fmt.Println("delivered", <-delivered)
	fmt.Println("delivered", <-delivered)
	cancel()
	if err := <-done; err != nil {
		log.Fatal(err)
	}

	gaps, err := buffer.Gaps(context.Background(), order.Query{Unresolved: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range gaps {
		fmt.Printf("skipped %d to %d\n", g.From, g.To-1)
		err := buffer.ResolveGap(context.Background(), g, order.ResolutionLost, "jo", "the sender lost its disk")
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// delivered 1
	// alert: numbers 2 to 3 are missing
	// delivered 4
	// skipped 2 to 3
}

// While the store is down, messages are delivered without order, each through
// whatever refuses duplicates. This is what the caller opts for: by default Push
// fails and the sender keeps its message.
func ExampleOptions_onUnavailable() {
	seen := map[string]bool{} // a guard of the package dedup, over a store of its own
	deliver := func(_ context.Context, m order.Message) error {
		if !seen[m.ID] {
			seen[m.ID] = true
			fmt.Printf("%s: %s\n", m.ID, m.Payload)
		}
		return nil
	}
	buffer, err := order.New(down{}, &order.Options{
		OnUnavailable: func(ctx context.Context, ms []order.Message) []error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				errs[i] = deliver(ctx, m)
			}
			return errs
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	m := order.Message{Key: "account-7", Position: order.Position{Number: 2}, ID: "m2", Payload: []byte("world")}
	answers, err := buffer.Push(context.Background(), m, m)
	fmt.Println(answers[0].State, answers[0].Taken(), err)
	fmt.Println("to be reported:", buffer.Stats().Unreported)
	// Output:
	// m2: world
	// unordered true <nil>
	// to be reported: 2
}
