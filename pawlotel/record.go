package pawlotel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// An instrument is what a counter of hooks is called.
type instrument struct{ name, unit, help string }

// counters makes the counters of hooks.
func counters(m metric.Meter, of ...instrument) ([]metric.Int64Counter, error) {
	all := make([]metric.Int64Counter, len(of))
	for i, n := range of {
		var err error
		if all[i], err = m.Int64Counter(n.name, metric.WithUnit(n.unit), metric.WithDescription(n.help)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// fixed returns a function that joins the attributes of a measurement with those that all
// have.
func fixed(attrs []attribute.KeyValue) func(own ...attribute.KeyValue) metric.MeasurementOption {
	attrs = append([]attribute.KeyValue(nil), attrs...)
	return func(own ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(own, attrs...)...))
	}
}

// histogram makes a histogram of a duration.
func histogram(m metric.Meter, name, help string, bounds []float64) (func(ctx context.Context, d time.Duration, with metric.MeasurementOption), error) {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d time.Duration, with metric.MeasurementOption) {
		h.Record(ctx, d.Seconds(), with)
	}, nil
}

func orFailed(well string, err error) string {
	if err != nil {
		return "failed"
	}
	return well
}

// snake writes words as the value of an attribute.
func snake(words string) string { return strings.ReplaceAll(words, " ", "_") }
