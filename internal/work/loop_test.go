package work_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

var (
	errLost  = errors.New("lost")
	errDrain = errors.New("draining")
)

// A queue is what a test's loop draws from: units by name, and notes of what
// happened to them.
type queue struct {
	mu sync.Mutex
	notes
}

type notes struct {
	waiting []string
	next    time.Duration
	fail    error
	claims  int
	running int
	most    int
	ran     int
	renewed int
	lost    int
	errs    int
}

// now returns what has happened until now.
func (q *queue) now() notes {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.notes
}

// note changes the queue or its notes.
func (q *queue) note(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *queue) add(units ...string) { q.note(func() { q.waiting = append(q.waiting, units...) }) }

func (q *queue) claim(_ context.Context, n int) ([]string, time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	if q.fail != nil {
		return nil, 0, q.fail
	}
	n = min(n, len(q.waiting))
	units := slices.Clone(q.waiting[:n])
	q.waiting = q.waiting[n:]
	return units, q.next, nil
}

func (q *queue) enter() {
	q.note(func() {
		q.running++
		q.most = max(q.most, q.running)
		q.ran++
	})
}

func (q *queue) leave() { q.note(func() { q.running-- }) }

// config is a loop over the queue whose units take d.
func (q *queue) config(d time.Duration) work.Config[string] {
	return work.Config[string]{
		Claim: q.claim,
		Run: func(ctx context.Context, _ string, _ <-chan struct{}, _ func()) time.Duration {
			q.enter()
			defer q.leave()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return work.Never
		},
		Extend: func(_ context.Context, units []string) ([]error, error) {
			q.note(func() { q.renewed += len(units) })
			return nil, nil
		},
		Lost: errLost, Draining: errDrain,
		OnLost:      func(string, error) { q.note(func() { q.lost++ }) },
		OnError:     func(error) { q.note(func() { q.errs++ }) },
		Concurrency: 4, Lease: 30 * time.Second, Poll: time.Minute, Grace: 10 * time.Second, Timeout: time.Second,
	}
}

// start runs a loop, and returns it and a function that ends it and says how many
// units were abandoned.
func start(t *testing.T, c work.Config[string]) (*work.Loop[string], func() int) {
	l := work.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := make(chan int, 1)
	go func() { abandoned <- l.Work(ctx) }()
	return l, func() int {
		cancel()
		return <-abandoned
	}
}

func TestLoopRunsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		for _, u := range "abcdefghij" {
			q.add(string(u))
		}
		begin := time.Now()
		_, stop := start(t, q.config(time.Second))
		time.Sleep(2500 * time.Millisecond)
		if n := q.now(); n.ran != 10 || n.most != 4 {
			t.Errorf("%d units ran, %d at once, want 10 and 4", n.ran, n.most)
		}
		if n := stop(); n != 0 {
			t.Errorf("%d units were abandoned", n)
		}
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("10 units of a second, 4 at once, took %v", got)
		}
	})
}

func TestLoopWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		l, stop := start(t, q.config(0))
		defer stop()
		time.Sleep(time.Second)
		for range 3 {
			q.add("a")
			before := time.Now()
			l.Wake()
			if n := q.now(); len(n.waiting) > 0 || time.Since(before) != 0 {
				t.Fatalf("%v after a wake-up %d units wait", time.Since(before), len(n.waiting))
			}
		}
		if n := q.now(); n.ran != 3 || n.claims > 7 {
			t.Errorf("%d units ran with %d claims, want 3 with at most 7", n.ran, n.claims)
		}
	})
}

// What arrives for a key that runs cannot be claimed before it has ended, so the
// wake-up must not be lost.
func TestLoopClaimsAgainAfterAUnitThatWasRunningAtAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a")
		l, stop := start(t, q.config(time.Second))
		defer stop()
		time.Sleep(500 * time.Millisecond)
		l.Wake()
		synctest.Wait()
		q.add("b") // as if it became claimable only now
		time.Sleep(501 * time.Millisecond)
		if n := q.now(); n.ran != 2 {
			t.Errorf("%d units ran, want 2", n.ran)
		}
	})
}

func TestLoopPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		_, stop := start(t, q.config(0))
		defer stop()
		time.Sleep(5*time.Minute + time.Second)
		if n := q.now(); n.claims != 6 {
			t.Errorf("in 5 minutes an idle loop that polls every minute claimed %d times, want 6", n.claims)
		}
		q.note(func() { q.next = 10 * time.Second })
		time.Sleep(time.Minute + time.Second)
		before := q.now().claims
		time.Sleep(time.Minute)
		if got := q.now().claims - before; got != 6 {
			t.Errorf("in a minute a loop that is told to come back in 10 seconds claimed %d times, want 6", got)
		}
	})
}

func TestLoopComesBackWhenAUnitSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a")
		c := q.config(0)
		c.Run = func(context.Context, string, <-chan struct{}, func()) time.Duration {
			q.enter()
			more := false
			q.note(func() { more = q.ran < 4 })
			if more {
				q.add("again")
				return 5 * time.Second
			}
			return work.Never
		}
		_, stop := start(t, c)
		defer stop()
		time.Sleep(16 * time.Second)
		if n := q.now(); n.ran != 4 {
			t.Errorf("%d units ran, want 4: one each 5 seconds", n.ran)
		}
	})
}

func TestLoopLeavesAStoreInTroubleAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{notes: notes{fail: errors.New("down")}}
		c := q.config(0)
		c.Poll = time.Second
		l, stop := start(t, c)
		defer stop()
		for range 60_000 {
			l.Wake()
			time.Sleep(time.Millisecond)
		}
		if n := q.now(); n.claims < 10 || n.claims > 25 || n.errs != n.claims {
			t.Errorf("in a minute of trouble the loop claimed %d times and reported %d errors, want 10 to 25", n.claims, n.errs)
		}
		q.add("a")
		q.note(func() { q.fail = nil })
		time.Sleep(5 * time.Second)
		if n := q.now(); n.ran != 1 {
			t.Errorf("after the trouble %d units ran, want 1", n.ran)
		}
		before := q.now().claims
		time.Sleep(10*time.Second + time.Millisecond)
		if got := q.now().claims - before; got < 9 {
			t.Errorf("in 10 seconds after the trouble the loop claimed %d times, want once a second", got)
		}
	})
}

func TestLoopRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a", "b", "c")
		_, stop := start(t, q.config(95*time.Second))
		time.Sleep(100 * time.Second)
		if n := q.now(); n.renewed != 27 || n.lost > 0 {
			t.Errorf("3 units of 95 seconds with leases of 30 were renewed %d times and lost %d times, want 27 and none", n.renewed, n.lost)
		}
		time.Sleep(time.Hour)
		if n := q.now(); n.renewed != 27 {
			t.Errorf("units that have ended were renewed %d times", n.renewed-27)
		}
		stop()
	})
}

func TestLoopCancelsAUnitWhoseLeaseIsLost(t *testing.T) {
	for name, answer := range map[string]func(units []string) ([]error, error){
		"taken over": func(units []string) ([]error, error) {
			errs := make([]error, len(units))
			errs[slices.Index(units, "b")] = errLost
			return errs, nil
		},
		"no answer": func([]string) ([]error, error) { return nil, errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{}
				q.add("a", "b")
				c := q.config(0)
				c.Extend = func(_ context.Context, units []string) ([]error, error) {
					if !slices.Contains(units, "b") {
						return nil, nil
					}
					return answer(units)
				}
				var causes []string
				begin := time.Now()
				c.Run = func(ctx context.Context, u string, _ <-chan struct{}, _ func()) time.Duration {
					select {
					case <-ctx.Done():
						if !errors.Is(context.Cause(ctx), errLost) {
							t.Errorf("the cause is %v, want one that wraps the error for a lost lease", context.Cause(ctx))
						}
						q.note(func() { causes = append(causes, u+" after "+time.Since(begin).String()) })
					case <-time.After(40 * time.Second):
					}
					return work.Never
				}
				_, stop := start(t, c)
				time.Sleep(time.Minute)
				stop()
				lost := q.now().lost
				slices.Sort(causes)
				want := "b after 10s"
				if name == "no answer" {
					want = "a after 30s, b after 30s"
				}
				if got := strings.Join(causes, ", "); got != want || lost != len(causes) {
					t.Errorf("cancelled were %q, and %d reported, want %q", got, lost, want)
				}
			})
		})
	}
}

// The settlement that gives up a lease may be applied and its answer be lost: that
// the lease is gone is then what was asked for.
func TestLoopDoesNotCallASettledLeaseLost(t *testing.T) {
	for _, settles := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := &queue{}
			q.add("a")
			c := q.config(0)
			c.Extend = func(_ context.Context, units []string) ([]error, error) { return []error{errLost}, nil }
			c.Run = func(ctx context.Context, _ string, _ <-chan struct{}, settling func()) time.Duration {
				if settles {
					settling()
				}
				time.Sleep(time.Minute)
				return work.Never
			}
			_, stop := start(t, c)
			time.Sleep(2 * time.Minute)
			stop()
			if lost := q.now().lost; (lost == 0) != settles {
				t.Errorf("with settling called: %v, %d leases are reported as lost", settles, lost)
			}
		})
	}
}

// A unit that was claimed while the loop was told to stop is run, so that it can
// be given back.
func TestLoopSurvivesAUnitThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a", "b", "c", "d", "e", "f")
		c := q.config(0)
		c.Run = func(context.Context, string, <-chan struct{}, func()) time.Duration {
			q.enter()
			runtime.Goexit()
			return work.Never
		}
		_, stop := start(t, c)
		if n := q.now(); n.ran != 6 {
			t.Errorf("%d units ran, want 6", n.ran)
		}
		if n := stop(); n != 0 {
			t.Errorf("%d units were abandoned", n)
		}
	})
}

func TestIdleLoopHasOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		for range 1000 {
			q.add("a")
		}
		before := goroutines()
		_, stop := start(t, q.config(time.Millisecond))
		time.Sleep(time.Second)
		synctest.Wait()
		if n := q.now(); n.ran != 1000 {
			t.Errorf("%d units ran, want 1000", n.ran)
		}
		got := goroutines() - before
		if got > 1 {
			t.Errorf("an idle loop has %d goroutines, want 1", got)
		}
		stop()
	})
}

// goroutines counts those of this bubble; runtime.NumGoroutine counts some of the
// runtime's own, too.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ", synctest bubble")
}

// After a claim that found less than half of what it asked for the loop rests as long
// as the claim took, so that what arrives one by one is claimed together; after others
// it does not, and never for long.
func TestLoopRestsBetweenClaims(t *testing.T) {
	for _, c := range []struct {
		name       string
		took, rest time.Duration
		found      int
	}{
		{"empty", 5 * time.Millisecond, 5 * time.Millisecond, 0},
		{"some", 5 * time.Millisecond, 5 * time.Millisecond, 1},
		{"half", 5 * time.Millisecond, 0, 2},
		{"full", 5 * time.Millisecond, 0, 4},
		{"slow", time.Second, 20 * time.Millisecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{}
				config := q.config(0)
				var began, ended []time.Time
				config.Claim = func(ctx context.Context, n int) ([]string, time.Duration, error) {
					q.note(func() { began = append(began, time.Now()) })
					time.Sleep(c.took)
					units, next, err := q.claim(ctx, n)
					q.note(func() { ended = append(ended, time.Now()) })
					return units, next, err
				}
				q.add(strings.Split("abcd", "")[:c.found]...)
				l, end := start(t, config)
				synctest.Wait()
				l.Wake() // while the first claim is under way
				time.Sleep(c.took + c.rest + time.Millisecond)
				q.note(func() {
					if len(began) != 2 {
						t.Errorf("%d claims, not 2", len(began))
					} else if rest := began[1].Sub(ended[0]); rest != c.rest {
						t.Errorf("it rested for %v, not %v", rest, c.rest)
					}
				})
				time.Sleep(2 * c.took)
				if claims := q.now().claims; claims != 2 {
					t.Errorf("%d claims, and nothing woke it", claims)
				}
				if n := end(); n != 0 {
					t.Errorf("%d were abandoned", n)
				}
			})
		})
	}
}
