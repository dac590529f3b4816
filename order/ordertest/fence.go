package ordertest

import "github.com/pawl-go/pawl/order"

// Owners: who may change a key.
var fenceCases = []testCase{
	{name: "TwoHoldersWithAPausedOne", run: fencePaused},
	{name: "StaleOwnerChangesNothing", run: fenceStale},
	{name: "LapsedOwnerMaySettleUntilAnotherTakesOver", run: fenceLapsed},
	{name: "ReleasedKeyIsNobodys", run: fenceReleased},
	{name: "TokenZeroIsNobodys", run: fenceZero},
	{name: "TokenOfAnotherKey", run: fenceOtherKey},
	{name: "OtherEpochIsStale", run: fenceEpoch},
	{name: "SettlementTwiceSucceeds", run: fenceTwice},
	{name: "ReleaseAfterAnotherTookOverIsStale", run: fenceReleaseLate},
	{name: "ErrorsAreInOrder", run: fenceErrors},
}

// workerKinds makes one settlement of every kind of a worker that has an effect on
// a key with the messages 1 and 2.
func workerKinds(c order.Claim) []order.Settlement {
	return []order.Settlement{
		deliver(c, 2), void(c, 1, 9), skip(c, 2), retry(c, 1, 0), park(c, 1), wait(c, 0), release(c), unbegun(c), extend(c, longLease),
		late(order.KindLate, c, 1), late(order.KindLateRetry, c, 1), late(order.KindLatePark, c, 1),
	}
}

func fencePaused(e *env) {
	e.buffered("k", 1, 2, 3)
	paused := e.lapsed("k")
	second := e.claim("k")
	e.wantRun(second, 1)
	e.applied(deliver(second, 2))
	e.stale(deliver(paused, 2), deliver(paused, 3), retry(paused, 1, 0), park(paused, 2), release(paused))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 2, Head: 4, Delivered: 1, Buffered: 2})
	e.nothing() // the second still holds it
	e.applied(deliver(second, 4), release(second))
	e.stale(workerKinds(paused)...)
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 4, Head: 4, Delivered: 3})
}

func fenceStale(e *env) {
	e.buffered("k", 1, 2)
	stale := e.lapsed("k")
	owner := e.claim("k")
	e.stale(workerKinds(stale)...)
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Buffered: 2})
	e.nothing()
	e.applied(deliver(owner, 2), release(owner))
	c := e.claim("k")
	e.wantRun(c, 2)
	e.stale(workerKinds(owner)[1:6]...)
	e.stale(release(owner))
}

func fenceLapsed(e *env) {
	e.buffered("k", 1, 2)
	c := e.lapsed("k")
	e.applied(deliver(c, 2), deliver(c, 3), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 3, Head: 3, Delivered: 2})
	e.nothing()
}

func fenceReleased(e *env) {
	e.buffered("k", 1, 2)
	c := e.claim("k")
	e.applied(deliver(c, 2), release(c))
	e.stale(deliver(c, 3), extend(c, longLease))
	e.applied(deliver(c, 2), release(c)) // sent again
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 2, Head: 3, Delivered: 1, Buffered: 1})
	e.wantRun(e.claim("k"), 2)
}

func fenceZero(e *env) {
	e.buffered("k", 1, 2)
	none := order.Claim{Key: "k", Epoch: 1}
	e.stale(workerKinds(none)...)
	e.stale(workerKinds(order.Claim{Key: "nobody", Epoch: 1})...)
	e.stale(workerKinds(order.Claim{Key: "nobody", Epoch: 1, Token: 7})...)
	c := e.claim("k")
	e.stale(workerKinds(none)...)
	e.wantRun(c, 1, 2)
}

func fenceOtherKey(e *env) {
	e.buffered("a", 1, 2)
	a := e.claim("a")
	e.sleep(2e6)
	e.buffered("b", 1, 2)
	b := e.claim("b")
	wrong := b
	wrong.Token = a.Token
	e.stale(workerKinds(wrong)...)
	wrong.Token = b.Token + 1
	e.stale(workerKinds(wrong)...)
	e.applied(deliver(b, 3), release(b))
}

func fenceEpoch(e *env) {
	e.buffered("k", 1, 2)
	e.answered(order.Buffered, at("k", 5, 1))
	c := e.claim("k")
	for _, epoch := range []uint64{0, 3, 5, 6} {
		wrong := c
		wrong.Epoch = epoch
		e.stale(deliver(wrong, 2), skip(wrong, 2), retry(wrong, 1, 0), park(wrong, 1))
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 3, Buffered: 2})
	e.applied(deliver(c, 2))
}

func fenceTwice(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 4)
	c := e.claim("k")
	for range 2 {
		e.applied(deliver(c, 2))
		e.applied(void(c, 2, 3))
		e.applied(skip(c, 4))
	}
	for range 2 {
		e.applied(deliver(c, 5), release(c))
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 2, Void: 1, Skipped: 1})
	for _, end := range []func(order.Claim) order.Settlement{
		func(c order.Claim) order.Settlement { return retry(c, c.Run[0].Position.Number, 0) }, release, unbegun,
		func(c order.Claim) order.Settlement { return park(c, c.Run[0].Position.Number) },
	} {
		if l := e.ledger("k", 1); l.Buffered == 0 {
			e.buffered("k", l.Head)
		}
		c := e.claim("k")
		e.applied(end(c))
		e.applied(end(c))
	}
	if l := e.ledger("k", 1); l.Parked != 1 {
		e.Fatalf("the ledger is %+v, want the message parked", l)
	}
}

func fenceReleaseLate(e *env) {
	e.buffered("k", 1)
	first := e.claim("k")
	e.applied(release(first))
	second := e.claim("k")
	e.stale(release(first), retry(first, 1, longLease), park(first, 1))
	e.nothing()
	e.applied(deliver(second, 2), release(second))
}

func fenceErrors(e *env) {
	e.buffered("a", 1, 2)
	e.buffered("b", 1)
	var a, b order.Claim
	for _, c := range e.claims() {
		if c.Key == "a" {
			a = c
		} else {
			b = c
		}
	}
	wrong := b
	wrong.Token++
	errs := e.settle(deliver(a, 2), deliver(wrong, 2), deliver(b, 2), deliver(a, 9), person(order.KindResume, "a", 7), release(a))
	for i, want := range []bool{true, false, true, false, false, true} {
		if (errs[i] == nil) != want {
			e.Fatalf("settlement %d of the batch was answered %v, want success %t: %v", i, errs[i], want, errs)
		}
	}
	e.wantLedger("a", order.Ledger{Epoch: 1, Cursor: 2, Head: 3, Delivered: 1, Buffered: 1})
	e.wantLedger("b", order.Ledger{Epoch: 1, Cursor: 2, Head: 2, Delivered: 1})
}
