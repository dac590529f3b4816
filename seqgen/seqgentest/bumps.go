package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// New epochs.
var bumpCases = []testCase{
	{name: "BumpOpensTheNextEpoch", run: bumpOpens},
	{name: "BumpTwice", run: bumpTwice},
	{name: "BumpOfANewKey", run: bumpOfANewKey},
	{name: "BumpIsAboveTheSeenEpoch", run: bumpAboveSeen},
	{name: "BumpFencesTheOwner", run: bumpFences},
	{name: "BumpOrphansTheRest", run: bumpOrphans},
	{name: "LastEpochIsExhausted", run: lastEpoch},
}

func bumpOpens(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	for epoch := uint64(2); epoch < 12; epoch++ {
		if o := e.apply(bump("key", 0)); o.Epoch != epoch {
			e.Fatalf("a bump opened epoch %d, want %d", o.Epoch, epoch)
		}
		e.wantAt("key", epoch, 0)
		e.grant(single("key", 3), epoch, 1, 3)
	}
	e.wantVoids("key", 1)
}

func bumpTwice(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	first, second := bump("key", 1), bump("key", 1)
	for _, step := range []struct {
		bump seqgen.Change
		want uint64
	}{{first, 2}, {first, 2}, {second, 3}, {first, 2}, {second, 3}} {
		if o := e.apply(step.bump); o.Epoch != step.want {
			e.Fatalf("a bump was answered epoch %d, want %d", o.Epoch, step.want)
		}
	}
	e.grant(single("key", 1), 3, 1, 1)
	e.apply(first)
	e.grant(single("key", 1), 3, 2, 2)
}

func bumpOfANewKey(e *env) {
	if o := e.apply(bump("key", 0)); o.Epoch != 1 {
		e.Fatalf("a bump of a new key opened epoch %d, want 1", o.Epoch)
	}
	e.grant(single("key", 1), 1, 1, 1)
}

func bumpAboveSeen(e *env) {
	e.grant(single("key", 10), 1, 1, 10)
	for _, step := range []struct{ seen, want uint64 }{
		{9, 10}, {10, 11}, {3, 12}, {1 << 53, 1<<53 + 1}, {1<<53 + 1, 1<<53 + 2}, {0, 1<<53 + 3},
	} {
		if o := e.apply(bump("key", step.seen)); o.Epoch != step.want {
			e.Fatalf("a bump above epoch %d opened epoch %d, want %d", step.seen, o.Epoch, step.want)
		}
	}
}

func bumpFences(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.apply(bump("key", 0))
	s := e.wantAt("key", 2, 0)
	if s.Token <= a.Token || s.Owned || s.Used != 0 || s.Mode != 0 {
		e.Fatalf("after a bump the record is %+v, the owner had token %d", s, a.Token)
	}
	e.refuse(more("key", 10, a.Token, 5), seqgen.ErrStale)
	e.refuse(more("key", 10, s.Token, 0), seqgen.ErrStale) // nobody owns it
	b := e.grant(open("key", 10), 2, 1, 10)
	if b.Token <= s.Token {
		e.Fatalf("the owner in the new epoch got token %d, the bump %d", b.Token, s.Token)
	}
	e.refuse(more("key", 10, a.Token, 5), seqgen.ErrStale)
}

func bumpOrphans(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.grant(more("key", 10, a.Token, 7), 1, 11, 20)
	if o := e.apply(bump("key", 0)); o.Void != (seqgen.Range{Epoch: 1, Lo: 8, Hi: 20}) {
		e.Fatalf("a bump says that it orphaned %+v", o.Void)
	}
	e.wantVoids("key", 1, rng{8, 20, orphaned, seqgen.Bumped})
	b := e.grant(open("key", 10), 2, 1, 10)
	e.apply(giveBack("key", b, 4))
	if o := e.apply(bump("key", 0)); o.Void != (seqgen.Range{}) {
		e.Fatalf("a bump after a return says that it orphaned %+v", o.Void)
	}
	e.wantVoids("key", 2)
}

func lastEpoch(e *env) {
	if o := e.apply(bump("key", seqgen.MaxNumber-1)); o.Epoch != seqgen.MaxNumber {
		e.Fatalf("a bump opened epoch %d, want the last", o.Epoch)
	}
	e.grant(single("key", 5), seqgen.MaxNumber, 1, 5)
	e.reject(bump("key", 0), seqgen.ErrExhausted)
	e.reject(bump("key", seqgen.MaxNumber), seqgen.ErrExhausted)
	e.grant(single("key", 5), seqgen.MaxNumber, 6, 10)
}
