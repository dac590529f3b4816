package redisdlq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/retry"
)

// One process has given up on a message, another tries it again. What follows it under
// its key waits behind it, whichever process it comes to.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()

	front, back := newQueue(client), newQueue(client)
	ctx, stop := context.WithCancel(context.Background())
	first := dlq.Message{Stream: "crm", ID: "wamid.1", Key: "customer 7", Payload: []byte("hello")}
	answers, err := front.Put(ctx, dlq.Dead{Message: first, Cause: errors.New("the CRM answered 503")})
	fmt.Println(answers, err)
	next := dlq.Message{Stream: "crm", ID: "wamid.2", Key: "customer 7", Payload: []byte("are you there?")}
	answers, err = front.Park(ctx, next)
	fmt.Println(answers, err)

	err = back.Run(ctx, func(_ context.Context, l dlq.Letter) error {
		fmt.Printf("worked %s: %s\n", l.ID, l.Payload)
		if l.ID == next.ID {
			stop()
		}
		return nil
	}, &dlq.RunOptions{Stream: "crm", Poll: time.Millisecond})
	fmt.Println(err)
	// Output:
	// [added] <nil>
	// [added] <nil>
	// worked wamid.1: hello
	// worked wamid.2: are you there?
	// <nil>
}

func newQueue(client redis.UniversalClient) *dlq.Queue {
	store, err := redisdlq.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := dlq.New(store, &dlq.Options{Backoff: retry.Constant(time.Millisecond)})
	if err != nil {
		log.Fatal(err)
	}
	return queue
}

// Nobody but Sweep removes what need not be remembered any longer. Any number of
// processes may run this.
func ExampleStore_Sweep() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()
	store, err := redisdlq.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	removed, err := store.Sweep(context.Background(), 5000) // every minute, from a ticker
	fmt.Println(removed, err)
	// Output:
	// 0 <nil>
}
