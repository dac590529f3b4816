package inboxtest

import (
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// What an owner's settlements do.
var settleCases = []testCase{
	{name: "DoneEndsTheRecord", run: doneEnds},
	{name: "DeadIsKeptWithItsError", run: givenUpIsKept(inbox.KindDead, inbox.StateDead)},
	{name: "QuarantineIsKeptWithItsError", run: givenUpIsKept(inbox.KindQuarantine, inbox.StateQuarantined)},
	{name: "UnknownIsKeptWithItsError", run: givenUpIsKept(inbox.KindUnknown, inbox.StateUnknown)},
	{name: "AnEndDoesNotReleaseTheKey", run: endDoesNotRelease},
	{name: "GivenUpDoesNotBlockItsKey", run: givenUpDoesNotBlock},
	{name: "DoneKeepsTheLastError", run: doneKeepsTheLastError},
	{name: "ReleaseIsDueAtOnce", run: releaseIsDue},
	{name: "ExtendKeepsTheKey", run: extendKeeps},
	{name: "ExtendAfterALapseRevives", run: extendAfterLapse},
	{name: "OwnerOfALapsedKeyMaySettle", run: lapsedMaySettle},
	{name: "BeginCountsOnce", run: beginCountsOnce, once: true},
	{name: "BeginTakesOnlyTheFirst", run: beginOnlyTheFirst},
	{name: "AnEndNeedsABegin", run: endNeedsBegin},
	{name: "BatchIsAppliedInOrder", run: batchInOrder},
	{name: "BatchAnswersEach", run: batchAnswersEach},
	{name: "AppliedBatchReturnsNoErrors", run: appliedBatch},
	{name: "LongErrorsAreKept", run: longErrors},
}

func doneEnds(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.tick()
	e.applied(done(c, "a"))
	r := e.wantState("a", inbox.StateDone, 1)
	if r.Settled.IsZero() || r.Settled.Before(r.Received) || !r.Next.IsZero() {
		e.Fatalf("a record that is done has the times %v, %v, %v", r.Received, r.Settled, r.Next)
	}
	if got := r.Expires.Sub(r.Settled); got != longRetention {
		e.Fatalf("a record that is done expires after %v, want %v", got, longRetention)
	}
	e.wantTotals(1, 1, 0, 0, 0, 0)
}

func givenUpIsKept(k inbox.Kind, s inbox.State) func(*env) {
	return func(e *env) {
		e.events("k", "a")
		c := e.claim("k")
		e.applied(settlement(k, c, "a"), release(c))
		r := e.wantState("a", s, 1)
		if r.LastError != "it failed" {
			e.Fatalf("the record keeps the error %q", r.LastError)
		}
		if s == inbox.StateUnknown {
			if r.Settled.IsZero() || !r.Expires.IsZero() || !r.Erases.IsZero() {
				e.Fatalf("an unknown record ended at %v, expires at %v and erases at %v, want neither", r.Settled, r.Expires, r.Erases)
			}
		} else if got := r.Expires.Sub(r.Settled); got != longKeep || !r.Erases.Equal(r.Expires) {
			e.Fatalf("a record that was given up expires after %v, want %v, and erases at %v", got, longKeep, r.Erases)
		}
		if got := e.in(s); len(got) != 1 {
			e.Fatalf("%q are listed as %v", got, s)
		}
		e.nothing()
	}
}

func endDoesNotRelease(e *env) {
	for _, k := range []inbox.Kind{inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown} {
		id := k.String()
		e.events(id, id, "next to "+id)
		c := e.claim(id)
		e.applied(settlement(k, c, id))
		e.nothing()
		e.applied(begin(c, "next to "+id), done(c, "next to "+id), release(c))
	}
}

func givenUpDoesNotBlock(e *env) {
	e.events("k", "poison", "a")
	c := e.claim("k")
	e.applied(settlement(inbox.KindDead, c, "poison"), release(c))
	e.wantRecords(e.claim("k"), "a")
}

func doneKeepsTheLastError(e *env) {
	e.events("k", "a")
	e.applied(retry(e.claim("k"), "a", 0))
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	if r := e.wantState("a", inbox.StateDone, 2); r.LastError != "it failed" {
		e.Fatalf("the record keeps the error %q", r.LastError)
	}
}

func releaseIsDue(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(release(c))
	next := e.claim("k")
	e.wantRecords(next, "a", "b")
	if next.Token <= c.Token {
		e.Fatalf("the second owner has token %d, want more than %d", next.Token, c.Token)
	}
	if got := next.Records[0].Attempts; got != 2 {
		e.Fatalf("a record that was begun twice has %d attempts", got)
	}
}

func extendKeeps(e *env) {
	e.events("k", "a")
	c := e.claimFor("k", e.short)
	e.applied(settlement(inbox.KindExtend, c, ""))
	e.wait()
	e.nothing()
	e.applied(done(c, "a"), release(c))
}

func extendAfterLapse(e *env) {
	e.events("k", "a")
	c := e.lapsed("k")
	e.applied(settlement(inbox.KindExtend, c, ""))
	e.nothing()
	e.applied(done(c, "a"), release(c))
	e.wantState("a", inbox.StateDone, 1)
}

func lapsedMaySettle(e *env) {
	for _, k := range []inbox.Kind{inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown, inbox.KindRetry, inbox.KindRelease} {
		id := "lapsed " + k.String()
		e.events(id, id)
		c := e.lapsed(id)
		e.applied(settlement(k, c, id)) // nobody has taken over
		if k == inbox.KindRetry || k == inbox.KindRelease {
			c = e.claim(id)
			e.applied(done(c, id))
		}
		e.applied(release(c))
	}
	e.nothing()
}

func beginCountsOnce(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(begin(c, "a"), begin(c, "a")) // the claim has begun it
	e.wantState("a", inbox.StatePending, 1)
	e.applied(done(c, "a"), begin(c, "b"))
	e.applied(begin(c, "b"))
	e.applied(begin(c, "b"), begin(c, "b"))
	e.wantState("b", inbox.StatePending, 1)
	e.applied(done(c, "b"), release(c))
}

func beginOnlyTheFirst(e *env) {
	e.events("k", "a", "b", "c")
	e.events("other", "x")
	a := newAsk()
	a.Keys = 1
	c := e.ask(a).Claims[0]
	e.stale(begin(c, "b"), begin(c, "c"), begin(c, "x"), begin(c, "absent"))
	e.applied(done(c, "a"))
	e.stale(begin(c, "a"), begin(c, "c"))
	e.applied(begin(c, "b"))
	e.wantState("c", inbox.StatePending, 0)
	e.wantState("x", inbox.StatePending, 0)
}

func endNeedsBegin(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	for _, k := range []inbox.Kind{inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown, inbox.KindRetry} {
		e.stale(settlement(k, c, "b")) // it is not its turn
	}
	e.applied(done(c, "a"))
	for _, k := range []inbox.Kind{inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown, inbox.KindRetry} {
		e.stale(settlement(k, c, "b")) // nor was it begun
	}
	e.wantState("b", inbox.StatePending, 0)
	e.applied(begin(c, "b"), done(c, "b"), release(c))
}

func batchInOrder(e *env) {
	e.events("k", "a", "b", "c")
	c := e.claim("k")
	e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), begin(c, "c"), done(c, "c"), release(c))
	e.wantTotals(0, 3, 0, 0, 0, 0)
	e.events("k", "d")
	d := e.claim("k")
	errs := e.settle(release(d), done(d, "d"))
	if errs[0] != nil || errs[1] == nil {
		e.Fatalf("a release and an end behind it returned %v", errs)
	}
}

func batchAnswersEach(e *env) {
	e.events("k", "a")
	e.events("l", "x")
	byKey := map[string]inbox.Claim{}
	for _, c := range e.claims() {
		byKey[c.Key] = c
	}
	k, l := byKey["k"], byKey["l"]
	wrong := k
	wrong.Token++
	errs := e.settle(done(wrong, "a"), done(l, "x"), done(k, "absent"), done(k, "a"), release(l))
	for i, want := range []bool{false, true, false, true, true} {
		if (errs[i] == nil) != want {
			e.Fatalf("settlement %d of a batch returned %v; want it applied: %t", i, errs[i], want)
		}
	}
	e.wantTotals(0, 2, 0, 0, 0, 0)
}

func appliedBatch(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	errs, err := e.store.Settle(e.Context(), e.p, []inbox.Settlement{done(c, "a"), release(c)})
	if errs != nil || err != nil {
		e.Fatalf("a batch that was applied returned %v and %v, want nil and nil", errs, err)
	}
}

func longErrors(e *env) {
	text := strings.Repeat("é", inbox.MaxError/2)
	e.events("k", "a")
	s := retry(e.claim("k"), "a", time.Duration(0))
	s.Error = text
	e.applied(s)
	if r := e.record("a"); r.LastError != text {
		e.Fatalf("an error of %d bytes came back with %d", len(text), len(r.LastError))
	}
}
