package deduptest

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// What is made to stay for longer than its retention, and what is not.
var retainCases = []testCase{
	{name: "RetainedStaysLonger", run: retainedStaysLonger},
	{name: "RetainedIsForgottenInItsTime", run: retainedIsForgotten},
	{name: "RetainShortensNothing", run: retainShortensNothing},
	{name: "RetainCountsFromNow", run: retainCountsFromNow},
	{name: "RetainMakesNoRecord", run: retainMakesNoRecord},
	{name: "RetainLeavesAloneWhatIsNotDone", run: retainLeavesAlone},
	{name: "RetainDoesNotProlongWhatIsNotDone", run: retainDoesNotProlong},
	{name: "RetainRevivesNothing", run: retainRevivesNothing},
	{name: "RetainNeedsNoToken", run: retainNeedsNoToken},
	{name: "RetainInABatchTakesItsTurn", run: retainInABatch, once: true},
}

// retain makes the settlement that keeps an ID that is done.
func retain(id string, d time.Duration) dedup.Settlement {
	return dedup.Settlement{Kind: dedup.KindRetain, ID: id, Retention: d}
}

// inTime takes steps that must be over before a short retention ends, with another ID
// and twice the retention until they are, however busy the machine is. It returns the
// ID and a time that outlasts the retention.
func (e *env) inTime(name string, steps func(id string, p dedup.Params)) (id string, outlasts time.Duration) {
	e.Helper()
	for d := e.short; ; d *= 2 {
		id = fmt.Sprintf("%s-%v", name, d)
		p := e.p
		p.Retention = d
		start := time.Now()
		steps(id, p)
		if e.virtual || time.Since(start) < d {
			return id, 2 * d
		}
	}
}

func retainedStaysLonger(e *env) {
	done, a := e.inTime("done", func(id string, p dedup.Params) {
		c := e.wantAcquired(e.ask(e.p, newAskAs(id, 1)), 1)
		e.appliedUnder(p, c.Complete([]byte("r")))
		e.appliedUnder(p, retain(id, longRetention))
		e.applied(c.Complete([]byte("again"))) // it is its owner's still
	})
	seen, b := e.inTime("seen", func(id string, p dedup.Params) {
		e.wantAcquired(e.ask(firstSeenParams(p), newAsk(id)), 1)
		e.applied(retain(id, longRetention))
	})
	held, c := e.inTime("held", func(id string, p dedup.Params) {
		c := e.acquire(e.hold, id)
		e.applied(c.Hold())
		e.appliedUnder(p, c.Complete([]byte("it happened")), retain(id, dedup.MaxDuration))
	})
	slept := max(a, b, c)
	e.sleep(slept)
	e.wantDone(e.probe(done), []byte("r"))
	e.want(e.ask(e.p, newAskAs(done, 2)), dedup.Conflict)
	e.wantDone(e.probe(seen), nil)
	e.wantDone(e.probe(held), []byte("it happened"))
	e.wantAge(e.probe(done), slept) // since it was completed, not since it was retained
}

func retainedIsForgotten(e *env) {
	c := e.acquire(e.p, "done")
	e.appliedUnder(e.shortRetention(e.p), c.Complete([]byte("r")))
	e.applied(retain("done", e.short))
	e.wait()
	e.wantAcquired(e.probe("done"), 1)
}

func retainShortensNothing(e *env) {
	c := e.acquire(e.p, "done")
	e.applied(c.Complete([]byte("r")))
	e.applied(retain("done", e.short))
	e.applied(retain("done", aMoment))
	e.wait()
	e.wantDone(e.probe("done"), []byte("r"))
}

// retainCountsFromNow needs a virtual clock: on a real one it would wait for what
// must not end early.
func retainCountsFromNow(e *env) {
	if !e.virtual {
		return
	}
	c := e.acquire(e.p, "done")
	e.applied(c.Complete([]byte("r")))
	for range 3 {
		e.sleep(longRetention * 3 / 4)
		e.applied(retain("done", longRetention))
	}
	e.sleep(longRetention * 3 / 4)
	e.wantDone(e.probe("done"), []byte("r"))
	e.sleep(longRetention / 2)
	e.wantAcquired(e.probe("done"), 1)
}

func retainMakesNoRecord(e *env) {
	e.applied(retain("never-seen", longRetention))
	if held := e.held("", 10); len(held) != 0 {
		e.Fatalf("retaining an unknown ID made a held claim of %q", held[0].ID)
	}
	e.wantAcquired(e.probe("never-seen"), 1)
	c := e.acquire(e.p, "forgotten")
	e.applied(c.Complete([]byte("r")))
	e.applied(forget("forgotten"))
	e.applied(retain("forgotten", longRetention))
	e.tick()
	e.wantAcquired(e.probe("forgotten"), 1)
}

// retainLeavesAlone retains an ID in every state but done, for longer than its lease:
// strangers see what they saw, and its owner settles it.
func retainLeavesAlone(e *env) {
	for state, prepare := range map[string]func(id string) dedup.Claim{
		stateClaimed:     func(id string) dedup.Claim { return e.acquire(e.p, id) },
		stateClaimedHold: func(id string) dedup.Claim { return e.acquire(e.hold, id) },
		stateLapsed:      func(id string) dedup.Claim { return e.lapsed(e.p, id) },
		stateLapsedHold:  func(id string) dedup.Claim { return e.lapsed(e.hold, id) },
		stateHeld: func(id string) dedup.Claim {
			c := e.acquire(e.p, id)
			e.applied(c.Hold())
			return c
		},
		stateReleased: func(id string) dedup.Claim {
			c := e.acquire(e.p, id)
			e.applied(c.Release())
			return c
		},
	} {
		id := state
		c := prepare(id)
		e.applied(retain(id, dedup.MaxDuration))
		got, want := e.probe(id), strangerSees[state]
		if got.State != want.state || want.attempt != 0 && got.Attempt != want.attempt {
			e.Fatalf("after it was retained, an ID that is %s is answered %v (attempt %d), want %v (attempt %d)",
				state, got.State, got.Attempt, want.state, want.attempt)
		}
		if got.State == dedup.InFlight {
			e.wantLeft(got, longLease, 0)
		}
		if got.State == dedup.Acquired { // another owner's, then
			c = got
		}
		e.applied(c.Complete([]byte("r")))
		e.wantDone(e.probe(id), []byte("r"))
	}
}

func retainDoesNotProlong(e *env) {
	p := e.shortRetention(e.p)
	released := e.acquire(e.p, "released")
	e.appliedUnder(p, released.Release(), retain("released", longRetention))
	e.acquire(e.shortLease(p), "lapsed")
	e.applied(retain("lapsed", longRetention))
	e.sleep(3 * e.short) // a lapsed lease may be counted as the last change
	e.wantAcquired(e.probe("released"), 1)
	e.wantAcquired(e.probe("lapsed"), 1)

	later := e.acquire(e.p, "later")
	e.applied(retain("later", longRetention))
	e.appliedUnder(p, later.Complete([]byte("r")))
	e.wait()
	e.wantAcquired(e.probe("later"), 1)
}

func retainRevivesNothing(e *env) {
	p := e.shortRetention(e.p)
	c := e.acquire(e.p, "done")
	e.appliedUnder(p, c.Complete([]byte("r")))
	e.wantAcquired(e.ask(firstSeenParams(p), newAsk("seen")), 1)
	e.wait()
	e.applied(retain("done", longRetention), retain("seen", longRetention))
	e.wantAcquired(e.probe("done"), 1)
	e.wantAcquired(e.probe("seen"), 1)
}

func retainNeedsNoToken(e *env) {
	id, outlasts := e.inTime("done", func(id string, p dedup.Params) {
		c := e.acquire(e.p, id)
		e.appliedUnder(p, c.Complete([]byte("r")))
		s := retain(id, longRetention)
		s.Token = c.Token + 1
		e.applied(s)
	})
	e.sleep(outlasts)
	e.wantDone(e.probe(id), []byte("r"))
}

func retainInABatch(e *env) {
	id, outlasts := e.inTime("batch", func(id string, p dedup.Params) {
		a, b, c := e.acquire(e.p, id+"-a"), e.acquire(e.p, id+"-b"), e.acquire(e.p, id+"-c")
		other := b
		other.Token++
		errs := e.settle(p, a.Complete([]byte("a")), retain("nobody", longRetention), retain(a.ID, longRetention), other.Complete(nil),
			retain(b.ID, longRetention), b.Complete([]byte("b")), c.Complete([]byte("c")))
		for i, err := range errs {
			if (err != nil) != (i == 3) {
				e.Fatalf("number %d of a batch was answered %v", i, err)
			}
		}
	})
	e.sleep(outlasts)
	e.wantDone(e.probe(id+"-a"), []byte("a"))
	e.wantAcquired(e.probe(id+"-b"), 1) // it was not done when it was retained
	e.wantAcquired(e.probe(id+"-c"), 1)
}
