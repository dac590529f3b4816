package backpressure_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

const backlog = "backlog"

// newLevels returns levels over one signal with the default table, and their events.
func newLevels(t testing.TB, change func(*backpressure.LevelsOptions)) (*backpressure.Levels, *[]backpressure.Event) {
	t.Helper()
	events := new([]backpressure.Event)
	o := &backpressure.LevelsOptions{
		Signals:  []backpressure.Signal{{Name: backlog}},
		OnChange: func(e backpressure.Event) { *events = append(*events, e) },
	}
	if change != nil {
		change(o)
	}
	l, err := backpressure.NewLevels(o)
	require.NoError(t, err)
	return l, events
}

// The default table, at each of its marks.
func TestDefaultTable(t *testing.T) {
	const slow, shrink, refuse = backpressure.SlowClients, backpressure.ShrinkMedia, backpressure.RefuseNonCore
	for _, c := range []struct {
		backlog float64
		level   int
		degrade backpressure.Degrade
	}{
		{0, 0, 0}, {99_999, 0, 0},
		{100_000, 1, slow}, {100_001, 1, slow}, {999_999, 1, slow},
		{1_000_000, 2, slow | shrink}, {1_000_001, 2, slow | shrink}, {4_999_999, 2, slow | shrink},
		{5_000_000, 2, slow | shrink}, {5_000_001, 3, slow | shrink | refuse},
		{math.MaxFloat64, 3, slow | shrink | refuse}, {math.Inf(1), 3, slow | shrink | refuse},
	} {
		l, events := newLevels(t, nil)
		require.NoError(t, l.Observe(backlog, c.backlog))
		require.Equal(t, c.level, l.Level(), "%v", c.backlog)
		require.Equal(t, c.degrade, l.Degrade(), "%v", c.backlog)
		if c.level > 0 {
			require.Len(t, *events, 1, "one event, however many levels")
			require.Equal(t, c.degrade, (*events)[0].Added)
		}
		require.True(t, l.Verdict(true).Admit)
		v := l.Verdict(false)
		require.Equal(t, c.level < 3, v.Admit)
		require.Equal(t, c.level, v.Level)
		require.Equal(t, c.degrade, v.Degrade)
	}
}

// The caller's own mark for level 1.
func TestOwnMark(t *testing.T) {
	l, _ := newLevels(t, func(o *backpressure.LevelsOptions) { o.Signals[0].Enter[0] = 20_000 })
	require.NoError(t, l.Observe(backlog, 19_999))
	require.Zero(t, l.Level())
	require.NoError(t, l.Observe(backlog, 20_000))
	require.Equal(t, 1, l.Level())
}

// A level stays until the backlog has been below the leave mark for the dwell, and
// what it added is undone then.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var advice []backpressure.Advice
		l, events := newLevels(t, func(o *backpressure.LevelsOptions) {
			o.ScaleOut = func(a backpressure.Advice) { advice = append(advice, a) }
		})
		tell := func(value float64) { require.NoError(t, l.Observe(backlog, value)) }
		tell(6_000_000)
		require.Equal(t, 3, l.Level())
		require.Len(t, advice, 1)
		require.InDelta(t, 0.3, advice[0].Scale, 1e-9)

		tell(3_999_999) // below 0.8 of 5,000,000
		time.Sleep(29 * time.Second)
		tell(4_000_001) // and above it again
		tell(3_999_999)
		time.Sleep(29 * time.Second)
		tell(3_999_999)
		require.Equal(t, 3, l.Level())
		time.Sleep(time.Second)
		tell(3_999_999)
		require.Equal(t, 2, l.Level())
		require.Equal(t, backpressure.RefuseNonCore, (*events)[1].Removed)

		tell(0)
		time.Sleep(30 * time.Second)
		tell(0)
		require.Zero(t, l.Level(), "both levels at once: each had its time")
		require.Len(t, *events, 3)
		e := (*events)[2]
		require.Equal(t, 2, e.From)
		require.Equal(t, backpressure.SlowClients|backpressure.ShrinkMedia, e.Removed)
		require.Contains(t, e.Reason, "backlog is 0")
		require.Len(t, advice, 1, "capacity is asked for on the way up")
	})
}

// One signal that has cleared is not enough.
func TestAllSignalsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, events := newLevels(t, func(o *backpressure.LevelsOptions) {
			o.Signals = append(o.Signals, backpressure.Signal{Name: "age", Enter: [3]float64{10, 60, 300}})
		})
		require.NoError(t, l.Observe(backlog, 200_000))
		require.NoError(t, l.Observe("age", 70))
		require.Equal(t, 2, l.Level())
		require.Equal(t, "age", (*events)[1].Signal)
		require.NoError(t, l.Observe(backlog, 0))
		require.NoError(t, l.Observe("age", 50)) // above 0.8 of 60
		time.Sleep(time.Hour)
		require.NoError(t, l.Observe(backlog, 0))
		require.Equal(t, 2, l.Level())
		require.NoError(t, l.Observe("age", 1))
		time.Sleep(time.Minute)
		require.NoError(t, l.Observe(backlog, 0))
		require.Zero(t, l.Level())
	})
}

// A backlog that swings 10 % around a mark for an hour changes the level at most
// twice.
func TestNoFlapping(t *testing.T) {
	for _, mark := range []float64{100_000, 1_000_000, 5_000_000} {
		for _, period := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				l, events := newLevels(t, nil)
				start := time.Now()
				for time.Since(start) < time.Hour {
					phase := 2 * math.Pi * float64(time.Since(start)) / float64(period)
					require.NoError(t, l.Observe(backlog, mark*(1+0.1*math.Sin(phase-math.Pi/2))))
					time.Sleep(time.Second)
				}
				require.LessOrEqual(t, len(*events), 2, "mark %v, period %v", mark, period)
				require.NotEmpty(t, *events)
			})
		}
	}
}

// What makes no sense changes nothing, and is counted.
func TestBadValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLevels(t, nil)
		require.NoError(t, l.Observe(backlog, 2_000_000))
		for _, value := range []float64{math.NaN(), -1, math.Inf(-1)} {
			require.ErrorIs(t, l.Observe(backlog, value), backpressure.ErrInvalid)
			time.Sleep(time.Minute)
		}
		require.Equal(t, 2, l.Level(), "the last value counts")
		var unknown *backpressure.UnknownError
		require.ErrorAs(t, l.Observe("depth", 1), &unknown)
		s := l.Stats()
		require.EqualValues(t, 3, s.Invalid)
		require.Equal(t, []string{backlog}, s.Stale)
	})
}

// A forecast raises a level for a time and never lowers one.
func TestRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, events := newLevels(t, nil)
		require.NoError(t, l.Observe(backlog, 0))
		require.NoError(t, l.Raise(1, time.Minute, "forecast: above the mark in 5 minutes"))
		require.Equal(t, 1, l.Level())
		require.Contains(t, (*events)[0].Reason, "forecast")
		require.NoError(t, l.Observe(backlog, 1_500_000))
		require.NoError(t, l.Raise(1, time.Minute, "again"))
		require.Equal(t, 2, l.Level())
		require.NoError(t, l.Observe(backlog, 0))
		time.Sleep(59 * time.Second)
		require.NoError(t, l.Observe(backlog, 0))
		require.Equal(t, 1, l.Level(), "held by the forecast")
		time.Sleep(time.Second)
		require.NoError(t, l.Observe(backlog, 0))
		require.Equal(t, 1, l.Level(), "and for the dwell")
		time.Sleep(30 * time.Second)
		require.NoError(t, l.Observe(backlog, 0))
		require.Zero(t, l.Level())
		for _, to := range []int{-1, 4} {
			require.ErrorIs(t, l.Raise(to, time.Second, ""), backpressure.ErrInvalid)
		}
		require.ErrorIs(t, l.Raise(1, 0, ""), backpressure.ErrInvalid)
	})
}

// Run asks the gauges; one that fails or panics, and handlers that panic, end
// nothing.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value atomic.Int64
		var changes int
		var log bytes.Buffer
		l, err := backpressure.NewLevels(&backpressure.LevelsOptions{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Signals: []backpressure.Signal{
				{Name: backlog, Gauge: func(context.Context) (float64, error) { return float64(value.Load()), nil }},
				{Name: "broken", Gauge: func(context.Context) (float64, error) { return 9e9, errors.New("no answer for secret") }},
				{Name: "not a number", Gauge: func(context.Context) (float64, error) { return math.NaN(), nil }},
				{Name: "panics", Gauge: func(context.Context) (float64, error) { panic("gauge") }},
			},
			ScaleOut: func(backpressure.Advice) { panic("scale out") },
			OnChange: func(backpressure.Event) { changes++; panic("handler") },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		require.Zero(t, l.Level())
		value.Store(150_000)
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, l.Level())
		value.Store(0)
		time.Sleep(41 * time.Second)
		require.Zero(t, l.Level())
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, 2, changes)
		s := l.Stats()
		require.GreaterOrEqual(t, s.Panics, uint64(5))
		require.Positive(t, s.GaugeErrors)
		require.True(t, math.IsNaN(s.Signals["broken"]))
		require.Contains(t, log.String(), `signal=broken error=*errors.errorString`)
		require.Contains(t, log.String(), `signal="not a number" error="backpressure: `)
		require.NotContains(t, log.String(), "secret")
	})
}

func TestLevelsOptions(t *testing.T) {
	for name, change := range map[string]func(*backpressure.LevelsOptions){
		"no signals":   func(o *backpressure.LevelsOptions) { o.Signals = nil },
		"no name":      func(o *backpressure.LevelsOptions) { o.Signals[0].Name = "" },
		"twice":        func(o *backpressure.LevelsOptions) { o.Signals = append(o.Signals, o.Signals[0]) },
		"mark above 2": func(o *backpressure.LevelsOptions) { o.Signals[0].Enter[0] = 1_000_000 },
		"NaN mark":     func(o *backpressure.LevelsOptions) { o.Signals[0].Enter[1] = math.NaN() },
		"infinite":     func(o *backpressure.LevelsOptions) { o.Signals[0].Enter[2] = math.Inf(1) },
		"negative":     func(o *backpressure.LevelsOptions) { o.Signals[0].Enter[0] = -1 },
		"leave of 1":   func(o *backpressure.LevelsOptions) { o.Signals[0].Leave = 1 },
		"NaN leave":    func(o *backpressure.LevelsOptions) { o.Signals[0].Leave = math.NaN() },
		"dwell":        func(o *backpressure.LevelsOptions) { o.Dwell = -1 },
		"every":        func(o *backpressure.LevelsOptions) { o.Every = 1 },
		"stale":        func(o *backpressure.LevelsOptions) { o.Stale = -1 },
	} {
		o := &backpressure.LevelsOptions{Signals: []backpressure.Signal{{Name: backlog}}}
		change(o)
		_, err := backpressure.NewLevels(o)
		var typed *backpressure.OptionError
		require.ErrorAs(t, err, &typed, name)
	}
}
