package deduptest

import (
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// What is forgotten, when, and what never is.
var expiryCases = []testCase{
	{name: "ForgottenAfterRetention", run: forgottenAfterRetention},
	{name: "NotForgottenBeforeRetention", run: notForgottenBeforeRetention},
	{name: "RetentionCountsFromCompletion", run: retentionCountsFromCompletion},
	{name: "RetentionIsThatOfTheLastChange", run: retentionIsThatOfTheLastChange},
	{name: "ExtensionIsAChange", run: extensionIsAChange},
	{name: "DuplicatesDoNotProlongTheRetention", run: duplicatesDoNotProlong},
	{name: "RepeatedSettlementDoesNotProlongTheRetention", run: repeatedSettlementDoesNotProlong, once: true},
	{name: "ForgottenRecordTakesItsFingerprintAlong", run: forgottenFingerprint},
	{name: "HeldNeverExpires", run: heldNeverExpires},
	{name: "ClaimedUnderHoldNeverExpires", run: claimedUnderHoldNeverExpires},
	{name: "HeldExpiresOnceItIsCompleted", run: heldExpiresOnceCompleted},
	{name: "ShortestRetentionIsARetention", run: shortestRetention, once: true},
	{name: "LongestRetentionIsARetention", run: longestRetention},
}

func forgottenAfterRetention(e *env) {
	done := e.acquire(e.p, "done")
	released := e.acquire(e.p, "released")
	doneUnderHold := e.acquire(e.hold, "done-under-hold")
	releasedUnderHold := e.acquire(e.hold, "released-under-hold")
	p := e.shortRetention(e.p)
	e.appliedUnder(p, done.Complete([]byte("r")), released.Release())
	p.OnLapse = dedup.Hold
	e.appliedUnder(p, doneUnderHold.Complete([]byte("r")), releasedUnderHold.Release())
	p = e.shortRetention(e.shortLease(e.p))
	e.wantAcquired(e.ask(p, newAsk("lapsed")), 1)
	e.wantAcquired(e.ask(firstSeenParams(p), newAsk("seen")), 1)
	e.sleep(3 * e.short) // a lapsed lease may be counted as the last change
	for _, id := range []string{"done", "released", "done-under-hold", "released-under-hold", "lapsed", "seen"} {
		c := e.wantAcquired(e.ask(e.p, newAsk(id)), 1)
		e.wantLeft(c, longLease, 0)
		e.want(e.probe(id), dedup.InFlight)
		e.applied(c.Complete([]byte("new")))
		e.wantDone(e.probe(id), []byte("new"))
	}
}

// notForgottenBeforeRetention waits longer than a lease, the usual way to
// mistake the one for the other, and with a virtual clock until just before the
// retention ends.
func notForgottenBeforeRetention(e *env) {
	check := func() {
		e.Helper()
		e.wantDone(e.probe("done"), []byte("r"))
		e.wantDone(e.probe("seen"), nil)
	}
	p := e.shortLease(e.p)
	e.appliedUnder(p, e.wantAcquired(e.ask(p, newAsk("done")), 1).Complete([]byte("r")))
	e.wantAcquired(e.ask(firstSeenParams(p), newAsk("seen")), 1)
	released := e.acquire(p, "released")
	e.appliedUnder(p, released.Release())
	e.wait()
	check()
	e.wantAcquired(e.ask(e.p, newAsk("released")), 2)
	if !e.virtual {
		return
	}
	late := e.acquire(p, "late")
	e.appliedUnder(p, late.Release())
	e.lapsed(p, "lapsed")
	e.sleep(longRetention - 5*e.short)
	check()
	e.wantAcquired(e.ask(e.p, newAsk("late")), 2)
	e.wantAcquired(e.ask(e.p, newAsk("lapsed")), 2)
	e.sleep(6 * e.short)
	e.wantAcquired(e.probe("done"), 1)
	e.wantAcquired(e.probe("seen"), 1)
}

func retentionCountsFromCompletion(e *env) {
	c := e.acquire(e.p, "long-work")
	if e.virtual { // the work takes longer than half the retention
		e.appliedUnder(e.p, c.Extend(2*longRetention))
		e.sleep(longRetention * 3 / 4)
		e.applied(c.Complete([]byte("r")))
		e.sleep(longRetention * 3 / 4)
		e.wantDone(e.probe("long-work"), []byte("r"))
		e.sleep(longRetention / 2)
		e.wantAcquired(e.probe("long-work"), 1)
		return
	}
	e.appliedUnder(e.shortRetention(e.p), c.Complete([]byte("r")))
	e.wait()
	e.wantAcquired(e.probe("long-work"), 1)
}

func retentionIsThatOfTheLastChange(e *env) {
	c := e.acquire(e.shortRetention(e.hold), "done") // claimed under Hold, it stays
	e.wait()
	e.appliedUnder(e.p, c.Complete([]byte("r")))
	e.wait()
	e.wantDone(e.probe("done"), []byte("r"))

	first := e.acquire(e.p, "released")
	e.applied(first.Release())
	e.wantAcquired(e.ask(e.shortRetention(firstSeenParams(e.p)), newAsk("released")), 2)
	e.wait()
	e.wantAcquired(e.probe("released"), 1)
}

// extensionIsAChange needs a virtual clock: on a real one it would wait for a
// retention that must not end early.
func extensionIsAChange(e *env) {
	if !e.virtual {
		return
	}
	c := e.acquire(e.p, "renewed")
	e.sleep(longRetention * 3 / 4)
	e.applied(c.Extend(longLease))
	e.sleep(longRetention * 3 / 4)
	e.wantAcquired(e.probe("renewed"), 2) // it lapsed, and is not forgotten
}

// duplicatesDoNotProlong asks again and again. If every duplicate renewed the
// retention, the record would never end.
func duplicatesDoNotProlong(e *env) {
	c := e.acquire(e.p, "asked-for")
	e.appliedUnder(e.shortRetention(e.p), c.Complete([]byte("r")))
	p := e.shortRetention(e.p)
	for range 50 {
		got := e.ask(p, newAsk("asked-for"))
		if got.State == dedup.Acquired {
			e.wantAcquired(got, 1)
			return
		}
		e.wantDone(got, []byte("r"))
		e.sleep(e.short / 4)
	}
	e.Fatalf("an ID that is asked for all the time is not forgotten after many times its retention")
}

func repeatedSettlementDoesNotProlong(e *env) {
	done := e.acquire(e.p, "done")
	released := e.acquire(e.p, "released")
	p := e.shortRetention(e.p)
	e.appliedUnder(p, done.Complete([]byte("r")), released.Release())
	for range 50 {
		errs := e.settle(p, done.Complete([]byte("again")), released.Release())
		if errs[0] != nil && errs[1] != nil { // both are gone
			break
		}
		e.sleep(e.short / 4)
	}
	e.wantAcquired(e.probe("done"), 1)
	e.wantAcquired(e.probe("released"), 1)
}

func forgottenFingerprint(e *env) {
	c := e.wantAcquired(e.ask(e.p, newAskAs("other-content", 1)), 1)
	e.appliedUnder(e.shortRetention(e.p), c.Complete([]byte("r")))
	e.wait()
	e.wantAcquired(e.ask(e.p, newAskAs("other-content", 2)), 1)
	e.want(e.ask(e.p, newAskAs("other-content", 1)), dedup.Conflict)
}

// heldNeverExpires uses retentions that end at once, and with a virtual clock
// waits for years.
func heldNeverExpires(e *env) {
	p := e.shortRetention(e.shortLease(e.hold))
	lapsed := e.acquire(p, "lapsed")
	put := e.acquire(e.p, "put-on-hold")
	e.appliedUnder(e.shortRetention(e.p), put.Hold())
	released := e.acquire(e.hold, "released-first")
	e.applied(released.Release())
	again := e.acquire(p, "released-first")
	e.wait()
	e.eternity()
	for _, c := range []dedup.Claim{lapsed, put, again} {
		e.wantUnknown(e.ask(e.shortRetention(e.p), newAsk(c.ID)), c)
	}
	e.eternity()
	for _, c := range []dedup.Claim{lapsed, put, again} {
		e.wantUnknown(e.probe(c.ID), c)
	}
	if held := e.held("", 10); len(held) != 3 {
		e.Fatalf("%d held claims are listed after a long time, want 3", len(held))
	}
	e.applied(lapsed.Complete([]byte("r")), put.Release())
	e.wantDone(e.probe("lapsed"), []byte("r"))
	e.wantAcquired(e.probe("put-on-hold"), 2)
}

// eternity moves a virtual clock by more than any retention.
func (e *env) eternity() {
	if e.virtual {
		e.sleep(365 * 24 * time.Hour)
	}
}

func claimedUnderHoldNeverExpires(e *env) {
	p := e.shortRetention(e.hold)
	c := e.acquire(p, "at-work") // the retention ends long before the lease
	extended := e.acquire(p, "extended")
	e.appliedUnder(p, extended.Extend(2*longLease))
	e.wait()
	e.want(e.probe("at-work"), dedup.InFlight)
	e.want(e.probe("extended"), dedup.InFlight)
	e.applied(c.Complete([]byte("r")), extended.Complete([]byte("r")))
	e.wantDone(e.probe("at-work"), []byte("r"))
}

func heldExpiresOnceCompleted(e *env) {
	put := e.acquire(e.hold, "put-on-hold")
	e.applied(put.Hold())
	lapsed := e.lapsed(e.hold, "lapsed")
	e.wantUnknown(e.probe("lapsed"), lapsed)
	e.appliedUnder(e.shortRetention(e.hold), put.Complete([]byte("r")), lapsed.Release())
	e.wait()
	e.wantAcquired(e.probe("put-on-hold"), 1)
	e.wantAcquired(e.probe("lapsed"), 1)
}

func shortestRetention(e *env) {
	p := e.p
	p.Retention = aMoment
	done := e.acquire(e.p, "done")
	e.appliedUnder(p, done.Complete([]byte("r")))
	e.wantAcquired(e.ask(firstSeenParams(p), newAsk("seen")), 1)
	p.OnLapse = dedup.Hold
	held := e.wantAcquired(e.ask(p, newAsk("held")), 1)
	e.appliedUnder(p, held.Hold())
	e.wait()
	e.wantAcquired(e.probe("done"), 1)
	e.wantAcquired(e.probe("seen"), 1)
	e.wantUnknown(e.probe("held"), held)
}

func longestRetention(e *env) {
	p := e.p
	p.Retention = dedup.MaxDuration
	c := e.acquire(p, "done")
	e.appliedUnder(p, c.Complete([]byte("r")))
	e.wantAcquired(e.ask(firstSeenParams(p), newAsk("seen")), 1)
	e.eternity()
	e.wantDone(e.probe("done"), []byte("r"))
	e.wantDone(e.probe("seen"), nil)
}
