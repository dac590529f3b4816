package dedup_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// What a failover tells its stores behind its callers.

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("id-", i)
	}
	return all
}

// Run writes back although nobody calls; without it, what is due waits for a
// call.
func TestFailoverRunWritesBackWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		r.run(t, "a")
		r.primaryDown(false)
		time.Sleep(24 * time.Hour)
		if s := r.failover.Stats(); !s.Down || s.Unwritten != 1 {
			t.Errorf("without Run and without a call: %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.failover.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(2 * time.Second)
		if s := r.failover.Stats(); s.Down || s.Unwritten != 0 || s.WrittenBack != 1 {
			t.Errorf("with Run: %+v", s)
		}
		wantState(t, claim(t, newGuard(t, r.primary, nil), "a"), dedup.Done)

		// It also mirrors what the standby did not take at first.
		r.standby.set(func(f *flaky) { f.down = true })
		r.run(t, "b")
		time.Sleep(10 * time.Second)
		r.standby.set(func(f *flaky) { f.down = false })
		time.Sleep(3 * time.Second)
		wantState(t, claim(t, newGuard(t, r.standby, nil), "b"), dedup.Done)
		cancel()
		wg.Wait()
	})
}

// HandBack, before a planned end: it tells everything at once, or says what is
// left.
func TestFailoverHandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		if _, err := r.guard.FirstSeen(t.Context(), ids(1200)...); err != nil {
			t.Fatal(err)
		}
		err := r.failover.HandBack(t.Context())
		wantErr(t, err, dedup.ErrUnavailable)
		if !strings.Contains(err.Error(), "1200 completions are not written back and 0 not mirrored") {
			t.Errorf("the error does not say what is left: %v", err)
		}
		r.primaryDown(false)
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Error(err)
		}
		if s := r.failover.Stats(); s.Down || s.Unwritten != 0 || s.WrittenBack != 1200 {
			t.Errorf("stats %+v", s)
		}
		wantState(t, claim(t, newGuard(t, r.primary, nil), "id-1199"), dedup.Done)
	})
}

// The standby is told as much.
func TestFailoverHandBackMirrorsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.standby.set(func(f *flaky) { f.claimBefore = 1 })
		if _, err := r.guard.FirstSeen(t.Context(), ids(1200)...); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := r.failover.Stats(); s.Waiting != 1200 {
			t.Fatalf("stats %+v", s)
		}
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Error(err)
		}
		if s := r.failover.Stats(); s.Waiting != 0 || s.Mirrored != 1200 {
			t.Errorf("stats %+v", s)
		}
		r.standby.set(func(f *flaky) { f.down = true })
		r.run(t, "one more")
		wantErr(t, r.failover.HandBack(t.Context()), dedup.ErrUnavailable)
	})
}

// A hand-back that the primary breaks off goes on later. Until it has ended the
// standby is in charge.
func TestFailoverHandBackThatBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		var down atomic.Bool
		var told atomic.Int32
		primary := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
			if down.Load() || told.Add(1) == 2 {
				return nil, errLost
			}
			return m.Claim(ctx, p, asks)
		}}
		f, g := newFailover(t, primary, dedup.NewMemory(), nil)
		down.Store(true)
		all := ids(1200)
		if _, err := g.FirstSeen(t.Context(), all...); err != nil {
			t.Fatal(err)
		}
		down.Store(false)
		wantErr(t, f.HandBack(t.Context()), dedup.ErrUnavailable)
		if s := f.Stats(); !s.Down || s.WrittenBack != 500 || s.Unwritten != 700 || s.HandBacks != 0 {
			t.Errorf("after the first try: %+v", s)
		}
		first, err := g.FirstSeen(t.Context(), all...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range first {
			if first[i] {
				t.Fatalf("%s is new between two tries", all[i])
			}
		}
		time.Sleep(2 * time.Second)
		claim(t, g, "occasion")
		synctest.Wait()
		if s := f.Stats(); s.Down || s.WrittenBack != 1200 || s.Unwritten != 0 || s.HandBacks != 1 || s.Twice != 0 {
			t.Errorf("after the second: %+v", s)
		}
		direct := newGuard(t, m, nil)
		first, err = direct.FirstSeen(t.Context(), all...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range first {
			if first[i] {
				t.Fatalf("%s is unknown to the primary", all[i])
			}
		}
	})
}

// Completions that meet an owner at the primary wait for its end; the primary is
// trusted meanwhile, and duplicates are refused.
func TestFailoverHandBackMeetsAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		r.run(t, "a")
		r.primaryDown(false)
		owner := claim(t, newGuard(t, r.primary, nil), "a") // of a process that saw no outage
		wantState(t, owner, dedup.Acquired)
		r.recovered(t)
		if s := r.failover.Stats(); s.Unwritten != 1 {
			t.Errorf("stats %+v", s)
		}
		if r.run(t, "a") {
			t.Error("ran again")
		}
		time.Sleep(30 * time.Second) // the owner vanished
		claim(t, r.guard, "occasion")
		synctest.Wait()
		if s := r.failover.Stats(); s.Unwritten != 0 || s.WrittenBack != 1 {
			t.Errorf("stats %+v", s)
		}
		wantState(t, claim(t, newGuard(t, r.primary, nil), "a"), dedup.Done)
	})
}

// An ID that was held by hand is known to the primary alone. It may run in an
// outage, and the primary then learns what happened.
func TestFailoverSettlesWhatThePrimaryHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		c := claim(t, r.guard, "a")
		if err := r.guard.Settle(t.Context(), c.Hold()); err != nil {
			t.Fatal(err)
		}
		r.primaryDown(true)
		if !r.run(t, "a") {
			t.Error("the standby knows what was held at the primary")
		}
		r.recovered(t)
		if s := r.failover.Stats(); s.WrittenBack != 1 || s.Unwritten != 0 {
			t.Errorf("stats %+v", s)
		}
		wantState(t, claim(t, newGuard(t, r.primary, nil), "a"), dedup.Done)
	})
}

// What runs at the hand-back is refused in this process. Another one may run it:
// that is counted when its completion is written back.
func TestFailoverCountsWhatRanAcrossTheHandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		err := r.guard.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			r.recovered(t)
			wantErr(t, r.guard.Do(t.Context(), dedup.Request{ID: "a"}, nop), dedup.ErrInFlight)
			return newGuard(t, r.primary, nil).Do(t.Context(), dedup.Request{ID: "a"}, nop)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Error(err)
		}
		if s := r.failover.Stats(); s.Twice != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Another message under an outage's ID is refused during the outage and after it.
func TestFailoverKeepsFingerprints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		one := dedup.Request{ID: "a", Fingerprint: dedup.Fingerprint([]byte("1"))}
		two := dedup.Request{ID: "a", Fingerprint: dedup.Fingerprint([]byte("2"))}
		r.primaryDown(true)
		if err := r.guard.Do(t.Context(), one, nop); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.guard.Do(t.Context(), two, nop), dedup.ErrConflict)
		r.recovered(t)
		wantErr(t, r.guard.Do(t.Context(), two, nop), dedup.ErrConflict)

		// A conflict that only the hand-back meets is counted.
		r.primaryDown(true)
		one.ID, two.ID = "b", "b"
		if err := r.guard.Do(t.Context(), one, nop); err != nil {
			t.Fatal(err)
		}
		r.primaryDown(false)
		if err := newGuard(t, r.primary, nil).Do(t.Context(), two, nop); err != nil {
			t.Fatal(err)
		}
		r.recovered(t)
		if s := r.failover.Stats(); s.Conflicts != 1 || s.Unwritten != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A completion that the standby could not be told is answered from this process.
func TestFailoverRemembersWhatItCouldNotMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.standby.set(func(f *flaky) { f.claimBefore = 1 })
		r.run(t, "a")
		synctest.Wait()
		r.primaryDown(true)
		if r.run(t, "a") {
			t.Errorf("ran again: %+v", r.failover.Stats())
		}
	})
}

// What waits to be mirrored is bounded, and what finds no room is counted.
func TestFailoverMirrorsWithinItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, &dedup.FailoverOptions{Limit: 2})
		r.standby.set(func(f *flaky) { f.down = true })
		for _, id := range []string{"a", "b", "c"} {
			r.run(t, id)
			synctest.Wait()
		}
		if s := r.failover.Stats(); s.Waiting != 2 || s.Unmirrored != 1 || s.Mirrored != 0 {
			t.Errorf("stats %+v", s)
		}
		r.standby.set(func(f *flaky) { f.down = false })
		if err := r.failover.HandBack(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		r.run(t, "d")
		synctest.Wait()
		if s := r.failover.Stats(); s.Waiting != 0 || s.Unmirrored != 1 || s.Mirrored != 3 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A standby that hangs does not keep the primary from being used again.
func TestFailoverHandsBackBesideAStandbyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		standby := &patched{Store: dedup.NewMemory(), claim: func(ctx context.Context, _ dedup.Params, _ []dedup.Ask) ([]dedup.Claim, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		primary := &flaky{Store: dedup.NewMemory()}
		f, g := newFailover(t, primary, standby, nil)
		if _, err := g.FirstSeen(t.Context(), ids(5000)...); err != nil {
			t.Fatal(err)
		}
		ask := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = g.FirstSeen(ctx, "x")
		}
		primary.set(func(f *flaky) { f.down = true })
		ask()
		if !f.Stats().Down {
			t.Fatal("not on the standby")
		}
		primary.set(func(f *flaky) { f.down = false })
		start := time.Now()
		for f.Stats().Down && time.Since(start) < 10*time.Minute {
			time.Sleep(time.Second)
			ask()
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("the primary was used again %v after it was back", d)
		}
		time.Sleep(time.Minute)
	})
}
