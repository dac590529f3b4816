package ordertest

import (
	"slices"

	"github.com/pawl-go/pawl/order"
)

// Ways to get gaps, what is late and what is oldest wrong.
var gapFlaws = []flaw{
	{"nothing waits for what is unordered", "Once/GapWithOnlyUnorderedAbove", func(a *alteration) {
		outside := reported(a)
		a.claimed = func(_ order.Ask, c *order.Claimed) {
			c.Claims = slices.DeleteFunc(c.Claims, func(c order.Claim) bool { return c.Gap != nil && outside[c.Gap.To] })
		}
	}},
	{"a gap ends where something is buffered", "Once/GapEndsBelowAnUnorderedNumber", func(a *alteration) {
		outside := reported(a)
		a.claimed = eachOpenGap(func(g *order.Gap) {
			for outside[g.To] {
				g.To++
			}
		})
	}},
	{"a higher epoch waits for ever", "Once/GapWhileAHigherEpochWaits", func(a *alteration) {
		a.claimed = func(_ order.Ask, c *order.Claimed) {
			c.Claims = slices.DeleteFunc(c.Claims, func(c order.Claim) bool { return c.Gap != nil && c.Gap.Old })
		}
	}},
	{"a gap without a message above has no age", "Once/GapKeepsItsAgeWhenItsEndIsReported", func(a *alteration) {
		outside := reported(a)
		a.gaps = eachGap(func(g *order.Gap) {
			if outside[g.To] {
				g.Age = 0
			}
		})
	}},
	{"every move begins a new gap", "Once/TheRestOfAGapIsTheSameGap", moveForgets},
	{"every skip begins a new gap", "Once/TheRestOfASkippedGapIsTheSameGap", moveForgets},
	{"every void begins a new gap", "Once/TheRestOfAVoidGapIsTheSameGap", moveForgets},
	{"every report begins a new gap", "Once/TheRestOfAReportedGapIsTheSameGap", moveForgets},
	{"a closed gap does not survive", "Once/TheRestOfAGapAcrossARestart", func(a *alteration) {
		a.reopen = func() { a.gaps = eachGap(func(g *order.Gap) { g.Alerted, g.Asked = false, 0 }) }
	}},
	{"a key is alerted once for all", "Once/TheRestBelowAnotherNumberIsANewGap", func(a *alteration) {
		alerted := map[string]bool{}
		a.settle = eachSettlement(func(s *order.Settlement) { alerted[s.Key] = alerted[s.Key] || s.Alerted })
		a.claimed = eachOpenGap(func(g *order.Gap) { g.Alerted = alerted[g.Key] })
	}},
	{"what is resent is late already", "Once/ResentGapBeginsAnewAndSoDoesItsRest", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindResolve {
				s.From, s.To = 1<<40, 1<<40+1
			}
		})
		a.settled = func(_ []order.Settlement, errs []error) []error { return make([]error, len(errs)) }
	}},
	{"the cursor stands there since the gap opened", "Once/SinceCountsFromTheCursor", func(a *alteration) {
		a.gaps = eachGap(func(g *order.Gap) { g.Since = g.Age })
	}},
	{"the cursor has always just come", "Once/SinceCountsFromTheOpening", func(a *alteration) {
		a.gaps = eachGap(func(g *order.Gap) { g.Since = 0 })
	}},
	{"the last look is not noted", "Once/SkipKeepsAlertedAndAsked", func(a *alteration) {
		a.settle = eachSettlement(func(s *order.Settlement) {
			if s.Kind == order.KindSkip {
				s.Alerted, s.Asked = false, 0
			}
		})
	}},
	{"the last look is noted for all", "Once/SkipNotesTheFirstRecordAlone", func(a *alteration) {
		a.gaps = eachGap(func(g *order.Gap) { g.Alerted = true })
	}},
	{"late messages without end", "Once/LateMessagesAreBounded", func(a *alteration) {
		a.push = func(p *order.Params, _ []order.Arrival) { p.MaxBuffered = 1 << 30 }
	}},
	{"late messages more than asked for", "Once/LateAtMostWhatIsAskedFor", func(a *alteration) {
		a.ask = func(_ *order.Params, x *order.Ask) { x.Late = 0 }
	}},
	{"epochs that wait have no age", "Once/OldestOfAnEpochThatWaits", func(a *alteration) {
		a.account = func(x *order.Account) {
			if len(x.Ledgers) > 0 && x.Ledgers[0].Buffered == 0 {
				x.Oldest = 0
			}
		}
	}},
	{"since is wrong once in a while", "Once/RandomHistoriesAgreeWithTheModel", func(a *alteration) {
		a.claimed = eachOpenGap(func(g *order.Gap) {
			if g.From > 3 {
				g.Since = g.Age
			}
		})
	}},
}

// reported returns the numbers that were reported as delivered outside.
func reported(a *alteration) map[uint64]bool {
	outside := map[uint64]bool{}
	a.settle = eachSettlement(func(s *order.Settlement) {
		if s.Kind == order.KindUnordered {
			outside[s.From] = true
		}
	})
	return outside
}

// moveForgets forgets what is known of a gap whose first number is another.
func moveForgets(a *alteration) {
	a.gaps = eachGap(func(g *order.Gap) {
		if g.Open && g.From > 1 {
			g.Age, g.Alerted, g.Asked = 0, false, 0
		}
	})
}

func eachGap(f func(*order.Gap)) func([]order.Gap) {
	return func(gaps []order.Gap) {
		for i := range gaps {
			f(&gaps[i])
		}
	}
}

func eachOpenGap(f func(*order.Gap)) func(order.Ask, *order.Claimed) {
	return eachClaim(func(c *order.Claim) {
		if c.Gap != nil {
			f(c.Gap)
		}
	})
}
