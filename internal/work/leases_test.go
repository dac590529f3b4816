package work_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

// A keeper is Leases over a store that the test plays, with notes of what
// happened.
type keeper struct {
	work.Leases[string]
	mu      sync.Mutex
	begin   time.Time
	answer  func(ctx context.Context, units []string) ([]error, error) // nil: renewed
	renewed []string                                                   // as unit@time
	lost    []string
	batches []int
}

func newKeeper(lease time.Duration) *keeper {
	k := &keeper{begin: time.Now()}
	k.Leases = work.Leases[string]{
		Duration: lease,
		Lost:     errLost,
		Extend: func(ctx context.Context, units []string) ([]error, error) {
			k.mu.Lock()
			k.batches = append(k.batches, len(units))
			answer := k.answer
			k.mu.Unlock()
			if answer != nil {
				return answer(ctx, units)
			}
			return nil, nil
		},
		OnExtended: func(u string) { k.note(&k.renewed, u) },
		OnLost: func(u string, cause error) {
			if !errors.Is(cause, errLost) {
				panic(cause)
			}
			k.note(&k.lost, u)
		},
	}
	return k
}

func (k *keeper) note(list *[]string, u string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*list = append(*list, fmt.Sprint(u, "@", time.Since(k.begin)))
}

func (k *keeper) answers(f func(ctx context.Context, units []string) ([]error, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = f
}

// notes returns what was renewed and lost until now, and how many leases each
// step renewed.
func (k *keeper) notes() (renewed, lost []string, batches []int) {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.renewed), slices.Clone(k.lost), slices.Clone(k.batches)
}

func (k *keeper) wantRenewed(t *testing.T, want ...string) {
	t.Helper()
	got, _, _ := k.notes()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("renewed %v, want %v", got, want)
	}
}

func (k *keeper) wantLost(t *testing.T, want ...string) {
	t.Helper()
	if _, got, _ := k.notes(); !slices.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
}

// kept is a unit with its lease.
type kept struct {
	work.Lease[string]
	ctx       context.Context
	cancelled atomic.Int64 // the time since the keeper's begin; zero: not
}

// add keeps a lease of a unit for left from now.
func (k *keeper) add(unit string, left time.Duration) *kept {
	u := &kept{}
	ctx, cancel := context.WithCancelCause(context.Background())
	u.ctx, u.Unit = ctx, unit
	u.Cancel = func(cause error) {
		u.cancelled.CompareAndSwap(0, int64(time.Since(k.begin)))
		cancel(cause)
	}
	k.Add(&u.Lease, time.Now().Add(left))
	return u
}

func (u *kept) wantRunning(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if err := context.Cause(u.ctx); err != nil {
		t.Errorf("unit %s was cancelled after %v: %v", u.Unit, time.Duration(u.cancelled.Load()), err)
	}
}

func (u *kept) wantCancelled(t *testing.T, at time.Duration, cause error) {
	t.Helper()
	synctest.Wait()
	got := time.Duration(u.cancelled.Load())
	if err := context.Cause(u.ctx); !errors.Is(err, cause) || got != at {
		t.Errorf("unit %s was cancelled after %v with %v, want %v and %v", u.Unit, got, err, at, cause)
	}
}

func hang(ctx context.Context, _ []string) ([]error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestLeasesAreRenewedAtEveryThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		u := k.add("a", 30*time.Second)
		time.Sleep(35 * time.Second)
		k.wantRenewed(t, "a@10s", "a@20s", "a@30s")
		u.wantRunning(t)
		k.Remove(&u.Lease)
		time.Sleep(time.Hour)
		k.wantRenewed(t, "a@10s", "a@20s", "a@30s")
		if n := k.Len(); n != 0 {
			t.Errorf("%d leases are kept after the last was removed", n)
		}
	})
}

// Whether the store fails or hangs: the unit is cancelled when its lease ends,
// not before and not after.
func TestALeaseLapsesExactlyAtItsEnd(t *testing.T) {
	down := errors.New("down")
	for name, answer := range map[string]func(context.Context, []string) ([]error, error){
		"hangs": hang,
		"fails": func(context.Context, []string) ([]error, error) { return nil, down },
		"fails for this one": func(_ context.Context, units []string) ([]error, error) {
			return slices.Repeat([]error{down}, len(units)), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper(30 * time.Second)
				u := k.add("a", 30*time.Second)
				time.Sleep(15 * time.Second) // renewed at 10s: it lasts until 40s
				k.answers(answer)
				time.Sleep(time.Minute)
				u.wantCancelled(t, 40*time.Second, errLost)
				if name != "hangs" && !errors.Is(context.Cause(u.ctx), down) {
					t.Errorf("the cause does not say why: %v", context.Cause(u.ctx))
				}
				k.wantLost(t, "a@40s")
				k.Remove(&u.Lease)
				time.Sleep(time.Minute) // a renewal that hangs
			})
		})
	}
}

// A renewal counts from when it was sent, since the store may have applied it
// then.
func TestASlowAnswerProlongsALeaseFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		u := k.add("a", 30*time.Second)
		k.answers(func(ctx context.Context, units []string) ([]error, error) {
			k.answers(hang)
			time.Sleep(9 * time.Second)
			return nil, nil
		})
		time.Sleep(2 * time.Minute)
		u.wantCancelled(t, 40*time.Second, errLost)
		k.Remove(&u.Lease)
		time.Sleep(time.Minute)
	})
}

// A renewal without answer is sent again soon enough to be of use.
func TestRenewalsThatFailAreSentAgainSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		u := k.add("a", 30*time.Second)
		k.answers(func(context.Context, []string) ([]error, error) { return nil, errors.New("down") })
		time.Sleep(26 * time.Second)
		k.answers(nil)
		if _, _, sent := k.notes(); len(sent) < 5 || len(sent) > 12 {
			t.Errorf("%d renewals were sent in 16s without an answer", len(sent))
		}
		time.Sleep(time.Minute)
		u.wantRunning(t)
		k.Remove(&u.Lease)
	})
}

// The store says whose lease is lost; the others' go on.
func TestALostLeaseIsCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		a, b := k.add("a", 30*time.Second), k.add("b", 30*time.Second)
		k.answers(func(_ context.Context, units []string) ([]error, error) {
			errs := make([]error, len(units))
			errs[slices.Index(units, "a")] = errLost
			return errs, nil
		})
		time.Sleep(time.Minute)
		a.wantCancelled(t, 10*time.Second, errLost)
		b.wantRunning(t)
		k.wantLost(t, "a@10s")
		k.Remove(&a.Lease)
		k.Remove(&b.Lease)
	})
}

// While a unit is being settled its lease is renewed, and no loss of it counts.
func TestSettlingIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		u := k.add("a", 30*time.Second)
		k.Settling(&u.Lease)
		time.Sleep(15 * time.Second)
		k.wantRenewed(t, "a@10s")
		k.answers(func(_ context.Context, units []string) ([]error, error) {
			return slices.Repeat([]error{errLost}, len(units)), nil
		})
		time.Sleep(time.Hour)
		u.wantRunning(t)
		k.wantLost(t)
		other := k.add("b", 30*time.Second)
		k.answers(hang)
		time.Sleep(time.Minute)
		other.wantCancelled(t, time.Hour+15*time.Second+30*time.Second, errLost)
		u.wantRunning(t)
		k.Remove(&u.Lease)
		k.Remove(&other.Lease)
		time.Sleep(time.Minute)
	})
}

func TestRemovingALeaseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		a, b, c := k.add("a", 30*time.Second), k.add("b", 30*time.Second), k.add("c", 30*time.Second)
		k.Remove(&b.Lease)
		k.Remove(&b.Lease)
		if n := k.Len(); n != 2 {
			t.Errorf("%d leases, want 2", n)
		}
		time.Sleep(11 * time.Second)
		k.wantRenewed(t, "a@10s", "c@10s")
		k.Remove(&a.Lease)
		k.Remove(&c.Lease)
		k.Remove(&c.Lease)
		if n := k.Len(); n != 0 {
			t.Errorf("%d leases, want none", n)
		}
		k.Remove(&work.Lease[string]{}) // was never kept
		d := k.add("d", 30*time.Second)
		time.Sleep(time.Minute)
		d.wantRunning(t)
		k.RemoveAll()
		if n := k.Len(); n != 0 {
			t.Errorf("%d leases after RemoveAll", n)
		}
	})
}

// A lease may end while its renewal is under way; the answer changes nothing.
func TestALeaseThatWasRemovedDuringItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		a, b := k.add("a", 30*time.Second), k.add("b", 30*time.Second)
		k.answers(func(_ context.Context, units []string) ([]error, error) {
			k.Remove(&a.Lease)
			return slices.Repeat([]error{errLost}, len(units)), nil
		})
		time.Sleep(20 * time.Second)
		a.wantRunning(t)
		b.wantCancelled(t, 10*time.Second, errLost)
		k.Remove(&b.Lease)
	})
}

func TestCancelAllKeepsTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		a, b := k.add("a", 30*time.Second), k.add("b", 30*time.Second)
		time.Sleep(5 * time.Second)
		k.CancelAll(errDrain)
		a.wantCancelled(t, 5*time.Second, errDrain)
		b.wantCancelled(t, 5*time.Second, errDrain)
		time.Sleep(time.Minute)
		if renewed, lost, _ := k.notes(); k.Len() != 2 || len(renewed) < 10 || len(lost) != 0 {
			t.Errorf("%d leases, renewed %v, lost %v", k.Len(), renewed, lost)
		}
		k.RemoveAll()
	})
}

// Many leases are renewed in few steps, side by side: batches that hang hold up
// no other.
func TestManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		k := newKeeper(30 * time.Second)
		units := make([]*kept, n)
		for i := range units {
			units[i] = k.add(fmt.Sprint(i), 30*time.Second)
		}
		var stuck sync.Map
		k.answers(func(ctx context.Context, units []string) ([]error, error) {
			if !slices.Contains(units, "300") && !slices.Contains(units, "700") {
				return nil, nil
			}
			for _, u := range units {
				stuck.Store(u, true)
			}
			return hang(ctx, units)
		})
		time.Sleep(time.Minute)
		for _, u := range units {
			if _, hung := stuck.Load(u.Unit); hung {
				u.wantCancelled(t, 30*time.Second, errLost)
			} else {
				u.wantRunning(t)
			}
		}
		if _, _, batches := k.notes(); slices.Max(batches) != 256 {
			t.Errorf("the largest batch has %d leases, want 256", slices.Max(batches))
		}
		k.RemoveAll()
		time.Sleep(time.Minute)
	})
}

// One that comes with little left is renewed before its end, and does not wait
// for the turn of the others.
func TestALeaseWithLittleLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		alone := k.add("alone", time.Second)
		time.Sleep(time.Minute)
		alone.wantRunning(t)
		for range 7 {
			time.Sleep(1300 * time.Millisecond) // at several points between two turns
			late := k.add("late", 2*time.Second)
			time.Sleep(30 * time.Second)
			late.wantRunning(t)
			k.Remove(&late.Lease)
		}
		alone.wantRunning(t)
		k.Remove(&alone.Lease)

		k.answers(hang)
		over := k.add("over", -time.Second)
		time.Sleep(time.Minute)
		if over.ctx.Err() == nil {
			t.Error("a lease that had lapsed before it was kept is not cancelled")
		}
		k.Remove(&over.Lease)
	})
}

// Also when it comes while a renewal of the others is under way.
func TestALeaseWithLittleLeftDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(30 * time.Second)
		first := k.add("first", 30*time.Second)
		k.answers(func(_ context.Context, units []string) ([]error, error) {
			if len(units) == 1 {
				time.Sleep(time.Second)
			}
			return nil, nil
		})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		late := k.add("late", 3*time.Second)
		time.Sleep(time.Minute)
		late.wantRunning(t)
		first.wantRunning(t)
		k.RemoveAll()
	})
}
