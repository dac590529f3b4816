package ordertest

import (
	"slices"

	"github.com/pawl-go/pawl/order"
)

// What is there after the store was closed and opened.
var reopenCases = []testCase{
	{name: "ReopenKeepsMessages", run: reopenMessages},
	{name: "GapOpenAcrossARestart", run: reopenGap},
	{name: "TheRestOfAGapAcrossARestart", run: reopenRest},
	{name: "ReopenKeepsClaims", run: reopenClaims},
	{name: "ReopenKeepsSettlements", run: reopenSettlements},
	{name: "ReopenKeepsDelays", run: reopenDelays},
	{name: "ReopenKeepsLateAndParked", run: reopenLate},
}

// reopen closes the store and opens it again.
func (e *env) reopen() {
	e.Helper()
	if e.c.Reopen == nil {
		e.Skip("Config.Reopen is nil: the store is not durable")
	}
	e.watched.Store = e.c.Reopen(e.T, e.watched.Store)
}

func reopenMessages(e *env) {
	e.buffered("k", 1, 2, 4)
	e.answered(order.Buffered, withID("k", 3, 1, "id", "body"))
	before := e.account("k")
	e.reopen()
	after := e.account("k")
	if !slices.Equal(before.Ledgers, after.Ledgers) || before.Arrivals != after.Arrivals {
		e.Fatalf("the account %+v is %+v after the store was opened again", before, after)
	}
	e.answered(order.Duplicate, at("k", 1, 2))
	e.answered(order.Conflict, withPayload("k", 1, 4, "other"))
	if f := e.findPlace(order.Place{ID: "id"}); f.Message == nil || string(f.Message.Payload) != "body" {
		e.Fatalf("a message with an ID is %+v after the store was opened again", f)
	}
	e.buffered("k", 3)
	e.deliverAll("k", 1, 2, 3, 4)
}

func reopenGap(e *env) {
	e.p.GapLook = 3 * e.short
	e.buffered("k", 3)
	e.wait()
	e.reopen()
	e.wait() // the clock of the gap went on
	c := e.claimGap("k")
	if c.Gap.Age < 4*e.short || e.virtual && c.Gap.Age != 4*e.short {
		e.Fatalf("the gap is %v old, and opened %v ago", c.Gap.Age, 4*e.short)
	}
	s := wait(c, longLease)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
	e.reopen()
	e.nothing()
	if g := e.wantGap("k", 1, 3, true); !g.Alerted || g.Asked != 2 {
		e.Fatalf("the gap is %+v after the store was opened again", g)
	}
}

func reopenRest(e *env) {
	e.notedGap("k", 4)
	e.wait()
	e.buffered("k", 1) // the gap closes
	e.reopen()
	e.deliverAll("k", 1) // and opens
	e.wantNoted("k", 2, 4, 2*e.short)
	e.reopen()
	e.wait()
	g := e.wantNoted("k", 2, 4, 4*e.short)
	if g.Since < 2*e.short || e.virtual && g.Since != 2*e.short {
		e.Fatalf("the cursor came to the gap %v ago, and the gap says %v", 2*e.short, g.Since)
	}
	e.nothing() // before the next look
}

func reopenClaims(e *env) {
	e.buffered("k", 1, 2)
	a := newAsk()
	c := e.claimAs("k", a)
	e.reopen()
	e.nothing()
	again := e.claimAs("k", a)
	if again.Token != c.Token {
		e.Fatalf("an ask sent again after the store was opened again got token %d, want %d", again.Token, c.Token)
	}
	e.wantRun(again, 1, 2)
	e.wantAttempts(again, 1, 1)
	e.applied(deliver(c, 2), release(c))
	e.reopen()
	e.tick()
	next := e.claim("k")
	e.wantRun(next, 2)
	e.wantAttempts(next, 2)
	if next.Token <= c.Token {
		e.Fatalf("after the store was opened again an owner has token %d, want more than %d", next.Token, c.Token)
	}
}

func reopenSettlements(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 4, 7)
	c := e.claim("k")
	e.applied(deliver(c, 2), void(c, 2, 3), skip(c, 4), release(c))
	e.applied(person(order.KindUnordered, "k", 6))
	want := e.ledger("k", 1)
	e.reopen()
	if got := e.ledger("k", 1); got != want {
		e.Fatalf("the ledger %+v is %+v after the store was opened again", want, got)
	}
	e.applied(deliver(c, 2), skip(c, 4), release(c)) // the answer was lost with the process
	e.wantState("k", order.StateDelivered, 1)
	e.wantState("k", order.StateVoid, 2)
	e.wantState("k", order.StateSkipped, 3)
	e.wantState("k", order.StateUnordered, 6)
	e.wantGap("k", 3, 4, false)
	e.answered(order.Duplicate, at("k", 1, 1))
	e.answered(order.Late, at("k", 1, 3))
}

func reopenDelays(e *env) {
	e.buffered("k", 1)
	e.applied(retry(e.claim("k"), 1, longLease))
	e.buffered("soon", 1)
	e.applied(retry(e.claim("soon"), 1, e.short))
	e.reopen()
	e.wait()
	c := e.claim("soon")
	e.wantAttempts(c, 2)
	if c.Run[0].Error != "it failed" {
		e.Fatalf("the error of the last attempt is %q after the store was opened again", c.Run[0].Error)
	}
}

func reopenLate(e *env) {
	e.skipped("k", 4)
	e.answered(order.Late, at("k", 1, 1))
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.applied(late(order.KindLatePark, c, 1), release(c))
	e.buffered("k", 5)
	for range 1 {
		c = e.claim("k")
		e.applied(park(c, 5))
	}
	e.reopen()
	p := e.parked(order.Query{N: 10})
	if len(p) != 2 || p[0].Position.Number != 1 || !p[0].Late || p[1].Position.Number != 5 || p[1].Error != "it is poison" {
		e.Fatalf("parked are %+v after the store was opened again", p)
	}
	c = e.claim("k")
	e.wantLate(c, 2)
	e.applied(late(order.KindLate, c, 2), release(c))
	e.nothing()
}
