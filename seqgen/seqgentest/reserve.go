package seqgentest

import (
	"fmt"

	"github.com/pawl-go/pawl/seqgen"
)

// The rules of Reserve, without those of owners.
var reserveCases = []testCase{
	{name: "EpochAndNumbersBeginAtOne", run: beginAtOne},
	{name: "NumbersGoOn", run: numbersGoOn},
	{name: "RepeatedAskGetsTheSameNumbers", run: repeatedAsk},
	{name: "RepeatedAskAfterOthers", run: repeatedAskAfterOthers},
	{name: "RepeatedAskInTheNextEpoch", run: repeatedAskInTheNextEpoch},
	{name: "RepeatedAskAfterATakeover", run: repeatedAskAfterATakeover},
	{name: "ModeIsFixedByTheFirstReservation", run: modeIsFixed},
	{name: "TheFirstRuleThatFits", run: firstRuleThatFits},
	{name: "SurvivesReopen", run: survivesReopen},
}

func beginAtOne(e *env) {
	for i, a := range []seqgen.Ask{single("single", 1), gapless("gapless"), open("block", 1)} {
		if s := e.look(a.Key); s.Epoch != 0 || s != (seqgen.State{Key: a.Key}) {
			e.Fatalf("a key that was never used is %+v", s)
		}
		g := e.grant(a, 1, 1, 1)
		if (g.Token != 0) != (a.Mode == seqgen.Block) {
			e.Fatalf("ask %d in mode %v got token %d", i, a.Mode, g.Token)
		}
		s := e.wantAt(a.Key, 1, 1)
		if s.Mode != a.Mode || s.Token != g.Token || s.Owned != (a.Mode == seqgen.Block) || s.Used != 0 {
			e.Fatalf("after the first number in mode %v the record is %+v", a.Mode, s)
		}
	}
}

func numbersGoOn(e *env) {
	e.grant(single("single", 3), 1, 1, 3)
	e.grant(single("single", 1), 1, 4, 4)
	e.grant(single("single", seqgen.MaxBlock), 1, 5, 4+seqgen.MaxBlock)
	for n := uint64(1); n <= 20; n++ {
		e.grant(gapless("gapless"), 1, n, n)
	}
	g := e.grant(open("block", 10), 1, 1, 10)
	for n := uint64(1); n <= 20; n++ {
		e.grant(more("block", 10, g.Token, 10*n-3), 1, 10*n+1, 10*n+10)
	}
	e.wantVoids("single", 1)
	e.wantVoids("gapless", 1)
	e.wantVoids("block", 1)
}

func repeatedAsk(e *env) {
	for _, a := range []seqgen.Ask{single("single", 5), gapless("gapless"), open("block", 5)} {
		g := e.reserve(a)[0]
		for range 3 {
			again := e.grant(a, 1, g.Lo, g.Hi)
			if again.Token != g.Token {
				e.Fatalf("sent again in mode %v, an ask got token %d, not %d", a.Mode, again.Token, g.Token)
			}
		}
		e.wantAt(a.Key, 1, g.Hi)
		if a.Mode == seqgen.Block {
			next := more(a.Key, 7, g.Token, 2)
			e.grant(next, 1, 6, 12)
			e.grant(next, 1, 6, 12)
			e.grant(a, 1, 1, 5)
		}
		e.wantVoids(a.Key, 1)
	}
}

// repeatedAskAfterOthers sends an ask again when LogSize - 1 others have come after it.
func repeatedAskAfterOthers(e *env) {
	a := single("key", 4)
	e.grant(a, 1, 1, 4)
	for n := range uint64(seqgen.LogSize - 1) {
		e.grant(single("key", 1), 1, 5+n, 5+n)
		e.grant(a, 1, 1, 4)
	}
	e.wantAt("key", 1, 4+seqgen.LogSize-1)
}

func repeatedAskInTheNextEpoch(e *env) {
	a, b := single("key", 4), open("block", 4)
	e.grant(a, 1, 1, 4)
	g := e.grant(b, 1, 1, 4)
	e.apply(bump("key", 0))
	e.apply(bump("block", 0))
	e.grant(a, 1, 1, 4)
	if again := e.grant(b, 1, 1, 4); again.Token != g.Token {
		e.Fatalf("sent again in the next epoch, an ask got token %d, not %d", again.Token, g.Token)
	}
	e.wantAt("key", 2, 0)
	e.grant(single("key", 1), 2, 1, 1)
}

func repeatedAskAfterATakeover(e *env) {
	a := open("key", 4)
	g := e.grant(a, 1, 1, 4)
	b := open("key", 4)
	h := e.grant(b, 1, 5, 8)
	if again := e.grant(a, 1, 1, 4); again.Token != g.Token {
		e.Fatalf("sent again after a takeover, an ask got token %d, not %d", again.Token, g.Token)
	}
	s := e.wantAt("key", 1, 8)
	if s.Token != h.Token {
		e.Fatalf("a late copy of an ask took the key back: %+v", s)
	}
	e.wantVoids("key", 1, rng{1, 4, orphaned, seqgen.TakenOver})
}

func modeIsFixed(e *env) {
	asks := func(key string) []seqgen.Ask { return []seqgen.Ask{single(key, 1), gapless(key), open(key, 1)} }
	for i, first := range asks("") {
		key := fmt.Sprintf("key-%d", i)
		first.Key = key
		e.grant(first, 1, 1, 1)
		for _, a := range asks(key) {
			if a.Mode == first.Mode {
				continue
			}
			if g := e.refuse(a, seqgen.ErrMode); g.Mode != first.Mode {
				e.Fatalf("the mode of the record was answered as %v, want %v", g.Mode, first.Mode)
			}
		}
		e.apply(bump(key, 0))
		if s := e.look(key); s.Mode != 0 {
			e.Fatalf("a new epoch is in mode %v", s.Mode)
		}
		other := asks(key)[(i+1)%3]
		e.grant(other, 2, 1, 1)
		first.Nonce = newNonce()
		e.refuse(first, seqgen.ErrMode)
	}
}

// firstRuleThatFits sends asks that several rules fit.
func firstRuleThatFits(e *env) {
	a := single("key", 1)
	a.Nonce = newNonce()
	g := e.grant(a, 1, 1, 1)
	a.Seen, a.Mode = seqgen.Position{Epoch: 9, Number: 9}, seqgen.Block
	if again := e.reserve(a)[0]; again.Err != nil || again.Lo != g.Lo { // 1 before 2 and 3
		e.Fatalf("a logged nonce was answered %+v", again)
	}
	late := more("key", 1, 7, 0)
	late.Seen = seqgen.Position{Epoch: 1, Number: 2}
	e.refuse(late, seqgen.ErrRolledBack) // 2 before 3
	e.refuse(more("key", 1, 7, 0), seqgen.ErrMode)

	e.apply(raise("end", 1, seqgen.MaxNumber-1, 0))
	owner := e.grant(open("end", 5), 1, seqgen.MaxNumber, seqgen.MaxNumber)
	e.refuse(more("end", 1, owner.Token-1, 0), seqgen.ErrStale) // 4 before 5
	e.refuse(single("end", 1), seqgen.ErrMode)                  // 3 before 5
	e.refuse(open("end", 1), seqgen.ErrExhausted)
	e.refuse(more("end", 1, owner.Token, seqgen.MaxNumber), seqgen.ErrExhausted)
}

func survivesReopen(e *env) {
	if e.c.Reopen == nil {
		e.Skip("nothing survives this store")
	}
	a, b := single("single", 5), open("block", 50)
	e.grant(a, 1, 1, 5)
	g := e.grant(b, 1, 1, 50)
	e.apply(void("single", 1, 2, 3))
	bumped := bump("bumped", 4)
	e.apply(bumped)
	plain := e.store
	if w, ok := plain.(*twiceStore); ok {
		plain = w.Store
	}
	e.store = e.c.Reopen(e.T, plain)
	e.grant(a, 1, 1, 5)
	e.grant(single("single", 1), 1, 6, 6)
	e.grant(more("block", 1, g.Token, 10), 1, 51, 51)
	e.grant(open("block", 1), 1, 52, 52)
	e.wantVoids("single", 1, rng{2, 3, certain, seqgen.GaveUp})
	e.wantVoids("block", 1, rng{11, 51, orphaned, seqgen.TakenOver})
	if o := e.apply(bumped); o.Epoch != 5 {
		e.Fatalf("a bump sent again after a restart opened epoch %d, want 5", o.Epoch)
	}
}
