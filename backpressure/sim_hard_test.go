package backpressure_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pawl-go/pawl/backpressure"
)

// The gate with its defaults beats both baselines at every load above what can be
// served: nothing at all, and a bucket that was set by hand to what can be served. The
// simulation is overload indeed: without a gate nothing works, and a bucket serves
// all classes alike, the second call of a task as little as the first.
func TestSimulatedBaselines(t *testing.T) {
	for _, c := range []struct {
		load           float64
		seeds          int
		nothing, under float64 // the most that nothing and the bucket get, as shares of the ideal
		margin         float64 // by which the gate beats the better of them
	}{
		{1.5, 3, 0.3, 0.88, 0.1}, {2, 9, 0.02, 0.8, 0.18}, {4, 3, 0.02, 0.6, 0.4},
	} {
		run := func(seeds int, gate func(*sim) admitter) (ofIdeal float64, byClass [5]float64) {
			all, byClass := median(t, seeds, 6*time.Second, 2*time.Second, 5*time.Second, func(seed uint64) *sim {
				s := newSim(seed, 2, steady(c.load))
				s.gate = gate(s)
				return s
			})
			return all * c.load, byClass
		}
		nothing, _ := run(3, func(*sim) admitter { return noGate{} })
		bucket, alike := run(c.seeds, func(*sim) admitter { return bucketGate{rate.NewLimiter(0.98*simCapacity, 20)} })
		gate, _ := run(c.seeds, func(s *sim) admitter { return s.withGate(t).gate })
		t.Logf("load %v: nothing %.3f, bucket %.3f %.3f, gate %.3f of ideal", c.load, nothing, bucket, alike, gate)
		require.LessOrEqual(t, nothing, c.nothing, "load %v", c.load)
		require.LessOrEqual(t, bucket, c.under, "load %v", c.load)
		require.InDelta(t, alike[0], alike[4], 0.05, "load %v", c.load)
		require.GreaterOrEqual(t, gate, max(nothing, bucket)+c.margin, "load %v", c.load)
	}
}

// Overload from the first moment, when the gate knows neither what comes nor what can
// be served: no window in which it refuses everyone.
func TestSimulatedColdStart(t *testing.T) {
	all, byClass := median(t, 3, 3*time.Second, 0, time.Second, func(seed uint64) *sim {
		return newSim(seed, 2, steady(4)).withGate(t)
	})
	t.Logf("first second: %.3f of ideal; %.3f", 4*all, byClass)
	require.GreaterOrEqual(t, byClass[0], 0.99)
}

// One class of low importance that runs wild, alone, costs the important ones
// nothing: the gate knows at once whose calls the new ones are.
func TestSimulatedRunaway(t *testing.T) {
	const step = 3 * time.Second
	for _, class := range []backpressure.Class{backpressure.ClassLow, backpressure.ClassLowest} {
		_, byClass := median(t, 3, step+3*time.Second, step, step+time.Second, func(seed uint64) *sim {
			s := newSim(seed, 1, func(at time.Duration) float64 {
				if at < step {
					return 0.6
				}
				return 6
			})
			s.class = func(at time.Duration) backpressure.Class {
				known := at < step || s.random.Float64() < 0.1
				switch {
				case !known:
					return class
				case s.random.Float64() < 0.9:
					return backpressure.ClassHighest
				}
				return backpressure.ClassLow
			}
			return s.withGate(t)
		})
		t.Logf("%v runs wild: highest %.4f", class, byClass[0])
		require.GreaterOrEqual(t, byClass[0], 0.99, "%v", class)
	}
}

// Workers that take four times as long are overload as well, and it is over when
// they are well again.
func TestSimulatedSlowWorkers(t *testing.T) {
	const from, to = 3 * time.Second, 8 * time.Second
	make := func(seed uint64) *sim {
		s := newSim(seed, 2, steady(0.9))
		s.slow = func(at time.Duration) float64 {
			if at >= from && at < to {
				return 4
			}
			return 1
		}
		return s.withGate(t)
	}
	all, byClass := median(t, 3, 12*time.Second, from+2*time.Second, to-time.Second, make)
	t.Logf("slow: %.3f of ideal; %.3f", all*3.6, byClass)
	require.GreaterOrEqual(t, all*3.6, 0.8) // 25 calls in a window say less than 100
	require.GreaterOrEqual(t, byClass[0], 0.99)
	all, _ = median(t, 3, 12*time.Second, to+2*time.Second, to+3*time.Second, make)
	t.Logf("well again: %.3f", all)
	require.GreaterOrEqual(t, all, 0.99)
}
