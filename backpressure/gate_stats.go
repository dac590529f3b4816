package backpressure

import (
	"sync/atomic"
	"time"
)

// GateStats are what a gate has counted since [NewGate], and its state.
type GateStats struct {
	// Classes are the counts by class, the highest first.
	Classes [classes]GateClassStats
	// Unknown counts calls of a class that is none of the five.
	Unknown uint64
	// Waiting is how many calls are admitted and not started, Running how many of Do
	// run.
	Waiting, Running int
	// Shedding says that calls are refused, or in shadow mode would be.
	Shedding bool
	// Lowest is the lowest priority that is admitted.
	Lowest Priority
	// Arriving and Served are calls a second as measured, Served 0 until the gate was
	// busy for the first time.
	Arriving, Served float64
	// MaxQueue and Target are the options.
	MaxQueue int
	Target   time.Duration
}

// GateClassStats count the calls of one class.
type GateClassStats struct {
	Class Class
	// Admitted calls, of which Expired were dropped when their turn came.
	Admitted uint64
	// Refused calls, or in shadow mode those that would have been.
	Refused uint64
	Expired uint64
	// GivenUp counts calls of Do whose context was cancelled while they waited.
	GivenUp uint64
}

type gateCounts struct {
	admitted, refused, expired, givenUp atomic.Uint64
}

// Stats returns a snapshot.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	c := &g.control
	s := GateStats{
		Waiting: c.waiting, Running: g.busy, Shedding: c.shedding, Lowest: priorityOf(c.cut - 1),
		Arriving: c.total, Served: c.served, MaxQueue: g.opts.MaxQueue, Target: g.opts.Target,
	}
	g.mu.Unlock()
	s.Unknown = g.unknown.Load()
	for i := range g.counts {
		n := &g.counts[i]
		s.Classes[i] = GateClassStats{
			Class: ClassHighest - Class(i), Admitted: n.admitted.Load(), Refused: n.refused.Load(),
			Expired: n.expired.Load(), GivenUp: n.givenUp.Load(),
		}
	}
	return s
}

// priorityOf is the inverse of rank.
func priorityOf(rank int) Priority {
	rank = min(max(rank, 0), ranks-1)
	return Priority{ClassHighest - Class(rank/userLevels), int8(userLevels/2 - 1 - rank%userLevels)}
}

// arrived counts a verdict on arrival, and tells the hook and the log.
func (g *Gate) arrived(p Priority, v Verdict, t turn) {
	n := g.countsOf(p)
	if v.Admit {
		n.admitted.Add(1)
	}
	if v.Reason != NoReason {
		n.refused.Add(1)
		g.hook(p, v)
	}
	g.log(t)
}

// dequeued counts a verdict on a call that was admitted before.
func (g *Gate) dequeued(p Priority, v Verdict, t turn) {
	n := g.countsOf(p)
	switch v.Reason {
	case Expired:
		n.expired.Add(1)
	case GivenUp:
		n.givenUp.Add(1)
	}
	if v.Reason != NoReason {
		g.hook(p, v)
	}
	g.log(t)
}

func (g *Gate) countsOf(p Priority) *gateCounts {
	if !p.Class.Valid() {
		g.unknown.Add(1)
		p.Class = ClassMiddle
	}
	return &g.counts[ClassHighest-p.Class]
}

func (g *Gate) hook(p Priority, v Verdict) {
	if h := g.opts.Hooks; h != nil && h.Refused != nil {
		h.Refused(p, v)
	}
}

func (g *Gate) log(t turn) {
	if t == noTurn || g.opts.Logger == nil {
		return
	}
	s := g.Stats()
	msg := "backpressure: the gate begins to refuse"
	if t == stoppedShedding {
		msg = "backpressure: the gate refuses nobody any more"
	}
	g.opts.Logger.Warn(msg, "arriving", s.Arriving, "served", s.Served, "waiting", s.Waiting, "shadow", g.opts.Shadow)
}
