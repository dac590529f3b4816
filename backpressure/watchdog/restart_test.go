package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/retry"
)

var badBackoff = retry.Exponential(-1, -1, retry.NoJitter)

// start runs something until the returned function is called, which waits for its end.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		require.NoError(t, <-done)
	}
}

func TestOneOfManyWatchdogsActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		for range 5 {
			defer start(t, f.watchdog(Options{Restart: f.note}).Run)()
		}
		synctest.Wait()
		f.beat()
		time.Sleep(75 * time.Second)
		require.Equal(t, 1, f.restarts())
		time.Sleep(60 * time.Second)
		require.Equal(t, 2, f.restarts())
		time.Sleep(24 * time.Hour)
		require.Equal(t, 5, f.restarts(), "the cap is for all of them together")
	})
}

// The watchdog that was given the attempt dies before it restarts anything: another
// has the next, when the time of the first has passed.
func TestAnAttemptThatNobodyMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.look0()
		f.beat()
		f.watch(60 * time.Second)
		time.Sleep(time.Second)
		acts, err := f.store.Act(t.Context(), DefaultScope, []Action{{Kind: KindTake, Name: "w", Token: f.look1().Token, Nonce: [16]byte{9}, Wait: time.Minute, Most: 5}})
		require.NoError(t, err)
		require.NoError(t, acts[0].Err)
		f.watch(55 * time.Second)
		require.Zero(t, f.restarts())
		f.watch(10 * time.Second)
		require.Equal(t, 1, f.restarts())
		require.Equal(t, 2, f.calls.incidents[0].Attempt)
	})
}

func (f *fixture) look1() Record {
	page, err := f.store.List(f.t.Context(), DefaultScope, "", 1)
	require.NoError(f.t, err)
	return page.Records[0].Record
}

func TestHooksThatFailPanicAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		release := make(chan struct{})
		var calls atomic.Int32
		var ended []error
		f := newFixture(t, Options{
			Parallel: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Restart: func(ctx context.Context, i Incident) error {
				switch calls.Add(1) {
				case 1:
					return errors.New("no such host for secret@example.com")
				case 2:
					panic("password=secret")
				}
				<-release // heeds no context
				return nil
			},
			Hooks: &Hooks{
				Restarted: func(_ Incident, err error, _ time.Duration) { ended = append(ended, err) },
				Changed:   func(Change) { panic("password=secret") },
			},
		})
		f.look0()
		f.beat()
		f.watch(20 * time.Minute)
		require.Len(t, ended, 3)
		require.EqualError(t, ended[0], "no such host for secret@example.com")
		require.ErrorIs(t, ended[1], ErrPanic)
		require.ErrorIs(t, ended[2], context.DeadlineExceeded)
		require.EqualValues(t, 3, calls.Load(), "no second hook beside one that blocks")
		s := f.w.Stats()
		require.EqualValues(t, 3, s.Restarts)
		require.EqualValues(t, 3, s.FailedRestarts)
		require.Equal(t, 1, s.Restarting)
		require.Equal(t, 1, s.Overdue)
		require.NotZero(t, s.Panics)
		require.ErrorIs(t, f.w.Healthy(), ErrUnhealthy, "no place is left")
		require.NotContains(t, log.String(), "secret")
		require.Contains(t, log.String(), "outcome=*errors.errorString")
		require.Contains(t, log.String(), `outcome="its time was up"`)

		// Another watchdog goes on meanwhile.
		other := f.watchdog(Options{Restart: f.note})
		for range 30 {
			_, err := other.Round(t.Context())
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, 1, f.restarts())

		close(release)
		synctest.Wait()
		f.look()
		require.NoError(t, f.w.Healthy())
	})
}

func TestTooManyAtATimeArePostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, calls atomic.Int32
		f := newFixture(t, Options{Parallel: 2, Restart: func(ctx context.Context, i Incident) error {
			n := running.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(7 * time.Second)
			running.Add(-1)
			calls.Add(1)
			return nil
		}})
		f.look0()
		for n := range 6 {
			f.beat(func(b *Beat) { b.Name, b.Join, b.Nonce = fmt.Sprint(n), true, [16]byte{byte(n)} })
		}
		for range 24 {
			time.Sleep(5 * time.Second)
			_, err := f.w.Round(t.Context())
			require.NoError(t, err)
		}
		synctest.Wait()
		require.EqualValues(t, 2, most.Load())
		require.EqualValues(t, 6, calls.Load(), "each has its turn")
		require.NotZero(t, f.w.Stats().Postponed)
	})
}

// Giving up is told by its own hook; the verdict stays what it was.
func TestGivingUpIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []Change
		given := 0
		f := newFixture(t, Options{
			Restart: func(context.Context, Incident) error { return errors.New("refused") },
			Hooks:   &Hooks{Changed: func(c Change) { changes = append(changes, c) }, GivenUp: func(Worker) { given++ }},
		})
		f.look0()
		f.beat()
		w := f.watch(24 * time.Hour)
		require.True(t, w.GivenUp)
		require.Equal(t, 1, given)
		require.EqualValues(t, len(changes), f.w.Stats().Changes)
		for _, c := range changes {
			require.True(t, c.WasVerdict != c.Worker.Verdict || c.WasState != c.Worker.State, "%v %v twice", c.Worker.Verdict, c.Worker.State)
		}
	})
}

func TestAWorkerThatWillNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{Restart: func(context.Context, Incident) error { return fmt.Errorf("pod: %w", ErrGone) }})
		f.look0()
		f.beat()
		f.watch(65 * time.Second)
		synctest.Wait()
		f.look0()
		require.EqualValues(t, 1, f.w.Stats().Forgotten)
	})
}

func TestTheEndOfRunEndsRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		f := newFixture(t, Options{Restart: func(ctx context.Context, _ Incident) error {
			<-ctx.Done()
			cause <- ctx.Err()
			return ctx.Err()
		}})
		stop := start(t, f.w.Run)
		synctest.Wait()
		f.beat()
		time.Sleep(66 * time.Second)
		stop()
		require.ErrorIs(t, <-cause, context.Canceled)
		require.EqualValues(t, 1, f.w.Stats().FailedRestarts)
		require.Zero(t, f.w.Stats().Unsettled, "the attempt is ended in the store all the same")
	})
}

// What the worker says between the look and the take decides: it is not restarted.
func TestProgressInTheLastMoment(t *testing.T) {
	turns := func(n uint64) func(*Beat) { return func(b *Beat) { b.Turns = n } }
	for name, c := range map[string]struct {
		before, last func(*Beat)
		every        bool // 15 seconds it says the same
		after        time.Duration
		verdict      Verdict
	}{
		"a heartbeat": {at(7), at(7), false, 65 * time.Second, Stuck},
		"a move":      {at(7), at(8), true, 10*time.Minute + 15*time.Second, Zombie},
		"a turn":      {turns(1), turns(2), true, 75 * time.Second, Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{Hooks: &Hooks{}})
				f.w.o.Hooks.Changed = func(c2 Change) {
					if c2.Worker.Verdict == c.verdict {
						f.beat(c.last)
					}
				}
				f.look0()
				f.beat(c.before)
				w := f.watch(c.after, func(passed time.Duration) {
					if c.every && passed%(15*time.Second) == 0 {
						f.beat(c.before)
					}
				})
				require.Equal(t, c.verdict, w.Verdict)
				require.Zero(t, f.restarts())
				require.False(t, f.look().Verdict.Bad())
			})
		})
	}
}

// A restart that takes long is not joined by that of another watchdog.
func TestALongRestartIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, calls atomic.Int32
		opts := Options{Restart: func(ctx context.Context, _ Incident) error {
			calls.Add(1)
			if running.Add(1) > 1 {
				t.Error("two at a time")
			}
			defer running.Add(-1)
			select {
			case <-time.After(50 * time.Second):
			case <-ctx.Done():
			}
			return ctx.Err()
		}}
		f := newFixture(t, opts)
		stop := []func(){start(t, f.w.Run), start(t, f.watchdog(opts).Run)}
		synctest.Wait()
		f.beat()
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 2, calls.Load())
		for _, s := range stop {
			s()
		}
	})
}

// A hook that never returns holds one place, however often its worker is due.
func TestAHookThatNeverReturnsHoldsOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		f := newFixture(t, Options{Restart: func(context.Context, Incident) error {
			calls.Add(1)
			<-release
			return nil
		}})
		f.look0()
		f.beat()
		f.watch(time.Hour)
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, 1, f.w.Stats().Restarting)
		require.NoError(t, f.w.Healthy(), "there are other places")
		close(release)
		synctest.Wait()
		require.Zero(t, f.w.Stats().Restarting)
	})
}

// The reply to the take is lost: the watchdog asks again, and the attempt is its own.
func TestALostReplyCostsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.look0()
		f.beat()
		f.watch(60 * time.Second)
		f.lose.Store(1)
		f.watch(5 * time.Second)
		require.Equal(t, 1, f.restarts())
		require.Equal(t, 1, f.calls.incidents[0].Attempt)

		// And when the store is away for longer, the attempt is made later.
		f.watch(55 * time.Second)
		f.lose.Store(2)
		f.watch(15 * time.Second)
		require.Equal(t, 1, f.restarts())
		require.EqualValues(t, 1, f.w.Stats().FailedActs)
		f.watch(75 * time.Second)
		require.Equal(t, 2, f.restarts())
		require.Equal(t, 3, f.calls.incidents[1].Attempt, "one attempt nobody made")
	})
}

func TestAWatchdogThatOnlyReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		w, err := New(f.store, &Options{Scope: DefaultScope})
		require.NoError(t, err)
		f.beat()
		for range 30 {
			_, err := w.Round(t.Context())
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, map[Verdict]int{Stuck: 1}, w.Stats().Workers)
		require.EqualValues(t, 1, w.Stats().Stuck)
		require.Zero(t, f.look1().Attempts)
	})
}

// hostileError panics whatever it is asked.
type hostileError struct{}

func (hostileError) Error() string { panic("password=secret") }
func (hostileError) Is(error) bool { panic("password=secret") }

func TestErrorsOfHooksThatPanic(t *testing.T) {
	for err, want := range map[error]string{
		nil:                           "restarted",
		ErrGone:                       "the worker is gone",
		hostileError{}:                "watchdog.hostileError",
		errors.New("password=secret"): "*errors.errorString",
		context.DeadlineExceeded:      "its time was up",
	} {
		require.Equal(t, want, outcomeOf(err))
		require.Equal(t, err == ErrGone, isGone(err))
	}
}
