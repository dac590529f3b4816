package redisseqgen_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/redisseqgen"
)

// Two processes draw from one key, and no number comes twice.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	process := func() *seqgen.Generator {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
		store, err := redisseqgen.New(client, nil)
		if err != nil {
			log.Fatal(err)
		}
		numbers, err := seqgen.New(store, nil)
		if err != nil {
			log.Fatal(err)
		}
		return numbers
	}
	a, b := process(), process()
	for _, numbers := range []*seqgen.Generator{a, b, b, a} {
		p, err := numbers.Next(context.Background(), "customer-7")
		if err != nil {
			log.Fatal(err) // no number was assigned
		}
		fmt.Println(p)
	}
	// Output:
	// 1/1
	// 1/2
	// 1/3
	// 1/4
}
