package backpressure

import (
	"math"
	"time"
)

// A control decides which ranks are admitted. It is a state machine without a clock:
// every step is told the time since the gate was made.
//
// It measures, in windows of a tenth of a second, the rate of arrivals by rank, the
// rate at which calls start while others wait, and the time they waited. A window
// ends early when the queue grows fast. Once calls wait longer than the target, or
// are about to, it admits the most important ranks whose arrivals together come to
//
//	served + (wanted - waiting) / settle
//
// a second, where wanted is the queue that the served rate works off in the target
// time. There are no step sizes to tune: the rate admitted follows from the rates
// measured.
type control struct {
	target time.Duration

	last    time.Duration // of the last call
	from    time.Duration // when the window began
	waiting int           // admitted and not started
	idle    bool          // in this window nobody waited at some moment
	before  int           // waiting when the window began
	filling bool          // the queue grows so fast that the window is over early

	arrived [ranks]uint32 // in this window, by rank
	started int           // in this window, expired ones excluded
	left    int           // started or expired
	waited  time.Duration // by those that left

	rates    [ranks]float64 // of arrivals, calls a second
	total    float64        // sum of rates
	served   float64        // calls a second; 0: not known
	sure     bool           // served was measured while workers had no pause
	shedding bool
	cut      int     // ranks below it are admitted
	part     float64 // of rank cut that is admitted
	credit   float64 // of it
	calm     int     // windows in a row without a reason to shed
	spare    int     // windows in a row in which workers had little to do
}

const (
	window = 100 * time.Millisecond
	// maxWindow ends a window with too few calls to judge.
	maxWindow = time.Second
	// minSample is how many calls have to leave the queue in a window to judge it:
	// one pause at low traffic is no overload. A window lasts until there are so many.
	minSample = 20
	// settle is the time in which a queue that is too long, or too short, is brought
	// to the one wanted.
	settle = 500 * time.Millisecond
	// memory is the time constant of the rates.
	memory = time.Second
	// jump is how many standard deviations of a Poisson process the arrivals of a class,
	// or of all, may be off in a window before their rates are rescaled at once.
	jump = 5
	// calmWindows is how many windows without overload end the shedding.
	calmWindows = 5
)

// turn is what changed with a window.
type turn uint8

const (
	noTurn turn = iota
	beganShedding
	stoppedShedding
)

func newControl(target time.Duration) control {
	return control{target: target, cut: ranks, idle: true}
}

// arrive counts a call in and says whether it is admitted. The caller adds it to
// waiting.
func (c *control) arrive(rank int) bool {
	c.arrived[rank]++
	if rank == c.cut {
		if c.credit += c.part; c.credit >= 1 {
			c.credit--
			return true
		}
		return false
	}
	return rank < c.cut
}

// leave counts a call out of the queue.
func (c *control) leave(waited time.Duration, started bool) {
	c.waiting = max(c.waiting-1, 0)
	if c.waiting == 0 {
		c.idle = true
	}
	c.left++
	c.waited += max(waited, 0)
	if started {
		c.started++
	}
}

// tick ends the window if it is over.
func (c *control) tick(now time.Duration) turn {
	now = max(now, c.last)
	c.last = now
	took := now - c.from
	c.filling = took >= window/5 && c.left >= minSample && c.waiting > c.before+minSample &&
		float64(c.waiting)*float64(took) > 4*float64(c.target)*float64(c.left) // the wait of a call that comes now
	if took < window && !c.filling || c.left < minSample && took < maxWindow {
		return noTurn
	}
	seconds := took.Seconds()
	c.measure(seconds)
	t := c.decide()
	clear(c.arrived[:])
	c.from, c.before, c.idle = now, c.waiting, c.waiting == 0
	c.started, c.left, c.waited = 0, 0, 0
	return t
}

// measure brings the rates up to date.
func (c *control) measure(seconds float64) {
	weight := 1 - math.Exp(-seconds/memory.Seconds())
	if c.total == 0 {
		weight = 1
	}
	for i := 0; i < ranks; i += userLevels {
		c.jumped(i, i+userLevels, seconds)
	}
	c.jumped(0, ranks, seconds) // by more than the classes have shown
	c.total = 0
	for i := range c.rates {
		c.rates[i] += weight * (float64(c.arrived[i])/seconds - c.rates[i])
		c.total += c.rates[i]
	}
	rate := float64(c.started) / seconds
	switch {
	case !c.idle && c.started > 0: // the workers had no pause
		if !c.sure {
			c.served, c.sure = rate, true
		}
		c.served += (1 - math.Exp(-seconds/settle.Seconds())) * (rate - c.served)
	case rate > c.served && (c.shedding || !c.sure && c.overloaded()):
		c.served = rate // it can do that, and more
	}
}

// jumped rescales the rates of a span of ranks at once when its load has changed by
// more than chance explains: by how much is known, and among which of its ranks will
// show. One class that runs wild does not make the others look as if they did.
func (c *control) jumped(from, to int, seconds float64) {
	calls, expected := 0.0, 0.0
	for i := from; i < to; i++ {
		calls += float64(c.arrived[i])
		expected += c.rates[i] * seconds
	}
	off := math.Abs(calls - expected)
	if calls == 0 || off <= minSample || off <= jump*math.Sqrt(expected) {
		return
	}
	for i := from; i < to; i++ {
		if expected < 1 { // the ranks are new
			c.rates[i] = float64(c.arrived[i]) / seconds
		} else {
			c.rates[i] *= calls / expected
		}
	}
}

// overloaded says whether calls waited too long in this window, or are about to.
func (c *control) overloaded() bool {
	return c.filling || c.left >= minSample && c.waited > time.Duration(c.left)*c.target ||
		c.left == 0 && c.waiting >= minSample // nothing moves
}

// decide sets what is admitted in the next window.
func (c *control) decide() turn {
	overloaded := c.overloaded()
	if !c.shedding && !overloaded {
		return noTurn
	}
	t := noTurn
	if !c.shedding {
		c.shedding, c.calm, t = true, 0, beganShedding
	}
	if c.idle && c.waited <= time.Duration(c.left)*c.target/4 {
		c.spare++
	} else {
		c.spare = 0
	}
	if c.spare >= 2 {
		// Far from busy: what was served says little of what can be. The longer that
		// lasts, the surer it is, and the longer the next step.
		more := c.served * (1 + 0.05*float64(c.spare))
		c.served = min(max(more, 1/window.Seconds()), max(2*c.total, c.served))
	}
	wanted := c.served * c.target.Seconds()
	admit := c.served + (wanted-float64(c.waiting))/settle.Seconds()
	admit = min(max(admit, c.served/10), 2*c.served)
	if c.total <= admit && !overloaded {
		c.calm++
	} else {
		c.calm = 0
	}
	if c.calm >= calmWindows {
		c.shedding, c.cut, c.part = false, ranks, 0
		return stoppedShedding
	}
	c.cut, c.part = c.cutAt(admit)
	return t
}

// cutAt returns the first rank that is not admitted as a whole, and the part of it
// that is, when the ranks before it come to so many calls a second.
func (c *control) cutAt(admit float64) (cut int, part float64) {
	for i, r := range c.rates {
		if r > admit {
			return i, admit / r
		}
		admit -= r
	}
	return ranks, 0
}
