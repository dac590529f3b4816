package dlqtest

import (
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What settlements do.
var settleCases = []testCase{
	{name: "ResolveEndsALetter", run: settleResolve},
	{name: "RetryIsDueAfterItsDelay", run: settleRetry},
	{name: "RetryBlocksItsKeyAndNoOther", run: settleRetryBlocks},
	{name: "ReviewWaitsForAPerson", run: settleReview},
	{name: "ReleaseIsNoTry", run: settleRelease},
	{name: "ExtendKeepsTheLane", run: settleExtend},
	{name: "ExtendAfterTheLapse", run: settleExtendLapsed},
	{name: "LapsedOwnerMaySettle", run: settleLapsed},
	{name: "SettlementsOfABatchTakeEffectInOrder", run: settleBatch},
	{name: "FailuresGoIntoTheLog", run: settleLog},
	{name: "FailureMovesTheLetterToItsGroup", run: settleGroup},
}

func settleResolve(e *env) {
	e.letters("k", "a", "b")
	e.applied(resolve(e.claim("a")))
	r := e.wantState("a", dlq.StateResolved, 1)
	if r.Settled.IsZero() || r.Expires.Sub(r.Settled) != longRetention || !r.Next.IsZero() || string(r.Body) != "body of a" || r.Log.Total() != 1 {
		e.Fatalf("a resolved letter is %+v", r)
	}
	e.wantTotals(1, 0, 1, 0, 0)
	e.claim("b")
}

func settleRetry(e *env) {
	e.letters("k", "a")
	e.applied(retry(e.claim("a"), longLease))
	r := e.wantState("a", dlq.StateWaiting, 1)
	if r.Log.Total() != 2 || !r.Settled.IsZero() || r.Next.Before(r.Put.Add(longLease)) {
		e.Fatalf("a letter that failed is %+v", r)
	}
	e.nothing()
	e.letters("other", "b")
	e.applied(retry(e.claim("b"), e.short))
	e.wait()
	if c := e.claim("b"); c.Record.Tries != 2 || c.Record.Log.Total() != 2 {
		e.Fatalf("a letter that is tried again is %+v", c.Record)
	}
}

func settleRetryBlocks(e *env) {
	e.letters("k", "a", "b")
	e.letters("other", "c")
	for _, c := range e.claimable("a", "c") {
		e.applied(retry(c, map[string]time.Duration{"a": longLease, "c": 0}[c.Record.ID]))
	}
	e.claim("c")
}

func settleReview(e *env) {
	e.letters("k", "a", "b")
	e.reviewed("a")
	r := e.wantState("a", dlq.StateReview, 1)
	if r.Log.Total() != 2 || !r.Next.IsZero() || !r.Settled.IsZero() || !r.Expires.IsZero() || r.Aside {
		e.Fatalf("a letter in review is %+v", r)
	}
	e.wantTotals(1, 1, 0, 0, 0)
	e.nothing()
	e.wait()
	e.nothing()
}

func settleRelease(e *env) {
	e.letters("k", "a")
	e.applied(release(e.claim("a")))
	if r := e.wantState("a", dlq.StateWaiting, 0); r.Log.Total() != 1 {
		e.Fatalf("a letter that was released is %+v", r)
	}
	if c := e.claim("a"); c.Record.Tries != 1 {
		e.Fatalf("a letter that was released is tried as the %d.", c.Record.Tries)
	}
}

func settleExtend(e *env) {
	e.letters("k", "a")
	c := e.claimFor("a", 4*e.short)
	e.applied(settlement(dlq.KindExtend, c))
	e.sleep(8 * e.short)
	e.nothing()
	e.wantState("a", dlq.StateWaiting, 1)
	e.applied(resolve(c))
}

func settleExtendLapsed(e *env) {
	e.letters("k", "a")
	c := e.lapsed("a")
	e.applied(settlement(dlq.KindExtend, c))
	e.nothing()
	s := settlement(dlq.KindExtend, c)
	s.Lease = e.short
	e.applied(s)
	e.wait()
	e.claim("a")
}

func settleLapsed(e *env) {
	e.letters("k", "a")
	c := e.lapsed("a")
	e.applied(resolve(c))
	e.wantState("a", dlq.StateResolved, 1)
}

func settleBatch(e *env) {
	e.letters("k", "a")
	e.letters("other", "b")
	cs := e.claimable("a", "b")
	errs := e.settle(settlement(dlq.KindExtend, cs[0]), resolve(cs[0]), retry(cs[1], longLease), resolve(cs[1]))
	if errs[0] != nil || errs[1] != nil || errs[2] != nil || errs[3] == nil {
		e.Fatalf("a batch was answered %v, want only its last to be stale", errs)
	}
	e.wantTotals(1, 0, 1, 0, 0)
}

func settleLog(e *env) {
	e.letters("k", "a")
	s := retry(e.claim("a"), 0)
	s.Failure = failure(printB, "second")
	e.applied(s)
	e.tick()
	s = review(e.claim("a"))
	s.Failure = failure(printA, "third")
	e.applied(s)
	r := e.record("a")
	if string(r.Log.First.Detail) != "made it" || len(r.Log.Last) != 2 || string(r.Log.Last[0].Detail) != "second" ||
		string(r.Log.Last[1].Detail) != "third" || r.Fingerprint != printA {
		e.Fatalf("the log of three failures is %+v", r.Log)
	}
}

func settleGroup(e *env) {
	e.letters("k", "a")
	s := retry(e.claim("a"), 0)
	s.Failure = failure(printB, "second")
	e.applied(s)
	g := e.groups()
	if len(g) != 1 || g[0].Fingerprint != printB || g[0].Waiting != 1 {
		e.Fatalf("the groups are %+v", g)
	}
	e.wantIn(dlq.Query{Fingerprint: printA})
	e.wantIn(dlq.Query{Fingerprint: printB}, "a")
}

// Who may settle.
var fenceCases = []testCase{
	{name: "StaleOwnerChangesNothing", run: fenceStale},
	{name: "StaleOwnerAfterRelease", run: fenceReleased},
	{name: "OtherTokensAreStale", run: fenceTokens},
	{name: "OtherLettersAreStale", run: fenceLetters},
	{name: "SettlementTwiceSucceeds", run: fenceTwice},
	{name: "ReleaseAfterASettlementSucceeds", run: fenceReleaseAfter},
	{name: "AChangeTakesTheLetterFromItsWorker", run: fenceChange},
	{name: "AChangeLeavesTheLaneToItsWorker", run: fenceChangeLane},
	{name: "SettlementOfAForgottenLetter", run: fenceForgotten},
}

func fenceStale(e *env) {
	e.letters("k", "a")
	old := e.lapsed("a")
	c := e.claim("a")
	e.stale(resolve(old), retry(old, 0), review(old), release(old), settlement(dlq.KindExtend, old))
	e.wantState("a", dlq.StateWaiting, 2)
	e.nothing()
	e.applied(resolve(c))
	e.stale(resolve(old), review(old))
	e.wantState("a", dlq.StateResolved, 2)
}

func fenceReleased(e *env) {
	e.letters("k", "a")
	c := e.claim("a")
	e.applied(release(c))
	e.stale(resolve(c), retry(c, 0), review(c), settlement(dlq.KindExtend, c))
	e.wantState("a", dlq.StateWaiting, 0)
	e.claim("a")
	e.stale(release(c))
}

func fenceTokens(e *env) {
	e.letters("k", "a")
	c := e.claim("a")
	for _, token := range []uint64{0, c.Token - 1, c.Token + 1} {
		d := c
		d.Token = token
		e.stale(resolve(d), retry(d, 0), review(d), release(d), settlement(dlq.KindExtend, d))
	}
	e.wantState("a", dlq.StateWaiting, 1)
	e.applied(resolve(c))
}

func fenceLetters(e *env) {
	e.letters("k", "a", "b")
	e.letters("other", "c")
	cs := e.claimable("a", "c")
	a, c := cs[0], cs[1]
	if a.Record.ID != "a" {
		a, c = c, a
	}
	s := resolve(a)
	s.Seq = e.record("b").Seq // not begun
	e.stale(s)
	s.Seq = c.Record.Seq // of another lane
	e.stale(s)
	s = resolve(a)
	s.Lane = c.Lane
	e.stale(s)
	s = resolve(a)
	s.Stream = "second"
	e.stale(s)
	e.applied(resolve(a), resolve(c))
}

func fenceTwice(e *env) {
	for _, k := range []dlq.Kind{dlq.KindResolve, dlq.KindRetry, dlq.KindReview, dlq.KindRelease} {
		id := k.String()
		e.letters(id, id)
		s := settlement(k, e.claim(id))
		if k == dlq.KindRetry {
			s.Delay = longLease
		}
		e.applied(s)
		before := e.record(id)
		e.tick()
		e.applied(s)
		if after := e.record(id); describeRecord(after) != describeRecord(before) {
			e.Fatalf("the second %v made of %s\n%s", k, describeRecord(before), describeRecord(after))
		}
		if k == dlq.KindRelease {
			e.applied(resolve(e.claim(id)))
		}
	}
	e.letters("k", "a")
	s := retry(e.claim("a"), 0)
	e.applied(s)
	e.applied(retry(e.claim("a"), longLease))
	e.stale(s) // it has been claimed since
}

func fenceReleaseAfter(e *env) {
	e.letters("k", "a", "b")
	c := e.claim("a")
	e.applied(resolve(c))
	e.applied(release(c))
	d := e.claim("b")
	e.stale(release(c))
	e.applied(resolve(d))
}

func fenceChange(e *env) {
	for _, k := range []dlq.ChangeKind{dlq.ChangeEdit, dlq.ChangeApprove, dlq.ChangeReject, dlq.ChangeDiscard} {
		id := k.String()
		e.letters(id, id)
		c := e.claim(id)
		e.does(k, id)
		before := e.record(id)
		e.stale(resolve(c), retry(c, 0), review(c))
		if after := e.record(id); describeRecord(after) != describeRecord(before) {
			e.Fatalf("a settlement after the %v made of %s\n%s", k, describeRecord(before), describeRecord(after))
		}
		e.does(dlq.ChangeForget, id)
	}
	e.letters("k", "a")
	c := e.claim("a")
	e.does(dlq.ChangeSkip, "a")
	e.stale(resolve(c), review(c))
	e.wantState("a", dlq.StateReview, 1)
}

func fenceChangeLane(e *env) {
	e.letters("k", "a", "b")
	c := e.claimFor("a", longLease)
	e.does(dlq.ChangeDiscard, "a")
	e.nothing() // its handler may still run
	e.applied(settlement(dlq.KindExtend, c))
	e.applied(release(c))
	e.claim("b")
}

func fenceForgotten(e *env) {
	e.letters("k", "a", "b")
	c := e.claim("a")
	e.does(dlq.ChangeForget, "a")
	e.stale(resolve(c))
	e.applied(release(c))
	e.claim("b")
}
