package deduptest

import (
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Fencing tokens rise.
var tokenCases = []testCase{
	{name: "TokenRisesAcrossOwners", run: tokenRisesAcrossOwners},
	{name: "TokenRisesAfterForget", run: tokenRisesAfterForget},
	{name: "TokenRisesAfterRetention", run: tokenRisesAfterRetention},
	{name: "TokenIsTheTimeInMicroseconds", run: tokenIsTheTime},
	{name: "TokenStaysWhileItsOwnerExtends", run: tokenStays},
}

// wantHigher checks that a later owner's token is above an earlier one's.
func (e *env) wantHigher(later, earlier dedup.Claim) dedup.Claim {
	e.Helper()
	if later.Token <= earlier.Token {
		e.Fatalf("attempt %d of %q got token %d, want more than an earlier owner's, %d",
			later.Attempt, later.ID, later.Token, earlier.Token)
	}
	return later
}

func tokenRisesAcrossOwners(e *env) {
	c := e.acquire(e.p, "owners")
	for range 20 { // as fast as it goes: the clock may stand still meanwhile
		e.applied(c.Release())
		c = e.wantHigher(e.acquire(e.p, "owners"), c)
	}
	e.applied(c.Hold(), c.Release())
	c = e.wantHigher(e.acquire(e.shortLease(e.p), "owners"), c)
	e.wait()
	e.wantHigher(e.acquire(e.p, "owners"), c)
}

func tokenRisesAfterForget(e *env) {
	c := e.acquire(e.p, "lost")
	for range 5 {
		e.applied(forget("lost"))
		e.tick()
		c = e.wantHigher(e.wantAcquired(e.ask(e.p, newAsk("lost")), 1), c)
	}
}

func tokenRisesAfterRetention(e *env) {
	c := e.acquire(e.p, "expired")
	e.appliedUnder(e.shortRetention(e.p), c.Complete(nil))
	e.wait()
	e.wantHigher(e.wantAcquired(e.ask(e.p, newAsk("expired")), 1), c)
}

func tokenIsTheTime(e *env) {
	began := time.Now()
	first := e.acquire(e.p, "first")
	e.sleep(e.short)
	second := e.acquire(e.p, "second")
	took := max(time.Since(began), e.short)
	between := time.Duration(int64(second.Token)-int64(first.Token)) * time.Microsecond
	if between < e.short*9/10 || between > took*2+slack {
		e.Fatalf("the tokens of two new IDs claimed %v apart are %v apart when read as microseconds", took, between)
	}
	if second.Token > 1<<53 {
		e.Fatalf("token %d is not a time in microseconds: it is above 2^53", second.Token)
	}
}

func tokenStays(e *env) {
	a := newAsk("renewed")
	c := e.wantAcquired(e.ask(e.p, a), 1)
	for range 3 {
		e.tick()
		e.applied(c.Extend(longLease))
		e.wantSame(e.ask(e.p, a), c)
	}
	e.tick()
	e.applied(c.Hold())
	e.wantUnknown(e.probe("renewed"), c)
}
