package deduptest

import (
	"github.com/pawl-go/pawl/dedup"
)

// Params.Complete: claim and complete in one step.
var firstSeenCases = []testCase{
	{name: "FirstSeenCompletes", run: firstSeenCompletes},
	{name: "FirstSeenRepeated", run: firstSeenRepeated, once: true},
	{name: "FirstSeenOfAnExistingRecord", run: firstSeenOfAnExistingRecord},
	{name: "FirstSeenUnderHoldIsForgotten", run: firstSeenUnderHoldIsForgotten},
}

func firstSeenParams(p dedup.Params) dedup.Params {
	p.Complete = true
	return p
}

func firstSeenCompletes(e *env) {
	for _, p := range []dedup.Params{e.p, e.hold} {
		id := "seen-under-" + p.OnLapse.String()
		e.wantAcquired(e.ask(firstSeenParams(p), newAsk(id)), 1)
		e.wantDone(e.ask(firstSeenParams(p), newAsk(id)), nil)
		e.wantDone(e.probe(id), nil) // it is the same record as Claim's
	}
}

func firstSeenRepeated(e *env) {
	p := firstSeenParams(e.p)
	a := newAskAs("again", 1)
	first := e.wantAcquired(e.ask(p, a), 1)
	e.wantSame(e.ask(p, a), first)
	e.wantDone(e.ask(p, newAskAs("again", 1)), nil)
	e.wantSame(e.ask(p, a), first)
	e.want(e.ask(p, newAskAs("again", 2)), dedup.Conflict)
}

func firstSeenOfAnExistingRecord(e *env) {
	p := firstSeenParams(e.p)
	claimed := e.acquire(e.p, "claimed")
	done := e.acquire(e.p, "done")
	released := e.acquire(e.p, "released")
	held := e.acquire(e.p, "held")
	e.applied(done.Complete([]byte("r")), released.Release(), held.Hold())
	e.lapsed(e.p, "lapsed")

	e.want(e.ask(p, newAsk("claimed")), dedup.InFlight)
	e.applied(claimed.Complete([]byte("owner's")))
	e.wantDone(e.probe("claimed"), []byte("owner's"))
	e.wantDone(e.ask(p, newAsk("done")), []byte("r"))
	e.wantUnknown(e.ask(p, newAsk("held")), held)
	for _, id := range []string{"released", "lapsed"} {
		a := newAsk(id)
		e.wantAcquired(e.ask(p, a), 2)
		e.wantDone(e.ask(p, newAsk(id)), nil)
		e.wantAcquired(e.ask(p, a), 2)
	}
}

func firstSeenUnderHoldIsForgotten(e *env) {
	p := e.shortRetention(firstSeenParams(e.hold))
	e.wantAcquired(e.ask(p, newAsk("seen")), 1)
	if held := e.held("", 10); len(held) != 0 {
		e.Fatalf("an ID seen first is listed as held: %q", held[0].ID)
	}
	e.wait()
	e.wantAcquired(e.ask(p, newAsk("seen")), 1)
}
