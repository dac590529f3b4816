package backpressure_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

func newGate(t testing.TB, opts *backpressure.GateOptions) *backpressure.Gate {
	t.Helper()
	g, err := backpressure.NewGate(opts)
	require.NoError(t, err)
	return g
}

func TestGateRunsSoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{Concurrency: 3})
		var mu sync.Mutex
		running, most := 0, 0
		var wg sync.WaitGroup
		start := time.Now()
		for range 9 {
			wg.Go(func() {
				require.NoError(t, g.Do(t.Context(), func(context.Context) error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				}))
			})
		}
		wg.Wait()
		require.Equal(t, 3, most)
		require.Equal(t, 3*time.Millisecond, time.Since(start))
		require.Zero(t, g.Stats().Waiting)
		require.Zero(t, g.Stats().Running)
	})
}

// A worker does not take up a call whose deadline has passed while it waited, and one
// whose caller has gone is not there any more.
func TestGateDropsWhatIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{Concurrency: 1})
		release, v := g.Acquire(t.Context())
		require.True(t, v.Admit)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := g.Do(ctx, func(context.Context) error { t.Error("ran"); return nil })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, backpressure.ErrRefused)
		})
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			err := g.Do(ctx, func(context.Context) error { t.Error("ran"); return nil })
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		require.Equal(t, 2, g.Stats().Waiting)
		cancel()
		wg.Wait()
		require.Zero(t, g.Stats().Waiting)
		release()
		release()
		require.Zero(t, g.Stats().Running)
		require.NoError(t, g.Do(t.Context(), func(context.Context) error { return nil }))
		middle := g.Stats().Classes[2]
		require.EqualValues(t, 1, middle.Expired)
		require.EqualValues(t, 1, middle.GivenUp)
	})
}

// A worker that is granted at the moment at which the caller gives up is not lost.
func TestGateGrantedWhileGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{Concurrency: 1})
		for range 100 {
			release, v := g.Acquire(t.Context())
			require.True(t, v.Admit)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if release, v := g.Acquire(ctx); v.Admit {
					release()
				}
			}()
			synctest.Wait()
			cancel()
			release() // mostly before the goroutine has seen that
			synctest.Wait()
			require.Zero(t, g.Stats().Running)
			require.Zero(t, g.Stats().Waiting)
		}
	})
}

func TestTicketDropsAtDequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		ticket, v := g.Admit(backpressure.Call{Deadline: time.Now().Add(time.Second)})
		require.True(t, v.Admit)
		time.Sleep(time.Second)
		require.Equal(t, backpressure.Verdict{Reason: backpressure.Expired}, ticket.Start())
		require.True(t, ticket.Start().Admit, "answers no more")
		ticket.Leave()
		require.Zero(t, g.Stats().Waiting)
		_, v = g.Admit(backpressure.Call{Deadline: time.Now()})
		require.Equal(t, backpressure.Expired, v.Reason)
	})
}

func TestGatePassesErrorsAndPanics(t *testing.T) {
	g := newGate(t, &backpressure.GateOptions{Concurrency: 1})
	failed := errors.New("failed")
	require.Equal(t, failed, g.Do(t.Context(), func(context.Context) error { return failed }))
	require.Panics(t, func() { _ = g.Do(t.Context(), func(context.Context) error { panic("x") }) })
	require.Zero(t, g.Stats().Running)
	require.ErrorIs(t, newGate(t, nil).Do(t.Context(), nil), backpressure.ErrRefused, "no Concurrency")
}

func TestGateQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{MaxQueue: 2})
		for range 2 {
			_, v := g.Admit(backpressure.Call{})
			require.True(t, v.Admit)
		}
		_, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{Class: backpressure.ClassHighest}})
		require.Equal(t, backpressure.QueueFull, v.Reason)
	})
}

// One long pause at low traffic sheds nobody.
func TestGateIgnoresOnePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		for range 20 {
			var tickets []*backpressure.Ticket
			for range 5 { // ten a second, each half second's at once after the pause
				ticket, v := g.Admit(backpressure.Call{})
				require.True(t, v.Admit)
				tickets = append(tickets, ticket)
				time.Sleep(100 * time.Millisecond)
			}
			for _, ticket := range tickets {
				require.True(t, ticket.Start().Admit)
			}
		}
		require.False(t, g.Stats().Shedding)
	})
}

// overload brings 1000 calls a second of all classes, of which 500 can be served,
// until the gate has had its time, and returns what was admitted by class of the last
// second, and those that wait.
func overload(t *testing.T, g *backpressure.Gate, seconds int) (admitted map[backpressure.Class]int, queue []*backpressure.Ticket) {
	for i := range seconds * 1000 {
		if i%1000 == 0 {
			admitted = make(map[backpressure.Class]int)
		}
		c := backpressure.Class(i%5) + backpressure.ClassLowest
		if ticket, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{Class: c, User: int8(i*7%128 - 64)}}); v.Admit {
			admitted[c]++
			queue = append(queue, ticket)
		}
		if i%2 == 0 && len(queue) > 0 {
			require.True(t, queue[0].Start().Admit)
			queue = queue[1:]
		}
		time.Sleep(time.Millisecond)
	}
	return admitted, queue
}

func TestGateShedsByClassAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused int
		g := newGate(t, &backpressure.GateOptions{Hooks: &backpressure.GateHooks{
			Refused: func(_ backpressure.Priority, v backpressure.Verdict) {
				require.Equal(t, backpressure.Overload, v.Reason)
				require.Positive(t, v.RetryAfter)
				refused++
			},
		}})
		got, waiting := overload(t, g, 5)
		require.Equal(t, 200, got[backpressure.ClassHighest])
		require.Equal(t, 200, got[backpressure.ClassHigh])
		require.InDelta(t, 100, got[backpressure.ClassMiddle], 15)
		require.Zero(t, got[backpressure.ClassLow])
		s := g.Stats()
		require.True(t, s.Shedding)
		require.Equal(t, backpressure.ClassMiddle, s.Lowest.Class)
		require.InDelta(t, 500, s.Served, 20)
		require.InDelta(t, 1000, s.Arriving, 40)
		require.Less(t, s.Waiting, 50)
		total := 0
		for _, c := range s.Classes {
			total += int(c.Refused)
		}
		require.Equal(t, refused, total)

		for _, ticket := range waiting {
			ticket.Leave()
		}
		for range 2000 { // a tenth of the load
			ticket, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{Class: backpressure.ClassLowest}})
			if v.Admit {
				ticket.Start()
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.False(t, g.Stats().Shedding)
	})
}

// Eighty calls a second of which forty can be served are overload, too, though only
// four are served in a tenth of a second.
func TestGateShedsAtLowRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		var queue []*backpressure.Ticket
		for i := range 80 * 20 {
			if ticket, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{User: int8(i*7%128 - 64)}}); v.Admit {
				queue = append(queue, ticket)
			}
			if i%2 == 0 && len(queue) > 0 {
				queue[0].Start()
				queue = queue[1:]
			}
			time.Sleep(12500 * time.Microsecond)
		}
		require.True(t, g.Stats().Shedding)
		require.Less(t, g.Stats().Waiting, 40)
	})
}

// The log is told of each time the gate begins to refuse and stops, also when it
// finds out between two calls of Do.
func TestGateLogsEachTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log turnLog
		g := newGate(t, &backpressure.GateOptions{Concurrency: 10, Logger: slog.New(&log)})
		var wg sync.WaitGroup
		for range 4 {
			for range 4000 { // 2,000 calls a second, of which 1,000 can be served
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_ = g.Do(ctx, func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
				})
				time.Sleep(500 * time.Microsecond)
			}
			require.True(t, g.Stats().Shedding)
			require.Equal(t, 1, log.began-log.stopped)
			for range 200 { // 100 a second
				require.NoError(t, ignoreRefusal(g.Do(t.Context(), func(context.Context) error { return nil })))
				time.Sleep(10 * time.Millisecond)
			}
			require.False(t, g.Stats().Shedding)
			require.Equal(t, log.began, log.stopped)
		}
		wg.Wait()
		require.GreaterOrEqual(t, log.began, 4)
	})
}

func ignoreRefusal(err error) error {
	if errors.Is(err, backpressure.ErrRefused) {
		return nil
	}
	return err
}

// A turnLog counts what a gate logs.
type turnLog struct {
	slog.Handler
	mu             sync.Mutex
	began, stopped int
}

func (l *turnLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *turnLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(r.Message, "begins to refuse") {
		l.began++
	} else {
		l.stopped++
	}
	return nil
}

func TestShadowAdmitsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, &backpressure.GateOptions{Shadow: true})
		got, _ := overload(t, g, 4)
		require.Equal(t, 200, got[backpressure.ClassLowest], "nobody is refused")
		s := g.Stats()
		require.True(t, s.Shedding)
		require.Positive(t, s.Classes[4].Refused)
		require.EqualValues(t, 800, s.Classes[4].Admitted)
		_, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{Class: backpressure.ClassLowest}})
		require.True(t, v.Admit)
		require.Equal(t, backpressure.Overload, v.Reason)
	})
}

// A class that is none counts as the middle, and is counted.
func TestUnknownClass(t *testing.T) {
	g := newGate(t, nil)
	for _, c := range []backpressure.Class{3, -3, math.MaxInt8, math.MinInt8} {
		_, v := g.Admit(backpressure.Call{Priority: backpressure.Priority{Class: c, User: math.MinInt8}})
		require.True(t, v.Admit)
	}
	require.EqualValues(t, 4, g.Stats().Unknown)
	require.EqualValues(t, 4, g.Stats().Classes[2].Admitted)
}

// After a clock that jumped, back and by years, everything is as before.
func TestGateClockJumps(t *testing.T) {
	now := time.Now()
	g := newGate(t, &backpressure.GateOptions{Now: func() time.Time { return now }})
	for i := range 2000 {
		ticket, v := g.Admit(backpressure.Call{})
		now = now.Add([]time.Duration{time.Millisecond, -time.Hour, time.Millisecond, time.Hour}[i%4])
		if i%100 == 99 {
			now = now.AddDate(1, 0, 0)
		}
		if v.Admit {
			ticket.Start()
		}
	}
	require.Zero(t, g.Stats().Waiting)
	now = now.Add(2 * time.Hour)
	for i := range 4000 {
		ticket, v := g.Admit(backpressure.Call{})
		require.True(t, v.Admit || i < 3000)
		if v.Admit {
			ticket.Start()
		}
		now = now.Add(time.Millisecond)
	}
}

func TestGateOptions(t *testing.T) {
	for name, o := range map[string]*backpressure.GateOptions{
		"concurrency": {Concurrency: -1}, "queue": {MaxQueue: -1}, "target": {Target: -1},
		"target of an hour": {Target: 2 * time.Hour}, "huge concurrency": {Concurrency: math.MaxInt},
	} {
		_, err := backpressure.NewGate(o)
		var typed *backpressure.OptionError
		require.ErrorAs(t, err, &typed, name)
	}
}
