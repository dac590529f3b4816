package ordertest

import (
	"time"

	"github.com/pawl-go/pawl/order"
)

// What is left of a gap, what ends it, and since when the cursor stands there.
var restCases = []testCase{
	{name: "GapWithOnlyUnorderedAbove", run: restUnordered},
	{name: "GapEndsBelowAnUnorderedNumber", run: restBelowUnordered},
	{name: "GapWhileAHigherEpochWaits", run: restHigherEpoch},
	{name: "GapKeepsItsAgeWhenItsEndIsReported", run: restReportedEnd},
	{name: "TheRestOfAGapIsTheSameGap", run: restSame},
	{name: "TheRestOfASkippedGapIsTheSameGap", run: restSkipped},
	{name: "TheRestOfAVoidGapIsTheSameGap", run: restVoid},
	{name: "TheRestOfAReportedGapIsTheSameGap", run: restReported},
	{name: "TheRestBelowAnotherNumberIsANewGap", run: restNew},
	{name: "ResentGapBeginsAnewAndSoDoesItsRest", run: restResent},
	{name: "SinceCountsFromTheCursor", run: sinceCursor},
	{name: "SinceCountsFromTheOpening", run: sinceOpening},
	{name: "SkipKeepsAlertedAndAsked", run: skipKeeps},
	{name: "SkipNotesTheFirstRecordAlone", run: skipNotesFirst},
}

// notedGap makes a key with a gap from 1 to below a buffered number, which is
// alerted and was asked for twice, and whose next look is far.
func (e *env) notedGap(key string, above uint64) {
	e.Helper()
	e.p.GapLook = 0
	e.buffered(key, above)
	s := wait(e.claimGap(key), longLease)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
}

// wantNoted checks that the only open gap of a key is that of notedGap.
func (e *env) wantNoted(key string, from, to uint64, age time.Duration) order.Gap {
	e.Helper()
	g := e.open(key)
	if g.From != from || g.To != to || !g.Alerted || g.Asked != 2 || g.Age < age || e.virtual && g.Age != age {
		e.Fatalf("the gap is %+v, want the one before, of %v, from %d to %d", g, age, from, to)
	}
	return g
}

// open returns the only open gap of a key.
func (e *env) open(key string) (open order.Gap) {
	e.Helper()
	n := 0
	for _, g := range e.allGaps(key) {
		if g.Open {
			open, n = g, n+1
		}
	}
	if n != 1 {
		e.Fatalf("key %q has %d open gaps: %+v", key, n, e.allGaps(key))
	}
	return open
}

func restUnordered(e *env) {
	e.p.GapLook = e.short
	e.buffered("k", 1)
	e.applied(unordered("k", 4))
	e.deliverAll("k", 1)
	if g := e.wantGap("k", 2, 4, true); e.virtual && (g.Age != 0 || g.Since != 0) {
		e.Fatalf("a gap below a number without a message is not as old as its opening: %+v", g)
	}
	if t := e.totals(); t.OpenGaps != 1 {
		e.Fatalf("the totals with an open gap are %+v", t)
	}
	e.wait()
	c := e.claimGap("k")
	if c.Gap.Age < 2*e.short || e.virtual && c.Gap.Age != 2*e.short {
		e.Fatalf("the gap is %v old, and opened %v ago", c.Gap.Age, 2*e.short)
	}
	e.applied(skip(c, 4), release(c))
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 5, Head: 5, Delivered: 2, Skipped: 2, OutOfOrder: 1})
	e.nothing()
}

func restBelowUnordered(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 9)
	e.applied(unordered("k", 5), unordered("k", 6))
	c := e.claimGap("k")
	if c.Gap.From != 1 || c.Gap.To != 5 {
		e.Fatalf("the gap is %+v, want 1 to 5", c.Gap)
	}
	e.applied(release(c), resolve("k", 1, 9, order.ResolutionLost)) // its numbers, and no others
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 7, Head: 10, Delivered: 2, Skipped: 4, Buffered: 1, Missing: 2, OutOfOrder: 2})
	if g := e.open("k"); g.From != 7 || g.To != 9 {
		e.Fatalf("the next gap is %+v, want 7 to 9", g)
	}
}

func restHigherEpoch(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1)
	e.applied(unordered("k", 3))
	e.answered(order.Buffered, at("k", 2, 1))
	e.deliverAll("k", 1)
	c := e.claimGap("k")
	if c.Epoch != 1 || c.Gap.From != 2 || c.Gap.To != 3 || !c.Gap.Old {
		e.Fatalf("the claim is of epoch %d with the gap %+v", c.Epoch, c.Gap)
	}
	e.applied(skip(c, 3), release(c))
	e.deliverAllOf("k", 2, 1) // the key goes on
}

func restReportedEnd(e *env) {
	e.notedGap("k", 3)
	e.wait()
	e.applied(unordered("k", 3))
	e.wantNoted("k", 1, 3, 2*e.short)
	e.nothing()
}

func restSame(e *env) {
	const above = 7
	e.notedGap("k", above)
	for n := uint64(1); n < above-1; n++ { // filled upwards
		e.wait()
		e.buffered("k", n)
		if gaps := e.allGaps("k"); len(gaps) != 0 {
			e.Fatalf("a gap is open whose first number has come: %+v", gaps)
		}
		e.wait()
		e.deliverAll("k", n)
		e.wantNoted("k", n+1, above, time.Duration(n)*4*e.short)
		e.nothing() // before the next look
	}
	e.buffered("k", above-1)
	e.deliverAll("k", above-1, above)
	e.buffered("k", above+2)
	if g := e.wantGap("k", above+1, above+2, true); g.Alerted || g.Asked != 0 {
		e.Fatalf("the next gap is %+v, want it new", g)
	}
}

func restSkipped(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 7)
	s := wait(e.claimGap("k"), 0)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
	e.wait()
	c := e.claimGap("k")
	e.applied(skip(c, 3))
	e.wantNoted("k", 3, 7, 2*e.short)
	e.applied(resolve("k", 3, 5, order.ResolutionLost))
	e.wantNoted("k", 5, 7, 2*e.short)
	e.applied(wait(c, longLease))
	e.wait()
	e.applied(resolve("k", 5, 6, order.ResolutionIgnore))
	if g := e.open("k"); g.From != 6 || g.To != 7 || g.Age < 4*e.short || e.virtual && g.Age != 4*e.short {
		e.Fatalf("what is left of the gap is %+v, want it %v old", g, 4*e.short)
	}
	e.nothing() // before the next look
}

func restVoid(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 5)
	s := wait(e.claimGap("k"), 0)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
	e.wait()
	c := e.claimGap("k")
	e.applied(void(c, 2, 4)) // in the middle: the gap is where it was
	e.wantNoted("k", 1, 5, 2*e.short)
	e.applied(void(c, 1, 2))
	e.wantNoted("k", 4, 5, 2*e.short)
	s = wait(c, longLease)
	s.From, s.Alerted, s.Asked = 4, true, 2
	e.applied(s)
	e.nothing()
}

func restReported(e *env) {
	e.notedGap("k", 4)
	e.wait()
	e.applied(unordered("k", 1))
	g := e.wantNoted("k", 2, 4, 2*e.short)
	if e.virtual && g.Since != 0 {
		e.Fatalf("the cursor came to the gap just now, and the gap says %v", g.Since)
	}
}

func restNew(e *env) {
	e.notedGap("k", 9)
	e.wait()
	e.buffered("k", 5)
	e.wantNoted("k", 1, 5, 2*e.short) // the first number is missing: the same
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	e.wantNoted("k", 2, 5, 2*e.short) // 5 is what was behind it
	e.buffered("k", 2, 3, 4)
	e.deliverAll("k", 2, 3, 4, 5)
	c := e.claimGap("k")
	if g := c.Gap; g.From != 6 || g.To != 9 || g.Alerted || g.Asked != 0 || e.virtual && g.Age != 2*e.short {
		e.Fatalf("the gap behind another number is %+v, want it new and as old as number 9", g)
	}
	e.applied(wait(c, longLease))

	e.notedGap("closed", 9)
	e.buffered("closed", 1, 5) // 5 came when the gap was closed
	e.deliverAll("closed", 1)
	if g := e.open("closed"); g.From != 2 || g.To != 5 || g.Alerted || g.Asked != 0 {
		e.Fatalf("the gap is %+v, want a new one from 2 to 5", g)
	}
}

func restResent(e *env) {
	e.notedGap("k", 5)
	e.wait()
	e.p.GapLook = longLease
	e.applied(resolve("k", 1, 5, order.ResolutionResent))
	e.wait()
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	if g := e.wantGap("k", 2, 5, true); g.Alerted || g.Asked != 0 || g.Age < 2*e.short || e.virtual && g.Age != 2*e.short {
		e.Fatalf("what is left of a gap that was resent %v ago is %+v", 2*e.short, g)
	}
	e.nothing()
}

// wantSince checks since when the cursor stands at a gap.
func (e *env) wantSince(key string, want time.Duration) {
	e.Helper()
	if g := e.open(key); g.Since < want || e.virtual && g.Since != want {
		e.Fatalf("the cursor stands at the gap %+v since %v, want %v", g, g.Since, want)
	}
}

func sinceCursor(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 4)
	e.wait()
	e.buffered("k", 1)
	e.wait()
	e.deliverAll("k", 1) // the gap from 2 is as old as number 4, and the cursor has just come
	e.wantSince("k", 0)
	if g := e.open("k"); g.Age < 4*e.short || e.virtual && g.Age != 4*e.short {
		e.Fatalf("the gap is %+v, want it %v old", g, 4*e.short)
	}
	e.wait()
	e.wantSince("k", 2*e.short)
	c := e.claimGap("k")
	if c.Gap.Since < 2*e.short || e.virtual && c.Gap.Since != 2*e.short {
		e.Fatalf("the gap of the claim is %+v, want since %v", c.Gap, 2*e.short)
	}
	e.applied(wait(c, longLease))
	e.buffered("k", 3) // shorter, and the cursor stands where it stood
	e.wait()
	e.wantSince("k", 4*e.short)
	e.buffered("k", 2)
	e.deliverAll("k", 2, 3, 4)
	e.buffered("k", 6)
	c = e.claimGap("k")
	e.applied(skip(c, 6), release(c))
	for _, g := range e.allGaps("k") {
		if g.Since != 0 {
			e.Fatalf("a record has a time since: %+v", g)
		}
	}
}

func sinceOpening(e *env) {
	e.buffered("k", 1)
	e.deliverAll("k", 1)
	e.wait()
	e.buffered("k", 3) // the cursor stands at 2 for long, and the gap opens now
	e.wait()
	e.wantSince("k", 2*e.short)

	e.buffered("old", 1)
	e.answered(order.Buffered, at("old", 2, 3))
	e.wait()
	e.deliverAll("old", 1) // now the gap of the next epoch opens
	e.wait()
	e.wantSince("old", 2*e.short)
	if g := e.open("old"); g.Epoch != 2 || g.Age < 4*e.short || e.virtual && g.Age != 4*e.short {
		e.Fatalf("the gap is %+v, want it of epoch 2 and %v old", g, 4*e.short)
	}
}

func skipKeeps(e *env) {
	for _, tc := range []struct {
		key             string
		noted, carried  bool
		asked, andAsked int
	}{
		{"carried", false, true, 0, 2},
		{"noted", true, false, 2, 1},
		{"both", true, true, 1, 3},
		{"neither", false, false, 0, 0},
	} {
		e.p.GapLook = 0
		e.buffered(tc.key, 3)
		s := wait(e.claimGap(tc.key), 0)
		s.Alerted, s.Asked = tc.noted, tc.asked
		e.applied(s)
		c := e.claimGap(tc.key)
		s = skip(c, 3)
		s.Alerted, s.Asked = tc.carried, tc.andAsked
		e.applied(s, deliver(c, 4), release(c))
		g := e.wantGap(tc.key, 1, 3, false)
		if g.Alerted != (tc.noted || tc.carried) || g.Asked != max(tc.asked, tc.andAsked) {
			e.Fatalf("%s: the record is %+v, want alerted %t, asked %d", tc.key, g, tc.noted || tc.carried, max(tc.asked, tc.andAsked))
		}
	}
}

func skipNotesFirst(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 8)
	e.applied(unordered("k", 3))
	c := e.claimGap("k")
	s := skip(c, 6)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
	gaps := e.allGaps("k")
	if len(gaps) != 3 || gaps[0].To != 3 || !gaps[0].Alerted || gaps[0].Asked != 2 || gaps[1].From != 4 || gaps[1].Alerted || gaps[1].Asked != 0 {
		e.Fatalf("the gaps are %+v, want the record from 1 to 3 alerted and asked for twice, and that from 4 to 6 not", gaps)
	}
	if g := gaps[2]; !g.Open || g.From != 6 || g.Alerted || g.Asked != 0 {
		e.Fatalf("the gap behind what was skipped is %+v, want it without what the skip carried", g)
	}
	e.applied(release(c))
}
