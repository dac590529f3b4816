package deduptest

import (
	"bytes"
	"math"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// How a claim ends, by its owner and by others.
var settleCases = []testCase{
	{name: "CompleteTwiceSucceeds", run: completeTwiceSucceeds, once: true},
	{name: "FirstResultStays", run: firstResultStays, once: true},
	{name: "ReleaseTwiceSucceeds", run: releaseTwiceSucceeds, once: true},
	{name: "HoldTwiceSucceeds", run: holdTwiceSucceeds, once: true},
	{name: "CompleteAfterReleaseIsStale", run: completeAfterReleaseIsStale},
	{name: "LateCopyOfReleaseChangesNothing", run: lateCopyOfReleaseChangesNothing},
	{name: "HeldCanBeCompleted", run: heldCanBeCompleted},
	{name: "HeldCanBeReleased", run: heldCanBeReleased},
	{name: "ForgetMakesOwnerStale", run: forgetMakesOwnerStale},
	{name: "ForgetMakesTheIDNew", run: forgetMakesTheIDNew},
	{name: "ForgetNeedsNoRecord", run: forgetNeedsNoRecord},
	{name: "SettleOfUnknownIDIsStale", run: settleOfUnknownID},
	{name: "EveryOtherTokenIsStale", run: everyOtherTokenIsStale},
	{name: "StaleOwnerCannotComplete", run: staleOwnerCannot(dedup.KindComplete)},
	{name: "StaleOwnerCannotRelease", run: staleOwnerCannot(dedup.KindRelease)},
	{name: "StaleOwnerCannotHold", run: staleOwnerCannot(dedup.KindHold)},
	{name: "StaleOwnerCannotExtend", run: staleOwnerCannot(dedup.KindExtend)},
	{name: "ResultsAreBytes", run: resultsAreBytes},
	{name: "SlicesAreNotShared", run: slicesAreNotShared},
}

func completeTwiceSucceeds(e *env) {
	c := e.acquire(e.p, "twice")
	e.applied(c.Complete([]byte("r")))
	e.applied(c.Complete([]byte("r")))
	e.wantDone(e.probe("twice"), []byte("r"))
	e.applied(c.Complete([]byte("r")))
}

func firstResultStays(e *env) {
	c := e.acquire(e.p, "stays")
	e.applied(c.Complete([]byte("first")))
	e.applied(c.Complete([]byte("second")))
	e.wantDone(e.probe("stays"), []byte("first"))
	empty := e.acquire(e.p, "stays-empty")
	e.applied(empty.Complete(nil))
	e.applied(empty.Complete([]byte("second")))
	e.wantDone(e.probe("stays-empty"), nil)
}

func releaseTwiceSucceeds(e *env) {
	c := e.acquire(e.p, "twice")
	e.applied(c.Release())
	e.applied(c.Release())
	e.wantAcquired(e.probe("twice"), 2)
}

func holdTwiceSucceeds(e *env) {
	c := e.acquire(e.p, "twice")
	e.applied(c.Hold())
	e.applied(c.Hold())
	e.wantUnknown(e.probe("twice"), c)
}

func completeAfterReleaseIsStale(e *env) {
	c := e.acquire(e.p, "given-back")
	e.applied(c.Release())
	e.stale(c.Complete([]byte("r")))
	e.wantAcquired(e.probe("given-back"), 2)
}

func lateCopyOfReleaseChangesNothing(e *env) {
	c := e.acquire(e.p, "late")
	e.applied(c.Release())
	next := e.acquire(e.p, "late")
	e.settle(e.p, c.Release()) // stale, or known to have been applied
	e.want(e.probe("late"), dedup.InFlight)
	e.applied(next.Complete([]byte("r")))
	e.settle(e.p, c.Release())
	e.wantDone(e.probe("late"), []byte("r"))
}

func heldCanBeCompleted(e *env) {
	for _, c := range []dedup.Claim{e.acquire(e.p, "held"), e.lapsed(e.hold, "lapsed")} {
		e.settle(e.p, c.Hold())
		e.applied(c.Complete([]byte("it happened")))
		e.wantDone(e.probe(c.ID), []byte("it happened"))
	}
}

func heldCanBeReleased(e *env) {
	for _, c := range []dedup.Claim{e.acquire(e.p, "held"), e.lapsed(e.hold, "lapsed")} {
		e.settle(e.p, c.Hold())
		e.applied(c.Release())
		e.wantAcquired(e.probe(c.ID), 2)
	}
}

// forgotten calls check with the owner of an ID that was forgotten in each of
// the states that a record can be in.
func (e *env) forgotten(check func(state string, c dedup.Claim)) {
	e.Helper()
	e.inEveryState(func(state string, c dedup.Claim) {
		e.applied(forget(c.ID))
		e.tick()
		check(state, c)
	})
}

func forgetMakesOwnerStale(e *env) {
	e.forgotten(func(state string, c dedup.Claim) {
		e.stale(c.Complete([]byte("r")))
		e.stale(c.Release())
		e.stale(c.Hold())
		e.stale(c.Extend(longLease))
		next := e.acquire(e.p, c.ID)
		e.stale(c.Complete([]byte("r")))
		e.stale(c.Release())
		e.stale(c.Hold())
		e.stale(c.Extend(longLease))
		e.want(e.probe(c.ID), dedup.InFlight)
		e.applied(next.Complete([]byte("the new owner's")))
		e.wantDone(e.probe(c.ID), []byte("the new owner's"))
	})
}

func forgetMakesTheIDNew(e *env) {
	e.forgotten(func(state string, c dedup.Claim) {
		next := e.wantAcquired(e.ask(e.p, newAskAs(c.ID, 2)), 1) // another content is welcome,
		e.want(e.ask(e.p, newAskAs(c.ID, 1)), dedup.Conflict)    // the first now another,
		e.applied(next.Complete(nil))
		e.wantDone(e.probe(c.ID), nil) // and the first result is gone.
	})
}

func forgetNeedsNoRecord(e *env) {
	e.applied(forget("never-seen"))
	e.applied(forget("never-seen"))
	e.wantAcquired(e.probe("never-seen"), 1)
	e.applied(dedup.Settlement{Kind: dedup.KindForget, ID: "never-seen", Token: 1}) // no token matters
	e.tick()
	e.wantAcquired(e.probe("never-seen"), 1)
}

func settleOfUnknownID(e *env) {
	other := e.acquire(e.p, "another")
	c := other
	c.ID = "never-seen"
	e.stale(c.Complete([]byte("r")))
	e.stale(c.Release())
	e.stale(c.Hold())
	e.stale(c.Extend(longLease))
	e.wantAcquired(e.probe("never-seen"), 1)
	if held := e.held("", 10); len(held) != 0 {
		e.Fatalf("settling an unknown ID made a held claim of %q", held[0].ID)
	}
	e.applied(other.Complete(nil))
}

func everyOtherTokenIsStale(e *env) {
	owner := e.acquire(e.p, "mine")
	for _, token := range []uint64{
		0, 1, owner.Token - 1, owner.Token + 1, owner.Token ^ 1<<52, owner.Token ^ 1<<60,
		math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 1, math.MaxUint64,
	} {
		c := owner
		c.Token = token
		e.stale(c.Complete([]byte("r")))
		e.stale(c.Release())
		e.stale(c.Hold())
		e.stale(c.Extend(longLease))
	}
	e.want(e.probe("mine"), dedup.InFlight)
	e.applied(owner.Complete([]byte("mine")))
	e.wantDone(e.probe("mine"), []byte("mine"))
}

// staleOwnerCannot lets another owner take over a lapsed claim, and the first
// one try a settlement afterwards.
func staleOwnerCannot(k dedup.Kind) func(*env) {
	return func(e *env) {
		first := e.lapsed(e.p, "taken-over")
		second := e.wantAcquired(e.ask(e.p, newAsk("taken-over")), 2)
		try := settlementOf(k, first, "stale")

		e.stale(try)
		other := e.want(e.probe("taken-over"), dedup.InFlight)
		e.wantLeft(other, longLease, 0)
		e.applied(second.Complete([]byte("second")))
		e.stale(try)
		e.wantDone(e.probe("taken-over"), []byte("second"))
	}
}

// settlementOf makes the settlement of kind k for a claim.
func settlementOf(k dedup.Kind, c dedup.Claim, result string) dedup.Settlement {
	switch k {
	case dedup.KindComplete:
		return c.Complete([]byte(result))
	case dedup.KindRelease:
		return c.Release()
	case dedup.KindHold:
		return c.Hold()
	case dedup.KindExtend:
		return c.Extend(longLease)
	case dedup.KindRetain:
		return dedup.Settlement{Kind: k, ID: c.ID, Token: c.Token, Retention: longRetention}
	}
	return forget(c.ID)
}

func resultsAreBytes(e *env) {
	big := make([]byte, 64<<10)
	for i := range big {
		big[i] = byte(i * 7 >> 3)
	}
	for name, result := range map[string][]byte{
		"nil":           nil,
		"empty":         {},
		"NUL":           {0},
		"NULs-inside":   []byte("a\x00b\x00"),
		"not-UTF-8":     {0xff, 0xfe, 0x80, 0xc0},
		"quotes":        []byte(`'"\$1;--{}[]` + "\r\n\t"),
		"number":        []byte("9007199254740993"),
		"looks-escaped": []byte(`\x00`),
		"every-byte":    big[:4096],
		"64-KiB":        big,
	} {
		c := e.acquire(e.p, name)
		e.applied(c.Complete(result))
		e.wantDone(e.probe(name), result)
	}
}

func slicesAreNotShared(e *env) {
	asks := []dedup.Ask{newAskAs("one", 1), newAskAs("two", 1)}
	kept := bytes.Clone(asks[0].Nonce[:])
	cs := e.claim(e.p, asks...)
	clear(asks)
	result := []byte("first")
	settlements := []dedup.Settlement{cs[0].Complete(result), cs[1].Complete([]byte("other"))}
	token := cs[0].Token
	clear(cs)
	e.applied(settlements...)
	copy(result, "XXXXX")
	clear(settlements)
	got := e.ask(e.p, newAsk("one"))
	e.wantDone(got, []byte("first"))
	copy(got.Result, "YYYYY")
	e.wantDone(e.probe("one"), []byte("first"))
	e.applied(dedup.Claim{ID: "one", Token: token}.Complete(nil))
	again := newAskAs("one", 1)
	copy(again.Nonce[:], kept)
	e.wantDone(e.ask(e.p, again), []byte("first"))
}

// aMoment is the shortest duration there is, and shorter than what many servers
// can tell apart.
const aMoment = time.Nanosecond
