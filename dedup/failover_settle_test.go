package dedup_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Settlements through a failover.

// One lost request is no outage, and the completion reaches the primary by
// itself.
func TestFailoverSurvivesOneLostSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		for _, id := range []string{"a", "b"} {
			err := r.guard.Do(t.Context(), dedup.Request{ID: id}, func(context.Context) error {
				r.primary.set(func(f *flaky) { f.settleBefore = 1 })
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			wantState(t, claim(t, newGuard(t, r.primary, nil), id), dedup.Done)
		}
		if s := r.failover.Stats(); s.Failovers != 0 || s.Unwritten != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A primary that swallows settlements does not use up the time that a completion
// has: the standby is told of it.
func TestFailoverOfASettlementThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		standby := dedup.NewMemory()
		f, g := newFailover(t, hanging(&hangs), standby, nil)
		hangs.Store(true)
		start := time.Now()
		if err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 4500*time.Millisecond || !f.Stats().Down {
			t.Errorf("took %v, down is %v", d, f.Stats().Down)
		}
		wantState(t, claim(t, newGuard(t, standby, nil), "a"), dedup.Done)
		hangs.Store(false)
	})
}

// In an outage the standby's claims end as the primary's would.
func TestFailoverSettlesTheStandbysClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		c := claim(t, r.guard, "a")
		wantState(t, c, dedup.Acquired)
		settle := func(s dedup.Settlement) {
			t.Helper()
			if err := r.guard.Settle(t.Context(), s); err != nil {
				t.Fatalf("%v: %v", s.Kind, err)
			}
		}
		settle(c.Extend(time.Hour))
		if got := claim(t, r.guard, "a"); got.State != dedup.InFlight || got.Left != time.Hour {
			t.Errorf("extended: %+v", got)
		}
		settle(c.Release())
		again := claim(t, r.guard, "a")
		if again.State != dedup.Acquired || again.Attempt != 2 || again.Token <= c.Token {
			t.Errorf("released: %+v", again)
		}
		settle(again.Hold())
		held := claim(t, r.guard, "a")
		if held.State != dedup.Unknown || held.Token != again.Token {
			t.Errorf("held: %+v", held)
		}
		settle(held.Complete([]byte("r")))
		settle(held.Complete([]byte("other"))) // sent again: the first result stays
		if got := claim(t, r.guard, "a"); got.State != dedup.Done || string(got.Result) != "r" {
			t.Errorf("completed: %+v", got)
		}
		if s := r.failover.Stats(); s.Running != 0 || s.Granted != 2 || s.Unwritten != 1 {
			t.Errorf("stats %+v", s)
		}
		r.recovered(t)
		if got := claim(t, newGuard(t, r.primary, nil), "a"); got.State != dedup.Done || string(got.Result) != "r" {
			t.Errorf("at the primary: %+v", got)
		}
	})
}

// A claim that was extended by its owner keeps that lease across the hand-back.
func TestFailoverKeepsAnExtendedLeaseAcrossTheHandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		c := claim(t, r.guard, "a")
		if err := r.guard.Settle(t.Context(), c.Extend(time.Hour)); err != nil {
			t.Fatal(err)
		}
		r.recovered(t)
		time.Sleep(50 * time.Minute)
		wantState(t, claim(t, r.guard, "a"), dedup.InFlight)
		if err := r.guard.Settle(t.Context(), c.Release()); err != nil {
			t.Fatal(err)
		}
		wantState(t, claim(t, r.guard, "a"), dedup.Acquired)
	})
}

// A release that the primary cannot be told is an error; its lease ends the
// matter.
func TestFailoverOfAReleaseDuringTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		err := r.guard.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			r.primaryDown(true)
			r.run(t, "other")
			return errEffect
		})
		wantErr(t, err, errEffect)
		wantErr(t, err, dedup.ErrUnavailable)
		wantErr(t, r.guard.Do(t.Context(), dedup.Request{ID: "a"}, nop), dedup.ErrInFlight)
		time.Sleep(30 * time.Second)
		if !r.run(t, "a") {
			t.Error("did not run after the lease")
		}
	})
}

// An effect that runs for longer than its lease goes on through an outage, and is
// recorded in the end.
func TestFailoverOfALongEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		long := newGuard(t, r.failover, &dedup.Options{Lease: 3 * time.Second})
		v, err := dedup.DoValue(t.Context(), long, dedup.Request{ID: "a"}, func(ctx context.Context) (int, error) {
			r.primaryDown(true)
			r.run(t, "other")
			for range 20 {
				time.Sleep(3 * time.Second)
				if err := context.Cause(ctx); err != nil {
					return 0, err
				}
				wantErr(t, r.guard.Do(ctx, dedup.Request{ID: "a"}, nop), dedup.ErrInFlight)
			}
			return 42, nil
		})
		if err != nil || v != 42 {
			t.Fatalf("got %d, %v", v, err)
		}
		if r.run(t, "a") {
			t.Error("ran again in the outage")
		}
		r.recovered(t)
		if c := claim(t, newGuard(t, r.primary, nil), "a"); c.State != dedup.Done || string(c.Result) != "42" {
			t.Errorf("at the primary: %+v", c)
		}
	})
}

// An owner that comes back after the standby granted its ID to the next one
// changes nothing, neither there nor at the primary.
func TestFailoverRefusesAStaleOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		g := newGuard(t, r.failover, &dedup.Options{Lease: time.Second, SettleTimeout: 50 * time.Millisecond})
		slow := claim(t, g, "a")
		wantState(t, slow, dedup.Acquired)
		r.primaryDown(true)
		time.Sleep(2 * time.Second)
		next := claim(t, g, "a")
		wantState(t, next, dedup.Acquired)
		if err := g.Settle(t.Context(), next.Complete([]byte("next"))); err != nil {
			t.Fatal(err)
		}
		wantErr(t, g.Settle(t.Context(), slow.Complete([]byte("slow"))), dedup.ErrStale)
		if c := claim(t, g, "a"); string(c.Result) != "next" {
			t.Errorf("in the outage the result is %q", c.Result)
		}
		r.recovered(t)
		if c := claim(t, newGuard(t, r.primary, nil), "a"); string(c.Result) != "next" {
			t.Errorf("at the primary the result is %q", c.Result)
		}
	})
}

// At the limit a completion that could not be handed back is refused, not
// forgotten.
func TestFailoverRefusesACompletionBeyondItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, &dedup.FailoverOptions{Limit: 1})
		err := r.guard.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			r.primaryDown(true)
			r.run(t, "other")
			return nil
		})
		wantErr(t, err, dedup.ErrUnavailable)
	})
}
