package redisdedup_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
)

// A message that two processes receive has one effect.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	process := func(name string) func(id string) error {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
		store, err := redisdedup.New(client, nil)
		if err != nil {
			log.Fatal(err)
		}
		guard, err := dedup.New(store, &dedup.Options{Scope: "invoices"})
		if err != nil {
			log.Fatal(err)
		}
		return func(id string) error {
			return guard.Do(context.Background(), dedup.Request{ID: id}, func(context.Context) error {
				fmt.Printf("%s sends the invoice for %s\n", name, id)
				return nil
			})
		}
	}
	a, b := process("a"), process("b")
	fmt.Println(a("order-1"))
	fmt.Println(b("order-1"))
	fmt.Println(b("order-2"))
	// Output:
	// a sends the invoice for order-1
	// <nil>
	// <nil>
	// b sends the invoice for order-2
	// <nil>
}

// What to make of each answer of Check when a service starts.
func ExampleStore_Check() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	start := func(partitions int) {
		store, err := redisdedup.New(client, &redisdedup.Options{Partitions: partitions})
		if err != nil {
			log.Fatal(err)
		}
		err = store.Check(context.Background())
		if errors.Is(err, redisdedup.ErrLayout) {
			fmt.Println("do not start:", err)
			return
		}
		if errors.Is(err, dedup.ErrAtRisk) {
			fmt.Println("start, and tell an operator what can be lost")
		}
		if errors.Is(err, dedup.ErrUnchecked) {
			fmt.Println("start; how durable this server is, it would not say")
		}
	}
	start(0)
	start(32)
	// Output:
	// start; how durable this server is, it would not say
	// do not start: redisdedup: check: what is stored has another layout: stored "pawl dedup layout 1, 16 partitions", wanted "pawl dedup layout 1, 32 partitions"
}
