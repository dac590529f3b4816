package backpressure_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

// A shaper with a clock of its own has tokens by that clock alone, and none for a
// clock that is set back.
func TestShaperOwnClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := backpressure.NewShaper(&backpressure.ShaperOptions{
		Now:   func() time.Time { return now },
		Lines: []backpressure.LineOptions{{Name: "im", Rate: 10, Burst: 2}, {Name: "floored", Rate: 10, Burst: 2, Floor: 5}},
	})
	require.NoError(t, err)
	for _, name := range []string{"im", "floored"} {
		l, err := s.Line(name)
		require.NoError(t, err)
		admitted := func() (n int) {
			for range 5 {
				if l.Allow(1).Admit {
					n++
				}
			}
			return n
		}
		require.Equal(t, 2, admitted(), name)
		now = now.Add(-time.Hour)
		require.Zero(t, admitted(), name)
		now = now.Add(time.Hour + time.Second)
		require.Equal(t, 2, admitted(), name)
		now = now.AddDate(10, 0, 0)
		require.Equal(t, 2, admitted(), name)
		require.ErrorIs(t, l.Wait(t.Context(), 1), backpressure.ErrInvalid, "no timer knows that clock")
		require.Zero(t, l.Stats().Waiting)
	}
}

// Levels with a clock of their own dwell by it.
func TestLevelsOwnClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, events := newLevels(t, func(o *backpressure.LevelsOptions) { o.Now = func() time.Time { return now } })
	require.NoError(t, l.Observe(backlog, 200_000))
	require.Equal(t, now, (*events)[0].At)
	require.NoError(t, l.Observe(backlog, 0))
	now = now.Add(-time.Hour) // counts as no time
	require.NoError(t, l.Observe(backlog, 0))
	require.Equal(t, 1, l.Level())
	now = now.Add(time.Hour + 30*time.Second)
	require.NoError(t, l.Observe(backlog, 0))
	require.Zero(t, l.Level())
	require.NoError(t, l.Raise(2, time.Minute, "forecast"))
	now = now.Add(59 * time.Second)
	require.Empty(t, l.Stats().Stale)
	require.NoError(t, l.Observe(backlog, 0))
	require.Equal(t, 2, l.Level())
	now = now.Add(2 * time.Minute)
	require.Equal(t, []string{backlog}, l.Stats().Stale)
}
