package pgwatchdog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/pgwatchdog"
)

// Two watchdogs see a worker whose heartbeats stop; one of them restarts it.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := pgxpool.New(ctx, os.Getenv("PAWL_TEST_POSTGRES")) // your database
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgwatchdog.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}

	// One heartbeat, by hand, of a worker that is never heard of again.
	_, err = store.Beat(ctx, watchdog.Params{Scope: "example", Most: 10}, []watchdog.Beat{{
		Name: "orders-1", Join: true, Nonce: [16]byte{byte(time.Now().UnixNano())}, Seq: 1, Interval: 50 * time.Millisecond, State: watchdog.Flowing,
	}})
	if err != nil {
		log.Fatal(err)
	}
	restarted := make(chan watchdog.Incident, 10)
	ended := make(chan error)
	var watchdogs []*watchdog.Watchdog
	for range 2 {
		w, err := watchdog.New(store, &watchdog.Options{
			Scope: "example", Every: 20 * time.Millisecond,
			Restart: func(_ context.Context, i watchdog.Incident) error { restarted <- i; return nil },
		})
		if err != nil {
			log.Fatal(err)
		}
		watchdogs = append(watchdogs, w)
		go func() { ended <- w.Run(ctx) }()
	}
	i := <-restarted
	fmt.Println(i.Worker.Name, "is", i.Worker.Verdict, "- attempt", i.Attempt)
	cancel()
	<-ended
	<-ended
	fmt.Println("more:", len(restarted))
	if err := watchdogs[0].Forget(context.Background(), "orders-1"); err != nil { // for the sake of the next run
		log.Fatal(err)
	}
	// Output:
	// orders-1 is stuck - attempt 1
	// more: 0
}
