package inboxtest

import (
	"errors"

	"github.com/pawl-go/pawl/inbox"
)

// What a settlement that comes again, or from somebody else, is answered.
var fenceCases = []testCase{
	{name: "AnEndTwiceSucceeds", run: endTwice, once: true},
	{name: "AnEndAgainAfterATakeoverSucceeds", run: endAgainAfterTakeover, once: true},
	{name: "AnotherEndIsStale", run: anotherEnd},
	{name: "RetryTwiceSucceeds", run: retryTwice, once: true},
	{name: "ReleaseTwiceSucceeds", run: releaseTwice, once: true},
	{name: "BeginOfWhatTheBatchEndedIsStale", run: beginOfTheEnded, once: true},
	{name: "SettlementsAfterAReleaseAreStale", run: afterRelease},
	{name: "EveryOtherTokenIsStale", run: everyOtherToken},
	{name: "StaleOwnerChangesNothing", run: staleOwner},
	{name: "UnknownKeyIsStale", run: unknownKey},
	{name: "RecordOfAnotherKeyIsStale", run: recordOfAnotherKey},
	{name: "TokensRise", run: tokensRise},
}

var allKinds = []inbox.Kind{
	inbox.KindBegin, inbox.KindDone, inbox.KindRetry, inbox.KindDead, inbox.KindQuarantine, inbox.KindRelease, inbox.KindExtend,
	inbox.KindUnknown,
}

var ends = map[inbox.Kind]inbox.State{
	inbox.KindDone: inbox.StateDone, inbox.KindDead: inbox.StateDead, inbox.KindQuarantine: inbox.StateQuarantined,
	inbox.KindUnknown: inbox.StateUnknown,
}

func endTwice(e *env) {
	for k, s := range ends {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.applied(settlement(k, c, id))
		before := e.wantState(id, s, 1)
		e.tick()
		again := settlement(k, c, id)
		again.Error = "another"
		e.applied(again)
		e.applied(release(c))
		e.applied(again) // also when the key was released
		after := e.wantState(id, s, 1)
		if !after.Settled.Equal(before.Settled) || !after.Expires.Equal(before.Expires) || after.LastError != before.LastError {
			e.Fatalf("the repeated %v changed the record from %+v to %+v", k, before, after)
		}
	}
	e.wantTotals(0, 1, 1, 1, 0, 1)
}

func endAgainAfterTakeover(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	next := e.claim("k")
	e.applied(done(c, "a")) // the answer to its first sending was lost
	e.wantRecords(next, "b")
	e.applied(done(next, "b"), release(next))
	e.applied(done(c, "a"))
	e.stale(done(c, "b"))
}

// beginOfTheEnded sends an end and the late copy of a begin in one batch.
func beginOfTheEnded(e *env) {
	for k := range ends {
		id := k.String()
		e.events(id, id, id+" next")
		c := e.claim(id)
		errs := e.settle(settlement(k, c, id), begin(c, id), begin(c, id+" next"))
		if errs[0] != nil || !errors.Is(errs[1], inbox.ErrStale) || errs[2] != nil {
			e.Fatalf("%v, begin of the same and begin of the next were answered %v, want the second alone stale", k, errs)
		}
		e.wantState(id, ends[k], 1)
		e.wantState(id+" next", inbox.StatePending, 1)
		e.applied(done(c, id+" next"), release(c))
	}
}

func anotherEnd(e *env) {
	for k := range ends {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.applied(settlement(k, c, id))
		for other := range ends {
			if other != k {
				e.stale(settlement(other, c, id))
			}
		}
		e.stale(retry(c, id, 0), begin(c, id))
		e.wantState(id, ends[k], 1)
		e.applied(release(c))
	}
	e.wantTotals(0, 1, 1, 1, 0, 1)
}

func retryTwice(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	e.applied(retry(c, "a", longLease))
	before := e.record("a")
	e.tick()
	e.applied(retry(c, "a", longLease))
	if after := e.record("a"); !after.Next.Equal(before.Next) || after.Attempts != 1 {
		e.Fatalf("the repeated retry changed the record from %+v to %+v", before, after)
	}
	e.nothing()
}

func releaseTwice(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	e.applied(release(c))
	e.applied(release(c))
	e.applied(release(c), release(c))
	e.wantRecords(e.claim("k"), "a")
	e.stale(release(c)) // somebody else has it now
	e.nothing()
}

func afterRelease(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(release(c))
	for _, k := range allKinds {
		if k != inbox.KindRelease && k != inbox.KindRetry { // a retry is a release, too
			e.stale(settlement(k, c, "a"))
		}
	}
	e.stale(retry(c, "b", longLease)) // never begun
	next := e.claim("k")
	e.wantRecords(next, "a", "b")
	for _, k := range allKinds {
		e.stale(settlement(k, c, "a"))
	}
	e.applied(done(next, "a"), begin(next, "b"), done(next, "b"), release(next))
}

func everyOtherToken(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	for _, token := range []uint64{0, 1, c.Token - 1, c.Token + 1, c.Token << 1, 1<<63 - 1} {
		other := c
		other.Token = token
		for _, k := range allKinds {
			e.stale(settlement(k, other, "a"))
		}
	}
	e.nothing()
	e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), release(c))
	e.wantState("a", inbox.StateDone, 1)
}

func staleOwner(e *env) {
	for _, k := range allKinds {
		id := "taken from " + k.String()
		e.events(id, id, "next to "+id)
		first := e.lapsed(id)
		second := e.claim(id)
		e.stale(settlement(k, first, id)) // while the second is at work,
		e.nothing()
		e.wantState(id, inbox.StatePending, 2)
		e.applied(done(second, id), begin(second, "next to "+id))
		e.stale(settlement(k, first, id)) // when it has ended it,
		e.wantState(id, inbox.StateDone, 2)
		e.wantState("next to "+id, inbox.StatePending, 1)
		e.applied(done(second, "next to "+id), release(second))
		e.stale(settlement(k, first, id)) // and when nobody has the key.
	}
}

func unknownKey(e *env) {
	c := inbox.Claim{Stream: stream, Key: "absent", Token: 1}
	for _, k := range allKinds {
		e.stale(settlement(k, c, "absent"))
	}
	e.events("k", "a")
	c.Key = "k" // known, and never claimed
	for _, token := range []uint64{0, 1} {
		c.Token = token
		for _, k := range allKinds {
			e.stale(settlement(k, c, "a"))
		}
	}
	e.wantRecords(e.claim("k"), "a")
}

func recordOfAnotherKey(e *env) {
	e.events("k", "a")
	e.events("l", "x")
	byKey := map[string]inbox.Claim{}
	for _, c := range e.claims() {
		byKey[c.Key] = c
	}
	for k := range ends {
		e.stale(settlement(k, byKey["k"], "x"), settlement(k, byKey["l"], "a"))
	}
	e.stale(retry(byKey["k"], "x", 0), begin(byKey["l"], "a"))
	e.wantTotals(2, 0, 0, 0, 0, 0)
	e.nothing()
}

func tokensRise(e *env) {
	e.events("k", "a")
	var last uint64
	for range 5 { // even if the clock stands still
		c := e.claim("k")
		if c.Token <= last {
			e.Fatalf("an owner has token %d, want more than the last one's, %d", c.Token, last)
		}
		last = c.Token
		e.applied(release(c))
	}
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.tick()
	e.events("k", "b")
	if next := e.claim("k"); next.Token <= c.Token {
		e.Fatalf("after a pause an owner has token %d, want more than the last one's, %d", next.Token, c.Token)
	}
}
