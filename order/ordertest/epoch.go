package ordertest

import "github.com/pawl-go/pawl/order"

// Epochs: which is active, when it ends, and what a new one does with it.
var epochCases = []testCase{
	{name: "LowerEpochIsDrainedFirst", run: epochDrain},
	{name: "DrainedEpochEndsWhenTheNextBegins", run: epochEndsAtOnce},
	{name: "EpochEndsInTheMoveThatReachesItsHead", run: epochEndsInTheMove},
	{name: "EpochBumpWithOldMessagesInFlight", run: epochOldInFlight},
	{name: "HighestEpochNeverEnds", run: epochHighest},
	{name: "EpochBetweenWaitsItsTurn", run: epochBetween},
	{name: "EpochZero", run: epochZero},
	{name: "AbandonSkipsWithRecords", run: epochAbandon},
	{name: "AbandonSkipsParked", run: epochAbandonParked},
	{name: "AbandonOnlyByAHigherEpoch", run: epochAbandonLower},
	{name: "AbandonMakesRoom", run: epochAbandonFull},
	{name: "AbandonLeavesTheLeaseAlone", run: epochAbandonLease},
	{name: "MaxEpochs", run: epochMax},
	{name: "EpochBumpDisturbsNoOtherKey", run: epochOneKey},
}

func epochDrain(e *env) {
	e.answered(order.Buffered, at("k", 2, 1))
	e.answered(order.StaleEpoch, at("k", 1, 1)) // 2 is the lowest that there is
	e.answered(order.Buffered, at("drain", 1, 1))
	e.answered(order.Buffered, at("drain", 2, 1))
	e.answered(order.Buffered, at("drain", 1, 2)) // still wanted
	for _, c := range e.claims() {
		if c.Key == "drain" {
			if c.Epoch != 1 {
				e.Fatalf("the claim is of epoch %d, want 1", c.Epoch)
			}
			e.wantRun(c, 1, 2)
			e.applied(deliver(c, 3), release(c))
		}
	}
	c := e.claim("drain")
	if c.Epoch != 2 {
		e.Fatalf("after the first epoch the claim is of epoch %d, want 2", c.Epoch)
	}
	e.wantRun(c, 1)
}

func epochEndsAtOnce(e *env) {
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	if e.ledger("k", 1).Ended {
		e.Fatal("an epoch ended without a higher one")
	}
	e.answered(order.Buffered, at("k", 5, 1))
	if l := e.ledger("k", 1); !l.Ended {
		e.Fatalf("a delivered epoch has not ended when a higher one began: %+v", l)
	}
	e.answered(order.StaleEpoch, at("k", 1, 2))
	e.answered(order.StaleEpoch, at("k", 4, 1))
}

func epochEndsInTheMove(e *env) {
	e.buffered("k", 1, 3)
	e.answered(order.Buffered, at("k", 2, 1))
	c := e.claim("k")
	e.applied(deliver(c, 2))
	if e.ledger("k", 1).Ended {
		e.Fatal("an epoch ended although a number is missing and one buffered")
	}
	e.applied(skip(c, 3), deliver(c, 4))
	if !e.ledger("k", 1).Ended {
		e.Fatal("an epoch has not ended although its cursor is at its head and a higher one waits")
	}
	e.applied(deliver(c, 4), skip(c, 3), void(c, 2, 3)) // sent again
	e.applied(release(c))                               // by the owner, who knows the old epoch
	c = e.claim("k")
	if c.Epoch != 2 {
		e.Fatalf("the claim is of epoch %d", c.Epoch)
	}
}

func epochOldInFlight(e *env) {
	e.buffered("k", 1, 2, 4)
	c := e.claim("k")
	e.wantRun(c, 1, 2)
	e.answered(order.Buffered, at("k", 2, 1))
	e.answered(order.Buffered, at("k", 2, 2))
	e.applied(deliver(c, 3), release(c))
	e.buffered("k", 3) // on its way when the epoch was bumped
	e.deliverAll("k", 3, 4)
	e.answered(order.StaleEpoch, at("k", 1, 5))
	c = e.claim("k")
	e.wantRun(c, 1, 2)
	e.applied(deliver(c, 3), release(c))
	e.nothing()
}

func epochHighest(e *env) {
	e.answered(order.Buffered, at("k", 3, 1))
	e.deliverAllOf("k", 3, 1)
	if e.ledger("k", 3).Ended {
		e.Fatal("the highest epoch has ended")
	}
	e.answered(order.Buffered, at("k", 3, 2))
	e.deliverAllOf("k", 3, 2)
}

// deliverAllOf claims a key, delivers its run of an epoch and releases it.
func (e *env) deliverAllOf(key string, epoch uint64, numbers ...uint64) {
	e.Helper()
	c := e.claim(key)
	if c.Epoch != epoch {
		e.Fatalf("the claim of key %q is of epoch %d, want %d", key, c.Epoch, epoch)
	}
	e.wantRun(c, numbers...)
	e.applied(deliver(c, numbers[len(numbers)-1]+1), release(c))
}

func epochBetween(e *env) {
	e.buffered("k", 1)
	e.answered(order.Buffered, at("k", 9, 1))
	e.answered(order.Buffered, at("k", 5, 1))
	e.deliverAllOf("k", 1, 1)
	e.answered(order.StaleEpoch, at("k", 3, 1))
	e.deliverAllOf("k", 5, 1)
	e.answered(order.StaleEpoch, at("k", 7, 1))
	e.deliverAllOf("k", 9, 1)
	var got []uint64
	for _, l := range e.account("k").Ledgers {
		got = append(got, l.Epoch)
	}
	if len(got) != 3 || got[0] != 9 || got[1] != 5 || got[2] != 1 {
		e.Fatalf("the ledgers are of the epochs %v, want the active one and then those that ended, the latest first", got)
	}
}

func epochZero(e *env) {
	e.answered(order.Buffered, at("k", 0, 1))
	e.deliverAllOf("k", 0, 1)
	e.answered(order.Buffered, at("k", 1, 1))
	e.answered(order.StaleEpoch, at("k", 0, 2))
	e.deliverAllOf("k", 1, 1)
}

func epochAbandon(e *env) {
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	e.buffered("k", 3, 4, 8) // 2 and 5 to 7 are missing
	e.applied(person(order.KindUnordered, "k", 6))
	e.p.Abandon = true
	e.answered(order.Buffered, at("k", 2, 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 9, Head: 9, Ended: true, Delivered: 2, Skipped: 6, OutOfOrder: 1})
	gaps := e.allGaps("k")
	if len(gaps) != 2 || gaps[0].From != 2 || gaps[0].To != 6 || gaps[1].From != 7 || gaps[1].To != 9 {
		e.Fatalf("the records are %+v, want [2, 6) and [7, 9)", gaps)
	}
	for _, g := range gaps {
		if g.Open || g.Reason != order.ReasonAbandoned || g.Epoch != 1 || g.Resolution != 0 {
			e.Fatalf("a record of what was abandoned is %+v", g)
		}
	}
	e.answered(order.StaleEpoch, at("k", 1, 2))
	e.deliverAllOf("k", 2, 1)
}

func epochAbandonParked(e *env) {
	e.buffered("k", 1, 2)
	e.applied(park(e.claim("k"), 1))
	e.p.Abandon = true
	e.answered(order.Buffered, at("k", 2, 1))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 3, Ended: true, Skipped: 2})
	if p := e.parked(order.Query{N: 10}); len(p) != 0 {
		e.Fatalf("an abandoned message is still parked: %+v", p)
	}
	e.deliverAllOf("k", 2, 1)
}

func epochAbandonLower(e *env) {
	e.buffered("k", 2)
	e.answered(order.Buffered, at("k", 5, 1))
	e.p.Abandon = true
	e.answered(order.Buffered, at("k", 3, 1)) // not higher than all others
	if l := e.ledger("k", 1); l.Ended || l.Buffered != 1 {
		e.Fatalf("an epoch that is not the highest abandoned a lower one: %+v", l)
	}
	e.answered(order.Buffered, at("k", 5, 2)) // known already
	if l := e.ledger("k", 1); l.Ended {
		e.Fatalf("an epoch that is not new abandoned a lower one: %+v", l)
	}
	e.answered(order.Buffered, at("k", 6, 1))
	for _, epoch := range []uint64{1, 3, 5} {
		if l := e.ledger("k", epoch); !l.Ended || l.Buffered != 0 {
			e.Fatalf("the highest epoch did not abandon a lower one: %+v", l)
		}
	}
}

func epochAbandonFull(e *env) {
	e.p.MaxBuffered, e.p.Abandon = 2, true
	e.buffered("k", 2, 3)
	e.answered(order.Full, at("k", 1, 4))
	e.answered(order.Buffered, at("k", 2, 2))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Ended: true, Skipped: 3})
}

func epochAbandonLease(e *env) {
	e.buffered("k", 1, 2)
	c := e.claim("k")
	e.p.Abandon = true
	e.answered(order.Buffered, at("k", 2, 1))
	e.nothing() // it is claimed
	e.stale(retry(c, 1, 0))
	e.applied(deliver(c, 3)) // not above the cursor: nothing to do
	e.applied(release(c))
	e.deliverAllOf("k", 2, 1)
}

func epochMax(e *env) {
	for i := range uint64(order.MaxEpochs) {
		e.answered(order.Buffered, at("k", i+1, 2))
	}
	e.answered(order.Full, at("k", order.MaxEpochs+1, 2))
	e.answered(order.Buffered, at("k", order.MaxEpochs, 3))
	if n := len(e.account("k").Ledgers); n != order.MaxEpochs {
		e.Fatalf("the key has %d ledgers, want %d", n, order.MaxEpochs)
	}
	e.answered(order.Buffered, at("k", 1, 1))
	e.deliverAllOf("k", 1, 1, 2)
	e.answered(order.Buffered, at("k", order.MaxEpochs+1, 2))
}

func epochOneKey(e *env) {
	e.buffered("a", 1, 3)
	e.buffered("b", 1, 3)
	e.p.Abandon = true
	e.answered(order.Buffered, at("a", 2, 1))
	e.wantLedger("b", order.Ledger{Epoch: 1, Cursor: 1, Head: 4, Buffered: 2, Missing: 1})
	e.buffered("b", 2)
	for _, c := range e.claims() {
		if c.Key == "b" {
			e.wantRun(c, 1, 2, 3)
		}
	}
}
