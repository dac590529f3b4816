package ordertest

import (
	"github.com/pawl-go/pawl/order"
)

// Moves of the cursor and of the lease.
var settleCases = []testCase{
	{name: "DeliverMovesTheCursor", run: settleDeliver},
	{name: "DeliverCrossesVoidAndUnordered", run: settleDeliverCrosses},
	{name: "DeliverStopsAtWhatIsMissing", run: settleDeliverMissing},
	{name: "CursorNeverGoesBack", run: settleNotBack},
	{name: "VoidIsCrossedAtOnce", run: settleVoid},
	{name: "VoidLeavesOthersAlone", run: settleVoidOthers},
	{name: "VoidEndsAtTheHead", run: settleVoidHead},
	{name: "VoidNumberThatArrivesIsDelivered", run: settleVoidArrives},
	{name: "SkipKeepsARecord", run: settleSkip},
	{name: "SkipKeepsARecordOfEachRange", run: settleSkipRanges},
	{name: "SkipOverAMessageIsRefused", run: settleSkipOver},
	{name: "HugeGapIsSkippedAtOnce", run: settleSkipHuge},
	{name: "RetryBlocksItsKeyAndNoOther", run: settleRetry},
	{name: "NackInOneLaneWhileAnotherFlows", run: settleNack},
	{name: "ParkHoldsTheKey", run: settlePark},
	{name: "ExtendMakesTheLeaseLonger", run: settleExtend},
	{name: "ReleaseMakesTheKeyDue", run: settleRelease},
	{name: "ReleaseWithADelayPutsTheRunOff", run: settleReleaseDelay},
}

func settleDeliver(e *env) {
	e.buffered("k", 1, 2, 3, 5)
	c := e.claim("k")
	e.applied(deliver(c, 3))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 6, Delivered: 2, Buffered: 2, Missing: 1})
	e.wantState("k", order.StateDelivered, 1, 2)
	e.wantState("k", order.StateBuffered, 3, 5)
	e.nothing() // still claimed
	e.applied(deliver(c, 4), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 6, Delivered: 3, Buffered: 1, Missing: 1})
}

func settleDeliverCrosses(e *env) {
	e.buffered("k", 1, 3, 5)
	c := e.claim("k")
	e.applied(void(c, 2, 3))
	e.applied(person(order.KindUnordered, "k", 4))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 6, Buffered: 3, VoidAhead: 1, Unordered: 1})
	e.wantState("k", order.StateVoid, 2)
	e.wantState("k", order.StateUnordered, 4)
	e.applied(deliver(c, 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 6, Delivered: 1, Void: 1, Buffered: 2, Unordered: 1})
	e.applied(deliver(c, 6), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 6, Head: 6, Delivered: 4, Void: 1, OutOfOrder: 1})
	e.wantState("k", order.StateDelivered, 1, 3, 4, 5)
	e.wantState("k", order.StateVoid, 2)
}

func settleDeliverMissing(e *env) {
	e.buffered("k", 1, 3)
	c := e.claim("k")
	e.stale(deliver(c, 3), deliver(c, 4), deliver(c, 5), deliver(c, 1<<40))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 2, Missing: 1})
	e.applied(deliver(c, 2))
}

func settleNotBack(e *env) {
	e.buffered("k", 1, 2, 3)
	c := e.claim("k")
	e.applied(deliver(c, 3))
	e.applied(deliver(c, 2), deliver(c, 3), skip(c, 2)) // sent again
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 4, Delivered: 2, Buffered: 1})
}

func settleVoid(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 4)
	c := e.claimGap("k")
	e.applied(void(c, 1, 3))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 5, Void: 2, Missing: 1, Buffered: 1})
	e.applied(void(c, 1, 4), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 5, Void: 3, Buffered: 1})
	e.wantState("k", order.StateVoid, 1, 2, 3)
	if gaps := e.allGaps("k"); len(gaps) != 0 {
		e.Fatalf("void numbers left the gaps %+v", gaps)
	}
	e.deliverAll("k", 4)
}

func settleVoidOthers(e *env) {
	e.buffered("k", 1, 2, 4, 7)
	c := e.claim("k")
	e.applied(deliver(c, 2))
	e.applied(person(order.KindUnordered, "k", 5))
	e.applied(void(c, 1, 8))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 2, Head: 8, Delivered: 1, Buffered: 3, Unordered: 1, VoidAhead: 2})
	e.wantState("k", order.StateDelivered, 1)
	e.wantState("k", order.StateVoid, 3, 6)
	e.wantState("k", order.StateBuffered, 2, 4, 7)
}

func settleVoidHead(e *env) {
	e.buffered("k", 1, 3)
	c := e.claim("k")
	e.applied(void(c, 2, 1000))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 2, VoidAhead: 1})
	e.wantState("k", order.StateUnknown, 4, 999)
}

func settleVoidArrives(e *env) {
	e.buffered("k", 1, 6)
	c := e.claim("k")
	e.applied(void(c, 2, 6))
	e.buffered("k", 4) // the void was a guess
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 7, Buffered: 3, VoidAhead: 3})
	e.applied(deliver(c, 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 7, Delivered: 1, Void: 2, VoidAhead: 1, Buffered: 2})
	e.applied(deliver(c, 5), deliver(c, 7), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 7, Head: 7, Delivered: 3, Void: 3})
}

func settleSkip(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 4)
	e.deliverAll("k", 1)
	e.wait()
	c := e.claimGap("k")
	e.applied(skip(c, 4), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 5, Delivered: 1, Skipped: 2, Buffered: 1})
	e.wantState("k", order.StateSkipped, 2, 3)
	g := e.wantGap("k", 2, 4, false)
	if g.Reason != order.ReasonTimeout || g.Arrived != 0 || g.Resolution != 0 || g.Epoch != 1 {
		e.Fatalf("the record is %+v", g)
	}
	if g.Age < 2*e.short || e.virtual && g.Age != 2*e.short {
		e.Fatalf("the record is %v old, and the gap opened %v ago", g.Age, 2*e.short)
	}
	if f := e.find("k", 1, 3); f.Gap == nil || f.Gap.From != 2 || f.Gap.To != 4 {
		e.Fatalf("Find says of a skipped number that its gap is %+v", f.Gap)
	}
	if t := e.totals(); t.Unresolved != 1 || t.OpenGaps != 0 {
		e.Fatalf("the totals with a record are %+v", t)
	}
	e.deliverAll("k", 4)
}

func settleSkipRanges(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 9)
	e.applied(person(order.KindUnordered, "k", 5))
	c := e.claimGap("k")
	e.applied(void(c, 3, 4))
	e.applied(skip(c, 9), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 9, Head: 10, Delivered: 1, OutOfOrder: 1, Void: 1, Skipped: 6, Buffered: 1})
	gaps := e.allGaps("k")
	if len(gaps) != 3 || gaps[0].From != 1 || gaps[0].To != 3 || gaps[1].From != 4 || gaps[1].To != 5 || gaps[2].From != 6 || gaps[2].To != 9 {
		e.Fatalf("the records are %+v, want 1 to 3, 4 to 5, and 6 to 9", gaps)
	}
	e.wantState("k", order.StateSkipped, 1, 2, 4, 6, 7, 8)
	e.wantState("k", order.StateVoid, 3)
	e.wantState("k", order.StateDelivered, 5)
}

func settleSkipOver(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 4)
	c := e.claimGap("k")
	e.buffered("k", 2) // came meanwhile
	e.stale(skip(c, 4), skip(c, 3), skip(c, 6))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 5, Buffered: 2, Missing: 2})
	e.applied(skip(c, 2), release(c))
	e.deliverAll("k", 2)
}

func settleSkipHuge(e *env) {
	const far = uint64(1) << 61
	e.p.GapLook, e.p.MaxAhead = 0, 1<<62
	e.buffered("k", far)
	c := e.claimGap("k")
	e.applied(void(c, 10, far-10))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: far + 1, Buffered: 1, VoidAhead: far - 20, Missing: 19})
	e.applied(skip(c, far), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: far, Head: far + 1, Skipped: 19, Void: far - 20, Buffered: 1})
	e.wantState("k", order.StateVoid, far/2, far-11)
	e.wantState("k", order.StateSkipped, 9, far-10)
	e.deliverAll("k", far)
}

func settleRetry(e *env) {
	e.buffered("k", 1, 2)
	e.applied(retry(e.claim("k"), 1, longLease))
	e.buffered("k", 3)
	e.nothing()
	e.buffered("other", 1)
	e.deliverAll("other", 1)
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 3})
	e.buffered("soon", 1)
	e.applied(retry(e.claim("soon"), 1, e.short))
	e.wait()
	c := e.claim("soon")
	e.wantRun(c, 1)
	e.wantAttempts(c, 2)
}

func settleNack(e *env) {
	e.buffered("a", 1, 2)
	e.applied(retry(e.claim("a"), 1, 0))
	for n := uint64(1); n <= 5; n++ {
		e.buffered("b", n)
		for _, c := range e.claims() {
			if c.Key == "a" {
				e.wantRun(c, 1) // again and again, never 2 before it
				e.applied(retry(c, 1, 0))
				continue
			}
			e.wantRun(c, n)
			e.applied(deliver(c, n+1), release(c))
		}
	}
	e.wantLedger("b", order.Ledger{Epoch: 1, Cursor: 6, Head: 6, Delivered: 5})
	e.wantLedger("a", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Buffered: 2})
}

func settlePark(e *env) {
	e.buffered("k", 1, 2)
	e.applied(park(e.claim("k"), 1))
	e.nothing()
	e.buffered("k", 3)
	e.nothing()
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Parked: 1, Buffered: 2})
	e.wantState("k", order.StateParked, 1)
	e.answered(order.Duplicate, at("k", 1, 1))
	e.answered(order.Conflict, withPayload("k", 1, 1, "other"))
	if a := e.account("k"); !a.Parked || a.Claimed {
		e.Fatalf("the account of a parked key is %+v", a)
	}
	f := e.find("k", 1, 1)
	if f.Message == nil || f.Message.Error != "it is poison" || f.Message.Attempt != 1 {
		e.Fatalf("the parked message is %+v", f.Message)
	}
}

func settleExtend(e *env) {
	e.buffered("k", 1)
	c := e.claimFor("k", e.short)
	e.applied(extend(c, longLease))
	e.wait()
	e.nothing()
	e.applied(deliver(c, 2), release(c))
	e.buffered("late", 1)
	c = e.lapsed("late")
	e.applied(extend(c, longLease)) // lapsed, and nobody took it
	e.nothing()
}

func settleRelease(e *env) {
	e.buffered("k", 1, 2)
	c := e.claim("k")
	e.applied(release(c))
	e.wantRun(e.claim("k"), 1)
	e.buffered("done", 1)
	c = e.claim("done")
	e.applied(deliver(c, 2), release(c))
	e.nothing()
	if e.account("done").Claimed {
		e.Fatal("a released key is claimed")
	}
}

func settleReleaseDelay(e *env) {
	e.buffered("k", 1, 2)
	c := e.claim("k")
	s := unbegun(c)
	s.Delay = longLease
	e.applied(deliver(c, 2), s)
	e.nothing()
	e.buffered("soon", 1)
	c = e.claim("soon")
	s = unbegun(c)
	s.Delay = e.short
	e.applied(s)
	e.wait()
	c = e.claim("soon")
	e.wantRun(c, 1)
	e.wantAttempts(c, 1)
	e.applied(deliver(c, 2), release(c))
	e.skipped("late", 3)
	e.buffered("late", 4)
	c = e.claim("late")
	s = unbegun(c)
	s.Delay = longLease
	e.applied(s)
	e.answered(order.Late, at("late", 1, 1)) // is not put off
	c = e.claim("late")
	e.wantLate(c, 1)
	e.wantRun(c)
}
