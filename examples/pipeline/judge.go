package main

import (
	"context"

	"github.com/pawl-go/pawl/order"
)

// count asks for the account of every lane, checks that it adds up, and judges the
// order of the effects.
func (o *ordering) count(ctx context.Context, s *schedule, a *account) error {
	var lanes, gaps int
	var skipped, outside uint64
	for lane := range s.lanes {
		l, err := o.Account(ctx, lane)
		if err != nil {
			return err
		}
		if len(l.Ledgers) > 0 {
			lanes++
		}
		a.addsUp(l)
		for _, e := range l.Ledgers {
			skipped += e.Skipped
			outside += e.OutOfOrder + e.Unordered
		}
	}
	for q := (order.Query{N: 1000}); ; {
		page, err := o.Gaps(ctx, q)
		if err != nil {
			return err
		}
		for _, g := range page {
			if !g.Open && g.Reason == order.ReasonTimeout {
				gaps++
			}
		}
		if len(page) < q.N {
			break
		}
		last := page[len(page)-1]
		q.After = order.Cursor{Key: last.Key, Position: order.Position{Epoch: last.Epoch, Number: last.From}}
	}
	violations := orderViolations(a.list)
	a.Lanes, a.OrderViolations, a.GapsSkipped = &lanes, &violations, &gaps
	if least, most := skippedNumbers(s.dropped, a.list); skipped < least || skipped > most {
		a.note("%d numbers were skipped, and %d to %d were taken away and have others behind them", skipped, least, most)
	}
	if lanes != len(s.lanes) {
		a.note("%d lanes have an account, and events of %d were sent", lanes, len(s.lanes))
	}
	if o.degraded {
		a.Unordered = &outside
		if s := o.Stats(); s.Forgotten > 0 || s.Unreported > 0 || s.Unordered > 0 && outside == 0 {
			a.note("of %d deliveries without the order store it knows of %d; %d were forgotten", s.Unordered, outside, s.Forgotten)
		}
	}
	return nil
}

// addsUp notes what is wrong with the account of a lane: every number is in one place,
// and at the end none waits.
func (a *account) addsUp(l order.Account) {
	for _, e := range l.Ledgers {
		below := e.Delivered + e.Void + e.Skipped + e.Late
		above := e.Buffered + e.Parked + e.Unordered + e.VoidAhead + e.Missing
		if below != e.Cursor-e.Base || above != e.Head-e.Cursor {
			a.note("the account of a lane does not add up: %+v", e)
		}
		if e.Buffered+e.Parked > 0 || e.Missing > 0 && e.Unordered == 0 {
			a.note("a lane has not come to its end: %+v", e)
		}
	}
	in := l.Arrivals
	if in.Pushed != in.Accepted+in.Duplicate+in.Conflict+in.Late+in.Stale+in.Full+in.TooFar {
		a.note("the arrivals of a lane do not add up: %+v", in)
	}
}

// orderViolations counts effects numbered below one that had already happened in
// their lane. What came out of band, late or unordered, is none and makes none.
func orderViolations(list []effect) (n int) {
	highest := make(map[string]order.Position)
	for _, e := range list {
		if e.Way != inOrder {
			continue
		}
		if h := highest[e.At.Lane]; e.At.Compare(h) < 0 {
			n++
		} else {
			highest[e.At.Lane] = e.At.Position
		}
	}
	return n
}

// skippedNumbers is how many of the dropped events left a gap: those with an event
// behind them in their lane. Behind the last one nothing is missed. Events that were
// delivered without the order store need not make a gap of what is missing before
// them, since none of them waits for it.
func skippedNumbers(dropped map[string]position, list []effect) (least, most uint64) {
	inTurn, behind := make(map[string]order.Position), make(map[string]order.Position)
	had := make(map[string]bool)
	for _, e := range list {
		had[e.ID] = true
		if lane := e.At.Lane; e.At.Compare(behind[lane]) > 0 {
			behind[lane] = e.At.Position
		}
		if lane := e.At.Lane; e.Way != unordered && e.At.Compare(inTurn[lane]) > 0 {
			inTurn[lane] = e.At.Position
		}
	}
	for id, p := range dropped {
		if had[id] {
			continue
		}
		if p.Compare(inTurn[p.Lane]) < 0 {
			least++
		}
		if p.Compare(behind[p.Lane]) < 0 {
			most++
		}
	}
	return least, most
}
