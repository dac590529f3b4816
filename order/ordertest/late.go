package ordertest

import (
	"fmt"

	"github.com/pawl-go/pawl/order"
)

// Messages that came after their number had been skipped, or void.
var lateCases = []testCase{
	{name: "LateMessageAfterASkipThenItsSuccessor", run: lateThenSuccessor},
	{name: "LateAfterVoid", run: lateAfterVoid},
	{name: "LateCountsInItsRecord", run: lateRecord},
	{name: "LateSplitsTheRange", run: lateSplits},
	{name: "LateTwiceIsDuplicate", run: lateTwice},
	{name: "LateIsNotStoredUnlessWanted", run: lateUnwanted},
	{name: "LateIsHandedOverOnce", run: lateOnce},
	{name: "LateRetryWaits", run: lateRetry},
	{name: "LateRetryDoesNotDelayTheRun", run: lateRetryAlone},
	{name: "LateParked", run: latePark},
	{name: "LateResumed", run: lateResume},
	{name: "LateDropped", run: lateDrop, once: true}, // a late one that is dropped leaves no record
	{name: "LateWhileTheKeyIsParked", run: lateKeyParked},
	{name: "LateAttemptsAreCounted", run: lateAttempts},
	{name: "LateOfAnEpochThatHasEnded", run: lateOldEpoch},
	{name: "LateAtMostMessages", run: lateLimit},
	{name: "LateAtMostWhatIsAskedFor", run: lateAsked},
	{name: "LateFarBelowTheWindow", run: lateFar},
	{name: "LateOfWhatIsNotLateIsStale", run: lateNot},
	{name: "LateFound", run: lateFound},
	{name: "LateMessagesAreBounded", run: lateBounded},
}

// skipped makes a key whose numbers below n were skipped, and whose message n is
// delivered.
func (e *env) skipped(key string, n uint64) {
	e.Helper()
	e.p.GapLook = 0
	e.buffered(key, n)
	c := e.claimGap(key)
	e.applied(skip(c, n), deliver(c, n+1), release(c))
}

func lateThenSuccessor(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 3)
	c := e.claim("k")
	e.applied(deliver(c, 2), skip(c, 3), deliver(c, 4), release(c))
	e.answered(order.Late, at("k", 1, 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 2, Late: 1})
	e.buffered("k", 4) // the successor does not wait, and the cursor has not moved
	c = e.claim("k")
	e.wantLate(c, 2)
	e.wantRun(c, 4)
	m := c.Late[0]
	if !m.Late || m.Position.Epoch != 1 || string(m.Payload) != string(at("k", 1, 2).Payload) {
		e.Fatalf("the late message is %+v", m)
	}
	e.applied(late(order.KindLate, c, 2), deliver(c, 5), release(c))
	e.nothing()
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 3, Late: 1})
}

func lateAfterVoid(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 3)
	c := e.claimGap("k")
	e.applied(void(c, 1, 3), deliver(c, 4), release(c))
	e.answered(order.Late, at("k", 1, 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Void: 1, Late: 1})
	e.wantLate(e.claim("k"), 1)
	if gaps := e.allGaps("k"); len(gaps) != 0 {
		e.Fatalf("void numbers left the gaps %+v", gaps)
	}
}

func lateRecord(e *env) {
	e.skipped("k", 5)
	e.answered(order.Late, at("k", 1, 2))
	e.answered(order.Late, at("k", 1, 4))
	if g := e.wantGap("k", 1, 5, false); g.Arrived != 2 {
		e.Fatalf("two numbers of the record arrived, and it says %d", g.Arrived)
	}
}

func lateSplits(e *env) {
	e.skipped("k", 8)
	e.answered(order.Late, at("k", 1, 4))
	e.wantState("k", order.StateSkipped, 1, 2, 3, 5, 6, 7)
	e.wantState("k", order.StateLate, 4)
	for i, n := range []uint64{1, 7, 3, 5, 2, 6} {
		e.answered(order.Late, at("k", 1, n))
		e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 9, Head: 9, Delivered: 1, Late: uint64(i + 2), Skipped: uint64(5 - i)})
	}
	e.wantLate(e.claim("k"), 1, 2, 3, 4, 5, 6, 7)
}

func lateTwice(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	e.answered(order.Duplicate, at("k", 1, 2))
	e.answered(order.Conflict, withPayload("k", 1, 2, "other"))
	c := e.claim("k")
	e.wantLate(c, 2)
	e.applied(late(order.KindLate, c, 2), release(c))
	if a := e.answered(order.Duplicate, at("k", 1, 2)); a.Unverified {
		e.Fatal("the duplicate of a late message within the window is unverified")
	}
	e.answered(order.Conflict, withPayload("k", 1, 2, "other"))
}

func lateUnwanted(e *env) {
	e.p.Late = false
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	e.nothing()
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Skipped: 1, Late: 1})
	e.answered(order.Duplicate, at("k", 1, 2))
	e.answered(order.Conflict, withPayload("k", 1, 2, "other"))
	if n := e.account("k").LateWaiting; n != 0 {
		e.Fatalf("%d late messages wait, and none is wanted", n)
	}
	e.wantState("k", order.StateLate, 2)
}

func lateOnce(e *env) {
	e.skipped("k", 4)
	e.answered(order.Late, at("k", 1, 1))
	e.answered(order.Late, at("k", 1, 3))
	if a, t := e.account("k"), e.totals(); a.LateWaiting != 2 || t.LateWaiting != 2 {
		e.Fatalf("%d late messages of the key wait, %d of all; want 2", a.LateWaiting, t.LateWaiting)
	}
	c := e.claim("k")
	e.wantLate(c, 1, 3)
	e.applied(late(order.KindLate, c, 3), release(c))
	c = e.claim("k")
	e.wantLate(c, 1)
	e.applied(late(order.KindLate, c, 1), late(order.KindLate, c, 1), release(c))
	e.nothing()
	e.applied(late(order.KindLate, c, 1)) // sent again
	if n := e.account("k").LateWaiting; n != 0 {
		e.Fatalf("%d late messages wait after all were handed over", n)
	}
}

func lateRetry(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 1))
	c := e.claim("k")
	s := late(order.KindLateRetry, c, 1)
	s.Delay = longLease
	e.applied(s, release(c))
	e.nothing()
	e.answered(order.Late, at("k", 1, 2))
	c = e.claim("k")
	e.wantLate(c, 2)
	s = late(order.KindLateRetry, c, 2)
	s.Delay = e.short
	e.applied(s, release(c))
	e.wait()
	c = e.claim("k")
	e.wantLate(c, 2)
	if c.Late[0].Error != "it failed late" {
		e.Fatalf("the error of a late message is %q", c.Late[0].Error)
	}
}

func lateRetryAlone(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 1))
	c := e.claim("k")
	s := late(order.KindLateRetry, c, 1)
	s.Delay = longLease
	e.applied(s, release(c))
	e.buffered("k", 4)
	e.deliverAll("k", 4)
	e.buffered("k", 5)
	c = e.claim("k")
	e.applied(retry(c, 5, longLease))
	e.answered(order.Late, at("k", 1, 2)) // and the run does not delay what is late
	c = e.claim("k")
	e.wantLate(c, 2)
	e.wantRun(c)
}

func latePark(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.applied(late(order.KindLatePark, c, 2), release(c))
	e.nothing()
	if n := e.account("k").LateWaiting; n != 1 {
		e.Fatalf("%d late messages wait, want the parked one", n)
	}
	p := e.parked(order.Query{N: 10})
	if len(p) != 1 || p[0].Position.Number != 2 || !p[0].Late || p[0].Error != "it failed late" || p[0].Key != "k" {
		e.Fatalf("parked are %+v", p)
	}
	e.buffered("k", 4)
	e.deliverAll("k", 4)
}

func lateResume(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.applied(late(order.KindLatePark, c, 2), release(c))
	e.applied(person(order.KindResume, "k", 2))
	c = e.claim("k")
	e.wantLate(c, 2)
	if c.Late[0].Attempt != 1 {
		e.Fatalf("a resumed late message has attempt %d", c.Late[0].Attempt)
	}
	e.applied(late(order.KindLate, c, 2), release(c))
}

func lateDrop(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.applied(late(order.KindLatePark, c, 2), release(c))
	e.applied(person(order.KindDrop, "k", 2))
	e.nothing()
	if a := e.account("k"); a.LateWaiting != 0 || len(e.parked(order.Query{N: 10})) != 0 {
		e.Fatalf("a dropped late message still waits: %+v", a)
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 1, Skipped: 1, Late: 1})
}

func lateKeyParked(e *env) {
	e.skipped("k", 3)
	e.buffered("k", 4)
	e.applied(park(e.claim("k"), 4))
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.wantLate(c, 2)
	e.wantRun(c)
	e.applied(late(order.KindLate, c, 2), release(c))
	e.nothing()
}

func lateAttempts(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	for attempt := 1; attempt <= 3; attempt++ {
		c := e.lapsed("k")
		if c.Late[0].Attempt != attempt {
			e.Fatalf("a late message has attempt %d, want %d", c.Late[0].Attempt, attempt)
		}
	}
}

func lateOldEpoch(e *env) {
	e.skipped("k", 3)
	e.answered(order.Late, at("k", 1, 2))
	e.answered(order.Buffered, at("k", 2, 1))
	e.answered(order.StaleEpoch, at("k", 1, 1)) // its epoch has ended
	c := e.claim("k")
	if c.Epoch != 2 {
		e.Fatalf("the claim is of epoch %d", c.Epoch)
	}
	e.wantLate(c, 2)
	if c.Late[0].Position.Epoch != 1 {
		e.Fatalf("the late message is of epoch %d", c.Late[0].Position.Epoch)
	}
	e.wantRun(c, 1)
	e.applied(late(order.KindLate, c, 2), deliver(c, 2), release(c))
	e.nothing()
}

func lateLimit(e *env) {
	e.skipped("k", 7)
	for n := uint64(1); n <= 5; n++ {
		e.answered(order.Late, at("k", 1, n))
	}
	seen := map[uint64]bool{}
	for _, want := range []int{2, 2, 1} {
		a := newAsk()
		a.Messages = 2
		c := e.claimAs("k", a)
		if len(c.Late) != want || c.More != (len(seen) < 3) {
			e.Fatalf("a claim of 2 messages brought %d late ones, more %t, after %d of 5", len(c.Late), c.More, len(seen))
		}
		for _, m := range c.Late {
			seen[m.Position.Number] = true
			e.applied(late(order.KindLate, c, m.Position.Number))
		}
		e.applied(release(c))
	}
	if len(seen) != 5 {
		e.Fatalf("the late messages were %v", seen)
	}
}

func lateAsked(e *env) {
	e.skipped("k", 4)
	for n := uint64(1); n <= 3; n++ {
		e.answered(order.Late, at("k", 1, n))
	}
	e.buffered("k", 5, 6)
	seen := map[uint64]bool{}
	for i := range 3 {
		a := newAsk()
		a.Late = 1
		c := e.claimAs("k", a)
		e.wantRun(c, 5, 6)
		if len(c.Late) != 1 || c.Late[0].Attempt != 1 || c.More != (i < 2) {
			e.Fatalf("a claim of one late message brought %d, more %t, after %d of 3: %+v", len(c.Late), c.More, i, c.Late)
		}
		seen[c.Late[0].Position.Number] = true
		e.applied(late(order.KindLate, c, c.Late[0].Position.Number), unbegun(c))
	}
	if len(seen) != 3 {
		e.Fatalf("the late messages were %v", seen)
	}
}

func lateFar(e *env) {
	e.skipped("k", 3)
	e.fill("k", 4, 10*window)
	e.answered(order.Late, withID("k", 1, 1, "id", "late"))
	e.answered(order.Late, at("k", 1, 2))
	c := e.claim("k")
	e.wantLate(c, 1, 2)
	for _, n := range []uint64{1, 2} {
		e.applied(late(order.KindLate, c, n))
	}
	e.applied(release(c))
	if f := e.findPlace(order.Place{ID: "id"}); f.Message == nil || string(f.Message.Payload) != "late" || f.Position.Number != 1 {
		e.Fatalf("a late message with an ID is found as %+v", f)
	}
	l := e.ledger("k", 1)
	if l.Late != 2 || l.Skipped != 0 {
		e.Fatalf("the ledger is %+v, want two late", l)
	}
	e.nothing()
}

func lateNot(e *env) {
	e.buffered("k", 1, 2, 4)
	c := e.claim("k")
	e.applied(deliver(c, 2))
	for _, n := range []uint64{2, 3, 4, 9} {
		e.stale(late(order.KindLate, c, n), late(order.KindLatePark, c, n))
	}
	e.applied(deliver(c, 3))
}

func lateFound(e *env) {
	e.skipped("k", 4)
	e.answered(order.Late, withID("k", 1, 2, "id", "late"))
	for i := range 2 {
		f := e.findPlace(order.Place{ID: "id"})
		if f.State != order.StateLate || f.Position.Number != 2 || f.Message == nil || !f.Message.Late || string(f.Message.Payload) != "late" {
			e.Fatalf("a late message is found as %s %+v (handed over: %t)", stateName(f.State), f.Message, i == 1)
		}
		if i == 0 {
			c := e.claim("k")
			e.applied(late(order.KindLate, c, 2), release(c))
		}
	}
	if got := fmt.Sprint(stateName(e.find("k", 1, 1).State), stateName(e.find("k", 1, 3).State)); got != "skippedskipped" {
		e.Fatalf("the neighbours of a late number are %s", got)
	}
}

func lateBounded(e *env) {
	e.skipped("k", 6)
	e.skipped("other", 3)
	e.p.MaxBuffered = 2
	e.answered(order.Late, at("k", 1, 1))
	e.answered(order.Late, at("k", 1, 3))
	want := order.Ledger{Epoch: 1, Cursor: 7, Head: 7, Delivered: 1, Skipped: 3, Late: 2}
	full := func() {
		e.Helper()
		e.answered(order.Full, at("k", 1, 2))
		e.wantLedger("k", want)
		e.wantState("k", order.StateSkipped, 2)
	}
	full()
	e.answered(order.Duplicate, at("k", 1, 3)) // known already
	e.answered(order.Late, at("other", 1, 1))  // each key has its own
	e.buffered("k", 7)                         // what waits in order is another count
	if a, g := e.account("k"), e.wantGap("k", 1, 6, false); a.LateWaiting != 2 || g.Arrived != 2 {
		e.Fatalf("%d late messages wait, and the record counts %d; want 2", a.LateWaiting, g.Arrived)
	}
	e.answered(order.Duplicate, at("other", 1, 1))
	want.Head, want.Buffered = 8, 1
	for _, c := range e.claims() {
		if c.Key == "k" {
			e.applied(late(order.KindLatePark, c, 1), release(c))
		}
	}
	full() // parked ones count
	e.applied(person(order.KindResume, "k", 1))
	c := e.claim("k")
	e.applied(late(order.KindLate, c, 1))
	e.answered(order.Late, at("k", 1, 2))
	e.p.Late = false // then none is stored, and there is no limit
	e.answered(order.Late, at("k", 1, 4))
}
