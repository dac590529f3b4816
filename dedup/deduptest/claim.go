package deduptest

import (
	"github.com/pawl-go/pawl/dedup"
)

// What one ask after another is answered.
var claimCases = []testCase{
	{name: "FirstAskIsAcquired", run: firstAskIsAcquired},
	{name: "RepeatedAskGetsSameAnswer", run: repeatedAskGetsSameAnswer, once: true},
	{name: "AnotherAskIsInFlight", run: anotherAskIsInFlight},
	{name: "LeftCountsDown", run: leftCountsDown},
	{name: "CompletedIsDoneWithResult", run: completedIsDoneWithResult},
	{name: "OwnersAskAfterCompletionIsDone", run: ownersAskAfterCompletionIsDone},
	{name: "HeldIsUnknownWithToken", run: heldIsUnknownWithToken},
	{name: "ReleasedIsAcquiredAgain", run: releasedIsAcquiredAgain},
	{name: "ReleaseKeepsTheRecord", run: releaseKeepsTheRecord},
	{name: "LateCopyOfSpentAskChangesNothing", run: lateCopyOfSpentAskChangesNothing},
	{name: "AttemptCountsOwnersNotDuplicates", run: attemptCountsOwners},
	{name: "AgeOfDoneCountsFromCompletion", run: ageOfDone},
	{name: "AgeOfInFlightCountsFromGrant", run: ageOfInFlight},
	{name: "AgeOfUnknownCountsFromGrant", run: ageOfUnknown},
}

func firstAskIsAcquired(e *env) {
	c := e.wantAcquired(e.ask(e.p, newAsk("first")), 1)
	e.wantLeft(c, longLease, 0)
	h := e.wantAcquired(e.ask(e.hold, newAsk("first-under-hold")), 1)
	e.wantLeft(h, longLease, 0)
}

func repeatedAskGetsSameAnswer(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		a := newAskAs("again-under-"+p.OnLapse.String(), 1)
		first := e.wantAcquired(e.ask(p, a), 1)
		e.wantSame(e.ask(p, a), first)
		e.want(e.probe(a.ID), dedup.InFlight)
		again := e.ask(p, a) // a rival in between makes no difference
		e.wantSame(again, first)
		e.wantLeft(again, longLease, 0)
		e.applied(first.Complete([]byte("r")))
		e.wantDone(e.probe(a.ID), []byte("r"))
	}
}

func anotherAskIsInFlight(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		c := e.acquire(p, "busy-under-"+p.OnLapse.String())
		for range 3 {
			other := e.want(e.probe(c.ID), dedup.InFlight)
			e.wantLeft(other, longLease, 0)
		}
		e.applied(c.Complete(nil)) // the rivals took nothing from the owner
	}
}

func leftCountsDown(e *env) {
	a := newAsk("down")
	e.wantAcquired(e.ask(e.p, a), 1)
	e.sleep(e.short)
	e.wantLeft(e.want(e.probe("down"), dedup.InFlight), longLease, e.short)
	e.wantLeft(e.wantAcquired(e.ask(e.p, a), 1), longLease, e.short)
}

func completedIsDoneWithResult(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		c := e.acquire(p, "done-under-"+p.OnLapse.String())
		e.applied(c.Complete([]byte("result")))
		e.wantDone(e.probe(c.ID), []byte("result"))
		e.wantDone(e.ask(p, newAsk(c.ID)), []byte("result"))
	}
}

func ownersAskAfterCompletionIsDone(e *env) {
	a := newAsk("mine")
	c := e.wantAcquired(e.ask(e.p, a), 1)
	e.applied(c.Complete([]byte("result")))
	e.wantDone(e.ask(e.p, a), []byte("result"))
}

func heldIsUnknownWithToken(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		a := newAsk("held-under-" + p.OnLapse.String())
		c := e.wantAcquired(e.ask(p, a), 1)
		e.applied(c.Hold())
		e.wantUnknown(e.ask(p, newAsk(a.ID)), c)
		e.wantUnknown(e.ask(p, a), c) // for its owner as for anybody
		u := e.ask(e.p, newAsk(a.ID))
		e.wantUnknown(u, c)
		e.applied(u.Complete([]byte("found out"))) // the token that came with it ends it
		e.wantDone(e.probe(a.ID), []byte("found out"))
	}
}

func releasedIsAcquiredAgain(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		c := e.acquire(p, "released-under-"+p.OnLapse.String())
		e.applied(c.Release())
		next := e.wantAcquired(e.ask(p, newAsk(c.ID)), 2)
		e.wantLeft(next, longLease, 0)
		e.want(e.probe(c.ID), dedup.InFlight)
		e.applied(next.Complete([]byte("second")))
		e.wantDone(e.probe(c.ID), []byte("second"))
	}
}

func releaseKeepsTheRecord(e *env) {
	c := e.wantAcquired(e.ask(e.p, newAskAs("kept", 1)), 1)
	e.applied(c.Release())
	e.want(e.ask(e.p, newAskAs("kept", 2)), dedup.Conflict) // its fingerprint is kept,
	next := e.wantAcquired(e.ask(e.p, newAskAs("kept", 1)), 2)
	if next.Token <= c.Token { // and its token, even if the clock stood still.
		e.Fatalf("the second owner got token %d, want more than the first's, %d", next.Token, c.Token)
	}
}

func lateCopyOfSpentAskChangesNothing(e *env) {
	a := newAsk("spent")
	c := e.wantAcquired(e.ask(e.p, a), 1)
	e.applied(c.Release())
	for range 2 {
		late := e.want(e.ask(e.p, a), dedup.InFlight)
		if late.Left != 0 {
			e.Fatalf("a late copy of a spent ask answered that %v are left, want 0", late.Left)
		}
	}
	next := e.acquire(e.p, "spent")
	e.wantAcquired(next, 2) // the copies were not owners
	e.want(e.ask(e.p, a), dedup.InFlight)
	e.applied(next.Complete([]byte("r")))
	e.wantDone(e.ask(e.p, a), []byte("r"))
}

func attemptCountsOwners(e *env) {
	var last dedup.Claim
	for attempt := 1; attempt <= 5; attempt++ {
		a := newAsk("counted")
		c := e.wantAcquired(e.ask(e.p, a), attempt)
		e.wantAcquired(e.ask(e.p, a), attempt)
		for range 3 {
			e.want(e.probe("counted"), dedup.InFlight)
		}
		if c.Token <= last.Token {
			e.Fatalf("attempt %d got token %d, want more than %d", attempt, c.Token, last.Token)
		}
		e.applied(c.Release())
		last = c
	}
}

func ageOfDone(e *env) {
	c := e.acquire(e.p, "aged")
	e.sleep(e.short)
	e.applied(c.Complete([]byte("r")))
	if e.virtual {
		e.wantAge(e.want(e.probe("aged"), dedup.Done), 0)
	}
	e.sleep(e.short)
	e.wantAge(e.want(e.probe("aged"), dedup.Done), e.short)
}

func ageOfInFlight(e *env) {
	c := e.acquire(e.p, "aged")
	e.sleep(e.short)
	e.applied(c.Extend(longLease)) // a renewal is not a new grant
	e.sleep(e.short)
	e.wantAge(e.want(e.probe("aged"), dedup.InFlight), 2*e.short)
}

func ageOfUnknown(e *env) {
	c := e.acquire(e.p, "put-on-hold")
	e.sleep(e.short)
	e.applied(c.Hold())
	e.wantAge(e.want(e.probe(c.ID), dedup.Unknown), e.short)
	l := e.lapsed(e.hold, "lapsed")
	e.wantAge(e.want(e.probe(l.ID), dedup.Unknown), 2*e.short)
}
