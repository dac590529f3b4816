package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// Asks whose answer never came.
var abandonCases = []testCase{
	{name: "AbandonVoidsWhatWasGranted", run: abandonVoids},
	{name: "AbandonOfABlockReturnsIt", run: abandonReturns},
	{name: "AbandonOfATakenBlockMakesItCertain", run: abandonTaken},
	{name: "AbandonOfWhatDidNotArrive", run: abandonUnknown},
	{name: "AbandonTwice", run: abandonTwice},
	{name: "AbandonInTheNextEpoch", run: abandonInTheNextEpoch},
	{name: "AbandonedNonceIsRememberedLikeOthers", run: abandonedIsRemembered},
}

func abandonVoids(e *env) {
	for _, a := range []seqgen.Ask{single("single", 3), gapless("gapless")} {
		g := e.reserve(a)[0]
		next := e.reserve(seqgen.Ask{Key: a.Key, Mode: a.Mode, N: 1, Nonce: newNonce()})[0]
		if o := e.apply(abandon(a)); o.Void != (seqgen.Range{Epoch: 1, Lo: g.Lo, Hi: g.Hi}) {
			e.Fatalf("an abandonment says that %+v became void", o.Void)
		}
		e.wantVoids(a.Key, 1, rng{g.Lo, g.Hi, certain, seqgen.Abandoned})
		e.refuse(a, seqgen.ErrStale)
		e.wantAt(a.Key, 1, next.Hi)
	}
}

func abandonReturns(e *env) {
	a := open("key", 10)
	g := e.grant(a, 1, 1, 10)
	b := more("key", 10, g.Token, 10)
	e.grant(b, 1, 11, 20)
	e.apply(abandon(b))
	if s := e.wantAt("key", 1, 10); s.Owned {
		e.Fatalf("after its block was abandoned the owner still has the key: %+v", s)
	}
	e.refuse(b, seqgen.ErrStale)
	first := open("other", 10)
	e.grant(first, 1, 1, 10)
	e.apply(abandon(first))
	e.grant(open("other", 5), 1, 1, 5)
	e.refuse(first, seqgen.ErrStale)
	e.wantVoids("key", 1)
	e.wantVoids("other", 1)
}

func abandonTaken(e *env) {
	a := open("key", 10)
	e.grant(a, 1, 1, 10)
	b := e.grant(open("key", 10), 1, 11, 20)
	e.apply(abandon(a))
	e.wantVoids("key", 1, rng{1, 10, certain, seqgen.Abandoned})
	e.refuse(a, seqgen.ErrStale)
	e.grant(more("key", 10, b.Token, 11), 1, 21, 30)
}

func abandonUnknown(e *env) {
	for _, a := range []seqgen.Ask{single("single", 3), gapless("gapless"), open("block", 3)} {
		if o := e.apply(abandon(a)); o.Void != (seqgen.Range{}) {
			e.Fatalf("an abandonment of nothing says that %+v became void", o.Void)
		}
		e.wantAt(a.Key, 1, 0)
		e.refuse(a, seqgen.ErrStale) // it comes late
		again := a
		again.Nonce = newNonce()
		e.grant(again, 1, 1, uint64(a.N))
		e.refuse(a, seqgen.ErrStale)
		e.wantVoids(a.Key, 1)
	}
}

func abandonTwice(e *env) {
	a := single("key", 3)
	e.grant(a, 1, 1, 3)
	for range 3 {
		e.apply(abandon(a))
	}
	e.wantVoids("key", 1, rng{1, 3, certain, seqgen.Abandoned})
	b := single("key", 3)
	for range 3 {
		e.apply(abandon(b))
	}
	e.refuse(b, seqgen.ErrStale)
	e.grant(single("key", 1), 1, 4, 4)
}

func abandonInTheNextEpoch(e *env) {
	a, b := single("single", 3), open("block", 3)
	e.grant(a, 1, 1, 3)
	e.grant(b, 1, 1, 3)
	e.apply(bump("single", 0))
	e.apply(bump("block", 0))
	e.apply(abandon(a))
	e.apply(abandon(b))
	e.wantVoids("single", 1, rng{1, 3, certain, seqgen.Abandoned})
	e.wantVoids("block", 1, rng{1, 3, certain, seqgen.Abandoned})
	e.wantVoids("single", 2)
	e.wantAt("single", 2, 0)
}

func abandonedIsRemembered(e *env) {
	granted, unknown := single("key", 1), single("key", 1)
	e.grant(granted, 1, 1, 1)
	e.apply(abandon(unknown))
	e.apply(abandon(granted))
	for n := range uint64(seqgen.LogSize - 2) {
		e.grant(single("key", 1), 1, n+2, n+2)
	}
	e.refuse(granted, seqgen.ErrStale)
	e.refuse(unknown, seqgen.ErrStale)
}
