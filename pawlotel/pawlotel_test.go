package pawlotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/pawlotel"
	"github.com/pawl-go/pawl/seqgen"
)

// values are all points that a reader collects, by name and attributes.
type values map[string]float64

func meter() (metric.Meter, func(t *testing.T) values) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return provider.Meter("test"), func(t *testing.T) values {
		var rm metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &rm))
		got := values{}
		for _, s := range rm.ScopeMetrics {
			for _, m := range s.Metrics {
				require.NotEmpty(t, m.Description, m.Name)
				require.NotEmpty(t, m.Unit, m.Name)
				got.add(m)
			}
		}
		return got
	}
}

func (v values) add(m metricdata.Metrics) {
	name := func(set attribute.Set) string {
		enc := set.Encoded(attribute.DefaultEncoder())
		return m.Name + "{" + enc + "}"
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			v[name(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			v[name(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			v[name(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			v[name(p.Attributes)] = float64(p.Count)
		}
	default:
		panic(fmt.Sprintf("%T", d))
	}
}

func TestDedup(t *testing.T) {
	m, collect := meter()
	hooks, err := pawlotel.DedupHooks(m)
	require.NoError(t, err)
	g, err := dedup.New(dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold, Hooks: hooks})
	require.NoError(t, err)
	_, err = pawlotel.Dedup(m, g, attribute.String("effect", "charge"))
	require.NoError(t, err)
	_, err = pawlotel.Held(m, g, 100)
	require.NoError(t, err)

	for range 3 {
		require.NoError(t, g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { return nil }))
	}
	require.Error(t, g.Do(t.Context(), dedup.Request{ID: "b"}, func(context.Context) error { return errors.New("timeout") }))

	got := collect(t)
	require.Equal(t, 2.0, got["pawl.dedup.claims{answer=acquired,effect=charge}"])
	require.Equal(t, 2.0, got["pawl.dedup.claims{answer=done,effect=charge}"])
	require.Equal(t, 1.0, got["pawl.dedup.settlements{effect=charge,kind=complete}"])
	require.Equal(t, 1.0, got["pawl.dedup.settlements{effect=charge,kind=hold}"])
	require.Equal(t, 1.0, got["pawl.dedup.held{}"])
	require.Equal(t, (8 * 24 * time.Hour).Seconds(), got["pawl.dedup.retention{effect=charge}"])
	require.Equal(t, 2.0, got["pawl.dedup.duplicate_age{}"])
}

func TestSeqgen(t *testing.T) {
	m, collect := meter()
	g, err := seqgen.New(seqgen.NewMemory(), nil)
	require.NoError(t, err)
	_, err = pawlotel.Seqgen(m, g)
	require.NoError(t, err)
	for range 3 {
		_, err := g.Next(t.Context(), "k")
		require.NoError(t, err)
	}
	got := collect(t)
	require.Equal(t, 3.0, got["pawl.seqgen.numbers{mode=single}"]+got["pawl.seqgen.numbers{mode=block}"])
	require.Equal(t, 0.0, got["pawl.seqgen.refused{reason=rolled_back}"])
	require.Contains(t, got, "pawl.seqgen.refused{reason=rolled_back}")
}

func TestOrderAndLanes(t *testing.T) {
	m, collect := meter()
	hooks, err := pawlotel.OrderHooks(m)
	require.NoError(t, err)
	b, err := order.New(order.NewMemory(), &order.Options{Hooks: hooks})
	require.NoError(t, err)
	lanes, err := order.NewLanes(b, &order.LanesOptions{Route: func(_ context.Context, customer string) (string, error) {
		if customer == "nobody" {
			return "", order.ErrNoAccount
		}
		return "A", nil
	}})
	require.NoError(t, err)
	_, err = pawlotel.Order(m, b, attribute.String("scope", "out"))
	require.NoError(t, err)
	_, err = pawlotel.Totals(m, b)
	require.NoError(t, err)
	_, err = pawlotel.Lanes(m, lanes)
	require.NoError(t, err)
	_, err = pawlotel.LanesWaiting(m, lanes, 100)
	require.NoError(t, err)

	for i := range 3 {
		_, err := lanes.Enqueue(t.Context(), order.Outbound{Operation: fmt.Sprint("op", i), Customer: "c"})
		require.NoError(t, err)
	}
	_, err = lanes.Enqueue(t.Context(), order.Outbound{Operation: "x", Customer: "nobody"})
	require.ErrorIs(t, err, order.ErrNoAccount)
	require.Equal(t, 3.0, collect(t)["pawl.order.buffered{}"])
	require.Equal(t, 3.0, collect(t)["pawl.lanes.waiting{account=A}"])
	require.NotContains(t, collect(t), "pawl.lanes.waiting{account=}")

	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	require.NoError(t, lanes.Run(ctx, func(context.Context, order.Sending) error {
		if sent++; sent == 3 {
			cancel()
		}
		if sent == 2 {
			return order.Failed(order.CauseRefused, errors.New("no such number"))
		}
		return nil
	}, nil))

	got := collect(t)
	require.Equal(t, 3.0, got["pawl.order.pushed{answer=buffered,scope=out}"])
	require.Equal(t, 2.0, got["pawl.order.delivered{order=in_order,scope=out}"])
	require.Equal(t, 1.0, got["pawl.order.parked{event=dropped,scope=out}"])
	require.Equal(t, 2.0, got["pawl.order.wait{}"])
	require.Equal(t, 0.0, got["pawl.order.buffered{}"])
	require.Equal(t, 3.0, got["pawl.lanes.enqueued{account=A}"])
	require.Equal(t, 2.0, got["pawl.lanes.sent{account=A}"])
	require.Equal(t, 1.0, got["pawl.lanes.failed{account=A,by=gateway,cause=refused}"])
	require.Equal(t, 1.0, got["pawl.lanes.failed{account=,by=routing,cause=no_account}"])
}

// When the store does not answer, the reader hears of it, and other instruments
// are collected all the same.
func TestTotalsOfAStoreThatFails(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	b, err := order.New(down{order.NewMemory()}, nil)
	require.NoError(t, err)
	_, err = pawlotel.Totals(m, b)
	require.NoError(t, err)
	_, err = pawlotel.Order(m, b)
	require.NoError(t, err)
	var rm metricdata.ResourceMetrics
	require.ErrorIs(t, reader.Collect(t.Context(), &rm), errDown)
	require.NotEmpty(t, rm.ScopeMetrics[0].Metrics)
}

var errDown = errors.New("down")

type down struct{ order.Store }

func (down) Totals(context.Context, string) (order.Totals, error) { return order.Totals{}, errDown }
