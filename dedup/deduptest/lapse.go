package deduptest

import (
	"github.com/pawl-go/pawl/dedup"
)

// What becomes of a claim whose lease ran out.
var lapseCases = []testCase{
	{name: "LapsedUnderRerunIsAcquiredByTheNext", run: lapsedUnderRerun},
	{name: "LapsedUnderHoldIsUnknown", run: lapsedUnderHold},
	{name: "PolicyIsTheOwnersNotTheAskers", run: policyIsTheOwners},
	{name: "NextOwnerBringsItsOwnPolicy", run: nextOwnerBringsItsOwnPolicy},
	{name: "OwnAskAfterLapseIsTheNextAttempt", run: ownAskAfterLapse, once: true},
	{name: "LateOwnerOfALapsedClaimMayComplete", run: lateOwnerMayComplete},
	{name: "LateOwnerOfALapsedClaimMayRelease", run: lateOwnerMayRelease},
	{name: "LateOwnerOfALapsedHoldMayComplete", run: lateOwnerOfLapsedHoldMayComplete},
	{name: "ExtendMovesTheEndOfTheLease", run: extendMovesTheEnd},
	{name: "ExtendMayShortenTheLease", run: extendMayShorten},
	{name: "ExtendAfterLapseRevives", run: extendAfterLapseRevives},
	{name: "ExtendOfAHeldClaimIsStale", run: extendOfAHeldClaim},
	{name: "LeaseDoesNotEndEarly", run: leaseDoesNotEndEarly},
	{name: "ShortestLeaseIsALease", run: shortestLease, once: true},
	{name: "LongestLeaseIsALease", run: longestLease},
}

func lapsedUnderRerun(e *env) {
	first := e.lapsed(e.p, "lapsed")
	second := e.wantAcquired(e.ask(e.p, newAsk("lapsed")), 2)
	if second.Token <= first.Token {
		e.Fatalf("the second owner got token %d, want more than the first's, %d", second.Token, first.Token)
	}
	e.wantLeft(second, longLease, 0)
	e.want(e.probe("lapsed"), dedup.InFlight)
	e.applied(second.Complete([]byte("r")))
	e.wantDone(e.probe("lapsed"), []byte("r"))
}

func lapsedUnderHold(e *env) {
	a := newAsk("lapsed")
	c := e.wantAcquired(e.ask(e.shortLease(e.hold), a), 1)
	e.wait()
	for range 3 {
		e.wantUnknown(e.ask(e.hold, newAsk("lapsed")), c)
	}
	e.wantUnknown(e.ask(e.hold, a), c) // its owner is not sure of it either
	e.applied(c.Release())
	e.wantAcquired(e.ask(e.hold, newAsk("lapsed")), 2)
}

func policyIsTheOwners(e *env) {
	h := e.acquire(e.shortLease(e.hold), "held")
	e.acquire(e.shortLease(e.p), "rerun")
	e.wait()
	e.wantUnknown(e.ask(e.p, newAsk("held")), h)
	e.wantAcquired(e.ask(e.hold, newAsk("rerun")), 2)
}

func nextOwnerBringsItsOwnPolicy(e *env) {
	rerun := e.acquire(e.p, "rerun-then-hold")
	hold := e.acquire(e.hold, "hold-then-rerun")
	e.applied(rerun.Release(), hold.Release())
	second := e.wantAcquired(e.ask(e.shortLease(e.hold), newAsk("rerun-then-hold")), 2)
	e.wantAcquired(e.ask(e.shortLease(e.p), newAsk("hold-then-rerun")), 2)
	e.wait()
	e.wantUnknown(e.ask(e.p, newAsk("rerun-then-hold")), second)
	e.wantAcquired(e.ask(e.hold, newAsk("hold-then-rerun")), 3)
}

func ownAskAfterLapse(e *env) {
	a := newAsk("mine")
	first := e.wantAcquired(e.ask(e.shortLease(e.p), a), 1)
	e.wait()
	second := e.wantAcquired(e.ask(e.p, a), 2) // nobody knows whether the first ran
	e.stale(first.Complete(nil))
	e.applied(second.Complete(nil))
}

func lateOwnerMayComplete(e *env) {
	c := e.lapsed(e.p, "late")
	e.applied(c.Complete([]byte("late, but before anybody else")))
	e.wantDone(e.probe("late"), []byte("late, but before anybody else"))
}

func lateOwnerMayRelease(e *env) {
	c := e.lapsed(e.p, "late")
	e.applied(c.Release())
	e.wantAcquired(e.probe("late"), 2)
}

func lateOwnerOfLapsedHoldMayComplete(e *env) {
	c := e.lapsed(e.hold, "late")
	e.wantUnknown(e.probe("late"), c)
	e.applied(c.Complete([]byte("late")))
	e.wantDone(e.probe("late"), []byte("late"))
	if held := e.held("", 10); len(held) != 0 {
		e.Fatalf("the completed ID %q is still listed as held", held[0].ID)
	}
}

func extendMovesTheEnd(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		c := e.acquire(p, "extended-under-"+p.OnLapse.String())
		e.applied(c.Extend(2 * longLease))
		other := e.want(e.probe(c.ID), dedup.InFlight)
		if other.Left <= longLease {
			e.Fatalf("after an extension to %v, %v of the lease are left", 2*longLease, other.Left)
		}
		e.sleep(e.short)
		e.applied(c.Extend(longLease)) // from now, not from the old end
		e.wantLeft(e.want(e.probe(c.ID), dedup.InFlight), longLease, 0)
	}
}

func extendMayShorten(e *env) {
	rerun := e.acquire(e.p, "rerun")
	hold := e.acquire(e.hold, "hold")
	e.applied(rerun.Extend(aMoment), hold.Extend(aMoment))
	e.wait()
	e.wantAcquired(e.probe("rerun"), 2)
	e.wantUnknown(e.probe("hold"), hold)
}

func extendAfterLapseRevives(e *env) {
	a := newAsk("hold")
	rerun := e.acquire(e.shortLease(e.p), "rerun")
	hold := e.wantAcquired(e.ask(e.shortLease(e.hold), a), 1)
	e.wait()
	e.wantUnknown(e.probe("hold"), hold)
	e.applied(rerun.Extend(longLease), hold.Extend(longLease))
	for _, c := range []dedup.Claim{rerun, hold} {
		e.wantLeft(e.want(e.probe(c.ID), dedup.InFlight), longLease, 0)
	}
	if held := e.held("", 10); len(held) != 0 {
		e.Fatalf("the revived claim of %q is still listed as held", held[0].ID)
	}
	e.wantSame(e.ask(e.hold, a), hold)
	e.applied(rerun.Complete(nil), hold.Complete(nil))
}

func extendOfAHeldClaim(e *env) {
	c := e.acquire(e.hold, "held")
	e.applied(c.Hold())
	e.stale(c.Extend(longLease))
	e.wantUnknown(e.probe("held"), c)
	if held := e.held("", 10); len(held) != 1 {
		e.Fatalf("%d claims are held after a refused extension, want 1", len(held))
	}
}

func leaseDoesNotEndEarly(e *env) {
	rerun := e.acquire(e.p, "rerun")
	hold := e.acquire(e.hold, "hold")
	e.wait()
	e.want(e.probe("rerun"), dedup.InFlight)
	e.want(e.probe("hold"), dedup.InFlight)
	if !e.virtual {
		return
	}
	e.sleep(longLease - 2*e.short - slack) // until just before the end,
	e.want(e.probe("rerun"), dedup.InFlight)
	e.want(e.probe("hold"), dedup.InFlight)
	e.sleep(2 * slack) // and past it
	e.wantAcquired(e.probe("rerun"), 2)
	e.wantUnknown(e.probe("hold"), hold)
	e.stale(rerun.Complete(nil))
}

func shortestLease(e *env) {
	p := e.p
	p.Lease = aMoment
	e.wantAcquired(e.ask(p, newAsk("rerun")), 1)
	p.OnLapse = dedup.Hold
	h := e.wantAcquired(e.ask(p, newAsk("hold")), 1)
	e.wait()
	e.wantAcquired(e.probe("rerun"), 2)
	e.wantUnknown(e.probe("hold"), h)
}

func longestLease(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		p.Lease, p.Retention = dedup.MaxDuration, dedup.MaxDuration
		id := "longest-under-" + p.OnLapse.String()
		a := newAsk(id)
		c := e.wantAcquired(e.ask(p, a), 1)
		e.wantLeft(c, dedup.MaxDuration, 0)
		e.wantLeft(e.want(e.probe(id), dedup.InFlight), dedup.MaxDuration, 0)
		e.appliedUnder(p, c.Extend(dedup.MaxDuration))
		e.wantLeft(e.want(e.ask(p, a), dedup.Acquired), dedup.MaxDuration, 0)
		e.appliedUnder(p, c.Complete([]byte("r")))
		e.wantDone(e.probe(id), []byte("r"))
	}
}
