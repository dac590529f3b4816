package redisinbox_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/redisinbox"
)

// One process accepts events, another works them. An event that is delivered again is
// known, whichever process it comes to.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()

	front, back := newBox(client), newBox(client)
	ctx, stop := context.WithCancel(context.Background())
	for _, text := range []string{"hello", "how are you", "hello"} {
		answers, err := front.Accept(ctx, inbox.Event{ID: "test/" + text, Provider: "test", Key: "alice", Payload: []byte(text)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answers[0])
	}
	err = back.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
		fmt.Println("worked", string(r.Payload))
		if string(r.Payload) == "how are you" {
			stop()
		}
		return inbox.Done()
	}, nil)
	fmt.Println(err)
	// Output:
	// accepted
	// accepted
	// duplicate
	// worked hello
	// worked how are you
	// <nil>
}

func newBox(client redis.UniversalClient) *inbox.Box {
	store, err := redisinbox.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	return box
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
	store, err := redisinbox.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	removed, err := store.Sweep(context.Background(), 5000) // every minute, from a ticker
	fmt.Println(removed, err)
	// Output:
	// 0 <nil>
}
