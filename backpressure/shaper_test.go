package backpressure_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func newShaper(t testing.TB, lines ...backpressure.LineOptions) *backpressure.Shaper {
	t.Helper()
	s, err := backpressure.NewShaper(&backpressure.ShaperOptions{Lines: lines})
	require.NoError(t, err)
	return s
}

func lineOf(t testing.TB, s *backpressure.Shaper, name string) *backpressure.Line {
	t.Helper()
	l, err := s.Line(name)
	require.NoError(t, err)
	return l
}

// drain takes all tokens that a line can get, and returns how many.
func drain(l *backpressure.Line) (n int) {
	for l.Allow(1).Admit {
		n++
	}
	return n
}

// What the doc of Burst says: the second after idleness admits burst + rate, and no
// second admits more.
func TestMostOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 100, Burst: 500}), "im")
		time.Sleep(time.Hour)
		n := 0
		for range 1000 {
			n += drain(l)
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, 600, n, 1)
		n = 0
		for range 1000 {
			n += drain(l)
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, 100, n, 1)
	})
}

// Twenty callers that gave up within 20 ms leave no debt: the next one waits for its
// own token and no longer.
func TestCancelledWaitersLeaveNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 1}), "im")
		require.Equal(t, 1, drain(l))
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			wg.Go(func() {
				err := l.Wait(ctx, 1)
				require.ErrorIs(t, err, backpressure.ErrRefused)
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		require.Equal(t, 20, l.Stats().Waiting)
		time.Sleep(20 * time.Millisecond)
		cancel()
		wg.Wait()
		start := time.Now()
		require.NoError(t, l.Wait(t.Context(), 1))
		require.LessOrEqual(t, time.Since(start), 81*time.Millisecond)
		require.Zero(t, l.Stats().Waiting)
	})
}

// A wait that cannot end before the deadline is not begun, and says so in the words
// of the context.
func TestWaitKnowsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 1}), "im")
		drain(l)
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := l.Wait(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, backpressure.ErrRefused)
		require.Zero(t, time.Since(start))
		var refused *backpressure.RefusedError
		require.ErrorAs(t, err, &refused)
		require.InDelta(t, time.Second, refused.Verdict.RetryAfter, float64(time.Millisecond))

		longer, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
		defer cancel()
		require.NoError(t, l.Wait(longer, 1))
		require.InDelta(t, time.Second, time.Since(start), float64(time.Millisecond))
	})
}

// waits has a caller wait, and notes its name when it has its turn.
type waits struct {
	mu    sync.Mutex
	wg    sync.WaitGroup
	order []string
}

func (w *waits) add(t *testing.T, l *backpressure.Line, cost int, name string) {
	w.wg.Go(func() {
		if l.Wait(t.Context(), cost) != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.order = append(w.order, name)
	})
	synctest.Wait()
}

// served is who had their turn so far.
func (w *waits) served() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.order)
}

func TestFirstComeFirstServedWithinALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 5}), "im")
		drain(l)
		var w waits
		w.add(t, l, 5, "first, dear")
		w.add(t, l, 1, "second")
		w.add(t, l, 1, "third")
		time.Sleep(110 * time.Millisecond)
		require.Empty(t, w.served(), "a cheap call does not overtake a dear one")
		v := l.Allow(1)
		require.Equal(t, backpressure.Queued, v.Reason, "nor does one that does not wait")
		require.False(t, v.Admit)
		w.wg.Wait()
		require.Equal(t, []string{"first, dear", "second", "third"}, w.order)
	})
}

// Whatever lines are asked for, and at whatever times, no span of time admits more
// than the bursts and the rates of all lines.
func TestNeverMoreThanAllTokens(t *testing.T) {
	seeds := uint64(20)
	if raceEnabled {
		seeds = 4
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			var lines []backpressure.LineOptions
			var rates, bursts float64
			names := []string{"a", "b", "c", "d"}
			for _, name := range names {
				l := backpressure.LineOptions{Name: name, Rate: 1 + r.Float64()*99, Importance: r.IntN(3)}
				l.Burst = 2 + r.IntN(int(4*l.Rate))
				l.Floor = l.Rate * float64(r.IntN(3)) / 2
				rates, bursts = rates+l.Rate, bursts+float64(l.Burst)
				lines = append(lines, l)
			}
			s := newShaper(t, lines...)
			start := time.Now()
			admitted := 0
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 5000 {
				i := r.IntN(len(names))
				l, cost := lineOf(t, s, names[i]), 1+r.IntN(min(3, lines[i].Burst))
				if r.IntN(4) == 0 {
					give := time.Duration(r.IntN(300)) * time.Millisecond
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), give)
						defer cancel()
						if l.Wait(ctx, cost) == nil {
							mu.Lock()
							admitted += cost
							mu.Unlock()
						}
					})
				} else if l.Allow(cost).Admit {
					mu.Lock()
					admitted += cost
					mu.Unlock()
				}
				time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
			}
			wg.Wait()
			require.LessOrEqual(t, float64(admitted), bursts+rates*time.Since(start).Seconds()+1)
			require.GreaterOrEqual(t, float64(admitted), 0.5*rates*time.Since(start).Seconds())
			for _, stats := range s.Stats() {
				require.Zero(t, stats.Waiting)
			}
		})
	}
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := backpressure.NewShaper(&backpressure.ShaperOptions{
			Lines: []backpressure.LineOptions{{Name: "im", Rate: 1}}, MaxWaiters: 3,
		})
		require.NoError(t, err)
		l := lineOf(t, s, "im")
		drain(l)
		var w waits
		for range 3 {
			w.add(t, l, 1, "")
		}
		err = l.Wait(t.Context(), 1)
		var refused *backpressure.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, backpressure.QueueFull, refused.Verdict.Reason)
		w.wg.Wait()
	})
}

// A cost that can never be paid is an answer, and makes no tokens.
func TestBadCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 2, Burst: 4}), "im")
		require.Equal(t, 4, drain(l))
		for _, cost := range []int{0, -1, -1000, math.MinInt, 5, math.MaxInt} {
			v := l.Allow(cost)
			require.Equal(t, backpressure.Verdict{Reason: backpressure.CostInvalid}, v)
			require.ErrorIs(t, v.Err(), backpressure.ErrInvalid)
			require.ErrorIs(t, l.Wait(t.Context(), cost), backpressure.ErrInvalid)
		}
		require.Zero(t, drain(l))
	})
}

func TestRetryAfterIsWhenTheTokensAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 3, Burst: 3}), "im")
		drain(l)
		for _, cost := range []int{1, 3, 2, 1} {
			v := l.Allow(cost)
			require.False(t, v.Admit)
			time.Sleep(v.RetryAfter - time.Microsecond)
			require.False(t, l.Allow(cost).Admit)
			time.Sleep(time.Microsecond)
			require.True(t, l.Allow(cost).Admit, "cost %d", cost)
		}
	})
}

func TestHookAndStats(t *testing.T) {
	var seen []backpressure.Reason
	s, err := backpressure.NewShaper(&backpressure.ShaperOptions{
		Lines: []backpressure.LineOptions{{Name: "im", Rate: 0.001}},
		Hooks: &backpressure.ShaperHooks{Refused: func(line string, cost int, v backpressure.Verdict) {
			require.Equal(t, "im", line)
			seen = append(seen, v.Reason)
		}},
	})
	require.NoError(t, err)
	l := lineOf(t, s, "im")
	require.True(t, l.Allow(1).Admit)
	l.Allow(1)
	l.Allow(2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Wait(ended, 1), context.Canceled)
	require.Equal(t, []backpressure.Reason{backpressure.NoTokens, backpressure.CostInvalid, backpressure.GivenUp}, seen)
	require.Equal(t, backpressure.LineStats{Admitted: 1, Refused: 3}, s.Stats()["im"])
}

func TestShaperOptions(t *testing.T) {
	ok := backpressure.LineOptions{Name: "im", Rate: 10}
	with := func(change func(*backpressure.LineOptions)) *backpressure.ShaperOptions {
		l := ok
		change(&l)
		return &backpressure.ShaperOptions{Lines: []backpressure.LineOptions{l}}
	}
	for name, opts := range map[string]*backpressure.ShaperOptions{
		"nil":             nil,
		"no name":         with(func(l *backpressure.LineOptions) { l.Name = "" }),
		"zero rate":       with(func(l *backpressure.LineOptions) { l.Rate = 0 }),
		"negative rate":   with(func(l *backpressure.LineOptions) { l.Rate = -1 }),
		"NaN rate":        with(func(l *backpressure.LineOptions) { l.Rate = math.NaN() }),
		"infinite rate":   with(func(l *backpressure.LineOptions) { l.Rate = math.Inf(1) }),
		"huge rate":       with(func(l *backpressure.LineOptions) { l.Rate = 1e10 }),
		"burst above 5x":  with(func(l *backpressure.LineOptions) { l.Burst = 51 }),
		"negative burst":  with(func(l *backpressure.LineOptions) { l.Burst = -1 }),
		"huge burst":      with(func(l *backpressure.LineOptions) { l.Burst = math.MaxInt }),
		"floor above":     with(func(l *backpressure.LineOptions) { l.Floor = 11 }),
		"negative floor":  with(func(l *backpressure.LineOptions) { l.Floor = -1 }),
		"NaN floor":       with(func(l *backpressure.LineOptions) { l.Floor = math.NaN() }),
		"floor, no room":  with(func(l *backpressure.LineOptions) { l.Floor, l.Burst = 5, 1 }),
		"huge importance": with(func(l *backpressure.LineOptions) { l.Importance = math.MaxInt }),
		"twice":           {Lines: []backpressure.LineOptions{ok, ok}},
		"negative age":    {Lines: []backpressure.LineOptions{ok}, Age: -1},
		"negative queue":  {Lines: []backpressure.LineOptions{ok}, MaxWaiters: -1},
		"many lines":      {Lines: slices.Repeat([]backpressure.LineOptions{ok}, 65)},
	} {
		_, err := backpressure.NewShaper(opts)
		var typed *backpressure.OptionError
		require.ErrorAs(t, err, &typed, name)
		require.ErrorIs(t, err, backpressure.ErrInvalid, name)
	}
	_, err := newShaper(t, ok).Line("sms")
	var unknown *backpressure.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, err, backpressure.ErrInvalid)
	slow := newShaper(t, backpressure.LineOptions{Name: "pair", Rate: 1.0 / 6})
	require.Equal(t, 1, drain(lineOf(t, slow, "pair")), "one message in six seconds")
}

// Numbers that no caller means are errors or a shaper that keeps its promise.
func FuzzShaper(f *testing.F) {
	f.Add(10.0, 20, 3.0, 1, 2)
	f.Add(math.Inf(1), math.MaxInt, math.NaN(), -1, math.MaxInt)
	f.Add(1e-6, 1, 1e-6, 1000, 1)
	f.Fuzz(func(t *testing.T, rate float64, burst int, floor float64, importance, cost int) {
		s, err := backpressure.NewShaper(&backpressure.ShaperOptions{Lines: []backpressure.LineOptions{
			{Name: "a", Rate: rate, Burst: burst, Floor: floor, Importance: importance},
			{Name: "b", Rate: 1, Burst: 2},
		}})
		if err != nil {
			require.ErrorIs(t, err, backpressure.ErrInvalid)
			return
		}
		l := lineOf(t, s, "a")
		v := l.Allow(cost)
		if v.Admit {
			require.True(t, cost >= 1 && float64(cost) <= max(5*rate, 1))
			require.Zero(t, v.Reason)
		} else {
			require.NotZero(t, v.Reason)
			require.GreaterOrEqual(t, v.RetryAfter, time.Duration(0))
		}
	})
}

func TestShaperAllocates(t *testing.T) {
	l := lineOf(t, newShaper(t, backpressure.LineOptions{Name: "im", Rate: 1e9}), "im")
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Allow(1) }))
	empty := lineOf(t, newShaper(t,
		backpressure.LineOptions{Name: "im", Rate: 1e-6, Importance: 1, Floor: 0},
		backpressure.LineOptions{Name: "lesser", Rate: 1e-6}), "im")
	drain(empty)
	require.Zero(t, testing.AllocsPerRun(100, func() { empty.Allow(1) }))
}
