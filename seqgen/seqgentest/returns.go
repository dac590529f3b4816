package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// Rests that are given back.
var returnCases = []testCase{
	{name: "ReturnLeavesNoHole", run: returnLeavesNoHole},
	{name: "ReturnTwice", run: returnTwice},
	{name: "ReturnOfNothing", run: returnOfNothing},
	{name: "ReturnedOwnerIsStale", run: returnedOwnerIsStale},
	{name: "ReturnSpendsItsNonces", run: returnSpendsItsNonces},
	{name: "ReturnAboveLastIsRolledBack", run: returnAboveLast},
	{name: "ReturnOfUsedNumbersIsStale", run: returnOfUsed},
	{name: "ReturnToALowerRecordIsRolledBack", run: returnToALowerRecord},
	{name: "LateReturnMakesTheOrphanedCertain", run: lateReturn},
	{name: "LateReturnOfAll", run: lateReturnOfAll},
	{name: "LateReturnAfterABump", run: lateReturnAfterABump},
	{name: "LateReturnOfNothingOrphaned", run: lateReturnOfNothing},
}

func returnLeavesNoHole(e *env) {
	a := e.grant(open("key", 100), 1, 1, 100)
	if o := e.apply(giveBack("key", a, 41)); o.Void != (seqgen.Range{}) {
		e.Fatalf("a return says that %+v became void", o.Void)
	}
	if s := e.wantAt("key", 1, 40); s.Owned || s.Used != 40 {
		e.Fatalf("after a return the record is %+v", s)
	}
	e.grant(open("key", 10), 1, 41, 50)
	e.wantVoids("key", 1)
}

func returnTwice(e *env) {
	a := e.grant(open("key", 100), 1, 1, 100)
	r := giveBack("key", a, 41)
	e.apply(r)
	e.apply(r)
	e.wantAt("key", 1, 40)
	b := e.grant(open("key", 60), 1, 41, 100) // up to where the first had been
	e.apply(r)
	if s := e.wantAt("key", 1, 100); s.Token != b.Token || !s.Owned {
		e.Fatalf("a late copy of a return changed the record to %+v", s)
	}
	e.grant(more("key", 1, b.Token, 60), 1, 101, 101)
	e.wantVoids("key", 1)
}

func returnOfNothing(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.apply(giveBack("key", a, 11))
	if s := e.wantAt("key", 1, 10); s.Owned || s.Used != 10 {
		e.Fatalf("after a return of nothing the record is %+v", s)
	}
	e.grant(open("key", 10), 1, 11, 20)
	e.wantVoids("key", 1)
}

func returnedOwnerIsStale(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.apply(giveBack("key", a, 5))
	e.refuse(more("key", 1, a.Token, 4), seqgen.ErrStale)
	e.refuse(more("key", 1, a.Token, 10), seqgen.ErrStale)
}

func returnSpendsItsNonces(e *env) {
	first := open("key", 10)
	a := e.grant(first, 1, 1, 10)
	second, third := more("key", 10, a.Token, 10), more("key", 10, a.Token, 10)
	e.grant(second, 1, 11, 20)
	e.grant(third, 1, 21, 30)
	e.apply(giveBack("key", a, 15))
	e.grant(first, 1, 1, 10) // all of its numbers were kept
	e.refuse(second, seqgen.ErrStale)
	e.refuse(third, seqgen.ErrStale)
	e.grant(open("key", 10), 1, 15, 24)
	e.refuse(second, seqgen.ErrStale)
	e.refuse(third, seqgen.ErrStale)
}

func returnAboveLast(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	for _, lo := range []uint64{12, 100, seqgen.MaxNumber} {
		if o := e.reject(giveBack("key", a, lo), seqgen.ErrRolledBack); o.Stored != (seqgen.Position{Epoch: 1, Number: 10}) {
			e.Fatalf("the store says that it is at %v, want 1/10", o.Stored)
		}
	}
}

func returnOfUsed(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.grant(more("key", 10, a.Token, 7), 1, 11, 20)
	e.reject(giveBack("key", a, 7), seqgen.ErrStale)
	e.reject(giveBack("key", a, 1), seqgen.ErrStale)
	e.apply(giveBack("key", a, 8))
	e.wantAt("key", 1, 7)
}

func returnToALowerRecord(e *env) {
	other := e.grant(open("other", 10), 1, 1, 10)
	if o := e.reject(giveBack("new", other, 5), seqgen.ErrRolledBack); o.Stored != (seqgen.Position{}) {
		e.Fatalf("a store without a record says that it is at %v", o.Stored)
	}
	a := e.grant(open("key", 10), 1, 1, 10)
	later := a
	later.Token++
	e.reject(giveBack("key", later, 5), seqgen.ErrRolledBack)
	later = a
	later.Epoch++
	e.reject(giveBack("key", later, 5), seqgen.ErrRolledBack)
	e.wantVoids("key", 1)
}

func lateReturn(e *env) {
	a := e.grant(open("key", 100), 1, 1, 100)
	e.grant(more("key", 100, a.Token, 60), 1, 101, 200)
	e.grant(open("key", 10), 1, 201, 210)
	e.grant(open("key", 10), 1, 211, 220)
	r := giveBack("key", a, 171)
	if o := e.apply(r); o.Void != (seqgen.Range{Epoch: 1, Lo: 171, Hi: 200}) {
		e.Fatalf("a late return says that %+v became void", o.Void)
	}
	want := []rng{{61, 170, orphaned, seqgen.TakenOver}, {171, 200, certain, seqgen.Returned}, {201, 210, orphaned, seqgen.TakenOver}}
	e.wantVoids("key", 1, want...)
	e.apply(r)
	e.wantVoids("key", 1, want...)
	e.wantAt("key", 1, 220)
}

func lateReturnOfAll(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	b := e.grant(open("key", 10), 1, 11, 20)
	e.grant(open("key", 10), 1, 21, 30)
	e.apply(giveBack("key", b, 11))
	e.wantVoids("key", 1, rng{1, 10, orphaned, seqgen.TakenOver}, rng{11, 20, certain, seqgen.Returned})
	e.apply(giveBack("key", a, 1))
	e.wantVoids("key", 1, rng{1, 20, certain, seqgen.Returned}) // joined
}

func lateReturnAfterABump(e *env) {
	a := e.grant(open("key", 100), 1, 1, 100)
	e.apply(bump("key", 0))
	e.wantVoids("key", 1, rng{1, 100, orphaned, seqgen.Bumped})
	e.apply(giveBack("key", a, 31))
	e.wantVoids("key", 1, rng{1, 30, orphaned, seqgen.Bumped}, rng{31, 100, certain, seqgen.Returned})
	e.wantVoids("key", 2)
	e.wantAt("key", 2, 0)
}

func lateReturnOfNothing(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.grant(more("key", 10, a.Token, 6), 1, 11, 20)
	e.grant(open("key", 10), 1, 21, 30)
	e.apply(giveBack("key", a, 21))
	e.wantVoids("key", 1, rng{7, 20, orphaned, seqgen.TakenOver})
	e.wantAt("key", 1, 30)
}
