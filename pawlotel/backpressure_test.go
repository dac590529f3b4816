package pawlotel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/pawlotel"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		hooks, err := pawlotel.GateHooks(m, attribute.String("gate", "api"))
		require.NoError(t, err)
		g, err := backpressure.NewGate(&backpressure.GateOptions{Concurrency: 1, MaxQueue: 1, Hooks: hooks})
		require.NoError(t, err)
		_, err = pawlotel.Gate(m, g, attribute.String("gate", "api"))
		require.NoError(t, err)

		call := func(c backpressure.Class, d time.Duration) backpressure.Call {
			return backpressure.Call{Priority: backpressure.Priority{Class: c}, Deadline: time.Now().Add(d)}
		}
		late, v := g.Admit(call(backpressure.ClassHigh, time.Second))
		require.True(t, v.Admit)
		require.Equal(t, 1.0, collect(t)["pawl.backpressure.gate.waiting{gate=api}"])
		_, v = g.Admit(call(backpressure.ClassLow, time.Second)) // the queue is full
		require.False(t, v.Admit)
		time.Sleep(2 * time.Second)
		require.False(t, late.Start().Admit)
		_, v = g.Admit(call(9, time.Second))
		require.True(t, v.Admit)
		_, v = g.Admit(call(9, time.Second))
		require.False(t, v.Admit)

		wants(t, collect(t), map[string]float64{
			"pawl.backpressure.gate.admitted{class=high,gate=api}":                   1,
			"pawl.backpressure.gate.admitted{class=middle,gate=api}":                 1,
			"pawl.backpressure.gate.admitted{class=highest,gate=api}":                0,
			"pawl.backpressure.gate.refused{class=low,gate=api}":                     1,
			"pawl.backpressure.gate.expired{class=high,gate=api}":                    1,
			"pawl.backpressure.gate.unclassified{gate=api}":                          2,
			"pawl.backpressure.gate.refusals{class=none,gate=api,reason=queue_full}": 1,
			"pawl.backpressure.gate.shedding{gate=api}":                              0,
			"pawl.backpressure.gate.running{gate=api}":                               0,
			"pawl.backpressure.gate.refusals{class=low,gate=api,reason=queue_full}":  1,
			"pawl.backpressure.gate.refusals{class=high,gate=api,reason=expired}":    1,
		})
	})
}

func TestShaper(t *testing.T) {
	m, collect := meter()
	hooks, err := pawlotel.ShaperHooks(m)
	require.NoError(t, err)
	now := time.Now()
	s, err := backpressure.NewShaper(&backpressure.ShaperOptions{Hooks: hooks, Now: func() time.Time { return now }, Lines: []backpressure.LineOptions{
		{Name: "core", Rate: 2, Burst: 2, Importance: 1}, {Name: "bulk", Rate: 2, Burst: 2},
	}})
	require.NoError(t, err)
	_, err = pawlotel.Shaper(m, s)
	require.NoError(t, err)
	line, err := s.Line("core")
	require.NoError(t, err)
	for range 9 {
		line.Allow(1)
	}
	got := collect(t)
	wants(t, got, map[string]float64{
		"pawl.backpressure.shaper.calls{answer=admitted,line=core}":     4,
		"pawl.backpressure.shaper.calls{answer=refused,line=core}":      5,
		"pawl.backpressure.shaper.calls{answer=admitted,line=bulk}":     0,
		"pawl.backpressure.shaper.borrowed{line=core}":                  2,
		"pawl.backpressure.shaper.lent{line=bulk}":                      2,
		"pawl.backpressure.shaper.waiting{line=core}":                   0,
		"pawl.backpressure.shaper.refusals{line=core,reason=no_tokens}": 5,
	})
}

func TestKeyed(t *testing.T) {
	m, collect := meter()
	k, err := backpressure.NewKeyed(&backpressure.KeyedOptions{Rate: 1e-6})
	require.NoError(t, err)
	_, err = pawlotel.Keyed(m, k)
	require.NoError(t, err)
	for range 3 {
		k.Allow("tel:+49123456789", 1)
	}
	got := collect(t)
	wants(t, got, map[string]float64{
		"pawl.backpressure.keyed.calls{answer=admitted}": 1,
		"pawl.backpressure.keyed.calls{answer=refused}":  2,
		"pawl.backpressure.keyed.keys{}":                 1,
		"pawl.backpressure.keyed.crowded{}":              0,
	})
	for name := range got {
		require.NotContains(t, name, "+49", "a key became an attribute")
	}
}

type downShaper struct{}

func (downShaper) Take(context.Context, []backpressure.LineOptions, []backpressure.Ask) ([]backpressure.Answer, error) {
	return nil, errDown
}

func TestShared(t *testing.T) {
	m, collect := meter()
	s, err := backpressure.NewShared(downShaper{}, &backpressure.SharedOptions{Processes: 1, OnDown: backpressure.Closed, Lines: []backpressure.LineOptions{{Name: "core", Rate: 1}}})
	require.NoError(t, err)
	_, err = pawlotel.Shared(m, s)
	require.NoError(t, err)
	require.Equal(t, 0.0, collect(t)["pawl.backpressure.shared.down{}"])
	line, err := s.Line("core")
	require.NoError(t, err)
	require.False(t, line.Allow(t.Context(), 1).Admit)
	wants(t, collect(t), map[string]float64{
		"pawl.backpressure.shared.calls{answer=refused}":  1,
		"pawl.backpressure.shared.calls{answer=admitted}": 0,
		"pawl.backpressure.shared.undecided{}":            1,
		"pawl.backpressure.shared.errors{}":               1,
		"pawl.backpressure.shared.down{}":                 1,
	})
}

func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		l, err := backpressure.NewLevels(&backpressure.LevelsOptions{Signals: []backpressure.Signal{{Name: "backlog"}, {Name: "age", Gauge: func(context.Context) (float64, error) {
			return 0, errors.New("no answer")
		}}}})
		require.NoError(t, err)
		_, err = pawlotel.Levels(m, l, attribute.String("of", "inbox"))
		require.NoError(t, err)
		require.NoError(t, l.Observe("backlog", 6_000_000))
		require.False(t, l.Verdict(false).Admit)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		_ = l.Run(ctx)
		got := collect(t)
		wants(t, got, map[string]float64{
			"pawl.backpressure.levels.level{of=inbox}":                 3,
			"pawl.backpressure.levels.changes{of=inbox}":               1,
			"pawl.backpressure.levels.refused{of=inbox}":               1,
			"pawl.backpressure.levels.signal{of=inbox,signal=backlog}": 6_000_000,
			"pawl.backpressure.levels.stale{of=inbox}":                 1,
			"pawl.backpressure.levels.faults{kind=value,of=inbox}":     0,
		})
		require.Positive(t, got["pawl.backpressure.levels.faults{kind=gauge,of=inbox}"])
		require.NotContains(t, got, "pawl.backpressure.levels.signal{of=inbox,signal=age}", "it was never told")
	})
}
