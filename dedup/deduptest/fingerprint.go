package deduptest

import (
	"github.com/pawl-go/pawl/dedup"
)

// When an ID is known with other content.
var fingerprintCases = []testCase{
	{name: "ConflictComesFirst", run: conflictComesFirst},
	{name: "ConflictChangesNothing", run: conflictChangesNothing},
	{name: "MissingFingerprintIsNotCompared", run: missingFingerprintIsNotCompared},
	{name: "FingerprintAdoptedByTheNextOwner", run: fingerprintAdopted},
	{name: "FingerprintNotAdoptedFromARefusedAsk", run: fingerprintNotAdoptedWhenRefused},
	{name: "FingerprintOutlivesItsOwner", run: fingerprintOutlivesItsOwner},
	{name: "FingerprintIsComparedInFull", run: fingerprintIsComparedInFull},
}

// inEveryState brings one ID into each state that a record can be in, with
// fingerprint 1, and calls check with the ID and its last owner.
func (e *env) inEveryState(check func(state string, c dedup.Claim)) {
	e.Helper()
	owners := map[string]dedup.Claim{}
	for _, state := range []string{"claimed", "held", "done", "released"} {
		owners[state] = e.wantAcquired(e.ask(e.p, newAskAs(state, 1)), 1)
	}
	e.applied(owners["held"].Hold(), owners["done"].Complete([]byte("r")), owners["released"].Release())
	owners["lapsed under Rerun"] = e.wantAcquired(e.ask(e.shortLease(e.p), newAskAs("lapsed under Rerun", 1)), 1)
	owners["lapsed under Hold"] = e.wantAcquired(e.ask(e.shortLease(e.hold), newAskAs("lapsed under Hold", 1)), 1)
	e.wait()
	for state, c := range owners {
		check(state, c)
	}
}

// wantUntouched checks that the ID still answers as inEveryState left it.
func (e *env) wantUntouched(state string, c dedup.Claim) {
	e.Helper()
	got := e.ask(e.p, newAskAs(c.ID, 1))
	switch state {
	case "claimed":
		e.want(got, dedup.InFlight)
		e.applied(c.Complete(nil))
	case "held", "lapsed under Hold":
		e.wantUnknown(got, c)
	case "done":
		e.wantDone(got, []byte("r"))
	case "released", "lapsed under Rerun":
		e.wantAcquired(got, 2)
	default:
		e.Fatalf("unknown state %q", state)
	}
}

func conflictComesFirst(e *env) {
	e.inEveryState(func(_ string, c dedup.Claim) {
		e.want(e.ask(e.p, newAskAs(c.ID, 2)), dedup.Conflict)
		e.want(e.ask(e.hold, newAskAs(c.ID, 2)), dedup.Conflict)
	})
	mine := newAskAs("mine", 1)
	e.wantAcquired(e.ask(e.p, mine), 1)
	mine.Fingerprint = [32]byte{2}
	e.want(e.ask(e.p, mine), dedup.Conflict) // a nonce is no excuse
}

func conflictChangesNothing(e *env) {
	e.inEveryState(func(state string, c dedup.Claim) {
		e.want(e.ask(e.p, newAskAs(c.ID, 2)), dedup.Conflict)
		e.wantUntouched(state, c)
	})
}

func missingFingerprintIsNotCompared(e *env) {
	e.inEveryState(func(state string, c dedup.Claim) {
		got := e.probe(c.ID) // without a fingerprint
		want := map[string]dedup.State{
			"claimed": dedup.InFlight, "done": dedup.Done, "held": dedup.Unknown, "lapsed under Hold": dedup.Unknown,
			"released": dedup.Acquired, "lapsed under Rerun": dedup.Acquired,
		}[state]
		e.want(got, want)
	})
	c := e.acquire(e.p, "none")
	e.applied(c.Complete([]byte("r")))
	e.wantDone(e.ask(e.p, newAskAs("none", 1)), []byte("r"))
	e.wantDone(e.ask(e.p, newAskAs("none", 2)), []byte("r"))
}

func fingerprintAdopted(e *env) {
	c := e.acquire(e.p, "released")
	e.applied(c.Release())
	e.lapsed(e.p, "lapsed")
	for _, id := range []string{"released", "lapsed"} {
		e.wantAcquired(e.ask(e.p, newAskAs(id, 1)), 2)
		e.want(e.ask(e.p, newAskAs(id, 2)), dedup.Conflict)
		e.want(e.ask(e.p, newAskAs(id, 1)), dedup.InFlight)
	}
}

func fingerprintNotAdoptedWhenRefused(e *env) {
	c := e.acquire(e.p, "refused")
	e.want(e.ask(e.p, newAskAs("refused", 1)), dedup.InFlight)
	e.want(e.ask(e.p, newAskAs("refused", 2)), dedup.InFlight)
	e.applied(c.Release())
	e.wantAcquired(e.ask(e.p, newAskAs("refused", 2)), 2)
	e.want(e.ask(e.p, newAskAs("refused", 1)), dedup.Conflict)
}

func fingerprintOutlivesItsOwner(e *env) {
	first := e.wantAcquired(e.ask(e.p, newAskAs("kept", 1)), 1)
	e.applied(first.Release())
	second := e.acquire(e.p, "kept") // an owner without one does not erase it
	e.want(e.ask(e.p, newAskAs("kept", 2)), dedup.Conflict)
	e.applied(second.Complete([]byte("r")))
	e.want(e.ask(e.p, newAskAs("kept", 2)), dedup.Conflict)
	e.wantDone(e.ask(e.p, newAskAs("kept", 1)), []byte("r"))
}

func fingerprintIsComparedInFull(e *env) {
	a := newAsk("full")
	a.Fingerprint = [32]byte{0: 'a', 15: 0, 16: '\n', 31: 0xff}
	e.wantAcquired(e.ask(e.p, a), 1)
	for i := range a.Fingerprint {
		other := newAsk("full")
		other.Fingerprint = a.Fingerprint
		other.Fingerprint[i] ^= 1
		e.want(e.ask(e.p, other), dedup.Conflict)
	}
	same := newAsk("full")
	same.Fingerprint = a.Fingerprint
	e.want(e.ask(e.p, same), dedup.InFlight)
}
