package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// The leases of running effects.

// More leases than one step renews: every one of them is kept, in few steps.
func TestManyLeasesAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 600
		m := dedup.NewMemory()
		var steps, largest atomic.Int64
		store := &patched{Store: m, settle: func(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
			if s[0].Kind == dedup.KindExtend {
				steps.Add(1)
				for size := int64(len(s)); size > largest.Load(); {
					largest.Store(size)
				}
			}
			return m.Settle(ctx, p, s)
		}}
		g := newGuard(t, store, &dedup.Options{Lease: 3 * time.Second})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := g.Do(t.Context(), dedup.Request{ID: fmt.Sprint(i)}, func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(30*time.Second + 500*time.Millisecond):
						return nil
					}
				})
				if err != nil {
					t.Errorf("effect %d: %v", i, err)
				}
			})
		}
		time.Sleep(20 * time.Second)
		if s := g.Stats(); s.Running != n {
			t.Errorf("%d effects are running, want %d", s.Running, n)
		}
		wantState(t, claim(t, g, "0"), dedup.InFlight)
		wantState(t, claim(t, g, "599"), dedup.InFlight)
		wg.Wait()
		if got := largest.Load(); got > 256 {
			t.Errorf("%d leases were renewed in one step, want at most 256", got)
		}
		if got := steps.Load(); got > 3*31 {
			t.Errorf("%d steps for 30 renewals of %d leases", got, n)
		}
		if s := g.Stats(); s.Running != 0 || s.LeasesLost != 0 || s.Extended < 29*n {
			t.Errorf("stats %+v", s)
		}
	})
}

// A store that hangs is no reason to run on behind the end of the lease.
func TestEffectsAreCancelledInTimeWhenTheStoreHangs(t *testing.T) {
	for _, n := range []int{1, 600} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hangs atomic.Bool
				g := newGuard(t, hanging(&hangs), &dedup.Options{Lease: 30 * time.Second})
				var wg sync.WaitGroup
				start := time.Now()
				for i := range n {
					wg.Go(func() {
						_ = g.Do(t.Context(), dedup.Request{ID: fmt.Sprint(i)}, func(ctx context.Context) error {
							hangs.Store(true)
							<-ctx.Done()
							if d := time.Since(start); d > 30*time.Second {
								t.Errorf("cancelled after %v, behind the end of its lease", d)
							}
							wantErr(t, context.Cause(ctx), dedup.ErrStale)
							return ctx.Err()
						})
					})
				}
				wg.Wait()
				time.Sleep(time.Minute) // the last renewal's own timeout
				if lost := g.Stats().LeasesLost; lost != uint64(n) {
					t.Errorf("LeasesLost is %d, want %d", lost, n)
				}
			})
		})
	}
}

// LeaseLost tells of an effect that is cancelled already, also when the store
// says nothing.
func TestLeaseLostIsCalledAfterTheCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		var told []string
		g := newGuard(t, hanging(&hangs), &dedup.Options{Lease: 3 * time.Second, Hooks: &dedup.Hooks{
			LeaseLost: func(ctx context.Context, c dedup.Claim, cause error) {
				if ctx.Err() == nil {
					t.Error("the hook runs and the effect is not cancelled yet")
				}
				if token, ok := dedup.TokenFrom(ctx); !ok || token != c.Token {
					t.Errorf("the token %d is not the claim's, %d", token, c.Token)
				}
				wantErr(t, cause, dedup.ErrStale)
				told = append(told, c.ID)
			}}})
		wait := func(ctx context.Context) error { <-ctx.Done(); return nil }
		err := g.Do(t.Context(), dedup.Request{ID: "taken"}, func(ctx context.Context) error {
			if err := g.Forget(ctx, "taken"); err != nil {
				t.Error(err)
			}
			return wait(ctx)
		})
		wantErr(t, err, dedup.ErrStale)
		_ = g.Do(t.Context(), dedup.Request{ID: "lapsed"}, func(ctx context.Context) error {
			hangs.Store(true)
			return wait(ctx)
		})
		if err := g.Do(t.Context(), dedup.Request{ID: "kept"}, nop); !errors.Is(err, dedup.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute) // the last renewal's own timeout
		synctest.Wait()
		if got := fmt.Sprint(told); got != "[taken lapsed]" {
			t.Errorf("LeaseLost was called for %s", got)
		}
	})
}

// Other effects are cancelled before anybody is told of the first: a hook may be
// slow.
func TestASlowHookDelaysNoCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		g := newGuard(t, hanging(&hangs), &dedup.Options{Lease: 3 * time.Second, SettleTimeout: time.Second, Hooks: &dedup.Hooks{
			LeaseLost: func(context.Context, dedup.Claim, error) { time.Sleep(time.Minute) }}})
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 3 {
			wg.Go(func() {
				_ = g.Do(t.Context(), dedup.Request{ID: fmt.Sprint(i)}, func(ctx context.Context) error {
					hangs.Store(true)
					<-ctx.Done()
					if d := time.Since(start); d > 3*time.Second {
						t.Errorf("cancelled after %v", d)
					}
					return nil
				})
			})
		}
		wg.Wait()
		time.Sleep(5 * time.Minute) // the hooks
	})
}

// A renewal that meets the effect's own completion is no loss.
func TestACompletedLeaseIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		store := &patched{Store: m, settle: func(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
			errs, err := m.Settle(ctx, p, s)
			if s[0].Kind == dedup.KindComplete {
				time.Sleep(2 * time.Second) // its reply is slow
			}
			return errs, err
		}}
		g := newGuard(t, store, &dedup.Options{Lease: 3 * time.Second})
		if err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
			t.Fatal(err)
		}
		if n := g.Stats().LeasesLost; n != 0 {
			t.Errorf("%d leases were lost, and Do succeeded", n)
		}
	})
}

// A grant that arrives late has only the rest of its lease, and is renewed in
// time.
func TestALateGrantIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		sent := 0
		store := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
			claims, err := m.Claim(ctx, p, asks)
			if sent++; sent == 1 {
				time.Sleep(8 * time.Second)
				return nil, errLost
			}
			return claims, err
		}}
		g := newGuard(t, store, &dedup.Options{Lease: 10 * time.Second})
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Minute):
				return nil
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}
