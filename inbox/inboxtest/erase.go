package inboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// What a person takes out of a record.
var redactCases = []testCase{
	{name: "RedactedHasNoBody", run: redactedHasNoBody},
	{name: "RedactedKeepsTheRest", run: redactedKeepsTheRest},
	{name: "RedactedIsNotReplayed", run: redactedIsNotReplayed},
	{name: "RedactedIsStillKnown", run: redactedIsKnown},
	{name: "RedactedEndsAsBefore", run: redactedEndsAsBefore},
}

// What a person removes altogether.
// full makes an arrival with everything that is redacted.
func full(id string) inbox.Arrival {
	a := arrival(id, id)
	a.Context, a.Trace, a.Form = []byte("context"), "trace", inbox.FormSealed|inbox.FormOutside
	a.Account, a.Phone, a.Version = "account", "phone", "v1"
	return a
}

func redactedHasNoBody(e *env) {
	for k, s := range ends {
		id := k.String()
		e.accepted(full(id))
		e.applied(retry(e.claim(id), id, 0))
		c := e.claim(id)
		e.applied(settlement(k, c, id), release(c))
		before := e.record(id)
		e.tick()
		e.changed(change(inbox.ChangeRedact, id))
		e.wantRedacted(before, e.wantState(id, s, 2), 1)
	}
	e.answered(inbox.Quarantined, raw("raw"))
	e.answered(inbox.Conflict, arrivalOf("raw", "raw", "other"))
	e.tick()
	before := e.get("raw")
	e.changed(change(inbox.ChangeRedact, "raw"))
	for i, r := range e.get("raw") {
		e.wantRedacted(before[i], r, 1)
	}
}

// wantRedacted checks that nothing is left of a body, and that so many persons
// have done something.
func (e *env) wantRedacted(before, r inbox.Record, actions int) {
	e.Helper()
	if len(r.Payload) > 0 || len(r.Context) > 0 || r.LastError != "" || len(r.Failures) > 0 || r.Trace != "" {
		e.Fatalf("a redacted record is %+v", r)
	}
	if r.Form != inbox.FormRedacted || !r.Deleted.After(before.Settled) || len(r.Actions) != actions {
		e.Fatalf("a redacted record has the form %d, was deleted at %v (it ended at %v) and has the actions %+v",
			r.Form, r.Deleted, before.Settled, r.Actions)
	}
	if r.State != before.State || r.Seq != before.Seq || !r.Settled.Equal(before.Settled) || !r.Expires.Equal(before.Expires) {
		e.Fatalf("the redaction made of %+v the record %+v", before, r)
	}
}

func redactedKeepsTheRest(e *env) {
	e.accepted(full("a"))
	c := e.claim("a")
	e.applied(settlement(inbox.KindDead, c, "a"), release(c))
	before := e.record("a")
	if !before.Deleted.IsZero() {
		e.Fatalf("a record that was not redacted was deleted at %v", before.Deleted)
	}
	e.changed(change(inbox.ChangeRedact, "a"))
	r := e.record("a")
	if r.Provider != "p" || r.Type != "t" || r.Version != "v1" || r.Key != "a" || r.Account != "account" || r.Phone != "phone" ||
		r.MessageID != before.MessageID || r.ExternalID != before.ExternalID || r.Attempts != 1 || !r.Received.Equal(before.Received) {
		e.Fatalf("the redaction made of %+v the record %+v", before, r)
	}
	if got := idsOf(e.list(inbox.Query{MessageID: before.MessageID, N: 10})); !slices.Equal(got, []string{"a"}) {
		e.Fatalf("a redacted record is found as %q", got)
	}
}

func redactedIsNotReplayed(e *env) {
	e.ended(inbox.KindDead, "a")
	e.changed(change(inbox.ChangeRedact, "a"))
	e.refused(inbox.ErrState, change(inbox.ChangeReplay, "a"), changeOne(inbox.ChangeReplay, e.record("a")))
	e.nothing()
	e.changed(change(inbox.ChangeResolve, "a"))
	e.refused(inbox.ErrState, change(inbox.ChangeReplay, "a"))
	e.wantTotals(0, 1, 0, 0, 0, 0)
}

func redactedIsKnown(e *env) {
	e.ended(inbox.KindDone, "a")
	e.answered(inbox.Conflict, arrivalOf("a", "a", "other"))
	e.changed(change(inbox.ChangeRedact, "a"))
	e.answered(inbox.Duplicate, arrival("a", "a"))
	e.answered(inbox.Conflict, arrivalOf("a", "a", "other"))
	e.wantTotals(0, 1, 0, 0, 1, 0)
	e.nothing()
}

func redactedEndsAsBefore(e *env) {
	if _, ok := sweeper(e.store); !ok {
		return // it may forget what ended so briefly before it is changed
	}
	e.briefly()
	for k := range ends {
		e.ended(k, k.String())
		e.changed(change(inbox.ChangeRedact, k.String()))
	}
	e.wait()
	e.wantSwept(len(ends) - 1)
	e.wantTotals(0, 0, 0, 0, 0, 1) // an unknown outcome waits for a person
}

// settleOfForgotten: what is settled with the number of a forgotten record does not
// touch the record that its event has now.
// When bodies go, and when keys do.
var eraseCases = []testCase{
	{name: "BodiesAreKeptSoLong", run: bodiesAreKept},
	{name: "SweepRedactsWithoutAnAction", run: sweepRedacts},
	{name: "SweepRedactsNothingEarly", run: sweepRedactsNothingEarly},
	{name: "BodyOutsideStaysUntilItIsRedacted", run: outsideStays},
	{name: "UnknownIsNeverForgotten", run: unknownIsNeverForgotten},
	{name: "LapsedKeyWithNothingPendingIsForgotten", run: lapsedEmptyKey},
	{name: "ClaimedKeyWithNothingPendingStays", run: claimedEmptyKey},
}

func bodiesAreKept(e *env) {
	check := func(r inbox.Record, bodies time.Duration) {
		e.Helper()
		if got := r.Erases.Sub(r.Settled); got != bodies || r.Erases.After(r.Expires) {
			e.Fatalf("the body of the %v record %q may be redacted after %v, want %v; it expires at %v", r.State, r.ID, got, bodies, r.Expires)
		}
	}
	check(e.ended(inbox.KindDone, "without"), longRetention)
	e.p.Bodies = time.Hour
	check(e.ended(inbox.KindDone, "done"), time.Hour)
	check(e.ended(inbox.KindDead, "dead"), longKeep) // it is for what is done alone
	e.changed(change(inbox.ChangeResolve, "dead"))
	check(e.record("dead"), time.Hour)
	e.answered(inbox.Quarantined, raw("raw"))
	check(e.record("raw"), longKeep)
	e.answered(inbox.Conflict, arrivalOf("done", "done", "other"))
	check(e.get("done")[1], longKeep)
}

func sweepRedacts(e *env) {
	e.p.Bodies = e.short
	for _, id := range []string{"a", "b"} {
		a := full(id)
		a.Form = inbox.FormSealed
		e.accepted(a)
		e.applied(retry(e.claim(id), id, 0))
		c := e.claim(id)
		e.applied(done(c, id), release(c))
	}
	e.changed(change(inbox.ChangeRedact, "b"))
	before, byHand := e.record("a"), e.record("b")
	e.wait()
	if removed, ok := e.sweep(); !ok {
		return
	} else if removed != 0 {
		e.Fatalf("a sweep removed %d records whose bodies are to be redacted", removed)
	}
	after := e.wantState("a", inbox.StateDone, 2)
	e.wantRedacted(before, after, 0)
	if !e.record("b").Deleted.Equal(byHand.Deleted) {
		e.Fatalf("a sweep redacted %+v once more: %+v", byHand, e.record("b"))
	}
	e.sweep()
	if !e.record("a").Deleted.Equal(after.Deleted) {
		e.Fatalf("another sweep redacted %+v once more: %+v", after, e.record("a"))
	}
	e.answered(inbox.Duplicate, arrival("a", "a"))
	e.refused(inbox.ErrState, change(inbox.ChangeReplay, "a"))
}

func sweepRedactsNothingEarly(e *env) {
	e.p.Bodies = longLease
	for k := range ends {
		e.ended(k, k.String())
	}
	e.events("k", "pending")
	e.wait()
	e.wantSwept(0)
	for _, id := range []string{"pending", "done", "dead", "quarantine", "unknown"} {
		if r := e.record(id); r.Form != 0 || len(r.Payload) == 0 || !r.Deleted.IsZero() {
			e.Fatalf("a sweep made of a body to keep %+v", r)
		}
	}
}

func outsideStays(e *env) {
	e.briefly()
	e.p.Bodies = e.short
	ids := []string{"done", "dead", "quarantine"}
	for _, id := range ids {
		a := arrival(id, id)
		a.Form = inbox.FormOutside
		e.accepted(a)
	}
	rawOne := raw("raw")
	rawOne.Form = inbox.FormOutside | inbox.FormSealed
	e.answered(inbox.Quarantined, rawOne)
	for k := range ends {
		if k != inbox.KindUnknown {
			c := e.claimOf(k.String())
			e.applied(settlement(k, c, c.Key), release(c))
		}
	}
	for range 2 {
		e.wait()
		e.wantSwept(0)
	}
	e.wantTotals(0, 1, 1, 2, 0, 0)
	for _, id := range append(ids, "raw") {
		if r := e.record(id); r.Form&inbox.FormOutside == 0 || len(r.Payload) == 0 || !r.Deleted.IsZero() {
			e.Fatalf("a sweep made of a body that is kept outside %+v", r)
		}
		e.changed(change(inbox.ChangeRedact, id))
	}
	e.wantSwept(len(ids) + 1)
}

// claimOf claims one key of several that are due.
func (e *env) claimOf(key string) inbox.Claim {
	e.Helper()
	var found inbox.Claim
	for _, c := range e.claims() {
		if c.Key == key {
			found = c
		} else {
			e.applied(release(c))
		}
	}
	if found.Key == "" {
		e.Fatalf("the key %q is not due", key)
	}
	return found
}

func unknownIsNeverForgotten(e *env) {
	e.briefly()
	e.p.Bodies = e.short
	e.ended(inbox.KindUnknown, "a")
	for range 3 {
		e.wait()
		e.wantSwept(0)
	}
	r := e.wantState("a", inbox.StateUnknown, 1)
	if len(r.Payload) == 0 || r.LastError != "it failed" {
		e.Fatalf("sweeps made of an unknown record %+v", r)
	}
	e.answered(inbox.Duplicate, arrival("a", "a"))
	e.changed(change(inbox.ChangeResolve, "a"))
	e.wait()
	if removed, ok := e.sweep(); ok && removed != 1 {
		e.Fatalf("a sweep removed %d records, want the one that was resolved", removed)
	}
}

func lapsedEmptyKey(e *env) {
	e.briefly()
	for i := range 3 {
		key := fmt.Sprint("k", i)
		e.events(key, key)
		c := e.claimFor(key, e.short)
		e.applied(done(c, key)) // and its owner dies
		e.wait()
		if _, ok := e.sweep(); !ok {
			return
		}
		e.stale(settlement(inbox.KindExtend, c, ""), release(c)) // the key is gone
		e.events(key, "next to "+key)
		e.stale(settlement(inbox.KindExtend, c, ""), begin(c, "next to "+key))
		next := e.claim(key)
		if next.Token <= c.Token {
			e.Fatalf("after the key was forgotten its owner has token %d, want more than %d", next.Token, c.Token)
		}
		for _, k := range allKinds {
			e.stale(settlement(k, c, "next to "+key))
		}
		e.applied(done(next, "next to "+key), release(next))
	}
}

func claimedEmptyKey(e *env) {
	e.p.Retention = e.short
	e.events("claimed", "a")
	claimed := e.claim("claimed")
	e.applied(done(claimed, "a"))
	e.p.Retention = longRetention
	e.events("lapsed", "b")
	lapsed := e.claimFor("lapsed", e.short)
	e.applied(done(lapsed, "b"))
	e.events("forgotten", "c")
	forgotten := e.claimFor("forgotten", e.short)
	e.forget(e.record("c"))
	e.wait()
	e.sweep()
	for _, c := range []inbox.Claim{claimed, lapsed, forgotten} { // the lease runs, or the retention does
		e.applied(settlement(inbox.KindExtend, c, ""))
		e.applied(release(c))
	}
}
