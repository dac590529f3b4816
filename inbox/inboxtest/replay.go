package inboxtest

import (
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// What a person sends back to work.
var replayCases = []testCase{
	{name: "ReplayedIsPending", run: replayedIsPending},
	{name: "ReplayedIsBehindAllOthers", run: replayedIsBehind},
	{name: "ReplayedIsDueAtOnce", run: replayedIsDue},
	{name: "ReplayDoesNotEndADelay", run: replayDoesNotEndADelay},
	{name: "ReplayOfAClaimedKeyWaits", run: replayOfClaimedWaits},
	{name: "ReplayedCountsAttemptsAnew", run: replayedCountsAnew},
	{name: "AnEndFromBeforeAReplayIsStale", run: endFromBefore},
	{name: "ReplayedKeepsItsFailures", run: replayedKeepsFailures},
	{name: "ReplayOfWhatHasNoStreamIsRefused", run: replayWithoutStream},
	{name: "ReplayedIsStillKnown", run: replayedIsKnown},
	{name: "ReplayedCountsItsAgeAnew", run: replayedAge},
	{name: "ReplayedIsNotForgotten", run: replayedIsNotForgotten},
}

func replayedIsPending(e *env) {
	for k := range ends {
		id := k.String()
		before := e.ended(k, id)
		e.tick()
		e.changed(change(inbox.ChangeReplay, id))
		r := e.wantState(id, inbox.StatePending, 0)
		if r.Seq <= before.Seq || !r.Received.Equal(before.Received) || string(r.Payload) != string(before.Payload) || r.Stream != stream {
			e.Fatalf("a replay made of %+v the record %+v", before, r)
		}
		if !r.Settled.IsZero() || !r.Expires.IsZero() || !r.Erases.IsZero() || !r.Next.IsZero() {
			e.Fatalf("a replayed record has the times %v, %v, %v, %v", r.Settled, r.Expires, r.Erases, r.Next)
		}
		if got := e.list(inbox.Query{ID: r.ID, After: before.Seq, N: 10}); len(got) != 1 || got[0].Seq != r.Seq {
			e.Fatalf("behind its old number a replayed record is listed as %+v", got)
		}
		e.wantTotals(1, 0, 0, 0, 0, 0)
		c := e.claim(id)
		e.wantRecords(c, id)
		e.applied(done(c, id), release(c))
		e.wantState(id, inbox.StateDone, 1)
		e.forget(r)
	}
}

func replayedIsBehind(e *env) {
	e.events("k", "a", "b", "c")
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "a"), begin(c, "b"), settlement(inbox.KindDead, c, "b"), release(c))
	e.changed(change(inbox.ChangeReplay, "b"))
	e.changed(change(inbox.ChangeReplay, "a"))
	e.events("k", "d")
	c = e.claim("k")
	e.wantRecords(c, "c", "b", "a", "d")
	if got := e.in(inbox.StatePending); !slices.Equal(got, []string{"c", "b", "a", "d"}) {
		e.Fatalf("pending are %q", got)
	}
	e.applied(done(c, "c"), begin(c, "b"), done(c, "b"), begin(c, "a"), done(c, "a"), begin(c, "d"), done(c, "d"), release(c))
	e.wantTotals(0, 4, 0, 0, 0, 0)
}

func replayedIsDue(e *env) {
	e.events("k", "a")
	e.applied(retry(e.claim("k"), "a", e.short)) // a delay that has nothing to do with the replay
	e.wait()
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "a"), release(c))
	e.nothing()
	e.changed(change(inbox.ChangeReplay, "a"))
	e.wantRecords(e.claim("k"), "a")
}

func replayDoesNotEndADelay(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "a"), begin(c, "b"), retry(c, "b", longLease))
	e.changed(change(inbox.ChangeReplay, "a"))
	e.nothing() // the key waits for b
}

func replayOfClaimedWaits(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "a"), begin(c, "b"))
	e.changed(change(inbox.ChangeReplay, "a")) // other records of a claimed key
	e.nothing()
	e.applied(done(c, "b"))
	e.nothing()
	e.wantState("a", inbox.StatePending, 0)
	e.applied(release(c))
	next := e.claim("k")
	e.wantRecords(next, "a")
	e.applied(settlement(inbox.KindDead, next, "a"))
	e.changed(change(inbox.ChangeReplay, "a")) // of a claimed key with nothing else
	e.nothing()
	e.applied(begin(next, "a")) // it is the first now, and its owner may go on
	e.applied(done(next, "a"), release(next))
	e.wantState("a", inbox.StateDone, 1)
	e.nothing()
}

func replayedCountsAnew(e *env) {
	e.events("k", "a")
	for range 3 {
		e.applied(retry(e.claim("k"), "a", 0))
	}
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "a"), release(c))
	e.wantState("a", inbox.StateDead, 4)
	e.changed(change(inbox.ChangeReplay, "a"))
	if got := e.claim("k").Records[0].Attempts; got != 1 {
		e.Fatalf("the first claim of a replayed record has %d attempts, want 1", got)
	}
}

func endFromBefore(e *env) {
	for k := range ends {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.applied(settlement(k, c, id), release(c))
		e.changed(change(inbox.ChangeReplay, id))
		e.stale(settlement(k, c, id)) // a late copy
		e.wantState(id, inbox.StatePending, 0)
		next := e.claim(id)
		e.stale(settlement(k, c, id), retry(c, id, 0), begin(c, id))
		e.wantState(id, inbox.StatePending, 1)
		e.applied(done(next, id), release(next))
	}
	e.wantTotals(0, len(ends), 0, 0, 0, 0)
}

func replayedKeepsFailures(e *env) {
	r := e.ended(inbox.KindDead, "a")
	if len(r.Failures) != 1 {
		e.Fatalf("a dead record has the failures %+v", r.Failures)
	}
	e.changed(change(inbox.ChangeReplay, "a"))
	c := e.claim("a")
	for _, r := range []inbox.Record{e.record("a"), c.Records[0]} {
		if r.LastError != "it failed" || len(r.Failures) != 1 || r.Failures[0].Error != "it failed" {
			e.Fatalf("a replayed record has the last error %q and the failures %+v", r.LastError, r.Failures)
		}
		if len(r.Actions) != 1 || r.Actions[0].Kind != inbox.ChangeReplay || r.Actions[0].Actor != "alice" {
			e.Fatalf("a replayed record has the actions %+v", r.Actions)
		}
	}
}

func replayWithoutStream(e *env) {
	e.answered(inbox.Quarantined, raw("raw"))
	e.refused(inbox.ErrState, change(inbox.ChangeReplay, "raw"))
	e.events("k", "a")
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.refused(inbox.ErrState, change(inbox.ChangeReplay, "a"), changeOne(inbox.ChangeReplay, e.get("a")[1]))
	e.changed(changeOne(inbox.ChangeResolve, e.get("a")[1]))
	e.refused(inbox.ErrState, changeOne(inbox.ChangeReplay, e.get("a")[1])) // though it is done now
	e.wantTotals(1, 1, 0, 1, 0, 0)
	c := e.claim("k")
	e.wantRecords(c, "a")
}

func replayedIsKnown(e *env) {
	e.ended(inbox.KindDone, "a")
	e.changed(change(inbox.ChangeReplay, "a"))
	e.answered(inbox.Duplicate, arrival("a", "a"))
	e.answered(inbox.Conflict, arrivalOf("a", "a", "other"))
	c := e.claim("a")
	e.wantRecords(c, "a")
	e.applied(done(c, "a"), release(c))
	e.answered(inbox.Duplicate, arrival("a", "a"))
}

func replayedAge(e *env) {
	e.ended(inbox.KindDead, "a")
	e.events("k", "b")
	e.sleep(e.short)
	e.changed(change(inbox.ChangeReplay, "a"))
	if t := e.wantTotals(2, 0, 0, 0, 0, 0); t.Oldest < e.short*9/10 {
		e.Fatalf("the oldest pending record is %v old, want %v", t.Oldest, e.short)
	}
	e.forget(e.record("b"))
	age, oldest := e.record("a").Age, e.wantTotals(1, 0, 0, 0, 0, 0).Oldest
	if e.virtual && (age >= e.short || oldest >= e.short) {
		e.Fatalf("a record replayed just now has the age %v, and the oldest is %v old", age, oldest)
	}
	e.sleep(e.short)
	age, oldest = e.record("a").Age, e.wantTotals(1, 0, 0, 0, 0, 0).Oldest
	if age < e.short*9/10 || oldest < e.short*9/10 || e.virtual && age >= 2*e.short {
		e.Fatalf("%v after its replay a record has the age %v, and the oldest is %v old", e.short, age, oldest)
	}
}

func replayedIsNotForgotten(e *env) {
	if _, ok := sweeper(e.store); !ok {
		return // it may forget what ended so briefly before it is changed
	}
	e.briefly()
	for k := range ends {
		e.ended(k, k.String())
	}
	for k := range ends {
		e.changed(change(inbox.ChangeReplay, k.String()))
	}
	e.wait()
	e.wantSwept(0)
	e.wantTotals(len(ends), 0, 0, 0, 0, 0)
	for k := range ends {
		if r := e.record(k.String()); len(r.Payload) == 0 || r.Form != 0 {
			e.Fatalf("a sweep made of a replayed record %+v", r)
		}
	}
	if got := len(e.claims()); got != len(ends) {
		e.Fatalf("%d of %d replayed records can be claimed", got, len(ends))
	}
}
