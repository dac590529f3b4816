package ordertest

import (
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/order"
)

// What a person decides.
var personCases = []testCase{
	{name: "ResumeMakesParkedDue", run: personResume},
	{name: "DropSkipsParked", run: personDrop},
	{name: "DropAgainKeepsWhatWasResolved", run: personDropAgain},
	{name: "DroppedNumberThatComesAgainIsLate", run: personDropLate},
	{name: "DroppedMessageKeepsItsIDWhenSentAgain", run: personDropNamed},
	{name: "ResumeAndDropNeedAParkedOne", run: personNotFound},
	{name: "ResolveLostSkipsTheGap", run: personLost},
	{name: "ResolveIgnoreOfAPart", run: personIgnorePart},
	{name: "ResolveResentWaitsAnew", run: personResent},
	{name: "ResolveNotesRecords", run: personRecords},
	{name: "ResolveNeedsAGap", run: personResolveNotFound},
	{name: "PersonsDoNotTouchTheLease", run: personLease},
	{name: "ForgetErasesTheKey", run: personForget},
	{name: "ForgetLeavesOtherKeysAlone", run: personForgetOther},
	{name: "ForgottenOwnerIsStale", run: personForgetOwner},
}

// parkOne makes a key whose first message is parked and whose second waits.
func (e *env) parkOne(key string) {
	e.Helper()
	e.buffered(key, 1, 2)
	e.applied(park(e.claim(key), 1))
}

func personResume(e *env) {
	e.parkOne("k")
	e.applied(person(order.KindResume, "k", 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Buffered: 2})
	c := e.claim("k")
	e.wantRun(c, 1, 2)
	e.wantAttempts(c, 1, 1)
	e.applied(deliver(c, 3), release(c))
	if p := e.parked(order.Query{N: 10}); len(p) != 0 {
		e.Fatalf("a resumed message is still parked: %+v", p)
	}
}

func personDrop(e *env) {
	e.parkOne("k")
	s := person(order.KindDrop, "k", 1)
	s.Actor, s.Note = "ada", "nonsense"
	e.applied(s)
	e.applied(s) // sent again
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 2, Head: 3, Skipped: 1, Buffered: 1})
	e.wantState("k", order.StateSkipped, 1)
	g := e.wantGap("k", 1, 2, false)
	if g.Reason != order.ReasonDropped || g.Actor != "ada" || g.Note != "nonsense" {
		e.Fatalf("the record of a dropped message is %+v", g)
	}
	e.deliverAll("k", 2)
}

// A drop whose answer was lost is sent again. By then somebody else may have said
// what became of the number.
func personDropAgain(e *env) {
	e.parkOne("k")
	s := person(order.KindDrop, "k", 1)
	s.Actor, s.Note = "ada", "nonsense"
	r := resolve("k", 1, 2, order.ResolutionIgnore)
	r.Actor, r.Note = "bob", "seen by the sender"
	e.applied(s)
	e.applied(r)
	e.applied(s) // sent again
	g := e.wantGap("k", 1, 2, false)
	if g.Resolution != order.ResolutionIgnore || g.Actor != "bob" || g.Note != "seen by the sender" {
		e.Fatalf("dropped, resolved and dropped again, the record is %+v", g)
	}
}

func personDropLate(e *env) {
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.buffered("k", 2)
	e.applied(park(e.claim("k"), 1))
	e.applied(person(order.KindDrop, "k", 1))
	if f := e.findPlace(order.Place{ID: "id"}); f.State != order.StateSkipped || f.Gap == nil {
		e.Fatalf("a dropped message is found as %s with the gap %+v", stateName(f.State), f.Gap)
	}
	e.answered(order.Late, withID("k", 1, 1, "id", "body"))
	e.answered(order.Duplicate, withID("k", 1, 1, "id", "body"))
	c := e.claim("k")
	e.wantLate(c, 1)
	e.wantRun(c, 2)
	e.applied(late(order.KindLate, c, 1), deliver(c, 3), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 3, Delivered: 1, Late: 1})
}

// Late messages are not kept here, so what was dropped is all that has the ID.
func personDropNamed(e *env) {
	e.p.Late = false
	e.answered(order.Buffered, withID("k", 1, 1, "id", "body"))
	e.buffered("k", 2)
	e.applied(park(e.claim("k"), 1))
	e.applied(person(order.KindDrop, "k", 1))
	e.answered(order.Late, withID("k", 1, 1, "id", "body"))
	e.answered(order.Buffered, withID("k", 2, 1, "id", "body")) // of another epoch
	f := e.findPlace(order.Place{ID: "id"})
	if f.State != order.StateLate || f.Position != (order.Position{Epoch: 1, Number: 1}) {
		e.Fatalf("a dropped message that was sent again is found by its ID as %s at %v", stateName(f.State), f.Position)
	}
}

func personNotFound(e *env) {
	e.refused(order.ErrNotFound, person(order.KindResume, "nobody", 1), person(order.KindDrop, "nobody", 1))
	e.parkOne("k")
	for _, n := range []uint64{2, 3, 99} {
		e.refused(order.ErrNotFound, person(order.KindResume, "k", n), person(order.KindDrop, "k", n))
	}
	other := person(order.KindDrop, "k", 1)
	other.Epoch = 2
	e.refused(order.ErrNotFound, other)
	e.applied(person(order.KindResume, "k", 1))
	e.refused(order.ErrNotFound, person(order.KindDrop, "k", 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Buffered: 2})
}

func personLost(e *env) {
	e.buffered("k", 4)
	e.applied(resolve("k", 1, 4, order.ResolutionLost))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 5, Skipped: 3, Buffered: 1})
	g := e.wantGap("k", 1, 4, false)
	if g.Reason != order.ReasonResolved || g.Resolution != order.ResolutionLost || g.Actor != "ada" || g.Note != "asked the sender" {
		e.Fatalf("the record of a gap that was resolved is %+v", g)
	}
	if t := e.totals(); t.Unresolved != 0 || t.OpenGaps != 0 {
		e.Fatalf("the totals are %+v, want nothing unresolved", t)
	}
	e.deliverAll("k", 4)
	e.applied(resolve("k", 1, 4, order.ResolutionLost)) // sent again
}

func personIgnorePart(e *env) {
	e.buffered("k", 6)
	e.applied(resolve("k", 1, 3, order.ResolutionIgnore))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 7, Skipped: 2, Buffered: 1, Missing: 3})
	gaps := e.allGaps("k")
	if len(gaps) != 2 || gaps[0].Open || gaps[0].To != 3 || !gaps[1].Open || gaps[1].From != 3 || gaps[1].To != 6 {
		e.Fatalf("the gaps are %+v, want a record of 1 to 3 and 3 to 6 open", gaps)
	}
	e.applied(resolve("k", 3, 100, order.ResolutionIgnore))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 6, Head: 7, Skipped: 5, Buffered: 1})
}

func personResent(e *env) {
	e.p.GapLook = e.short
	e.buffered("k", 2)
	e.wait()
	c := e.claimGap("k")
	s := wait(c, longLease)
	s.Alerted, s.Asked = true, 3
	e.applied(s)
	e.applied(resolve("k", 1, 2, order.ResolutionResent))
	g := e.wantGap("k", 1, 2, true)
	if g.Alerted || g.Asked != 0 || e.virtual && g.Age != 0 {
		e.Fatalf("a gap that is sent again is %+v, want it as if it had just opened", g)
	}
	e.wait()
	e.claimGap("k")
}

func personRecords(e *env) {
	e.skipped("k", 3)
	e.p.GapLook = 0
	e.buffered("k", 6)
	c := e.claimGap("k")
	e.applied(skip(c, 6), release(c))
	e.applied(resolve("k", 1, 5, order.ResolutionResent)) // the second record does not lie in it
	gaps := e.allGaps("k")
	if len(gaps) != 2 || gaps[0].Resolution != order.ResolutionResent || gaps[0].Actor != "ada" || gaps[1].Resolution != 0 {
		e.Fatalf("the records are %+v, want the first resolved", gaps)
	}
	if t := e.totals(); t.Unresolved != 1 {
		e.Fatalf("%d records are unresolved, want 1", t.Unresolved)
	}
	if open := e.gaps(order.Query{N: 10, Unresolved: true}); len(open) != 1 || open[0].From != 4 {
		e.Fatalf("the unresolved records are %+v, want the second", open)
	}
	e.applied(resolve("k", 1, 6, order.ResolutionLost))
	gaps = e.allGaps("k")
	if gaps[0].Resolution != order.ResolutionLost || gaps[1].Resolution != order.ResolutionLost || gaps[1].Note != "asked the sender" {
		e.Fatalf("the records are %+v, want both lost", gaps)
	}
}

func personResolveNotFound(e *env) {
	e.refused(order.ErrNotFound, resolve("nobody", 1, 5, order.ResolutionLost))
	e.buffered("k", 3)
	e.refused(order.ErrNotFound, resolve("k", 2, 3, order.ResolutionLost)) // it begins at 1
	other := resolve("k", 1, 3, order.ResolutionLost)
	other.Epoch = 2
	e.refused(order.ErrNotFound, other)
	e.wantGap("k", 1, 3, true)
}

func personLease(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 3)
	c := e.claimGap("k")
	e.applied(resolve("k", 1, 3, order.ResolutionLost))
	e.nothing() // still claimed
	e.applied(deliver(c, 4), release(c))
	e.nothing()
}

func personForget(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, withID("k", 1, 2, "late", "late"))
	e.answered(order.Buffered, withID("k", 1, 4, "id", "body"))
	e.answered(order.Buffered, at("k", 2, 9))
	e.applied(person(order.KindForget, "k", 0))
	if a := e.account("k"); len(a.Ledgers) != 0 || a.Arrivals != (order.Arrivals{}) || a.LateWaiting != 0 {
		e.Fatalf("a forgotten key has the account %+v", a)
	}
	for _, id := range []string{"id", "late"} {
		if f := e.findPlace(order.Place{ID: id}); f.State != order.StateUnknown || f.Message != nil {
			e.Fatalf("a message of a forgotten key is found: %+v", f)
		}
	}
	if t := e.totals(); t != (order.Totals{}) {
		e.Fatalf("after the only key was forgotten the totals are %+v", t)
	}
	if len(e.allGaps("k"))+len(e.gaps(order.Query{N: 10})) != 0 {
		e.Fatal("gaps of a forgotten key are listed")
	}
	e.nothing()
	e.applied(person(order.KindForget, "k", 0), person(order.KindForget, "nobody", 0))
	e.answered(order.Buffered, withID("k", 1, 1, "id", "anew"))
	e.deliverAll("k", 1)
}

func personForgetOther(e *env) {
	for i := range 4 {
		e.buffered(fmt.Sprint("k", i), 1, 2)
	}
	e.applied(person(order.KindForget, "k1", 0))
	keys := keysOf(e.claims())
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"k0", "k2", "k3"}) {
		e.Fatalf("after k1 was forgotten the keys are %q", keys)
	}
}

func personForgetOwner(e *env) {
	e.buffered("k", 1, 2)
	owner := e.claim("k")
	e.applied(person(order.KindForget, "k", 0))
	e.stale(workerKinds(owner)...)
	e.buffered("k", 1, 2)
	e.stale(workerKinds(owner)...)
	c := e.claim("k")
	if c.Token <= owner.Token {
		e.Fatalf("after the key was forgotten its token is %d, want more than %d", c.Token, owner.Token)
	}
	e.stale(workerKinds(owner)...)
	e.wantAttempts(c, 1, 1)
}

// Numbers that were delivered outside of the buffer.
var unorderedCases = []testCase{
	{name: "UnorderedAheadIsCrossed", run: unorderedAhead},
	{name: "UnorderedAtTheCursorMovesIt", run: unorderedCursor},
	{name: "UnorderedTakesABufferedMessage", run: unorderedBuffered},
	{name: "UnorderedLeavesParkedAlone", run: unorderedParked},
	{name: "UnorderedOfASkippedNumberIsLate", run: unorderedSkipped},
	{name: "UnorderedOfAVoidNumber", run: unorderedVoid},
	{name: "UnorderedOfDeliveredChangesNothing", run: unorderedDelivered},
	{name: "UnorderedBeginsAKey", run: unorderedBegins},
	{name: "UnorderedBeginsAnEpoch", run: unorderedEpoch},
	{name: "UnorderedTooFar", run: unorderedTooFar},
	{name: "UnorderedNumberThatArrivesIsDuplicate", run: unorderedArrives},
	{name: "UnorderedWhileTheKeyIsClaimed", run: unorderedClaimed},
}

func unordered(key string, n uint64) order.Settlement { return person(order.KindUnordered, key, n) }

func unorderedAhead(e *env) {
	e.buffered("k", 1)
	e.applied(unordered("k", 2), unordered("k", 4))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 5, Buffered: 1, Unordered: 2, Missing: 1})
	e.wantState("k", order.StateUnordered, 2, 4)
	c := e.claim("k")
	e.wantRun(c, 1)
	e.applied(deliver(c, 2), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 5, Delivered: 2, OutOfOrder: 1, Unordered: 1, Missing: 1})
	e.wantState("k", order.StateDelivered, 1, 2)
	e.buffered("k", 3)
	e.deliverAll("k", 3)
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 4, OutOfOrder: 2})
}

func unorderedCursor(e *env) {
	e.buffered("k", 3)
	e.applied(unordered("k", 2), unordered("k", 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 4, Delivered: 2, OutOfOrder: 2, Buffered: 1})
	e.deliverAll("k", 3)
}

func unorderedBuffered(e *env) {
	e.buffered("k", 2, 3)
	e.applied(unordered("k", 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 1, Unordered: 1, Missing: 1})
	e.buffered("k", 1)
	c := e.claim("k")
	e.wantRun(c, 1)
	e.applied(deliver(c, 2), release(c))
	e.deliverAll("k", 3)
	e.buffered("k", 4)
	e.applied(unordered("k", 4)) // at the cursor
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 4, OutOfOrder: 2})
	e.nothing()
}

func unorderedParked(e *env) {
	e.parkOne("k")
	e.applied(unordered("k", 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Parked: 1, Buffered: 1})
}

func unorderedSkipped(e *env) {
	e.skipped("k", 3)
	e.applied(unordered("k", 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Late: 1, Skipped: 1, OutOfOrder: 1})
	e.wantState("k", order.StateLate, 2)
	e.nothing() // it was delivered already
	e.answered(order.Duplicate, at("k", 1, 2))
}

func unorderedVoid(e *env) {
	e.buffered("k", 1, 4)
	c := e.claim("k")
	e.applied(void(c, 2, 4))
	e.applied(unordered("k", 3))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 5, Buffered: 2, VoidAhead: 1, Unordered: 1})
	e.applied(deliver(c, 5))
	e.applied(unordered("k", 2)) // below the cursor now
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 3, Late: 1, OutOfOrder: 2})
}

func unorderedDelivered(e *env) {
	e.fill("k", 1, 3)
	e.applied(unordered("k", 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 3})
	e.applied(unordered("k", 4), unordered("k", 4))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 4, OutOfOrder: 1})
	e.p.Start = 10
	e.buffered("late", 10)
	e.applied(unordered("late", 9)) // below the base
	e.wantLedger("late", order.Ledger{Epoch: 1, Base: 10, Cursor: 10, Head: 11, Buffered: 1})
}

func unorderedBegins(e *env) {
	e.applied(unordered("k", 3))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Unordered: 1, Missing: 2})
	e.nothing() // the look at the gap has not come
	e.wantGap("k", 1, 3, true)
	e.p.Start = 0
	e.applied(unordered("first", 7))
	e.wantLedger("first", order.Ledger{Epoch: 1, Base: 7, Cursor: 8, Head: 8, Delivered: 1, OutOfOrder: 1})
}

func unorderedEpoch(e *env) {
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	s := unordered("k", 1)
	s.Epoch = 2
	e.applied(s)
	e.wantLedger("k", order.Ledger{Epoch: 2, Cursor: 2, Head: 2, Delivered: 1, OutOfOrder: 1})
	if !e.ledger("k", 1).Ended {
		e.Fatal("an epoch that was delivered has not ended when a report began the next")
	}
	e.applied(unordered("k", 2)) // of an epoch that has ended: nothing changes
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 2, Head: 2, Ended: true, Delivered: 1})
}

func unorderedTooFar(e *env) {
	e.p.MaxAhead = 10
	e.buffered("k", 1)
	e.refused(order.ErrTooFar, unordered("k", 11), unordered("k", 9e15))
	e.applied(unordered("k", 10))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 11, Buffered: 1, Unordered: 1, Missing: 8})
}

func unorderedArrives(e *env) {
	e.buffered("k", 1)
	e.applied(unordered("k", 2))
	if a := e.answered(order.Duplicate, at("k", 1, 2)); !a.Unverified {
		e.Fatal("the duplicate of a number whose content the buffer never saw is verified")
	}
	e.deliverAll("k", 1)
	e.answered(order.Duplicate, at("k", 1, 2))
}

func unorderedClaimed(e *env) {
	e.buffered("k", 1, 2, 3)
	c := e.claim("k")
	e.applied(unordered("k", 1), unordered("k", 2))
	e.applied(deliver(c, 2), deliver(c, 4), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 3, OutOfOrder: 2})
}
