package backpressure_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func (s *sim) withOptions(t testing.TB, o backpressure.GateOptions) *sim {
	o.Now = func() time.Time { return s.now }
	g, err := backpressure.NewGate(&o)
	require.NoError(t, err)
	s.gate = pawlGate{g}
	return s
}

// A minute of overload, mild or not, change nothing: what the gate takes for capacity
// does not drift, the queue does not grow, and it does not flip between refusing and
// not. (Limiters that compare with a baseline learn the overload in time.)
func TestSimulatedLongOverload(t *testing.T) {
	for _, load := range []float64{1.1, 2} {
		var log turnLog
		s := newSim(1, 2, steady(load)).withOptions(t, backpressure.GateOptions{Logger: slog.New(&log)})
		s.run(time.Minute)
		all, byClass := s.share(50*time.Second, 59*time.Second)
		stats := s.gate.(pawlGate).Stats()
		t.Logf("load %v: %.3f of ideal; %.3f; served %.0f/s, %d wait, %d turns", load, all*load, byClass, stats.Served, stats.Waiting, log.began+log.stopped)
		require.GreaterOrEqual(t, all*load, 0.93, "load %v", load)
		require.GreaterOrEqual(t, byClass[0], 0.99, "load %v", load)
		require.InDelta(t, simCapacity, stats.Served, 0.1*simCapacity, "load %v", load)
		require.Less(t, stats.Waiting, 200, "load %v", load)
		require.LessOrEqual(t, log.began+log.stopped, 6, "load %v", load)
	}
}

// There is nothing to tune: the one setting there is may be off by far.
func TestSimulatedTargets(t *testing.T) {
	for _, target := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond} {
		all, byClass := median(t, 3, 6*time.Second, 2*time.Second, 5*time.Second, func(seed uint64) *sim {
			return newSim(seed, 2, steady(2)).withOptions(t, backpressure.GateOptions{Target: target})
		})
		t.Logf("target %v: %.3f of ideal; %.3f", target, 2*all, byClass)
		require.GreaterOrEqual(t, 2*all, 0.9, "%v", target)
		require.GreaterOrEqual(t, min(byClass[0], byClass[1]), 0.99, "%v", target)
	}
}
