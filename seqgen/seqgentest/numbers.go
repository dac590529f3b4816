package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// Large numbers.
var numberCases = []testCase{
	{name: "NumbersAround2To53", run: around53},
	{name: "LastNumberIsExhausted", run: lastNumber},
	{name: "BlockIsCutAtTheEnd", run: blockIsCut},
	{name: "LargeEpochs", run: largeEpochs},
}

func around53(e *env) {
	const edge = 1 << 53
	e.apply(raise("single", 1, edge-3, 0))
	for n := uint64(edge - 2); n <= edge+5; n++ {
		a := single("single", 1)
		e.grant(a, 1, n, n)
		e.grant(a, 1, n, n)
		e.refuse(seen(single("single", 1), 1, n+1), seqgen.ErrRolledBack)
	}
	e.apply(raise("block", 1, edge-3, 0))
	a := e.grant(open("block", 5), 1, edge-2, edge+2)
	e.grant(more("block", 5, a.Token, edge), 1, edge+3, edge+7)
	if s := e.look("block"); s.Used != edge {
		e.Fatalf("used is %d, want 2^53", s.Used)
	}
	e.reject(giveBack("block", a, edge), seqgen.ErrStale)
	e.apply(giveBack("block", a, edge+1))
	e.wantAt("block", 1, edge)
	e.grant(open("block", 2), 1, edge+1, edge+2)
}

func lastNumber(e *env) {
	e.apply(raise("key", 1, seqgen.MaxNumber-2, 0))
	e.grant(single("key", 1), 1, seqgen.MaxNumber-1, seqgen.MaxNumber-1)
	last := single("key", 1)
	e.grant(last, 1, seqgen.MaxNumber, seqgen.MaxNumber)
	for range 3 {
		e.refuse(single("key", 1), seqgen.ErrExhausted)
	}
	e.grant(last, 1, seqgen.MaxNumber, seqgen.MaxNumber)
	e.apply(void("key", 1, seqgen.MaxNumber, seqgen.MaxNumber))
	e.apply(void("key", 1, seqgen.MaxNumber-1, seqgen.MaxNumber-1))
	e.wantVoids("key", 1, rng{seqgen.MaxNumber - 1, seqgen.MaxNumber, certain, seqgen.GaveUp})
	e.apply(bump("key", 0))
	e.grant(single("key", 1), 2, 1, 1)
}

func blockIsCut(e *env) {
	e.apply(raise("key", 1, seqgen.MaxNumber-10, 0))
	ask := open("key", 7)
	a := e.grant(ask, 1, seqgen.MaxNumber-9, seqgen.MaxNumber-3)
	e.grant(more("key", seqgen.MaxBlock, a.Token, seqgen.MaxNumber-5), 1, seqgen.MaxNumber-2, seqgen.MaxNumber)
	e.refuse(more("key", 1, a.Token, seqgen.MaxNumber), seqgen.ErrExhausted)
	e.refuse(open("key", 1), seqgen.ErrExhausted)
	if s := e.look("key"); s.Token != a.Token || !s.Owned {
		e.Fatalf("an open of an exhausted key took it: %+v", s)
	}
	e.grant(ask, 1, seqgen.MaxNumber-9, seqgen.MaxNumber-3)
	e.apply(giveBack("key", a, seqgen.MaxNumber))
	e.wantAt("key", 1, seqgen.MaxNumber-1)
	e.grant(open("key", 100), 1, seqgen.MaxNumber, seqgen.MaxNumber)
	e.grant(single("single", seqgen.MaxBlock), 1, 1, seqgen.MaxBlock)
	e.apply(raise("single", 1, seqgen.MaxNumber-1, 0))
	e.grant(single("single", seqgen.MaxBlock), 1, seqgen.MaxNumber, seqgen.MaxNumber)
}

func largeEpochs(e *env) {
	epochs := []uint64{1 << 31, 1 << 32, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 62, seqgen.MaxNumber}
	for i, epoch := range epochs {
		e.apply(bump("key", epoch-1))
		a := single("key", 10)
		e.grant(a, epoch, 1, 10)
		e.grant(a, epoch, 1, 10)
		e.apply(void("key", epoch, uint64(i+1), uint64(i+1)))
	}
	for i, epoch := range epochs {
		e.wantVoids("key", epoch, rng{uint64(i + 1), uint64(i + 1), certain, seqgen.GaveUp})
	}
}
