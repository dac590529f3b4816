package ordertest

import (
	"context"

	"github.com/pawl-go/pawl/order"
)

// What is forgotten, and what is not.
var sweepCases = []testCase{
	{name: "SweepForgetsBodies", run: sweepBodies},
	{name: "SweepForgetsResolvedGaps", run: sweepGaps},
	{name: "SweepKeepsTheRange", run: sweepRange},
	{name: "NothingIsForgottenEarly", run: sweepEarly},
	{name: "SweepLeavesTheWindow", run: sweepWindow},
	{name: "SweepLeavesWhatWaits", run: sweepWaits},
	{name: "SweepIsBounded", run: sweepBounded},
}

// sweep forgets all that can be forgotten. It ends the subtest when the store
// forgets by itself only.
func (e *env) sweep() (forgotten int) {
	e.Helper()
	s, ok := e.watched.Store.(order.Sweeper)
	if !ok {
		e.Skip("the store is no Sweeper: what it forgets by itself is not looked at")
	}
	for range 3 { // two rounds look at everything, wherever the first began
		n, err := s.Sweep(context.Background(), e.p, 10_000)
		if err != nil {
			e.Fatalf("Sweep: %v", err)
		}
		forgotten += n
	}
	return forgotten
}

func sweepBodies(e *env) {
	e.p.KeepBody = e.short
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.fill("k", 2, 10*window)
	e.wait()
	e.sweep()
	if f := e.findPlace(order.Place{ID: "id"}); f.State != order.StateUnknown || f.Message != nil {
		e.Fatalf("a message is found by its ID after KeepBody and beyond the window: %+v", f)
	}
	e.answered(order.Duplicate, withID("k", 1, 1, "id", "body"))
	a := e.push(assigned("other", "id"))[0]
	if a.State != order.Buffered {
		e.Fatalf("an ID that is forgotten was answered %s, want buffered", arrivedName(a.State))
	}
}

func sweepGaps(e *env) {
	e.p.KeepGaps = e.short
	e.skipped("k", 3)
	e.wait()
	e.sweep()
	e.wantGap("k", 1, 3, false) // not resolved, so not forgotten
	e.applied(resolve("k", 1, 3, order.ResolutionIgnore))
	e.wait()
	e.sweep()
	if gaps := e.allGaps("k"); len(gaps) != 0 {
		e.Fatalf("a record is listed after KeepGaps: %+v", gaps)
	}
}

func sweepRange(e *env) {
	e.p.KeepGaps = e.short
	e.skipped("k", 3)
	e.applied(resolve("k", 1, 3, order.ResolutionLost))
	e.wait()
	e.sweep()
	e.wantState("k", order.StateSkipped, 1, 2)
	if f := e.find("k", 1, 1); f.Gap != nil {
		e.Fatalf("Find returns a record that is forgotten: %+v", f.Gap)
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Skipped: 2})
	e.answered(order.Late, at("k", 1, 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Skipped: 1, Late: 1})
}

func sweepEarly(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.fill("k", 2, 10*window)
	e.skipped("gap", 3)
	e.applied(resolve("gap", 1, 3, order.ResolutionLost))
	e.wait()
	if n := e.sweep(); n > 10*window {
		e.Fatalf("a sweep forgot %d", n)
	}
	if f := e.findPlace(order.Place{ID: "id"}); f.Message == nil || string(f.Message.Payload) != "body" {
		e.Fatalf("a message with an ID was forgotten before KeepBody: %+v", f)
	}
	e.wantGap("gap", 1, 3, false)
}

func sweepWindow(e *env) {
	e.p.KeepBody = 0
	for n := uint64(1); n <= window; n++ {
		e.answered(order.Buffered, withID("k", 1, n, "", "body"))
	}
	e.answered(order.Buffered, withID("k", 1, window+1, "id", "body"))
	c := e.claim("k")
	e.applied(deliver(c, window+2), release(c))
	e.wait()
	e.sweep()
	if a := e.answered(order.Duplicate, withID("k", 1, window+1, "id", "body")); a.Unverified {
		e.Fatal("a message within the window is no longer remembered after a sweep")
	}
	e.answered(order.Conflict, withID("k", 1, window, "", "other"))
	e.wantState("k", order.StateDelivered, window, window+1)
}

func sweepWaits(e *env) {
	e.p.KeepBody, e.p.KeepGaps = 0, 0
	e.skipped("late", 3)
	e.answered(order.Late, withID("late", 1, 2, "late", "late"))
	e.parkKeyWithID("parked", "parked")
	e.answered(order.Buffered, withID("waits", 1, 1, "waits", "waits"))
	e.wait()
	e.sweep()
	for _, id := range []string{"late", "parked", "waits"} {
		if f := e.findPlace(order.Place{ID: id}); f.Message == nil || string(f.Message.Payload) != id {
			e.Fatalf("a message that waits was forgotten: %+v", f)
		}
	}
	e.wantGap("late", 1, 3, false)
	if t := e.totals(); t.LateWaiting != 1 || t.Buffered != 1 || t.Parked != 1 {
		e.Fatalf("the totals after a sweep are %+v", t)
	}
}

func (e *env) parkKeyWithID(key, id string) {
	e.Helper()
	e.answered(order.Buffered, withID(key, 1, 1, id, id))
	for _, c := range e.claims() {
		if c.Key == key {
			e.applied(park(c, 1))
		} else {
			e.applied(release(c))
		}
	}
}

func sweepBounded(e *env) {
	s, ok := e.watched.Store.(order.Sweeper)
	if !ok {
		e.Skip("the store is no Sweeper")
	}
	e.p.KeepGaps = e.short
	for n := uint64(2); n <= 20; n += 2 {
		e.buffered("k", n)
		e.applied(resolve("k", n-1, n, order.ResolutionLost))
		e.deliverAll("k", n)
	}
	e.wait()
	left := len(e.allGaps("k"))
	for range 40 {
		n, err := s.Sweep(context.Background(), e.p, 3)
		if err != nil || n > 3 {
			e.Fatalf("a sweep of 3 forgot %d (%v)", n, err)
		}
		now := len(e.allGaps("k"))
		if now < left-3 {
			e.Fatalf("a sweep of 3 forgot %d records", left-now)
		}
		left = now
	}
	if left != 0 {
		e.Fatalf("after 40 sweeps of 3, %d of 10 records are left", left)
	}
}
