package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// A policy of any numbers is refused or keeps its bounds.
func FuzzPolicy(f *testing.F) {
	s := int64(time.Second)
	f.Add(int64(5), 60*s, s, 30*s, s/10, 10*s, uint8(1), int64(0), uint8(3))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), uint8(0), int64(math.MaxInt64), uint8(200))
	f.Add(int64(math.MinInt64), int64(-1), int64(math.MinInt64), int64(0), int64(0), int64(-1), uint8(9), int64(-1), uint8(0))
	f.Add(int64(math.MaxInt64), int64(1), int64(1), int64(1), int64(1), int64(1), uint8(3), int64(1), uint8(20))
	f.Add(int64(1), int64(0), int64(0), int64(0), int64(0), int64(0), uint8(0), 10*365*24*3600*s, uint8(1))
	f.Fuzz(func(t *testing.T, attempts, elapsed, timeout, serverWait, first, most int64, jitter uint8, after int64, failures uint8) {
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
			return
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
	})
}
