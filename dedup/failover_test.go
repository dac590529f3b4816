package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A failoverRig is a guard over a failover whose primary can be taken down.
type failoverRig struct {
	primary, standby *flaky
	failover         *dedup.Failover
	guard            *dedup.Guard
	transitions      []bool
}

func newFailoverRig(t *testing.T, opts *dedup.FailoverOptions) *failoverRig {
	t.Helper()
	r := &failoverRig{primary: &flaky{Store: dedup.NewMemory()}, standby: &flaky{Store: dedup.NewMemory()}}
	if opts == nil {
		opts = &dedup.FailoverOptions{}
	}
	opts.OnTransition = func(down bool, cause error) {
		if down != (cause != nil) {
			t.Errorf("transition to down=%v with cause %v", down, cause)
		}
		r.transitions = append(r.transitions, down)
	}
	var err error
	if r.failover, err = dedup.NewFailover(r.primary, r.standby, opts); err != nil {
		t.Fatal(err)
	}
	r.guard = newGuard(t, r.failover, nil)
	return r
}

func (r *failoverRig) primaryDown(down bool) { r.primary.set(func(f *flaky) { f.down = down }) }

// recovered lets the primary answer, and the failover notice.
func (r *failoverRig) recovered(t *testing.T) {
	t.Helper()
	r.primaryDown(false)
	time.Sleep(2 * time.Second)
	_, _ = r.guard.Claim(t.Context(), dedup.Request{ID: fmt.Sprint("occasion-", time.Now().UnixNano())})
	synctest.Wait()
	if s := r.failover.Stats(); s.Down {
		t.Fatalf("still on the standby: %+v", s)
	}
}

func (r *failoverRig) run(t *testing.T, id string) (ran bool) {
	t.Helper()
	err := r.guard.Do(t.Context(), dedup.Request{ID: id}, func(context.Context) error { ran = true; return nil })
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	return ran
}

func TestFailoverRefusesDuplicatesDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		if !r.run(t, "before") {
			t.Fatal("the effect did not run")
		}
		synctest.Wait() // mirrored
		r.primaryDown(true)
		if r.run(t, "before") {
			t.Error("a duplicate of a mirrored completion ran")
		}
		if !r.run(t, "during") || r.run(t, "during") {
			t.Error("an outage's message did not run exactly once")
		}
		v, err := dedup.DoValue(t.Context(), r.guard, dedup.Request{ID: "value"}, func(context.Context) (int, error) { return 42, nil })
		if err != nil || v != 42 {
			t.Errorf("got %d, %v", v, err)
		}
		if first, err := r.guard.FirstSeen(t.Context(), "seen"); err != nil || !first[0] {
			t.Errorf("FirstSeen: %v, %v", first, err)
		}
		r.recovered(t)
		if got := fmt.Sprint(r.transitions); got != "[true false]" {
			t.Errorf("transitions %v", got)
		}

		// The primary knows all of it, asked without the failover.
		direct := newGuard(t, r.primary, nil)
		for _, id := range []string{"before", "during", "value", "seen"} {
			wantState(t, claim(t, direct, id), dedup.Done)
		}
		if c := claim(t, direct, "value"); string(c.Result) != "42" {
			t.Errorf("the result came back as %q", c.Result)
		}
		if s := r.failover.Stats(); s.Failovers != 1 || s.HandBacks != 1 || s.Mirrored != 1 || s.Unwritten != 0 || s.Twice != 0 || s.WrittenBack != 3 {
			t.Errorf("stats %+v", s)
		}
	})
}

// One lost answer is no outage.
func TestFailoverSurvivesOneLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primary.set(func(f *flaky) { f.claimAfter = 1 })
		if !r.run(t, "a") {
			t.Error("did not run")
		}
		if len(r.transitions) != 0 {
			t.Error("switched")
		}
	})
}

func TestFailoverOfRunningEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		// Granted by the primary, completed while it is down.
		err := r.guard.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			r.primaryDown(true)
			wantErr(t, r.guard.Do(t.Context(), dedup.Request{ID: "a"}, nop), dedup.ErrInFlight)
			return nil
		})
		if err != nil {
			t.Fatalf("the completion is lost: %v", err)
		}
		if r.run(t, "a") {
			t.Error("ran again during the outage")
		}
		// Granted by the standby, completed when the primary is back.
		err = r.guard.Do(t.Context(), dedup.Request{ID: "b"}, func(context.Context) error {
			r.recovered(t)
			wantErr(t, r.guard.Do(t.Context(), dedup.Request{ID: "b"}, nop), dedup.ErrInFlight)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.run(t, "a") || r.run(t, "b") {
			t.Error("ran again after the outage")
		}
		time.Sleep(2 * time.Second)
		claim(t, r.guard, "occasion")
		synctest.Wait()
		direct := newGuard(t, r.primary, nil)
		wantState(t, claim(t, direct, "a"), dedup.Done)
		wantState(t, claim(t, direct, "b"), dedup.Done)
	})
}

func TestFailoverFailsClosedUnderHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		money := newGuard(t, r.failover, &dedup.Options{Scope: "money", OnLapse: dedup.Hold})
		r.primaryDown(true)
		r.run(t, "other") // the standby is in charge
		err := money.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { t.Error("ran"); return nil })
		wantErr(t, err, dedup.ErrUnavailable)
		_, err = money.Held(t.Context(), "", 10)
		wantErr(t, err, dedup.ErrUnavailable)
		wantErr(t, r.guard.Forget(t.Context(), "other"), dedup.ErrUnavailable)
	})
}

// A process that the primary granted the same ID meanwhile: counted when it is
// met.
func TestFailoverCountsWhatRanTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.primaryDown(true)
		r.run(t, "a")
		r.primaryDown(false)
		elsewhere := newGuard(t, r.primary, nil) // saw no outage
		if err := elsewhere.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
			t.Fatal(err)
		}
		r.recovered(t)
		if s := r.failover.Stats(); s.Twice != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestFailoverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, &dedup.FailoverOptions{Limit: 2})
		r.primaryDown(true)
		r.run(t, "a")
		r.run(t, "b")
		err := r.guard.Do(t.Context(), dedup.Request{ID: "c"}, nop)
		if !errors.Is(err, dedup.ErrFull) {
			t.Errorf("a claim that could not be handed back: %v", err)
		}
		if r.run(t, "a") {
			t.Error("ran again")
		}
		r.recovered(t)
		if !r.run(t, "c") {
			t.Error("refused after the hand-back")
		}
	})
}

func TestFailoverForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFailoverRig(t, nil)
		r.run(t, "a")
		synctest.Wait()
		if err := r.guard.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wantState(t, claim(t, newGuard(t, r.standby, nil), "a"), dedup.Acquired)
		wantState(t, claim(t, newGuard(t, r.primary, nil), "a"), dedup.Acquired)
	})
}

func TestNewFailoverRefuses(t *testing.T) {
	m := dedup.NewMemory()
	for _, err := range []error{
		second(dedup.NewFailover(nil, m, nil)),
		second(dedup.NewFailover(m, nil, nil)),
		second(dedup.NewFailover(m, m, &dedup.FailoverOptions{Limit: -1})),
		second(dedup.NewFailover(m, m, &dedup.FailoverOptions{RetryEvery: -1})),
	} {
		wantErr(t, err, dedup.ErrInvalid)
	}
}

func second(_ *dedup.Failover, err error) error { return err }
