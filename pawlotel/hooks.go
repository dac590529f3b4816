package pawlotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/order"
)

// waits are the boundaries of histograms of waiting times, in seconds: from a
// millisecond to the week for which providers re-send.
var waits = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300, 1800, 3600, 6 * 3600, 86400, 3 * 86400, 7 * 86400}

// DedupHooks returns hooks that record the age of duplicates:
// pawl.dedup.duplicate_age. Set other fields of it as you like.
func DedupHooks(m metric.Meter, attrs ...attribute.KeyValue) (*dedup.Hooks, error) {
	ages, err := m.Float64Histogram("pawl.dedup.duplicate_age", metric.WithUnit("s"),
		metric.WithDescription("Age of a completed message at the arrival of a duplicate."), metric.WithExplicitBucketBoundaries(waits...))
	if err != nil {
		return nil, err
	}
	with := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &dedup.Hooks{Claimed: func(ctx context.Context, c dedup.Claim) {
		if c.State == dedup.Done {
			ages.Record(ctx, c.Age.Seconds(), with)
		}
	}}, nil
}

// OrderHooks returns hooks that record how long messages waited until they were
// handed over: pawl.order.wait. Set other fields of it as you like.
func OrderHooks(m metric.Meter, attrs ...attribute.KeyValue) (*order.Hooks, error) {
	wait, err := m.Float64Histogram("pawl.order.wait", metric.WithUnit("s"),
		metric.WithDescription("Time between the push of a message and its handler."), metric.WithExplicitBucketBoundaries(waits...))
	if err != nil {
		return nil, err
	}
	with := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &order.Hooks{Delivered: func(ctx context.Context, m order.Message) {
		wait.Record(ctx, m.Age.Seconds(), with)
	}}, nil
}
