package seqgentest

import (
	"github.com/pawl-go/pawl/seqgen"
)

// Certain voids, and how they are joined.
var voidCases = []testCase{
	{name: "VoidIsListed", run: voidIsListed},
	{name: "VoidTwice", run: voidTwice},
	{name: "TouchingVoidsAreJoined", run: touchingVoids},
	{name: "OverlappingVoidsAreJoined", run: overlappingVoids},
	{name: "JoinedVoidHasTheNewestReasonAndTime", run: joinedIsNewest},
	{name: "CertainAndOrphanedAreNotJoined", run: kindsAreNotJoined},
	{name: "VoidAboveLastIsRolledBack", run: voidAboveLast},
	{name: "VoidOfAnOlderEpoch", run: voidOfAnOlderEpoch},
	{name: "VoidChangesNoNumber", run: voidChangesNoNumber},
}

func voidIsListed(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	if o := e.apply(void("key", 1, 3, 5)); o.Void != (seqgen.Range{Epoch: 1, Lo: 3, Hi: 5}) {
		e.Fatalf("a void says that %+v became void", o.Void)
	}
	e.wantVoids("key", 1, rng{3, 5, certain, seqgen.GaveUp})
}

func voidTwice(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	for range 3 {
		e.apply(void("key", 1, 3, 5))
	}
	e.wantVoids("key", 1, rng{3, 5, certain, seqgen.GaveUp})
}

func touchingVoids(e *env) {
	e.grant(single("key", 50), 1, 1, 50)
	for _, n := range []uint64{9, 11, 13, 20} { // 9, 10: not in the order of texts
		e.apply(void("key", 1, n, n))
	}
	e.wantVoids("key", 1, rng{9, 9, certain, seqgen.GaveUp}, rng{11, 11, certain, seqgen.GaveUp},
		rng{13, 13, certain, seqgen.GaveUp}, rng{20, 20, certain, seqgen.GaveUp})
	e.apply(void("key", 1, 12, 12)) // both sides
	e.apply(void("key", 1, 21, 22)) // the left
	e.apply(void("key", 1, 8, 8))   // the right
	e.apply(void("key", 1, 1, 1))
	e.wantVoids("key", 1, rng{1, 1, certain, seqgen.GaveUp}, rng{8, 9, certain, seqgen.GaveUp},
		rng{11, 13, certain, seqgen.GaveUp}, rng{20, 22, certain, seqgen.GaveUp})
	e.apply(void("key", 1, 10, 10))
	e.wantVoids("key", 1, rng{1, 1, certain, seqgen.GaveUp}, rng{8, 13, certain, seqgen.GaveUp}, rng{20, 22, certain, seqgen.GaveUp})
}

func overlappingVoids(e *env) {
	e.grant(single("key", 100), 1, 1, 100)
	e.apply(void("key", 1, 10, 20))
	e.apply(void("key", 1, 12, 15)) // inside
	e.wantVoids("key", 1, rng{10, 20, certain, seqgen.GaveUp})
	e.apply(void("key", 1, 18, 25)) // over the end
	e.apply(void("key", 1, 5, 10))  // over the beginning
	e.wantVoids("key", 1, rng{5, 25, certain, seqgen.GaveUp})
	e.apply(void("key", 1, 40, 50))
	e.apply(void("key", 1, 60, 70))
	e.apply(void("key", 1, 2, 65)) // around some
	e.wantVoids("key", 1, rng{2, 70, certain, seqgen.GaveUp})
}

func joinedIsNewest(e *env) {
	a := single("key", 5)
	e.grant(a, 1, 1, 5)
	e.grant(single("key", 5), 1, 6, 10)
	e.apply(void("key", 1, 6, 7))
	before := e.allVoids("key", 1)[0].At
	e.tick()
	e.apply(abandon(a))
	v := e.wantVoids("key", 1, rng{1, 7, certain, seqgen.Abandoned})
	if !v[0].At.After(before) {
		e.Fatalf("a joined void is from %v, the older part from %v", v[0].At, before)
	}
}

func kindsAreNotJoined(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	b := e.grant(open("key", 10), 1, 11, 20)
	e.grant(open("key", 10), 1, 21, 30)
	e.apply(giveBack("key", a, 6))
	e.wantVoids("key", 1, rng{1, 5, orphaned, seqgen.TakenOver}, rng{6, 10, certain, seqgen.Returned}, rng{11, 20, orphaned, seqgen.TakenOver})
	e.apply(giveBack("key", b, 16))
	e.wantVoids("key", 1, rng{1, 5, orphaned, seqgen.TakenOver}, rng{6, 10, certain, seqgen.Returned},
		rng{11, 15, orphaned, seqgen.TakenOver}, rng{16, 20, certain, seqgen.Returned})
}

func voidAboveLast(e *env) {
	e.reject(void("new", 1, 1, 1), seqgen.ErrRolledBack)
	e.grant(single("key", 10), 1, 1, 10)
	e.reject(void("key", 1, 10, 11), seqgen.ErrRolledBack)
	e.reject(void("key", 2, 1, 1), seqgen.ErrRolledBack)
	e.wantVoids("key", 1)
	e.apply(void("key", 1, 10, 10))
}

func voidOfAnOlderEpoch(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	e.apply(bump("key", 0))
	e.grant(single("key", 1), 2, 1, 1)
	e.apply(void("key", 1, 9, 10))
	e.apply(void("key", 2, 1, 1))
	e.wantVoids("key", 1, rng{9, 10, certain, seqgen.GaveUp})
	e.wantVoids("key", 2, rng{1, 1, certain, seqgen.GaveUp})
}

func voidChangesNoNumber(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	e.apply(void("key", 1, 10, 10))
	e.wantAt("key", 1, 10)
	e.grant(single("key", 1), 1, 11, 11)
}
