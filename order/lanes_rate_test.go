package order

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A rate that changes leaves no debt of hours: what was sent without a limit, or at
// another rate, or before the epoch began, is not waited for longer than two bursts
// take.
func TestRateThatChanges(t *testing.T) {
	for name, jump := range map[string]Position{
		"lifted for a while":           {Epoch: 1, Number: 5_001},
		"by another process":           {Epoch: 1, Number: 6_000},
		"an epoch that begins at 1e6":  {Epoch: 2, Number: 1_000_000},
		"the lane was forgotten since": {Epoch: 1, Number: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rate := Rate{PerSecond: 1, Burst: 3}
				l := &Lanes{opts: LanesOptions{Rate: func(string) Rate { return rate }}}
				m := &Message{Key: "a", Position: Position{Epoch: 1, Number: 3}, Attempt: 1}
				if rest := l.pace(m); rest != 0 {
					t.Fatalf("the first message rests for %v", rest)
				}
				m.Position = jump
				if rest := l.pace(m); rest > 6*time.Second {
					t.Errorf("the lane rests for %v, and two bursts take 6s", rest)
				}
			})
		})
	}
}

func TestRateWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perSecond := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			rate := Rate{PerSecond: 1}
			l := &Lanes{opts: LanesOptions{Rate: func(string) Rate { return rate }}}
			m := &Message{Key: "a", Position: Position{Epoch: 1, Number: 1}, Attempt: 1}
			l.pace(m)
			rate.PerSecond = perSecond
			for n := range uint64(1000) {
				m.Position.Number = n + 2
				if rest := l.pace(m); rest != 0 {
					t.Fatalf("at %v a second message %d rests for %v", perSecond, n, rest)
				}
			}
			rate.PerSecond = 1
			time.Sleep(time.Second)
			m.Position.Number++
			if rest := l.pace(m); rest != 0 {
				t.Errorf("after %v a second the lane rests for %v", perSecond, rest)
			}
		}
	})
}
