package watchdog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newReporter(t *testing.T, s Store, o ReporterOptions) *Reporter {
	if o.Name == "" {
		o.Name = "w"
	}
	r, err := NewReporter(s, &o)
	require.NoError(t, err)
	return r
}

func TestReporterBeatsAndSaysGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		r := newReporter(t, f.store, ReporterOptions{})
		require.Zero(t, r.Token())
		stop := start(t, r.Run)
		synctest.Wait()
		require.Equal(t, f.look().Token, r.Token())
		require.Equal(t, Idle, f.look().State)
		r.Poll()
		r.Pending(3)
		r.At(41)
		r.Advance(1)
		time.Sleep(time.Hour + time.Second)
		require.EqualValues(t, 241, r.Stats().Beats)
		w := f.look1()
		require.EqualValues(t, 42, w.Position)
		require.EqualValues(t, 3, w.Pending)
		require.Equal(t, Flowing, w.Said)
		require.ErrorIs(t, r.Run(t.Context()), ErrInvalid, "it runs already")
		stop()
		require.True(t, f.look1().Left)
		require.Equal(t, Gone, f.look().Verdict)

		stop = start(t, r.Run) // a new instance
		synctest.Wait()
		require.False(t, f.look1().Left)
		require.Greater(t, r.Token(), w.Token)
		stop()
	})
}

func TestReporterOfAHungHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		r := newReporter(t, f.store, ReporterOptions{})
		defer start(t, r.Run)()
		release := make(chan struct{})
		handle := Around(r, func(context.Context, int) error { <-release; return nil })
		go handle(t.Context(), 1)
		quick := Around(r, func(context.Context, int) error { return nil })
		moving := func(time.Duration) { require.NoError(t, quick(t.Context(), 2)) }

		w := f.watch(2*time.Minute, moving)
		require.Equal(t, HandlerTooLong, w.State, "one hangs")
		require.Equal(t, Healthy, w.Verdict, "and the others go on")
		w = f.watch(11 * time.Minute)
		require.Equal(t, Zombie, w.Verdict, "until nothing moves")
		require.Equal(t, HandlerTooLong, w.State)
		require.Equal(t, 1, r.Stats().Running)
		close(release)
		synctest.Wait()
		require.Zero(t, r.Stats().Running)
	})
}

func TestAroundCountsProgressOnly(t *testing.T) {
	r := newReporter(t, NewMemory(), ReporterOptions{})
	fail := errors.New("no")
	handle := Around(r, func(_ context.Context, err error) error { return err })
	require.NoError(t, handle(t.Context(), nil))
	require.ErrorIs(t, handle(t.Context(), fail), fail)
	value := AroundValue(r, func(_ context.Context, n int) int { return n }, func(n int) bool { return n > 0 })
	require.Equal(t, 1, value(t.Context(), 1))
	require.Equal(t, 0, value(t.Context(), 0))
	AroundValue(r, func(_ context.Context, n int) int { return n }, nil)(t.Context(), 0)
	require.EqualValues(t, 3, r.sample().Position)
	require.Panics(t, func() { Around(r, func(context.Context, int) error { panic("x") })(t.Context(), 1) })
	require.Zero(t, r.Stats().Running, "a handler that panicked has ended")
}

func TestTwoWorkersWithOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		told := 0
		old := newReporter(t, f.store, ReporterOptions{Hooks: &ReporterHooks{Fenced: func(error) { told++ }}})
		ended := make(chan error, 1)
		go func() { ended <- old.Run(t.Context()) }()
		synctest.Wait()
		token := old.Token()
		young := newReporter(t, f.store, ReporterOptions{})
		stop := start(t, young.Run)
		require.ErrorIs(t, <-ended, ErrFenced)
		require.Equal(t, 1, told)
		require.Greater(t, young.Token(), token)
		time.Sleep(time.Minute)
		require.Equal(t, f.look1().Token, young.Token(), "the younger goes on")
		stop()
	})
}

func TestReporterOutlivesItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		var failed atomic.Int32
		r := newReporter(t, &downStore{f.store, f}, ReporterOptions{Hooks: &ReporterHooks{Failed: func(err error) {
			failed.Add(1)
			require.ErrorIs(t, err, ErrUnavailable)
		}}})
		f.down.Store(true)
		stop := start(t, r.Run)
		time.Sleep(61 * time.Second)
		require.EqualValues(t, 12+1, failed.Load(), "every five seconds")
		f.down.Store(false)
		time.Sleep(5 * time.Second)
		token := r.Token()
		require.NotZero(t, token)

		require.NoError(t, f.w.Forget(t.Context(), "w")) // the store loses it
		time.Sleep(15 * time.Second)
		require.Greater(t, r.Token(), token, "it joins again")
		stop()
	})
}

func TestReporterOfAFullScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.beat()
		var last error
		r := newReporter(t, f.store, ReporterOptions{Name: "15551234567", MaxWorkers: 1, Hooks: &ReporterHooks{Failed: func(err error) { last = err }}})
		defer start(t, r.Run)()
		synctest.Wait()
		require.ErrorIs(t, last, ErrFull)
		require.NotContains(t, last.Error(), "15551234567")
		require.NoError(t, f.w.Forget(t.Context(), "w"))
		time.Sleep(6 * time.Second)
		require.EqualValues(t, 1, r.Stats().Beats, "there is room now")
	})
}

func TestSamplesThatBlockAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		release := make(chan struct{})
		var mode, blocked atomic.Int32
		r := newReporter(t, f.store, ReporterOptions{Sample: func() Sample {
			switch mode.Load() {
			case 1:
				panic("password=secret")
			case 2:
				blocked.Add(1)
				<-release
			}
			return Sample{State: WaitingGap, Position: 7, Pending: 2, Detail: "customer\nwaits"}
		}})
		defer start(t, r.Run)()
		synctest.Wait()
		require.Equal(t, WaitingGap, f.look1().Said)
		require.Equal(t, "customer waits", f.look1().Detail)
		for m := range int32(2) {
			mode.Store(m + 1)
			w := f.watch(2 * time.Minute)
			require.Equal(t, Healthy, w.Verdict, "heartbeats go on")
			require.Equal(t, Unknown, w.State)
			require.EqualValues(t, 7, w.Position)
			require.NotContains(t, w.Detail, "secret")
		}
		require.EqualValues(t, 1, blocked.Load(), "one at a time")
		require.GreaterOrEqual(t, r.Stats().Blind, uint64(14))
		mode.Store(0)
		close(release)
		w := f.watch(30 * time.Second)
		require.Equal(t, WaitingGap, w.State)
	})
}

func TestSayTakesTheWorkersOwnStates(t *testing.T) {
	r := newReporter(t, NewMemory(), ReporterOptions{})
	for _, c := range []struct {
		say     State
		pending uint64
		want    State
		busy    bool
	}{
		{Unknown, 0, Idle, false}, {Unknown, 1, Flowing, true}, {Flowing, 0, Flowing, false}, {WaitingGap, 1, WaitingGap, false},
		{Parked, 1, Parked, false}, {LeaseLost, 1, LeaseLost, true}, {StoppedPolling, 1, Flowing, true}, {HandlerTooLong, 0, Idle, false}, {99, 0, Idle, false},
	} {
		r.Say(c.say, strings.Repeat("é", 200)+"\x00")
		r.Pending(c.pending)
		var b Beat
		s := r.sample()
		s.beat(&b, 0)
		require.Equal(t, c.want, b.State)
		require.Equal(t, c.busy, b.Busy, "%v", c.say)
		require.Equal(t, strings.Repeat("é", 128), b.Detail)
	}
	require.Equal(t, "a b�", cut("a\x00b\xff"))
}

func TestSlots(t *testing.T) {
	var s slots
	require.Zero(t, s.oldest())
	s.end(Handler{}) // of nothing
	var all []Handler
	for range 300 {
		all = append(all, s.begin())
	}
	require.EqualValues(t, 1, s.oldest())
	require.EqualValues(t, 300-256, s.untimed.Load())
	s.end(all[0])
	s.end(all[0])
	require.EqualValues(t, 2, s.oldest())
	again := s.begin()
	s.end(all[0]) // whose slot another has now
	require.EqualValues(t, 2, s.oldest())
	for _, h := range all[1:] {
		s.end(h)
	}
	require.Equal(t, again.number, s.oldest())
	s.end(again)
	require.Zero(t, s.oldest())
	require.Zero(t, s.untimed.Load())
}

func TestReporterCosts(t *testing.T) {
	r := newReporter(t, NewMemory(), ReporterOptions{})
	handle := Around(r, func(context.Context, int) error { return nil })
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Poll()
		r.At(1)
		r.Pending(1)
		_ = handle(context.Background(), 1)
	}))
}

func TestRefusedReporters(t *testing.T) {
	for i, o := range []ReporterOptions{
		{}, {Name: strings.Repeat("n", 513)}, {Name: "a\x00b"}, {Name: "\xff"}, {Name: "w", Scope: "a b"}, {Name: "w", Scope: strings.Repeat("s", 65)},
		{Name: "w", Interval: -1}, {Name: "w", Interval: time.Millisecond}, {Name: "w", Interval: 2 * time.Hour},
		{Name: "w", MaxWorkers: -1}, {Name: "w", MaxWorkers: MaxWorkers + 1},
	} {
		_, err := NewReporter(NewMemory(), &o)
		require.ErrorIs(t, err, ErrInvalid, "%d", i)
	}
	_, err := NewReporter(nil, &ReporterOptions{Name: "w"})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = NewReporter(NewMemory(), nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = NewReporter(NewMemory(), &ReporterOptions{Name: strings.Repeat("n", 512)})
	require.NoError(t, err)
}

// Two watchdogs watch each other: when one stops, the other says so.
func TestWatchingTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		self := newReporter(t, f.store, ReporterOptions{Name: "watchdog"})
		defer start(t, self.Run)()
		other := f.watchdog(Options{Self: self})
		stop := start(t, other.Run)
		require.Equal(t, Healthy, f.watch(time.Hour).Verdict)
		stop() // its reporter goes on
		w := f.watch(2 * time.Minute)
		require.Equal(t, Stuck, w.Verdict)
		require.Equal(t, StoppedPolling, w.State)
	})
}
