package retry_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// A policy of any numbers is refused or keeps its bounds.
func TestPolicyOfAnyNumbers(t *testing.T) {
	s := int64(time.Second)
	testPolicy(t, 5, 60*s, s, 30*s, s/10, 10*s, 1, 0, 3)
	testPolicy(t, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, 0, math.MaxInt64, 200)
	testPolicy(t, math.MinInt64, -1, math.MinInt64, 0, 0, -1, 9, -1, 0)
	testPolicy(t, math.MaxInt64, 1, 1, 1, 1, 1, 3, 1, 20)
	testPolicy(t, 1, 0, 0, 0, 0, 0, 0, 10*365*24*3600*s, 1)
	r, accepted := newNumbers(), 0
	for range 5000 {
		if testPolicy(t, r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), uint8(r.int()), r.int(), uint8(r.int())) {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("%d policies were accepted: the numbers try too little", accepted)
	}
}

func testPolicy(t *testing.T, attempts, elapsed, timeout, serverWait, first, most int64, jitter uint8, after int64, failures uint8) (accepted bool) {
	curve := retry.Exponential(time.Duration(first), time.Duration(most), retry.Jitter(jitter%5))
	o := retry.Options{
		MaxAttempts: int(attempts), MaxElapsed: time.Duration(elapsed), AttemptTimeout: time.Duration(timeout),
		MaxServerWait: time.Duration(serverWait), Backoff: curve, Throttled: curve,
	}
	p, err := retry.New(&o)
	if err != nil {
		if !errors.Is(err, retry.ErrInvalid) {
			t.Error(err)
		}
		return false
	}
	synctest.Test(t, func(t *testing.T) {
		// A year, because the clock of the bubble ends in 2262.
		ctx, cancel := context.WithTimeout(t.Context(), 365*24*time.Hour)
		defer cancel()
		start, last, made := time.Now(), time.Now(), 0
		err := retry.Do(ctx, p, func(context.Context) error {
			if made++; made > 1 && time.Since(last) < time.Duration(after) {
				t.Errorf("attempt %d began %v after a failure that asked for %v", made, time.Since(last), time.Duration(after))
			}
			last = time.Now()
			if made > int(failures) {
				return nil
			}
			return retry.After(err1, time.Duration(after))
		})
		took := time.Since(start)
		if attempts > 0 && int64(made) > attempts || elapsed > 0 && took > time.Duration(elapsed) {
			t.Errorf("%d attempts in %v of %+v", made, took, o)
		}
		if err == nil {
			return
		}
		e := stopped(t, err)
		if e.Made != made || !errors.Is(err, err1) || e.Next < time.Duration(after) || e.Elapsed < 0 {
			t.Errorf("%+v after %d attempts", e, made)
		}
	})
	return true
}

// numbers are the kind that breaks arithmetic, and of any size: the same ones in
// every run.
type numbers struct{ *rand.Rand }

func newNumbers() numbers { return numbers{rand.New(rand.NewPCG(1, 2))} }

func (r numbers) int() int64 {
	edges := []int64{0, 1, -1, 2, 3, 10, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, int64(time.Second), int64(time.Hour)}
	if n := r.IntN(2 * len(edges)); n < len(edges) {
		return edges[n]
	}
	return r.Int64() >> r.IntN(64)
}

func (r numbers) float() float64 {
	edges := []float64{0, 1, 0.1, 0.5, 1e-9, 5e-324, 1e6, 1e18, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1), -1}
	if n := r.IntN(2 * len(edges)); n < len(edges) {
		return edges[n]
	}
	return r.ExpFloat64() * math.Pow(10, float64(r.IntN(12)-6))
}
