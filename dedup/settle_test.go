package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A settlement whose part of the store is down holds up no other.
func TestASettlementWithoutAnswerDelaysNoNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		store := &patched{Store: m, settle: func(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
			errs := make([]error, len(s))
			for i := range s {
				if strings.HasPrefix(s[i].ID, "bad") {
					errs[i] = errLost
				} else if e, err := m.Settle(ctx, p, s[i:i+1]); err != nil {
					return nil, err
				} else if e != nil {
					errs[i] = e[0]
				}
			}
			return errs, nil
		}}
		g := newGuard(t, store, nil)
		bad, good := claim(t, g, "bad"), claim(t, g, "good")
		var wg sync.WaitGroup
		wg.Go(func() { wantErr(t, g.Settle(t.Context(), bad.Complete(nil)), dedup.ErrUnavailable) })
		synctest.Wait()
		start := time.Now()
		if err := g.Settle(t.Context(), good.Complete(nil)); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("the neighbour took %v", d)
		}
		wg.Wait()
	})
}

// SettleTimeout counts for each settlement from its own beginning.
func TestSettleTimeoutIsABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory()}
		g := newGuard(t, store, &dedup.Options{SettleTimeout: time.Second})
		claims := make([]dedup.Claim, 5)
		for i := range claims {
			claims[i] = claim(t, g, fmt.Sprint(i))
		}
		store.set(func(f *flaky) { f.down = true })
		var wg sync.WaitGroup
		for _, c := range claims {
			wg.Go(func() {
				start := time.Now()
				wantErr(t, g.Settle(t.Context(), c.Complete(nil)), dedup.ErrUnavailable)
				if d := time.Since(start); d > 1100*time.Millisecond {
					t.Errorf("a settlement of %s took %v, want 1s", c.ID, d)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
	})
}

// That the caller's own deadline has passed, too, does not hide that the fate of
// the completion is not known.
func TestAnEndedContextDoesNotHideAMissingAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		g := newGuard(t, hanging(&hangs), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Do(ctx, dedup.Request{ID: "a"}, func(ctx context.Context) error {
			hangs.Store(true)
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, dedup.ErrUnavailable)
		if !strings.Contains(err.Error(), "the effect ran") {
			t.Errorf("the error does not say that the effect ran: %v", err)
		}
	})
}

// An operator settles a held ID, and then its owner turns out to have been slow.
func TestASlowOwnerAfterAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold, Lease: time.Second})
		owner := claim(t, g, "a")
		time.Sleep(time.Minute)
		held, err := g.Held(t.Context(), "", 10)
		if err != nil || len(held) != 1 {
			t.Fatalf("held: %v, %v", held, err)
		}
		if err := g.Settle(t.Context(), held[0].Complete([]byte("by hand"))); err != nil {
			t.Fatal(err)
		}
		if err := g.Settle(t.Context(), owner.Complete([]byte("late"))); err != nil {
			t.Errorf("a second completion: %v", err)
		}
		if c := claim(t, g, "a"); string(c.Result) != "by hand" {
			t.Errorf("the first result was replaced by %q", c.Result)
		}
		for _, s := range []dedup.Settlement{owner.Release(), owner.Hold(), owner.Extend(time.Minute)} {
			wantErr(t, g.Settle(t.Context(), s), dedup.ErrStale)
		}
	})
}

// Every way to end a claim, on a guard that is not on memory.
func TestSettlementsOfEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, &flaky{Store: dedup.NewMemory()}, &dedup.Options{Lease: time.Second})
		c := claim(t, g, "a")
		if err := g.Settle(t.Context(), c.Extend(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, g, "a"); got.State != dedup.InFlight || got.Left != time.Hour {
			t.Errorf("extended: %+v", got)
		}
		if err := g.Settle(t.Context(), c.Hold()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, g.Settle(t.Context(), c.Extend(time.Hour)), dedup.ErrStale) // nobody runs it
		if got := claim(t, g, "a"); got.State != dedup.Unknown || got.Token != c.Token {
			t.Errorf("held: %+v", got)
		}
		if err := g.Settle(t.Context(), c.Release()); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, g, "a"); got.State != dedup.Acquired || got.Attempt != 2 || got.Token <= c.Token {
			t.Errorf("released: %+v", got)
		}
		if err := g.Settle(t.Context()); err != nil {
			t.Errorf("no settlements: %v", err)
		}
		s := g.Stats()
		if s.Extended != 1 || s.Held != 1 || s.Released != 1 || s.Stale != 1 || s.Reruns != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Each failure of a call is told, with its place.
func TestEveryFailedSettlementIsTold(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	a, b := claim(t, g, "a"), claim(t, g, "b")
	a.Token--
	err := g.Settle(t.Context(), a.Complete(nil), b.Complete(nil), a.Release())
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 2 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []int{0, 2} {
		var se *dedup.SettleError
		if !errors.As(joined.Unwrap()[i], &se) || se.Index != want || !errors.Is(se, dedup.ErrStale) {
			t.Errorf("got %v, want the settlement at %d", joined.Unwrap()[i], want)
		}
	}
}
