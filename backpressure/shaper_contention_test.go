package backpressure_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func TestWaitersByImportance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t,
			backpressure.LineOptions{Name: "notify", Rate: 1, Burst: 1},
			backpressure.LineOptions{Name: "pay", Rate: 1, Burst: 1, Importance: 5},
		)
		notify, pay := lineOf(t, s, "notify"), lineOf(t, s, "pay")
		require.Equal(t, 2, drain(pay), "its own token and the lesser line's")
		var w waits
		w.add(t, notify, 1, "notify 1")
		w.add(t, pay, 1, "pay 1")
		w.add(t, pay, 1, "pay 2")
		time.Sleep(1500 * time.Millisecond)
		require.ElementsMatch(t, []string{"pay 1", "pay 2"}, w.served(), "at the same moment, with a token of each line")
		w.wg.Wait()
		require.Equal(t, "notify 1", w.order[2])
		require.EqualValues(t, 2, pay.Stats().Borrowed)
		require.EqualValues(t, 2, notify.Stats().Lent)
	})
}

// With ageing, a line without a floor is not starved for ever by a more important one
// that wants everything.
func TestAgeing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t,
			backpressure.LineOptions{Name: "notify", Rate: 1, Burst: 1},
			backpressure.LineOptions{Name: "pay", Rate: 1, Burst: 1, Importance: 3},
		)
		notify, pay := lineOf(t, s, "notify"), lineOf(t, s, "pay")
		drain(pay)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { // three a second, where two can be served
			for ctx.Err() == nil {
				wg.Go(func() { _ = pay.Wait(ctx, 1) })
				time.Sleep(time.Second / 3)
			}
		})
		time.Sleep(time.Second / 2)
		start := time.Now()
		require.NoError(t, notify.Wait(t.Context(), 1))
		took := time.Since(start)
		require.GreaterOrEqual(t, took, 3*time.Second, "after all that came up to three seconds later")
		require.LessOrEqual(t, took, 8*time.Second)
		cancel()
		wg.Wait()
	})
}

// Nor by calls of the important line that do not wait.
func TestAgeingAgainstAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t,
			backpressure.LineOptions{Name: "notify", Rate: 1, Burst: 1},
			backpressure.LineOptions{Name: "pay", Rate: 1, Burst: 1, Importance: 3},
		)
		notify, pay := lineOf(t, s, "notify"), lineOf(t, s, "pay")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				pay.Allow(1)
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(time.Second / 2)
		start := time.Now()
		short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
		defer cancelShort()
		require.NoError(t, notify.Wait(short, 1))
		require.LessOrEqual(t, time.Since(start), 5*time.Second)
		cancel()
		wg.Wait()
	})
}

// Both lines want all they can get. The important one gets its own rate and the
// lesser one's down to the floor, and the lesser one is never denied its floor.
func TestFloorUnderContention(t *testing.T) {
	for name, want := range map[string]func(l *backpressure.Line, ctx context.Context) bool{
		"allow": func(l *backpressure.Line, _ context.Context) bool { return l.Allow(1).Admit },
		"wait":  func(l *backpressure.Line, ctx context.Context) bool { return l.Wait(ctx, 1) == nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShaper(t,
					backpressure.LineOptions{Name: "notify", Rate: 100, Burst: 20, Floor: 25},
					backpressure.LineOptions{Name: "pay", Rate: 50, Burst: 10, Importance: 100},
				)
				const seconds = 20
				ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				defer cancel()
				count := func(l *backpressure.Line) (n int) {
					for ctx.Err() == nil {
						if want(l, ctx) {
							n++
						} else {
							time.Sleep(time.Millisecond)
						}
					}
					return n
				}
				var pay, notify int
				var wg sync.WaitGroup
				wg.Go(func() { pay = count(lineOf(t, s, "pay")) })
				wg.Go(func() { notify = count(lineOf(t, s, "notify")) })
				wg.Wait()
				require.InDelta(t, 125*seconds, pay, 0.05*125*seconds)
				require.InDelta(t, 25*seconds, notify, 0.05*25*seconds+20)
				require.LessOrEqual(t, pay+notify, 150*seconds+30, "not one token more than the rates and bursts")
			})
		})
	}
}

// As long as an important caller waits for many tokens, the lesser line does not take
// them away one by one.
func TestTokensAreKeptForWhoWaits(t *testing.T) {
	for name, want := range map[string]func(l *backpressure.Line, ctx context.Context){
		"allow": func(l *backpressure.Line, _ context.Context) { l.Allow(1) },
		"wait":  func(l *backpressure.Line, ctx context.Context) { _ = l.Wait(ctx, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShaper(t,
					backpressure.LineOptions{Name: "notify", Rate: 10, Burst: 10},
					backpressure.LineOptions{Name: "pay", Rate: 1.6, Burst: 8, Importance: 5},
				)
				notify, pay := lineOf(t, s, "notify"), lineOf(t, s, "pay")
				drain(pay)
				drain(notify)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				wg.Go(func() {
					for ctx.Err() == nil {
						want(notify, ctx)
						time.Sleep(time.Millisecond)
					}
				})
				synctest.Wait()
				start := time.Now()
				require.NoError(t, pay.Wait(t.Context(), 8))
				require.LessOrEqual(t, time.Since(start), 1500*time.Millisecond, "its own would take five seconds")
			})
		})
	}
}

// What an important line does not need stays with the lesser one.
func TestNothingIsWastedUnderContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(t,
			backpressure.LineOptions{Name: "notify", Rate: 100, Burst: 100, Floor: 25},
			backpressure.LineOptions{Name: "pay", Rate: 50, Burst: 50, Importance: 1},
		)
		notify, pay := lineOf(t, s, "notify"), lineOf(t, s, "pay")
		drain(notify)
		var paid, refused, notified int
		for range 20 * 1000 / 10 { // pay wants 70 a second
			if rand.IntN(10) < 7 {
				if pay.Allow(1).Admit {
					paid++
				} else {
					refused++
				}
			}
			notified += drain(notify)
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, float64(refused)/float64(paid), 0.02)
		require.InDelta(t, 20*(150-70), notified, 0.05*20*80+100)
	})
}
