package rediswatchdog_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/rediswatchdog"
)

// A worker in one process, a watchdog in another.
func Example() {
	server, err := miniredis.Run() // in earnest, your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	open := func() *rediswatchdog.Store {
		client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
		store, err := rediswatchdog.New(client, nil)
		if err != nil {
			log.Fatal(err)
		}
		return store
	}

	ctx, cancel := context.WithCancel(context.Background())
	beaten := make(chan time.Duration, 1)
	reporter, err := watchdog.NewReporter(open(), &watchdog.ReporterOptions{
		Name: "orders-1", Hooks: &watchdog.ReporterHooks{Beaten: func(took time.Duration) { beaten <- took }},
	})
	if err != nil {
		log.Fatal(err)
	}
	reporter.Say(watchdog.Parked, "one conversation needs a person")
	done := make(chan error)
	go func() { done <- reporter.Run(ctx) }()
	<-beaten

	w, err := watchdog.New(open(), nil)
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		workers, err := w.Round(context.Background())
		if err != nil {
			log.Fatal(err) // nothing is known
		}
		for _, worker := range workers {
			fmt.Printf("%s: %v, %v\n", worker.Name, worker.Verdict, worker.State)
		}
	}
	show()
	cancel()
	fmt.Println(<-done)
	show()
	// Output:
	// orders-1: healthy, parked
	// <nil>
	// orders-1: gone, parked
}
