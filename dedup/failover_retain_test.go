package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

const day = 24 * time.Hour

// wantRetained asks a store, without the failover, when the guard's retention of eight
// days is long over.
func wantRetained(t *testing.T, s dedup.Store, id string) {
	t.Helper()
	wantState(t, claim(t, newGuard(t, s, nil), id), dedup.Done)
}

func TestFailoverRetainsInBothStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.run(t, "retained")
		r.run(t, "not")
		synctest.Wait() // mirrored
		if err := r.guard.Retain(t.Context(), 30*day, "retained", "never seen"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * day)
		for _, store := range []dedup.Store{r.primary, r.standby} {
			wantRetained(t, store, "retained")
			wantState(t, claim(t, newGuard(t, store, nil), "not"), dedup.Acquired)
			wantState(t, claim(t, newGuard(t, store, nil), "never seen"), dedup.Acquired)
		}
	})
}

// What the standby is still to be told, it is told to retain.
func TestFailoverRetainsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.standby.set(func(f *flaky) { f.claimBefore = 1 })
		r.run(t, "a")
		synctest.Wait()
		if s := r.failover.Stats(); s.Waiting != 1 {
			t.Fatalf("stats %+v", s)
		}
		if err := r.guard.Retain(t.Context(), 30*day, "a"); err != nil {
			t.Fatal(err)
		}
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * day)
		wantRetained(t, r.primary, "a")
		wantRetained(t, r.standby, "a")
	})
}

// A primary that is down is not asked, and the error says that it was not told. What
// it is told afterwards, it retains.
func TestFailoverRetainDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		asked := 0
		counting := &patched{Store: r.primary, settle: func(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
			for i := range s {
				if s[i].Kind == dedup.KindRetain {
					asked++
				}
			}
			return r.primary.Settle(ctx, p, s)
		}}
		r.failover, r.guard = newFailover(t, counting, r.standby, nil)
		r.run(t, "before")
		synctest.Wait()
		r.primaryDown(true)
		r.run(t, "during")
		wantErr(t, r.guard.Retain(t.Context(), 30*day, "before", "during"), dedup.ErrUnavailable)
		if asked != 0 {
			t.Errorf("the primary was asked to retain %d times while it was down", asked)
		}
		r.recovered(t)
		if s := r.failover.Stats(); s.Unwritten != 0 {
			t.Fatalf("stats %+v", s)
		}
		time.Sleep(20 * day)
		wantRetained(t, r.standby, "before")
		wantRetained(t, r.standby, "during")
		wantRetained(t, r.primary, "during")
		wantState(t, claim(t, newGuard(t, r.primary, nil), "before"), dedup.Acquired) // as the error said
	})
}

// A standby that fails fails the call, and the primary retains all the same.
func TestFailoverRetainWithoutTheStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.run(t, "a")
		synctest.Wait()
		r.standby.set(func(f *flaky) { f.down = true })
		wantErr(t, r.guard.Retain(t.Context(), 30*day, "a"), dedup.ErrUnavailable)
		time.Sleep(20 * day)
		wantRetained(t, r.primary, "a")
	})
}

// Retain waits for what is being told, and what is told meanwhile is retained.
func TestFailoverRetainsWhatIsBeingMirrored(t *testing.T) {
	standby, primary := newGated(), dedup.NewMemory()
	standby.shut.Store(true)
	_, g := newFailover(t, primary, standby, nil)
	if err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
		t.Fatal(err)
	}
	<-standby.entered
	retained := make(chan error, 1)
	go func() { retained <- g.Retain(t.Context(), 30*day, "a") }()
	select {
	case err := <-retained:
		t.Errorf("Retain returned %v while its ID was being told", err)
		retained <- err
	case <-time.After(50 * time.Millisecond):
	}
	standby.shut.Store(false)
	close(standby.gate)
	if err := <-retained; err != nil {
		t.Fatal(err)
	}
	wantState(t, claim(t, newGuard(t, standby, nil), "a"), dedup.Done)
}
