package dedup_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// An ID that was forgotten is told to no store afterwards: Forget waits for what
// is being told.

// A gated store holds claims up while it is shut, and says so.
type gated struct {
	*dedup.Memory
	shut    atomic.Bool
	entered chan struct{}
	gate    chan struct{}
}

func newGated() *gated {
	return &gated{Memory: dedup.NewMemory(), entered: make(chan struct{}, 10), gate: make(chan struct{})}
}

func (s *gated) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	if s.shut.Load() {
		s.entered <- struct{}{}
		<-s.gate
	}
	return s.Memory.Claim(ctx, p, asks)
}

// forgetWhile forgets an ID while the store is being told, and opens the store
// when Forget has been seen to wait. Another HandBack, which has seen the ID, waits
// behind it.
func forgetWhile(t *testing.T, f *dedup.Failover, g *dedup.Guard, store *gated, id string) {
	t.Helper()
	<-store.entered
	forgotten := make(chan error, 1)
	go func() { forgotten <- g.Forget(t.Context(), id) }()
	select {
	case err := <-forgotten:
		t.Errorf("Forget returned %v while its ID was being told", err)
		forgotten <- err
	case <-time.After(50 * time.Millisecond):
	}
	handedBack := make(chan error, 1)
	go func() { handedBack <- f.HandBack(t.Context()) }()
	time.Sleep(20 * time.Millisecond) // lets it get there; the test holds if it does not
	store.shut.Store(false)
	close(store.gate)
	if err := <-handedBack; err != nil {
		t.Error(err)
	}
	if err := <-forgotten; err != nil {
		t.Fatal(err)
	}
}

func TestFailoverForgetsWhatIsBeingMirrored(t *testing.T) {
	standby, primary := newGated(), dedup.NewMemory()
	standby.shut.Store(true)
	f, g := newFailover(t, primary, standby, nil)
	for _, id := range []string{"a", "b"} {
		if err := g.Do(t.Context(), dedup.Request{ID: id}, nop); err != nil {
			t.Fatal(err)
		}
	}
	forgetWhile(t, f, g, standby, "a")
	if err := f.HandBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantState(t, claim(t, newGuard(t, standby, nil), "a"), dedup.Acquired)
	wantState(t, claim(t, newGuard(t, standby, nil), "b"), dedup.Done)
	wantState(t, claim(t, newGuard(t, primary, nil), "a"), dedup.Acquired)
}

func TestFailoverForgetsWhatIsBeingWrittenBack(t *testing.T) {
	primary := newGated()
	outage := &flaky{Store: primary, down: true}
	f, g := newFailover(t, outage, dedup.NewMemory(), nil)
	for _, id := range []string{"a", "b"} {
		if err := g.Do(t.Context(), dedup.Request{ID: id}, nop); err != nil {
			t.Fatal(err)
		}
	}
	outage.set(func(f *flaky) { f.down = false })
	primary.shut.Store(true)
	handedBack := make(chan error, 1)
	go func() { handedBack <- f.HandBack(t.Context()) }()
	forgetWhile(t, f, g, primary, "a")
	if err := <-handedBack; err != nil {
		t.Error(err)
	}
	wantState(t, claim(t, newGuard(t, primary, nil), "a"), dedup.Acquired)
	wantState(t, claim(t, newGuard(t, primary, nil), "b"), dedup.Done)
}

// What still waits to be mirrored is not told either.
func TestFailoverForgetsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.standby.set(func(f *flaky) { f.claimBefore = 1 })
		r.run(t, "a")
		synctest.Wait()
		if err := r.guard.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Error(err)
		}
		wantState(t, claim(t, newGuard(t, r.standby, nil), "a"), dedup.Acquired)
	})
}

// When the primary is down it is erased at the standby and here, and the error
// says that the primary has it still.
func TestFailoverForgetDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		r.run(t, "a")
		wantErr(t, r.guard.Forget(t.Context(), "a"), dedup.ErrUnavailable)
		if s := r.failover.Stats(); s.Unwritten != 0 {
			t.Errorf("stats %+v", s)
		}
		wantState(t, claim(t, newGuard(t, r.standby, nil), "a"), dedup.Acquired)
	})
}

// The owner of an ID that was forgotten is stale, wherever its claim came from.
func TestFailoverForgetsARunningEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		c := claim(t, r.guard, "a")
		if err := r.guard.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.guard.Settle(t.Context(), c.Complete(nil)), dedup.ErrStale)
		wantState(t, claim(t, r.guard, "a"), dedup.Acquired)
		if s := r.failover.Stats(); s.Unwritten != 0 || s.Waiting != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}
