package redisdedup_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
)

// Welcomer is the service under test: it greets every new customer once.
type Welcomer struct {
	guard *dedup.Guard
	send  func(ctx context.Context, customer string) error
}

// NewWelcomer takes what it depends on, so that a test can hand it a miniredis and
// a function of its own.
func NewWelcomer(client redis.UniversalClient, send func(context.Context, string) error) (*Welcomer, error) {
	store, err := redisdedup.New(client, nil)
	if err != nil {
		return nil, err
	}
	guard, err := dedup.New(store, &dedup.Options{Scope: "welcome", Lease: 30 * time.Second})
	return &Welcomer{guard, send}, err
}

// Handle works one delivery of the event "customer joined". The event is to be
// acknowledged if it returns nil, and to be delivered again otherwise.
func (w *Welcomer) Handle(ctx context.Context, eventID, customer string) error {
	return w.guard.Do(ctx, dedup.Request{ID: eventID}, func(ctx context.Context) error {
		return w.send(ctx, customer)
	})
}

// A service is tested on miniredis: no server to install, and a clock that the
// test moves. In a test, miniredis.RunT(t) takes the place of miniredis.Run.
func Example_unitTest() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	// miniredis has two clocks, and leases need both.
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(now) // what TIME answers
	sleep := func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
		server.FastForward(d) // what makes keys expire
	}

	ctx := context.Background()
	gateway := errors.New("the gateway is down")
	w, err := NewWelcomer(client, func(_ context.Context, customer string) error {
		if gateway == nil {
			fmt.Println("welcome,", customer)
		}
		return gateway
	})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println("the gateway fails:", w.Handle(ctx, "event-1", "Ada"))
	gateway = nil
	fmt.Println("delivered again:", w.Handle(ctx, "event-1", "Ada"))
	fmt.Println("a duplicate:", w.Handle(ctx, "event-1", "Ada"))

	// Another process claims an event and dies: nobody runs it within the lease.
	dead, err := w.guard.Claim(ctx, dedup.Request{ID: "event-2"})
	if err != nil || dead.State != dedup.Acquired {
		log.Fatal(dead.State, err)
	}
	fmt.Println("too early:", errors.Is(w.Handle(ctx, "event-2", "Bob"), dedup.ErrInFlight))
	sleep(31 * time.Second)
	fmt.Println("after the lease:", w.Handle(ctx, "event-2", "Bob"))

	server.SetError("LOADING the server is starting")
	fmt.Println("no answer:", errors.Is(w.Handle(ctx, "event-3", "Eve"), dedup.ErrUnavailable))
	// Output:
	// the gateway fails: the gateway is down
	// welcome, Ada
	// delivered again: <nil>
	// a duplicate: <nil>
	// too early: true
	// welcome, Bob
	// after the lease: <nil>
	// no answer: true
}
