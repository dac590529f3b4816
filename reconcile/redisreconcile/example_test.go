package redisreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// One process sends a message and hears no answer. Another finds out what became of it, and
// neither sends it again.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()
	front, back := newLedger(client), newLedger(client)
	op := reconcile.Op{Key: "wamid.1", Account: "shop 7", Payload: []byte("hello")}
	send := func(context.Context, reconcile.Op) ([]byte, error) { return nil, errors.New("connection reset") }

	err = front.Do(context.Background(), op, send, nil)
	fmt.Println(errors.Is(err, reconcile.ErrUnknown))

	ctx, stop := context.WithCancel(context.Background())
	look := func(_ context.Context, op reconcile.Op) (reconcile.Evidence, error) {
		fmt.Printf("asking for %s: %s\n", op.Key, op.Payload)
		stop()
		return reconcile.Evidence{Seen: reconcile.SeenDone}, nil
	}
	fmt.Println(back.Run(ctx, send, look, &reconcile.RunOptions{Poll: time.Millisecond}))
	fmt.Println(front.Do(context.Background(), op, send, nil))
	// Output:
	// true
	// asking for wamid.1: hello
	// <nil>
	// <nil>
}

func newLedger(client redis.UniversalClient) *reconcile.Ledger {
	store, err := redisreconcile.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := reconcile.New(store, &reconcile.Options{Quiet: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	return ledger
}

// What was said about a message is found by the message's ID and by your own.
func ExampleStore_Timeline() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()
	store, err := redisreconcile.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	answers, err := timeline.Append(ctx,
		reconcile.Observation{Ref: reconcile.Ref{Event: "evt1", Message: "wamid.1", Own: "order 7"}, Status: "sent", Said: time.Now()},
		reconcile.Observation{Ref: reconcile.Ref{Event: "evt2", Message: "wamid.1"}, Status: "delivered", Said: time.Now()})
	fmt.Println(answers, err)
	p, err := timeline.Project(ctx, reconcile.Ref{Own: "order 7"})
	fmt.Println(p.Status, err)
	// Output:
	// [appended appended] <nil>
	// delivered <nil>
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
	store, err := redisreconcile.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	removed, err := store.Sweep(context.Background(), 5000) // every minute, from a ticker
	fmt.Println(removed, err)
	// Output:
	// 0 <nil>
}
