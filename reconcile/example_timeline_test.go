package reconcile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// Statuses arrive in any order and contradict each other: a dashboard shows the most
// informative one, a bill waits until it is settled.
func ExampleTimeline() {
	timeline, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), &reconcile.TimelineOptions{Kind: "ycloud"})
	if err != nil {
		panic(err)
	}
	ctx, now := context.Background(), time.Now()
	say := func(event, message, own, status string, at time.Duration) {
		_, err := timeline.Append(ctx, reconcile.Observation{
			Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: status, Source: "webhook", Said: now.Add(at),
		})
		if err != nil {
			panic(err)
		}
		p, err := timeline.Project(ctx, reconcile.Ref{Own: "order-7"})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.Status, p.Settled, len(p.Contradicting))
	}
	say("evt_1", "wamid.1", "order-7", "accepted", 0)
	say("evt_3", "wamid.1", "", "delivered", 2*time.Second)
	say("evt_2", "wamid.1", "", "sent", time.Second) // late
	say("evt_3", "wamid.1", "", "delivered", 2*time.Second)
	say("evt_4", "wamid.1", "", "failed", 3*time.Second) // on another device
	// Output:
	// accepted false 0
	// delivered true 0
	// delivered true 0
	// delivered true 0
	// delivered false 1
}
