package ordertest

import (
	"github.com/pawl-go/pawl/order"
)

// Gaps: when they open, how old they are, when they are looked at.
var gapCases = []testCase{
	{name: "GapIsDueAtItsLook", run: gapLook},
	{name: "GapIsTheRangeBelowTheNextMessage", run: gapRange},
	{name: "GapIsAsOldAsTheMessageAboveIt", run: gapAge},
	{name: "GapOpensWhenTheCursorComesToIt", run: gapOpensByMove},
	{name: "ArrivalsShortenTheGap", run: gapShortened},
	{name: "FilledGapIsGone", run: gapFilled},
	{name: "WaitSetsTheNextLook", run: gapWait},
	{name: "WaitKeepsWhatWasDone", run: gapNoted},
	{name: "RecordKeepsWhatWasDone", run: gapNotedInRecord},
	{name: "WaitOnAFilledGapReleases", run: gapWaitFilled},
	{name: "NextGapBeginsAnew", run: gapNext},
	{name: "OpenGapIsListedFromItsOpening", run: gapListed},
	{name: "GapOfAnOldEpochIsMarked", run: gapOld},
	{name: "GapOfAnEpochThatWaitsIsNotOpen", run: gapWaiting},
}

// claimGap claims a key, which must show a gap and no run.
func (e *env) claimGap(key string) order.Claim {
	e.Helper()
	c := e.claim(key)
	if c.Gap == nil || len(c.Run) != 0 {
		e.Fatalf("a claim of key %q has the gap %+v and the run %v, want a gap alone", key, c.Gap, numbersOf(c.Run))
	}
	return c
}

func gapLook(e *env) {
	e.buffered("far", 2)
	e.nothing()
	e.p.GapLook = e.short
	e.buffered("k", 2)
	e.wait()
	c := e.claimGap("k")
	if c.Gap.Key != "k" || c.Gap.Epoch != 1 || !c.Gap.Open || c.Gap.Alerted || c.Gap.Asked != 0 || c.Gap.Old {
		e.Fatalf("a new gap is %+v", c.Gap)
	}
	if c.Gap.Age < 2*e.short || e.virtual && c.Gap.Age != 2*e.short {
		e.Fatalf("the gap is %v old, want %v", c.Gap.Age, 2*e.short)
	}
}

func gapRange(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 5, 9)
	e.deliverAll("k", 1)
	c := e.claimGap("k")
	if c.Gap.From != 2 || c.Gap.To != 5 {
		e.Fatalf("the gap is %+v, want 2 to 5", c.Gap)
	}
	e.wantGap("k", 2, 5, true)
}

func gapAge(e *env) {
	e.buffered("k", 1, 9)
	e.wait()
	e.buffered("k", 3)
	e.sleep(3 * e.short)
	e.deliverAll("k", 1) // the gap opens; 3 is next above it
	g := e.wantGap("k", 2, 3, true)
	if g.Age < 3*e.short || e.virtual && g.Age != 3*e.short {
		e.Fatalf("the gap is %v old, as old as number 3, which came %v ago", g.Age, 3*e.short)
	}
	e.wait()
	e.buffered("k", 2)
	e.deliverAll("k", 2, 3)
	g = e.wantGap("k", 4, 9, true)
	if g.Age < 7*e.short || e.virtual && g.Age != 7*e.short {
		e.Fatalf("the gap is %v old, as old as number 9, which came %v ago", g.Age, 7*e.short)
	}
}

func gapOpensByMove(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1, 3)
	c := e.claim("k")
	e.wantRun(c, 1)
	if len(e.allGaps("k")) != 0 {
		e.Fatal("a gap is open that the cursor has not come to")
	}
	e.applied(deliver(c, 2), release(c))
	e.wantGap("k", 2, 3, true)
	e.claimGap("k")
}

func gapShortened(e *env) {
	e.buffered("k", 9)
	e.wait()
	e.buffered("k", 5)
	g := e.wantGap("k", 1, 5, true)
	if g.Age < 2*e.short || e.virtual && g.Age != 2*e.short {
		e.Fatalf("a gap that an arrival shortened is %v old, and opened %v ago", g.Age, 2*e.short)
	}
}

func gapFilled(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 3)
	e.buffered("k", 1)
	if len(e.allGaps("k")) != 0 {
		e.Fatal("a gap is open whose first number has come")
	}
	e.buffered("k", 2)
	e.deliverAll("k", 1, 2, 3)
	e.nothing()
}

func gapWait(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 2)
	e.applied(wait(e.claimGap("k"), longLease))
	e.nothing()
	e.buffered("k", 1) // does not wait for the look
	e.deliverAll("k", 1, 2)
	e.buffered("k", 4)
	e.applied(wait(e.claimGap("k"), e.short))
	e.wait()
	e.claimGap("k")
}

func gapNoted(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 9)
	c := e.claimGap("k")
	s := wait(c, 0)
	s.From, s.Alerted, s.Asked = 1, true, 2
	e.applied(s)
	e.buffered("k", 5)
	c = e.claimGap("k")
	if !c.Gap.Alerted || c.Gap.Asked != 2 || c.Gap.To != 5 {
		e.Fatalf("the gap is %+v, want it alerted and asked for twice", c.Gap)
	}
	s = wait(c, longLease)
	s.Alerted, s.Asked = true, 3
	e.applied(s)
	if g := e.wantGap("k", 1, 5, true); !g.Alerted || g.Asked != 3 {
		e.Fatalf("the gap is %+v, want it alerted and asked for three times", g)
	}
}

func gapNotedInRecord(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 3, 5)
	s := wait(e.claimGap("k"), 0)
	s.Alerted, s.Asked = true, 2
	e.applied(s)
	c := e.claimGap("k")
	e.applied(skip(c, 3), deliver(c, 4), skip(c, 5), release(c))
	gaps := e.allGaps("k")
	if len(gaps) != 2 || !gaps[0].Alerted || gaps[0].Asked != 2 || gaps[1].Alerted || gaps[1].Asked != 0 {
		e.Fatalf("the records are %+v, want the first alerted and asked for twice", gaps)
	}
}

func gapWaitFilled(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 2)
	c := e.claimGap("k")
	e.buffered("k", 1)
	e.applied(wait(c, longLease))
	e.deliverAll("k", 1, 2)
}

func gapNext(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 2, 4)
	s := wait(e.claimGap("k"), 0)
	s.Alerted, s.Asked = true, 1
	e.applied(s)
	e.buffered("k", 1)
	e.deliverAll("k", 1, 2)
	if c := e.claimGap("k"); c.Gap.Alerted || c.Gap.Asked != 0 || c.Gap.From != 3 {
		e.Fatalf("the next gap is %+v, want it new", c.Gap)
	}
}

func gapListed(e *env) {
	e.buffered("k", 3)
	g := e.wantGap("k", 1, 3, true)
	if g.Epoch != 1 || g.Reason != 0 || g.Resolution != 0 || g.Alerted {
		e.Fatalf("an open gap is listed as %+v", g)
	}
	if t := e.totals(); t.OpenGaps != 1 || t.Unresolved != 0 {
		e.Fatalf("the totals with an open gap are %+v", t)
	}
}

func gapOld(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 2)
	if g := e.wantGap("k", 1, 2, true); g.Old {
		e.Fatalf("the gap of the only epoch is old: %+v", g)
	}
	e.answered(order.Buffered, at("k", 2, 1))
	if g := e.wantGap("k", 1, 2, true); !g.Old {
		e.Fatalf("a gap that holds a higher epoch up is not old: %+v", g)
	}
	if c := e.claimGap("k"); !c.Gap.Old {
		e.Fatalf("the gap of the claim is not old: %+v", c.Gap)
	}
}

func gapWaiting(e *env) {
	e.p.GapLook = 0
	e.buffered("k", 1)
	e.answered(order.Buffered, at("k", 2, 3))
	if gaps := e.allGaps("k"); len(gaps) != 0 {
		e.Fatalf("an epoch that waits has an open gap: %+v", gaps)
	}
	e.deliverAll("k", 1)
	c := e.claimGap("k")
	if c.Epoch != 2 || c.Gap.Epoch != 2 || c.Gap.From != 1 || c.Gap.To != 3 {
		e.Fatalf("the claim is of epoch %d with the gap %+v", c.Epoch, c.Gap)
	}
}
