package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A message is delivered three times; its effect happens once.
func Example() {
	guard, err := dedup.New(dedup.NewMemory(), &dedup.Options{Scope: "invoices"})
	if err != nil {
		panic(err)
	}
	deliver := func(id string) error {
		return guard.Do(context.Background(), dedup.Request{ID: id}, func(context.Context) error {
			fmt.Println("invoice sent for", id)
			return nil
		})
	}
	for range 3 {
		if err := deliver("order-17"); err != nil {
			fmt.Println("do not acknowledge:", err)
			continue
		}
		fmt.Println("acknowledge")
	}
	// Output:
	// invoice sent for order-17
	// acknowledge
	// acknowledge
	// acknowledge
}

// A duplicate gets the first answer.
func ExampleDoValue() {
	guard, _ := dedup.New(dedup.NewMemory(), nil)
	ticket := 0
	open := func() (int, error) {
		return dedup.DoValue(context.Background(), guard, dedup.Request{ID: "complaint-3"},
			func(context.Context) (int, error) { ticket++; return ticket, nil })
	}
	fmt.Println(open())
	fmt.Println(open())
	// Output:
	// 1 <nil>
	// 1 <nil>
}

// Under Hold, an effect whose outcome is unknown is not run again until somebody
// finds out what happened.
func ExampleGuard_Held() {
	ctx := context.Background()
	guard, _ := dedup.New(dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold})
	charge := func() error {
		return guard.Do(ctx, dedup.Request{ID: "payment-9"}, func(context.Context) error {
			return errors.New("gateway timed out")
		})
	}
	fmt.Println(charge())
	fmt.Println("held:", errors.Is(charge(), dedup.ErrHeld))

	held, _ := guard.Held(ctx, "", 100)
	for _, c := range held {
		// The gateway's books show the charge: the effect has happened.
		if err := guard.Settle(ctx, c.Complete(nil)); err != nil {
			panic(err)
		}
	}
	fmt.Println("after settling:", charge())
	// Output:
	// gateway timed out
	// held: true
	// after settling: <nil>
}

// The five answers, and what to do with each.
func ExampleGuard_Claim() {
	ctx := context.Background()
	guard, _ := dedup.New(dedup.NewMemory(), nil)
	handle := func(r dedup.Request) {
		c, err := guard.Claim(ctx, r)
		if err != nil {
			fmt.Println("no answer: try again later")
			return
		}
		switch c.State {
		case dedup.Acquired:
			fmt.Println("run the effect, attempt", c.Attempt)
			if err := guard.Settle(ctx, c.Complete([]byte("sent"))); err != nil {
				fmt.Println("it may have happened twice:", err)
			}
		case dedup.InFlight:
			fmt.Println("another owner is at work")
		case dedup.Done:
			fmt.Printf("happened before: %s\n", c.Result)
		case dedup.Conflict:
			fmt.Println("the ID is taken by another message")
		case dedup.Unknown:
			fmt.Println("nobody knows whether it happened")
		}
	}
	first := dedup.Request{ID: "m-1", Fingerprint: dedup.Fingerprint([]byte("hello"))}
	other := dedup.Request{ID: "m-1", Fingerprint: dedup.Fingerprint([]byte("goodbye"))}
	handle(first)
	handle(first)
	handle(other)
	// Output:
	// run the effect, attempt 1
	// happened before: sent
	// the ID is taken by another message
}

func ExampleGuard_FirstSeen() {
	guard, _ := dedup.New(dedup.NewMemory(), nil)
	first, err := guard.FirstSeen(context.Background(), "a", "b", "a")
	fmt.Println(first, err)
	// Output: [true true false] <nil>
}

func ExampleMessageID() {
	id := dedup.MessageID("wa", "acct-1", 7)
	fmt.Println(id)
	fmt.Println(dedup.ShortID(id))
	biz, account, seq, err := dedup.ParseMessageID(id)
	fmt.Println(biz, account, seq, err)
	// Output:
	// wa:acct-1:7
	// 303ca99276cb782d430f9c17
	// wa acct-1 7 <nil>
}

// Duplicates are refused while the primary store is down.
func ExampleNewFailover() {
	ctx := context.Background()
	primary := dedup.NewMemory() // in earnest, Redis
	standby := dedup.NewMemory()
	store, err := dedup.NewFailover(primary, standby, &dedup.FailoverOptions{
		OnTransition: func(down bool, cause error) { fmt.Println("on the standby:", down) },
		RetryEvery:   5 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	guard, _ := dedup.New(store, &dedup.Options{Scope: "replies"})
	fmt.Println(guard.Do(ctx, dedup.Request{ID: "m-1"}, func(context.Context) error { return nil }))
	fmt.Println("down:", store.Stats().Down)
	// Output:
	// <nil>
	// down: false
}
