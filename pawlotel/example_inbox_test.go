package pawlotel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawlotel"
)

// All that an inbox is measured by: hooks go into its options, counters and totals are
// registered over the box. The reader is Prometheus's in a service: see
// examples/prometheus.
func ExampleInbox() {
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("example.com/service")
	hooks, err := pawlotel.InboxHooks(meter, &pawlotel.InboxOptions{Version: "v1"})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.New(inbox.NewMemory(), &inbox.Options{Hooks: hooks, Trace: pawlotel.InboxTrace()})
	if err != nil {
		log.Fatal(err)
	}
	of := attribute.String("box", "webhooks")
	if _, err := pawlotel.Inbox(meter, box, of); err != nil {
		log.Fatal(err)
	}
	if _, err := pawlotel.InboxTotals(meter, box, of); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	for _, id := range []string{"test/m1", "test/m2", "test/m1"} {
		if _, err := box.Accept(ctx, inbox.Event{ID: id, Provider: "test", Type: "order"}); err != nil {
			log.Fatal(err)
		}
	}
	var page metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &page); err != nil {
		log.Fatal(err)
	}
	for _, m := range page.ScopeMetrics[0].Metrics {
		if m.Name != "pawl.inbox.received" && m.Name != "pawl.inbox.events" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if p.Value > 0 {
				fmt.Println(m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value)
			}
		}
	}
	// Unordered output:
	// pawl.inbox.received answer=accepted,box=webhooks 2
	// pawl.inbox.received answer=duplicate,box=webhooks 1
	// pawl.inbox.events answer=accepted,provider=test,type=order,version=v1 2
	// pawl.inbox.events answer=duplicate,provider=test,type=order,version=v1 1
}
