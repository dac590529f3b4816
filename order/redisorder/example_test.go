package redisorder_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/redisorder"
)

// Messages that come in another order than they were sent in are handled in the
// order of their numbers, by whichever process has the key.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer client.Close()
	store, err := redisorder.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	buffer, err := order.New(store, &order.Options{Scope: "inbound"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	for _, n := range []uint64{2, 3, 1} {
		if _, err := buffer.Push(ctx, order.Message{
			Key:      "customer-7",
			Position: order.Position{Epoch: 1, Number: n},
			Payload:  fmt.Appendf(nil, "message %d", n),
		}); err != nil {
			log.Fatal(err)
		}
	}
	err = buffer.Run(ctx, func(_ context.Context, m order.Message) error {
		fmt.Println(string(m.Payload))
		if m.Position.Number == 3 {
			stop()
		}
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// message 1
	// message 2
	// message 3
	// <nil>
}
