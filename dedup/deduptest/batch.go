package deduptest

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/dedup"
)

// Many items in one call.
var batchCases = []testCase{
	{name: "BatchAnswersInOrder", run: batchAnswersInOrder},
	{name: "RepeatedIDInBatch", run: repeatedIDInBatch},
	{name: "RefusedAndThenAcquiredInBatch", run: refusedAndThenAcquired},
	{name: "RepeatedIDInBatchOfFirstSeen", run: repeatedIDInFirstSeen},
	{name: "RepeatedIDInSettlements", run: repeatedIDInSettlements},
	{name: "SettlementErrorsArePositioned", run: settlementErrorsArePositioned},
	{name: "SettlementsAllAppliedIsNil", run: settlementsAllAppliedIsNil},
	{name: "EmptyBatch", run: emptyBatch},
	{name: "LargeBatch", run: largeBatch},
}

func batchAnswersInOrder(e *env) {
	fp := func(id string) dedup.Ask { return newAskAs(id, 1) }
	done := e.acquire(e.p, "done")
	held := e.acquire(e.p, "held")
	released := e.acquire(e.p, "released")
	e.wantAcquired(e.ask(e.p, newAskAs("conflict", 2)), 1)
	e.acquire(e.p, "busy")
	e.applied(done.Complete([]byte("r")), held.Hold(), released.Release())

	var asks []dedup.Ask
	for i := range 30 {
		asks = append(asks, fp("done"), fp(fmt.Sprintf("z-new-%d", i)), fp("conflict"), fp("held"),
			fp(fmt.Sprintf("a-new-%d", i)), fp("busy"))
	}
	asks = append(asks, fp("released"))
	cs := e.claim(e.p, asks...)
	for i := 0; i < 180; i += 6 {
		e.wantDone(cs[i], []byte("r"))
		e.wantAcquired(cs[i+1], 1)
		e.want(cs[i+2], dedup.Conflict)
		e.wantUnknown(cs[i+3], held)
		e.wantAcquired(cs[i+4], 1)
		e.want(cs[i+5], dedup.InFlight)
	}
	e.wantAcquired(cs[180], 2)
}

func repeatedIDInBatch(e *env) {
	a, b, other := newAskAs("one", 1), newAskAs("one", 1), newAskAs("one", 2)
	two := newAskAs("two", 1)
	cs := e.claim(e.p, a, two, b, a, other, two)
	e.wantAcquired(cs[0], 1)
	e.wantAcquired(cs[1], 1)
	e.want(cs[2], dedup.InFlight)
	e.wantSame(cs[3], cs[0])
	e.want(cs[4], dedup.Conflict)
	e.wantSame(cs[5], cs[1])
	e.applied(cs[0].Complete([]byte("r")))
	cs = e.claim(e.p, a, newAsk("three"), b)
	e.wantDone(cs[0], []byte("r"))
	e.wantAcquired(cs[1], 1)
	e.wantDone(cs[2], []byte("r"))
}

// A batch that is sent again meets what its own asks acquired: those before them see the
// next attempt.
func refusedAndThenAcquired(e *env) {
	spent := newAskAs("late", 1)
	e.applied(e.wantAcquired(e.ask(e.p, newAskAs("conflict", 1)), 1).Release(), e.wantAcquired(e.ask(e.p, spent), 1).Release())
	cs := e.claim(e.p, newAskAs("conflict", 2), newAskAs("conflict", 1), spent, newAskAs("late", 1))
	e.want(cs[0], dedup.Conflict)
	e.wantAcquired(cs[1], 2)
	e.want(cs[2], dedup.InFlight)
	e.wantAcquired(cs[3], 2)
}

func repeatedIDInFirstSeen(e *env) {
	a := newAsk("one")
	cs := e.claim(firstSeenParams(e.p), a, newAsk("two"), newAsk("one"), a, newAsk("two"))
	e.wantAcquired(cs[0], 1)
	e.wantAcquired(cs[1], 1)
	e.wantDone(cs[2], nil)
	e.wantSame(cs[3], cs[0])
	e.wantDone(cs[4], nil)
}

func repeatedIDInSettlements(e *env) {
	a, b, c, d := e.acquire(e.p, "a"), e.acquire(e.p, "b"), e.acquire(e.p, "c"), e.acquire(e.hold, "d")
	got := e.settle(e.p,
		a.Complete([]byte("1")), b.Release(), c.Complete(nil), d.Extend(longLease),
		a.Complete([]byte("2")), b.Complete(nil), forget("c"), d.Hold(),
		a.Release(), b.Release(), c.Complete(nil), d.Extend(longLease),
		d.Complete([]byte("d")), forget("c"))
	want := []bool{
		true, true, true, true,
		true, false, true, true,
		false, true, false, false,
		true, true,
	}
	for i, err := range got {
		if (err == nil) != want[i] {
			e.Fatalf("settlement %d of a batch that repeats IDs returned %v; want it applied: %t", i, err, want[i])
		}
	}
	e.tick()
	e.wantDone(e.probe("a"), []byte("1"))
	e.wantAcquired(e.probe("b"), 2)
	e.wantAcquired(e.probe("c"), 1)
	e.wantDone(e.probe("d"), []byte("d"))
}

func settlementErrorsArePositioned(e *env) {
	var s []dedup.Settlement
	for i := range 40 {
		c := e.acquire(e.p, fmt.Sprintf("id-%d", 97*i%40))
		if i%3 == 1 {
			c.Token++
		}
		s = append(s, settlementOf(dedup.Kind(1+i%4), c, "r"))
	}
	errs := e.settle(e.p, s...)
	for i, err := range errs {
		if (err != nil) != (i%3 == 1) {
			e.Fatalf("settlement %d of 40 returned %v; every third, from 1, is stale", i, err)
		}
	}
}

func settlementsAllAppliedIsNil(e *env) {
	a, b := e.acquire(e.p, "a"), e.acquire(e.p, "b")
	errs, err := e.store.Settle(context.Background(), e.p,
		[]dedup.Settlement{a.Complete(nil), b.Release(), forget("c")})
	if err != nil || errs != nil {
		e.Fatalf("Settle, all applied, returned %v, %v; want a nil slice and no error", errs, err)
	}
}

func emptyBatch(e *env) {
	if cs := e.claim(e.p); len(cs) != 0 {
		e.Fatalf("Claim of nothing returned %d claims", len(cs))
	}
	e.applied()
}

func largeBatch(e *env) {
	const n = 1500
	asks := make([]dedup.Ask, n)
	for i := range asks {
		asks[i] = newAsk(fmt.Sprintf("id-%d", i))
	}
	cs := e.claim(e.p, asks...)
	s := make([]dedup.Settlement, n)
	for i, c := range cs {
		e.wantAcquired(c, 1)
		s[i] = c.Complete(fmt.Appendf(nil, "result-%d", i))
	}
	e.applied(s...)
	for i, c := range e.claim(e.p, asks...) {
		e.wantDone(c, fmt.Appendf(nil, "result-%d", i))
	}
}
