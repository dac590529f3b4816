package redisshaper_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/backpressure/redisshaper"
)

// Two processes share the rate of one line.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	process := func() *backpressure.SharedLine {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		store, err := redisshaper.New(client, &redisshaper.Options{Name: "gateway"})
		if err != nil {
			panic(err)
		}
		shaper, err := backpressure.NewShared(store, &backpressure.SharedOptions{
			Lines:     []backpressure.LineOptions{{Name: "im", Rate: 0.01, Burst: 1}},
			OnDown:    backpressure.LocalShare,
			Processes: 2,
			Timeout:   5 * time.Second,
		})
		if err != nil {
			panic(err)
		}
		line, err := shaper.Line("im")
		if err != nil {
			panic(err)
		}
		return line
	}
	first, second := process(), process()
	fmt.Println(first.Allow(context.Background(), 1).Admit)
	fmt.Println(second.Allow(context.Background(), 1).Reason)
	// Output:
	// true
	// the rate is used up
}
