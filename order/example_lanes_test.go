package order_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-go/pawl/order"
)

// Messages go out through the account of their customer, one at a time and in order.
// What the gateway refuses goes to whoever decides what comes next.
func ExampleLanes() {
	buffer, err := order.New(order.NewMemory(), &order.Options{Scope: "outbound"}) // in production: pgorder, boltorder, redisorder
	if err != nil {
		log.Fatal(err)
	}
	accounts := map[string]string{"alice": "A", "bob": "A"}
	lanes, err := order.NewLanes(buffer, &order.LanesOptions{
		Route: func(_ context.Context, customer string) (string, error) {
			return accounts[customer], nil // empty: no account
		},
		Rate: func(string) order.Rate { return order.Rate{PerSecond: 100, Burst: 10} },
		OnFailed: func(_ context.Context, s order.Sending, c order.Cause, err error) error {
			fmt.Println(s.MessageID, "failed:", c)
			return nil // it was put where somebody looks at it
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	enqueue := func(operation, customer, text string) {
		q, err := lanes.Enqueue(ctx, order.Outbound{Operation: operation, Customer: customer, Payload: []byte(text)})
		switch {
		case errors.Is(err, order.ErrNoAccount):
			fmt.Println(operation, "has no account")
		case err != nil:
			log.Fatal(err) // enqueue it again later, which is harmless
		default:
			fmt.Println(operation, "is", q.MessageID)
		}
	}
	enqueue("greet-alice", "alice", "hello")
	enqueue("greet-bob", "bob", "spam")
	enqueue("greet-carl", "carl", "hello")
	accounts["alice"] = "B"                  // she moves to another account
	enqueue("greet-alice", "alice", "hello") // a retry
	enqueue("thank-alice", "alice", "thanks")
	enqueue("thank-bob", "bob", "thanks")

	left := 4
	err = lanes.Run(ctx, func(_ context.Context, s order.Sending) error {
		if left--; left == 0 {
			defer cancel() // enough for an example
		}
		if string(s.Payload) == "spam" {
			return order.Failed(order.CauseRefused, errors.New("400 from the gateway"))
		}
		fmt.Printf("%s: %s\n", s.MessageID, s.Payload)
		return nil
	}, &order.RunOptions{Concurrency: 1}) // so that the example has one order
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// greet-alice is out:A:1
	// greet-bob is out:A:2
	// greet-carl has no account
	// greet-alice is out:A:1
	// thank-alice is out:B:1
	// thank-bob is out:A:3
	// out:A:1: hello
	// out:B:1: thanks
	// out:A:2 failed: refused
	// out:A:3: thanks
}
