package watchdog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThreeMissedIsNotStuckFourIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.look0()
		f.beat()
		require.Equal(t, Healthy, f.look().Verdict)
		w := f.watch(60 * time.Second)
		require.Equal(t, Late, w.Verdict)
		require.Equal(t, 3, w.Missed)
		require.Zero(t, f.restarts())

		time.Sleep(time.Microsecond)
		w = f.look()
		require.Equal(t, Stuck, w.Verdict)
		require.Equal(t, Unknown, w.State, "it says nothing, so nobody knows why")
		require.Equal(t, 4, w.Missed)
		require.Equal(t, 1, f.restarts())
		require.Equal(t, 1, f.calls.incidents[0].Attempt)
	})
}

// look0 makes a round that finds nobody.
func (f *fixture) look0() {
	workers, err := f.w.Round(f.t.Context())
	require.NoError(f.t, err)
	require.Empty(f.t, workers)
}

func TestZombieAfterMoreThanTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.beat(at(7))
		w := f.watch(10*time.Minute, f.every15(at(7)))
		require.Equal(t, Healthy, w.Verdict, "exactly ten minutes")
		require.Equal(t, 10*time.Minute, w.Stalled)
		require.Zero(t, f.restarts())
		w = f.watch(15*time.Second, f.every15(at(7)))
		require.Equal(t, Zombie, w.Verdict)
		require.Equal(t, 1, f.restarts())
		require.Contains(t, w.Reason(), "at position 7 for 10m15s")

		w = f.watch(15*time.Second, f.every15(at(8)))
		require.Equal(t, Healthy, w.Verdict, "it has moved")
	})
}

// every15 beats every 15 seconds while a fixture watches.
func (f *fixture) every15(change ...func(*Beat)) func(time.Duration) {
	return func(passed time.Duration) {
		if passed%(15*time.Second) == 0 {
			f.beat(change...)
		}
	}
}

func TestNoWorkAndGapsAreNoZombies(t *testing.T) {
	for _, state := range []State{Idle, WaitingGap, Parked} {
		t.Run(state.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{})
				says := func(b *Beat) {
					s := Sample{State: state, Position: 7, Pending: 3}
					s.beat(b, 0)
				}
				f.beat(says)
				w := f.watch(time.Hour, f.every15(says))
				require.Equal(t, Healthy, w.Verdict)
				require.Equal(t, state, w.State, "it is said")
				require.Zero(t, f.restarts())

				// What it waited for does not count when it has work again.
				w = f.watch(10*time.Minute, f.every15(at(7)))
				require.Equal(t, Healthy, w.Verdict)
				w = f.watch(30*time.Second, f.every15(at(7)))
				require.Equal(t, Zombie, w.Verdict)
			})
		})
	}
}

func TestALoopThatHangsBehindAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		idle := func(turns uint64) func(*Beat) {
			return func(b *Beat) { b.State, b.Busy, b.Pending, b.Turns = Idle, false, 0, turns }
		}
		f.beat(idle(1))
		w := f.watch(60*time.Second, f.every15(idle(1)))
		require.Equal(t, Healthy, w.Verdict)
		w = f.watch(15*time.Second, f.every15(idle(1)))
		require.Equal(t, Stuck, w.Verdict)
		require.Equal(t, StoppedPolling, w.State)
		require.Equal(t, 1, f.restarts())
	})
}

func TestBackoffAndCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []Worker
		f := newFixture(t, Options{MaxRestarts: 3, Hooks: &Hooks{GivenUp: func(w Worker) { given = append(given, w) }}})
		f.look0()
		f.beat()
		var when []time.Duration
		f.watch(3*time.Hour, func(passed time.Duration) {
			if f.restarts() > len(when) {
				when = append(when, passed)
			}
		})
		// Stuck after 65 s; then 1, 2 and 4 minutes after each attempt. A restart shows in
		// the round after it.
		require.Equal(t, []time.Duration{70 * time.Second, 130 * time.Second, 250 * time.Second}, when)
		require.Equal(t, []int{1, 2, 3}, []int{f.calls.incidents[0].Attempt, f.calls.incidents[1].Attempt, f.calls.incidents[2].Attempt})
		require.Less(t, f.calls.incidents[1].Token, f.calls.incidents[2].Token)
		require.Len(t, given, 1, "told once")
		w := f.look()
		require.True(t, w.GivenUp, "and listed")
		require.Equal(t, Stuck, w.Verdict)
		require.Equal(t, 1, f.w.Stats().GivenUpNow)

		require.ErrorIs(t, f.w.Resume(t.Context(), "other"), ErrGone)
		require.NoError(t, f.w.Resume(t.Context(), "w"))
		f.watch(10 * time.Second)
		require.Equal(t, 4, f.restarts())
		require.Equal(t, 1, f.calls.incidents[3].Attempt)
	})
}

func TestAttemptsAreForgottenWhenTheWorkerIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recovered := 0
		f := newFixture(t, Options{MaxRestarts: 2, Hooks: &Hooks{Recovered: func(string) { recovered++ }}})
		f.look0()
		f.beat()
		f.watch(time.Hour)
		require.Equal(t, 2, f.restarts())
		require.True(t, f.look().GivenUp)

		// It hangs again and again, with a while between that is too short.
		for range 4 {
			w := f.watch(20*time.Minute, f.every15())
			require.Equal(t, Healthy, w.Verdict)
			require.True(t, w.GivenUp)
			f.watch(5 * time.Minute)
		}
		require.Equal(t, 2, f.restarts(), "never in silence for ever")
		require.Zero(t, recovered)

		acts := f.acts.Load()
		f.watch(31*time.Minute, f.every15())
		require.Equal(t, acts+1, f.acts.Load(), "the store is not asked every time")
		require.False(t, f.look().GivenUp)
		require.Zero(t, f.look().Attempts)
		require.Equal(t, 1, recovered)
		f.watch(70 * time.Second)
		require.Equal(t, 3, f.restarts())
	})
}

func TestAStoreThatIsAwayMakesNobodyStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Change
		f := newFixture(t, Options{Hooks: &Hooks{Changed: func(c Change) { told = append(told, c) }}})
		f.beat()
		f.watch(time.Minute, f.every15())
		require.Len(t, told, 1)
		f.down.Store(true)
		for range 120 {
			time.Sleep(5 * time.Second)
			_, err := f.w.Round(t.Context())
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, err, errDown)
		}
		s := f.w.Stats()
		require.Equal(t, map[Verdict]int{Undecided: 1}, s.Workers)
		require.Equal(t, map[State]int{Unknown: 1}, s.States)
		require.False(t, s.UpToDate)
		require.ErrorIs(t, f.w.Healthy(), ErrUnhealthy)
		f.down.Store(false)

		w := f.watch(50 * time.Second) // the heartbeats come back later than the store
		require.Equal(t, Undecided, w.Verdict)
		require.Equal(t, Unknown, w.State)
		f.beat()
		require.Equal(t, Healthy, f.look().Verdict)
		require.Len(t, told, 2, "what is known again is told")
		require.Zero(t, f.restarts())
		require.NoError(t, f.w.Healthy())

		w = f.watch(65 * time.Second)
		require.Equal(t, Stuck, w.Verdict, "one that stays away is stuck")
	})
}

// A store that fails now and then, even every second time, still lets the watchdog see.
func TestAStoreThatFailsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.look0()
		f.beat()
		for n := range 60 {
			time.Sleep(5 * time.Second)
			f.down.Store(n%3 == 0)
			_, _ = f.w.Round(t.Context())
		}
		f.down.Store(false)
		require.Equal(t, Stuck, f.look().Verdict)
	})
}

func TestJumpsOfTheStoresClock(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, 365 * 24 * time.Hour, -time.Hour, -8 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{})
				f.beat(at(7))
				f.watch(time.Minute, f.every15(at(7)))
				f.shift.Store(int64(jump))
				require.NotContains(t, []Verdict{Stuck, Zombie}, f.look().Verdict)
				w := f.watch(30*time.Second, f.every15(at(7)))
				require.Equal(t, Healthy, w.Verdict)
				require.Less(t, w.Stalled, 3*time.Minute, "a jump counts as four heartbeats at most")
				require.Zero(t, f.restarts())

				w = f.watch(66 * time.Second)
				require.Equal(t, Stuck, w.Verdict, "and one that is silent after it is stuck as ever")
				require.Equal(t, 1, f.restarts())

				// Between two attempts it may cut a wait short or begin it again.
				f.shift.Add(int64(jump))
				f.watch(100 * time.Second)
				require.Equal(t, 2, f.restarts())
			})
		})
	}
}

func TestAWatchdogThatBeginsWatchesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.beat()
		time.Sleep(time.Hour)
		require.Equal(t, Undecided, f.look().Verdict)
		require.Equal(t, Undecided, f.watch(60*time.Second).Verdict)
		require.Zero(t, f.restarts())
		require.Equal(t, Stuck, f.watch(5*time.Second).Verdict)
		require.Equal(t, 1, f.restarts())
	})
}

func TestGoodbyeAndForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var forgotten []string
		opts := Options{Hooks: &Hooks{Forgotten: func(name string) { forgotten = append(forgotten, name) }}}
		f := newFixture(t, opts)
		f.beat()
		f.beat(func(b *Beat) { b.Leave = true })
		w := f.watch(time.Hour)
		require.Equal(t, Gone, w.Verdict)
		require.Zero(t, f.restarts())
		time.Sleep(time.Second)
		f.look()
		f.look0()
		require.Equal(t, []string{"w"}, forgotten)
		require.Empty(t, f.w.watch.sightings)
		require.Empty(t, f.w.verdicts)

		f.seq, f.nonce = 0, [16]byte{2}
		f.beat()
		require.NoError(t, f.w.Forget(t.Context(), "w"))
		require.NoError(t, f.w.Forget(t.Context(), "w"))
		f.look0()
	})
}

func TestManyWorkersAreAllSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		beats := make([]Beat, 2*MaxBatch+1)
		for i := range beats {
			beats[i] = Beat{Name: fmt.Sprintf("w%05d", i), Nonce: [16]byte{byte(i), byte(i >> 8)}, Join: true, Seq: 1, Interval: time.Second}
		}
		_, err := f.store.Beat(t.Context(), Params{Scope: DefaultScope, Most: MaxWorkers}, beats)
		require.NoError(t, err)
		workers, err := f.w.Round(t.Context())
		require.NoError(t, err)
		require.Len(t, workers, len(beats))
		require.Equal(t, len(beats), f.w.Stats().Workers[Healthy])
	})
}

func TestRefusedOptions(t *testing.T) {
	for i, o := range []Options{
		{Scope: "a b"}, {Every: -1}, {Every: time.Hour}, {Missed: -1}, {Missed: 101}, {Zombie: -time.Second}, {Zombie: 1<<63 - 1},
		{HandlerLimit: -1}, {RestartTimeout: -1}, {RestartTimeout: 25 * time.Hour}, {MaxRestarts: -1}, {MaxRestarts: 1001},
		{Stable: time.Minute}, {Stable: 1<<63 - 1}, {Parallel: -1}, {KeepGone: -1}, {KeepSilent: time.Minute}, {Backoff: badBackoff},
	} {
		_, err := New(NewMemory(), &o)
		require.ErrorIs(t, err, ErrInvalid, "%d: %+v", i, o)
	}
	_, err := New(nil, nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = New((*Memory)(nil), nil)
	require.ErrorIs(t, err, ErrInvalid)
	w, err := New(NewMemory(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, w.Forget(t.Context(), ""), ErrInvalid)
	require.ErrorIs(t, w.Healthy(), ErrUnhealthy, "it has not watched yet")
}

func TestRunTwiceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		stop := start(t, f.w.Run)
		synctest.Wait()
		require.NoError(t, f.w.Healthy())
		require.ErrorIs(t, f.w.Run(t.Context()), ErrInvalid)
		stop()
		time.Sleep(21 * time.Second)
		require.ErrorIs(t, f.w.Healthy(), ErrUnhealthy, "it has stopped")
		require.False(t, errors.Is(f.w.Healthy(), ErrUnavailable))
	})
}

func TestAWorkerThatIsSilentForTooLongIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.beat()
		time.Sleep(8 * 24 * time.Hour) // nobody watched
		f.watch(30 * time.Minute)
		require.NotZero(t, f.restarts(), "it is not given up unseen")
		f.watch(10 * time.Second)
		f.look0()
		require.EqualValues(t, 1, f.w.Stats().Forgotten)
	})
}

// A hook that hangs stops the watchdog; that is said, and so another notices.
func TestAHookThatHangsIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFixture(t, Options{Hooks: &Hooks{Changed: func(Change) { <-release }}})
		stop := start(t, f.w.Run)
		synctest.Wait()
		require.NoError(t, f.w.Healthy())
		f.beat()
		time.Sleep(26 * time.Second)
		require.ErrorIs(t, f.w.Healthy(), ErrUnhealthy)
		require.False(t, f.w.Stats().UpToDate)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.w.Round(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "one round at a time")
		close(release)
		time.Sleep(5 * time.Second)
		require.NoError(t, f.w.Healthy())
		stop()
	})
}
