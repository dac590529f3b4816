package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// Stores that have gone back behind what the caller has seen.
var rollbackCases = []testCase{
	{name: "SeenAboveLastIsRolledBack", run: seenAbove},
	{name: "SeenIsComparedByEpochFirst", run: seenByEpoch},
	{name: "SeenWithoutARecordIsRolledBack", run: seenWithoutRecord},
}

func seen(a seqgen.Ask, epoch, n uint64) seqgen.Ask {
	a.Seen = seqgen.Position{Epoch: epoch, Number: n}
	return a
}

func seenAbove(e *env) {
	e.grant(single("key", 9), 1, 1, 9)
	for _, n := range []uint64{10, 11, 100, 1 << 53, seqgen.MaxNumber} { // 10 and 9: not compared as text
		g := e.refuse(seen(single("key", 1), 1, n), seqgen.ErrRolledBack)
		if g.Stored != (seqgen.Position{Epoch: 1, Number: 9}) {
			e.Fatalf("the store says that it is at %v, want 1/9", g.Stored)
		}
	}
	e.grant(seen(single("key", 1), 1, 9), 1, 10, 10)
	e.grant(seen(single("key", 1), 1, 9), 1, 11, 11)
	a := e.grant(open("block", 5), 1, 1, 5)
	e.refuse(seen(more("block", 5, a.Token, 5), 1, 6), seqgen.ErrRolledBack)
	e.refuse(seen(open("block", 5), 1, 6), seqgen.ErrRolledBack)
	e.grant(seen(more("block", 5, a.Token, 5), 1, 5), 1, 6, 10)
}

func seenByEpoch(e *env) {
	e.grant(single("key", 100), 1, 1, 100)
	e.apply(bump("key", 8))
	e.wantAt("key", 9, 0)
	e.grant(seen(single("key", 1), 8, seqgen.MaxNumber), 9, 1, 1)
	e.refuse(seen(single("key", 1), 10, 1), seqgen.ErrRolledBack)
	e.refuse(seen(single("key", 1), 9, 2), seqgen.ErrRolledBack)
	e.grant(seen(single("key", 1), 9, 1), 9, 2, 2)
}

func seenWithoutRecord(e *env) {
	g := e.refuse(seen(single("new", 1), 1, 1), seqgen.ErrRolledBack)
	if g.Stored != (seqgen.Position{}) {
		e.Fatalf("a store without a record says that it is at %v", g.Stored)
	}
	e.refuse(seen(open("new", 1), 3, 0), seqgen.ErrRolledBack)
	if s := e.look("new"); s.Epoch != 0 {
		e.Fatalf("an ask that was refused made the record %+v", s)
	}
	o := e.apply(bump("new", 3))
	if o.Epoch != 4 {
		e.Fatalf("a bump above epoch 3 opened epoch %d", o.Epoch)
	}
	e.grant(seen(single("new", 1), 3, 10), 4, 1, 1)
}
