package pawlotel_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/pawlotel"
)

// counting is a store whose counts are made up.
type counting struct {
	dlq.Store
	totals func(ctx context.Context, after string, n int) ([]dlq.Totals, error)
}

func (c counting) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	return c.totals(ctx, after, n)
}

// letters are what is collected of a store whose counts are made up.
func letters(t *testing.T, limit int, totals func(ctx context.Context, after string, n int) ([]dlq.Totals, error)) (values, error) {
	q, err := dlq.New(counting{dlq.NewMemory(), totals}, nil)
	require.NoError(t, err)
	reader := sdkmetric.NewManualReader()
	m := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	_, err = pawlotel.DLQTotals(m, q, limit)
	require.NoError(t, err)
	_, err = pawlotel.DLQ(m, q)
	require.NoError(t, err)
	var rm metricdata.ResourceMetrics
	err = reader.Collect(t.Context(), &rm)
	got := values{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		got.add(m)
	}
	require.Contains(t, got, "pawl.dlq.running{}", "the others are collected all the same")
	return got, err
}

// from makes streams of that number, each with one letter, the first of which is the oldest.
func from(streams int) func(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	return func(_ context.Context, after string, n int) (page []dlq.Totals, _ error) {
		first := 0
		if after != "" {
			fmt.Sscanf(after, "s%d", &first)
			first++
		}
		for i := first; i < min(streams, first+n); i++ {
			page = append(page, dlq.Totals{Stream: fmt.Sprintf("s%06d", i), Waiting: 1, Oldest: time.Duration(streams-i) * time.Second})
		}
		return page, nil
	}
}

func TestOnlySoManyStreamsHaveSeries(t *testing.T) {
	for _, streams := range []int{0, 1, 2, 3, 999, 1000, 1001, 2500, 100_000 - 1} {
		got, err := letters(t, 2, from(streams))
		require.NoError(t, err)
		own := min(streams, 2)
		sum, series := 0.0, 0
		for name, v := range got {
			if len(name) > 16 && name[:16] == "pawl.dlq.letters" {
				sum += v
				series++
			}
		}
		require.Equal(t, float64(streams), sum)
		if streams > own {
			require.Equal(t, float64(streams-own), got["pawl.dlq.letters{rest=true,state=waiting}"])
			require.Equal(t, float64(streams-own), got["pawl.dlq.oldest{rest=true}"])
			own++
		}
		require.Equal(t, 5*own, series)
	}
}

// More than can be read is an error, and no number that would pass for all.
func TestMoreStreamsThanCanBeReadAreAnError(t *testing.T) {
	got, err := letters(t, 2, from(1_000_000))
	require.ErrorContains(t, err, "more than 100000 of attribute stream")
	require.NotContains(t, got, "pawl.dlq.oldest{rest=true}")
}

// A store that hangs holds up the page for five seconds.
func TestAStoreThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := letters(t, 2, func(ctx context.Context, _ string, _ int) ([]dlq.Totals, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.NotContains(t, got, "pawl.dlq.oldest{rest=true}")
	})
}
