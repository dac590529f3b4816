package seqgentest

import (
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// Owners in mode Block.
var ownerCases = []testCase{
	{name: "OnlyTheOwnerReserves", run: onlyTheOwnerReserves},
	{name: "OpenTakesTheKey", run: openTakesTheKey},
	{name: "TakeoverOrphansTheRest", run: takeoverOrphansTheRest},
	{name: "TakeoverOfNothingLeftOrphansNothing", run: takeoverOfNothingLeft},
	{name: "UsedOnlyRises", run: usedOnlyRises},
	{name: "UsedIsNotAboveLast", run: usedIsNotAboveLast},
	{name: "TokenRisesAcrossOwners", run: tokenRises},
	{name: "TokenIsTheTimeInMicroseconds", run: tokenIsTheTime},
	{name: "ModesWithoutOwnersIgnoreThem", run: modesWithoutOwners},
}

func onlyTheOwnerReserves(e *env) {
	e.refuse(more("new", 1, 1, 0), seqgen.ErrStale)
	e.refuse(more("new", 1, 0, 0), seqgen.ErrStale)
	if s := e.look("new"); s.Epoch != 0 {
		e.Fatalf("an ask that was refused made the record %+v", s)
	}
	g := e.grant(open("key", 5), 1, 1, 5)
	for _, token := range []uint64{0, 1, g.Token - 1, g.Token + 1} {
		e.refuse(more("key", 5, token, 5), seqgen.ErrStale)
	}
	e.grant(more("key", 5, g.Token, 5), 1, 6, 10)
}

func openTakesTheKey(e *env) {
	a := e.grant(open("key", 5), 1, 1, 5)
	b := e.grant(open("key", 5), 1, 6, 10)
	e.refuse(more("key", 5, a.Token, 3), seqgen.ErrStale)
	e.grant(more("key", 5, b.Token, 8), 1, 11, 15)
	if s := e.look("key"); s.Token != b.Token || !s.Owned || s.Used != 8 {
		e.Fatalf("after a takeover the record is %+v", s)
	}
}

func takeoverOrphansTheRest(e *env) {
	began := e.now()
	a := e.grant(open("key", 100), 1, 1, 100)
	e.grant(more("key", 100, a.Token, 60), 1, 101, 200)
	b := e.reserve(open("key", 10))[0]
	e.wantGrant(b, 1, 201, 210)
	if b.Orphaned != (seqgen.Range{Epoch: 1, Lo: 61, Hi: 200}) {
		e.Fatalf("a takeover says that it orphaned %+v", b.Orphaned)
	}
	v := e.wantVoids("key", 1, rng{61, 200, orphaned, seqgen.TakenOver})
	if at := v[0].At; at.IsZero() || at.Sub(began) < -time.Minute {
		e.Fatalf("the void is from %v, the test from %v", at, began)
	}
	c := e.reserve(open("key", 10))[0] // a new owner that handed out nothing
	e.wantGrant(c, 1, 211, 220)
	e.wantVoids("key", 1, rng{61, 200, orphaned, seqgen.TakenOver}, rng{201, 210, orphaned, seqgen.TakenOver})
}

// now is the store's time, as a void tells it.
func (e *env) now() time.Time {
	e.Helper()
	e.reserve(single("clock", 1))
	e.apply(void("clock", 1, 1, 1))
	return e.allVoids("clock", 1)[0].At
}

func takeoverOfNothingLeft(e *env) {
	a := e.grant(open("used", 5), 1, 1, 5)
	e.grant(more("used", 5, a.Token, 5), 1, 6, 10)
	e.apply(giveBack("used", a, 6))
	if g := e.grant(open("used", 5), 1, 6, 10); g.Orphaned != (seqgen.Range{}) {
		e.Fatalf("a takeover after a return says that it orphaned %+v", g.Orphaned)
	}
	e.wantVoids("used", 1)
}

func usedOnlyRises(e *env) {
	a := e.grant(open("key", 100), 1, 1, 100)
	e.grant(more("key", 10, a.Token, 50), 1, 101, 110)
	e.grant(more("key", 10, a.Token, 20), 1, 111, 120)
	if s := e.look("key"); s.Used != 50 {
		e.Fatalf("used is %d, want 50", s.Used)
	}
	e.grant(open("key", 1), 1, 121, 121)
	e.wantVoids("key", 1, rng{51, 120, orphaned, seqgen.TakenOver})
}

func usedIsNotAboveLast(e *env) {
	a := e.grant(open("key", 10), 1, 1, 10)
	e.grant(more("key", 10, a.Token, 1000), 1, 11, 20)
	if s := e.look("key"); s.Used != 10 {
		e.Fatalf("used is %d, want 10", s.Used)
	}
	e.grant(open("key", 1), 1, 21, 21)
	e.wantVoids("key", 1, rng{11, 20, orphaned, seqgen.TakenOver})
}

func tokenRises(e *env) {
	var token uint64
	for n := range uint64(30) { // as fast as it goes: the clock may stand still meanwhile
		g := e.reserve(open("key", 1))[0]
		if g.Err != nil || g.Token <= token {
			e.Fatalf("owner %d got token %d (%v), the one before had %d", n+1, g.Token, g.Err, token)
		}
		token = g.Token
		switch n % 3 {
		case 1:
			e.apply(giveBack("key", g, g.Lo))
		case 2:
			e.apply(bump("key", 0))
		}
	}
}

func tokenIsTheTime(e *env) {
	began := time.Now()
	first := e.reserve(open("first", 1))[0]
	e.sleep(100 * time.Millisecond)
	second := e.reserve(open("second", 1))[0]
	took := max(time.Since(began), 100*time.Millisecond)
	between := time.Duration(int64(second.Token)-int64(first.Token)) * time.Microsecond
	if between < 90*time.Millisecond || between > 2*took+20*time.Second {
		e.Fatalf("the tokens of two keys opened %v apart are %v apart when read as microseconds", took, between)
	}
	if second.Token > 1<<53 {
		e.Fatalf("token %d is not a time in microseconds: it is above 2^53", second.Token)
	}
}

func modesWithoutOwners(e *env) {
	e.grant(single("key", 5), 1, 1, 5)
	a := single("key", 5)
	a.Token, a.Used, a.Open = 77, 3, true
	if g := e.grant(a, 1, 6, 10); g.Token != 0 {
		e.Fatalf("in mode single an ask got token %d", g.Token)
	}
	if s := e.look("key"); s.Owned || s.Used != 0 {
		e.Fatalf("in mode single the record is %+v", s)
	}
	e.wantVoids("key", 1)
	e.apply(bump("key", 0))
	e.wantVoids("key", 1)
}
