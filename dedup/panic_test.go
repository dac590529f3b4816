package dedup_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Calls that never return leave nothing running behind them.

func TestDoSettlesAfterGoexit(t *testing.T) {
	for policy, want := range map[dedup.Lapse]dedup.State{dedup.Rerun: dedup.Acquired, dedup.Hold: dedup.Unknown} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, dedup.NewMemory(), &dedup.Options{OnLapse: policy})
				go func() {
					_ = g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { runtime.Goexit(); return nil })
				}()
				synctest.Wait()
				wantState(t, claim(t, g, "a"), want)
				if n := g.Stats().Running; n != 0 {
					t.Errorf("Running is %d", n)
				}
			})
		})
	}
}

func TestAPanicInAHookLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Lease: time.Second, Hooks: &dedup.Hooks{
			Settled: func(context.Context, dedup.Settlement, error) { panic("hook") }}})
		func() {
			defer func() {
				if recover() != "hook" {
					t.Error("the panic did not go on")
				}
			}()
			_ = g.Do(t.Context(), dedup.Request{ID: "a"}, nop)
		}()
		time.Sleep(time.Minute)
		if s := g.Stats(); s.Running != 0 || s.LeasesLost != 0 || s.Extended != 0 {
			t.Errorf("renewed for ever: %+v", s)
		}
	})
}

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("marshal") }

// The effect has happened, so a value that panics while it is encoded does not
// make it run again.
func TestAPanicInEncodingCompletes(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	_, err := dedup.DoValue(t.Context(), g, dedup.Request{ID: "a"}, func(context.Context) (explosive, error) { return explosive{}, nil })
	wantErr(t, err, dedup.ErrResult)
	wantState(t, claim(t, g, "a"), dedup.Done)
}

func TestDoValueOfNoFunction(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	_, err := dedup.DoValue[int](t.Context(), g, dedup.Request{ID: "a"}, nil)
	wantErr(t, err, dedup.ErrInvalid)
	wantState(t, claim(t, g, "a"), dedup.Acquired)
}

// Options are the guard's own after New.
func TestHooksAreCopied(t *testing.T) {
	hooks := &dedup.Hooks{}
	g := newGuard(t, dedup.NewMemory(), &dedup.Options{Hooks: hooks})
	hooks.Claimed = func(context.Context, dedup.Claim) { t.Error("a hook that was set after New is called") }
	claim(t, g, "a")
}
