package pawlotel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/pawlotel"
)

// A worker whose loop stands still with work to do is found, restarted in vain, and
// given up.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		scope := attribute.String("scope", "default")
		hooks, err := pawlotel.WatchdogHooks(m, scope)
		require.NoError(t, err)
		store := watchdog.NewMemory()
		w, err := watchdog.New(store, &watchdog.Options{Hooks: hooks, MaxRestarts: 1,
			Restart: func(context.Context, watchdog.Incident) error { return errors.New("no such pod") }})
		require.NoError(t, err)
		_, err = pawlotel.Watchdog(m, w, scope)
		require.NoError(t, err)
		r, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: "tel:+49123456789"})
		require.NoError(t, err)
		_, err = pawlotel.Reporter(m, r, attribute.String("loop", "orders"))
		require.NoError(t, err)
		got := collect(t)
		require.Equal(t, 0.0, got["pawl.watchdog.up_to_date{scope=default}"])
		require.NotContains(t, got, "pawl.watchdog.round_age{scope=default}", "there was no round")
		require.NotContains(t, got, "pawl.watchdog.beat_age{loop=orders}", "there was no heartbeat")

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- r.Run(ctx) }()
		go func() { ended <- w.Run(ctx) }()
		r.Pending(7)
		r.At(3)
		h := r.Begin()
		time.Sleep(time.Minute + time.Second)
		wants(t, collect(t), map[string]float64{
			"pawl.watchdog.workers{scope=default,verdict=healthy}":        1,
			"pawl.watchdog.workers{scope=default,verdict=zombie}":         0,
			"pawl.watchdog.states{scope=default,state=flowing}":           1,
			"pawl.watchdog.states{scope=default,state=waiting_for_a_gap}": 0,
			"pawl.watchdog.up_to_date{scope=default}":                     1,
			"pawl.watchdog.round_age{scope=default}":                      1,
			"pawl.watchdog.beat_age{loop=orders}":                         1,
			"pawl.watchdog.beats{loop=orders,outcome=taken}":              5,
			"pawl.watchdog.handlers{loop=orders}":                         1,
		})
		time.Sleep(20 * time.Minute)
		r.End(h)
		got = collect(t)
		wants(t, got, map[string]float64{
			"pawl.watchdog.workers{scope=default,verdict=zombie}":                       1,
			"pawl.watchdog.states{scope=default,state=handler_too_long}":                1,
			"pawl.watchdog.given_up{scope=default}":                                     1,
			"pawl.watchdog.found{scope=default,verdict=zombie}":                         1,
			"pawl.watchdog.found{scope=default,verdict=stuck}":                          0,
			"pawl.watchdog.restarts{scope=default}":                                     1,
			"pawl.watchdog.restarts_failed{scope=default}":                              1,
			"pawl.watchdog.ended{event=given_up,scope=default}":                         1,
			"pawl.watchdog.restart{outcome=failed,scope=default}":                       1,
			"pawl.watchdog.became{scope=default,state=handler_too_long,verdict=zombie}": 1,
			"pawl.watchdog.rounds{outcome=failed,scope=default}":                        0,
		})
		require.Equal(t, got["pawl.watchdog.rounds{outcome=answered,scope=default}"], got["pawl.watchdog.round{outcome=answered,scope=default}"])
		for name := range got {
			require.NotContains(t, name, "+49", "a worker's name became an attribute")
		}
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
}

func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		w, err := watchdog.NewWarmup(&watchdog.WarmupOptions{Window: time.Minute})
		require.NoError(t, err)
		_, err = pawlotel.Warmup(m, w)
		require.NoError(t, err)
		require.Equal(t, 1.0, collect(t)["pawl.watchdog.warmup.phase{phase=isolated}"])
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(10 * time.Second)
		got := collect(t)
		wants(t, got, map[string]float64{
			"pawl.watchdog.warmup.phase{phase=observing}": 1,
			"pawl.watchdog.warmup.phase{phase=isolated}":  0,
			"pawl.watchdog.warmup.left{}":                 50,
		})
		time.Sleep(time.Minute)
		wants(t, collect(t), map[string]float64{
			"pawl.watchdog.warmup.phase{phase=joined}": 1,
			"pawl.watchdog.warmup.joins{}":             1,
			"pawl.watchdog.warmup.left{}":              0,
		})
		stop()
		<-ended
	})
}
