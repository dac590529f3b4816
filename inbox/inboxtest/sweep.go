package inboxtest

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/inbox"
)

// What may be forgotten, and when. Stores that are no [inbox.Sweeper] forget by
// themselves; of them only that is tested which must not be forgotten.
var sweepCases = []testCase{
	{name: "PendingIsNeverForgotten", run: pendingIsNeverForgotten},
	{name: "NothingIsForgottenEarly", run: nothingIsForgottenEarly},
	{name: "DoneIsForgottenAfterRetention", run: doneIsForgotten},
	{name: "GivenUpIsForgottenAfterKeep", run: givenUpIsForgotten},
	{name: "ForgottenEventIsNew", run: forgottenIsNew},
	{name: "RetentionCountsFromTheEnd", run: retentionCountsFromTheEnd},
	{name: "EventStaysWhileAStreamIsPending", run: eventStays},
	{name: "SweepGoesOnWhereItStopped", run: sweepGoesOn},
	{name: "SweepForgetsKeysAndTokensRise", run: sweepForgetsKeys},
	{name: "SweepOfNothingIsRefused", run: sweepOfNothing},
}

// sweep removes all that can be removed and returns how many it were. It says
// whether the store can be told to.
func (e *env) sweep() (removed int, ok bool) {
	e.Helper()
	s, ok := sweeper(e.store)
	if !ok {
		return 0, false
	}
	for range 2 { // the first may begin in the middle
		n, err := s.Sweep(context.Background(), 10_000)
		if err != nil {
			e.Fatalf("Sweep: %v", err)
		}
		removed += n
	}
	return removed, true
}

func sweeper(s inbox.Store) (inbox.Sweeper, bool) {
	if twice, ok := s.(*twiceStore); ok {
		s = twice.Store
	}
	sw, ok := s.(inbox.Sweeper)
	return sw, ok
}

// wantSwept sweeps and checks how many records were removed.
func (e *env) wantSwept(n int) {
	e.Helper()
	if removed, ok := e.sweep(); ok && removed != n {
		e.Fatalf("a sweep removed %d records, want %d", removed, n)
	}
}

// briefly makes what ends from now on expire soon.
func (e *env) briefly() { e.p.Retention, e.p.Keep = e.short, e.short }

func pendingIsNeverForgotten(e *env) {
	e.briefly()
	e.events("waiting", "a")
	e.events("claimed", "b")
	e.events("lapsed", "c")
	e.events("failed", "d")
	for _, c := range e.claims() {
		switch c.Key {
		case "waiting":
			e.applied(release(c))
		case "lapsed":
			s := settlement(inbox.KindExtend, c, "")
			s.Lease = e.short
			e.applied(s)
		case "failed":
			e.applied(retry(c, "d", 0))
		}
	}
	for range 3 {
		e.wait()
		e.wantSwept(0)
	}
	e.wantTotals(4, 0, 0, 0, 0, 0)
	if got := len(e.claims()); got != 3 {
		e.Fatalf("%d keys can be claimed, want 3", got)
	}
}

func nothingIsForgottenEarly(e *env) {
	e.settleOneOfEach()
	e.wait()
	e.wantSwept(0)
	e.wantTotals(0, 1, 1, 2, 1, 1)
	e.answered(inbox.Duplicate, arrival("done", "done"))
	e.answered(inbox.Conflict, arrivalOf("done", "done", "other"))
	e.answered(inbox.Quarantined, raw("raw"))
}

// settleOneOfEach ends one record in each way there is.
func (e *env) settleOneOfEach() {
	e.Helper()
	for k := range ends {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.applied(settlement(k, c, id), release(c))
	}
	e.answered(inbox.Quarantined, raw("raw"))
	e.answered(inbox.Conflict, arrivalOf("done", "done", "other"))
}

func doneIsForgotten(e *env) {
	e.p.Retention = e.short
	e.settleOneOfEach()
	e.wait()
	if _, ok := e.sweep(); ok {
		e.wantTotals(0, 0, 1, 2, 1, 1)
		e.answered(inbox.Duplicate, arrival("done", "done")) // its conflict is still kept
	}
}

func givenUpIsForgotten(e *env) {
	e.briefly()
	e.settleOneOfEach()
	e.wait()
	if removed, ok := e.sweep(); ok {
		if removed != 5 {
			e.Fatalf("a sweep removed %d records, want 5", removed)
		}
		e.wantTotals(0, 0, 0, 0, 0, 1) // an unknown outcome waits for a person
	}
}

func forgottenIsNew(e *env) {
	e.briefly()
	e.settleOneOfEach()
	e.wait()
	if _, ok := e.sweep(); !ok {
		return
	}
	if got := len(e.get("done")); got != 0 {
		e.Fatalf("a forgotten event has %d records", got)
	}
	e.events("done", "done")
	if got := e.claim("done").Records[0].Attempts; got != 1 {
		e.Fatalf("a forgotten event that came again has %d attempts, want 1", got)
	}
	e.answered(inbox.Quarantined, raw("raw"))
}

func retentionCountsFromTheEnd(e *env) {
	e.events("k", "a")
	e.wait()
	e.p.Retention = e.short
	if !e.virtual {
		e.p.Retention = longRetention
	}
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.wantSwept(0)
	e.wantState("a", inbox.StateDone, 1)
}

func eventStays(e *env) {
	e.briefly()
	a := arrival("a", "k")
	a.Streams = []string{stream, "slow"}
	e.accepted(a)
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.wait()
	e.sweep()
	e.answered(inbox.Duplicate, a)
	ask := newAsk()
	ask.Stream = "slow"
	if got := len(e.ask(ask).Claims); got != 1 {
		e.Fatalf("%d keys can be claimed in the other stream, want 1", got)
	}
}

func sweepGoesOn(e *env) {
	s, ok := sweeper(e.store)
	if !ok {
		return
	}
	e.briefly()
	const n = 30
	for i := range n {
		id := fmt.Sprintf("event-%02d", i)
		e.events(id, id)
	}
	for i, c := range e.claims() {
		if i%3 == 0 {
			e.p.Retention = longRetention
		} else {
			e.p.Retention = e.short
		}
		e.applied(done(c, c.Key), release(c))
	}
	e.wait()
	removed := 0
	for range 2 * n { // round and round
		got, err := s.Sweep(context.Background(), 2)
		if err != nil || got > 2 {
			e.Fatalf("Sweep of 2 records removed %d and returned %v", got, err)
		}
		removed += got
	}
	if removed != n*2/3 {
		e.Fatalf("sweeps of 2 records removed %d, want %d", removed, n*2/3)
	}
	e.wantTotals(0, n/3, 0, 0, 0, 0)
}

func sweepForgetsKeys(e *env) {
	e.briefly()
	e.events("k", "a")
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.wait()
	e.sweep()
	e.stale(begin(c, "a"), settlement(inbox.KindExtend, c, ""))
	e.events("k", "b")
	if next := e.claim("k"); next.Token <= c.Token {
		e.Fatalf("after the key was forgotten its owner has token %d, want more than %d", next.Token, c.Token)
	}
}

func sweepOfNothing(e *env) {
	s, ok := sweeper(e.store)
	if !ok {
		return
	}
	for _, n := range []int{0, -1} {
		if _, err := s.Sweep(context.Background(), n); err == nil {
			e.Fatalf("Sweep of %d records returned no error", n)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Sweep(ctx, 1); err == nil {
		e.Fatal("Sweep with a context that has ended returned no error")
	}
}
