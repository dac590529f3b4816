package backpressure

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Gate admits calls as long as they do not wait too long for a worker, and the
// most important ones when they do. Make it with [NewGate]. It is safe for
// concurrent use, starts no goroutine and needs no Close.
//
// There are two ways to use it. [Gate.Do] has a queue and a number of workers of its
// own. Where there is a queue already, [Gate.Admit] is asked on arrival, and
// [Ticket.Start] when a worker takes the call up.
type Gate struct {
	opts  GateOptions
	start time.Time

	mu      sync.Mutex
	control control
	busy    int       // of Concurrency
	queue   gateQueue // of Do

	counts  [classes]gateCounts
	unknown atomic.Uint64 // calls of a class that is none
}

// GateOptions set up a [Gate]. The zero value of each field is a working default.
type GateOptions struct {
	// Concurrency is how many calls of Do run at once. Zero: Do and Acquire cannot be
	// used, Admit can.
	Concurrency int

	// MaxQueue is how many calls may wait, admitted and not started; beyond it even
	// the most important are refused. Zero means 10,000.
	MaxQueue int

	// Target is the mean time in the queue above which the gate takes the service to
	// be overloaded, and which it then keeps. Zero means 20 ms; at least 1 ms. It is
	// well below the time that callers are ready to wait.
	Target time.Duration

	// Shadow counts verdicts without acting on them: every call is admitted, with a
	// Reason if it would not have been. Without relief the queue stays long, so under
	// overload the counts are above what the gate would refuse.
	Shadow bool

	// Logger is told when the gate begins to refuse and when it stops. Nil: nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *GateHooks

	// Now reads the clock. Nil means time.Now; a simulation has its own. A time
	// before the last one counts as the last one.
	Now func() time.Time
}

// GateHooks are functions that a gate calls at the events they name, on the
// goroutine of the call and outside of its locks; they must not block. Each may be
// nil. Fields may be added.
type GateHooks struct {
	// Refused is called for every call that was not admitted, and in shadow mode for
	// every one that would not have been; also for those that were dropped when
	// their turn came.
	Refused func(p Priority, v Verdict)
}

// A Call is what a gate knows of a call.
type Call struct {
	Priority Priority
	Deadline time.Time // zero: none
}

// CallFrom returns the call of a context: its priority and its deadline.
func CallFrom(ctx context.Context) Call {
	var c Call
	c.Priority, _ = PriorityFrom(ctx)
	c.Deadline, _ = ctx.Deadline()
	return c
}

// NewGate returns a gate. Nil options mean defaults. It fails with an
// [*OptionError] on an option outside its range.
func NewGate(opts *GateOptions) (*Gate, error) {
	var o GateOptions
	if opts != nil {
		o = *opts
	}
	if o.Hooks != nil {
		hooks := *o.Hooks
		o.Hooks = &hooks
	}
	o.MaxQueue = cmp.Or(o.MaxQueue, 10_000)
	o.Target = cmp.Or(o.Target, 20*time.Millisecond)
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Concurrency < 0 || o.Concurrency > math.MaxInt32:
		return nil, badOption("gate", "Concurrency", "is %d, not 0 to %d", o.Concurrency, math.MaxInt32)
	case o.MaxQueue < 0:
		return nil, badOption("gate", "MaxQueue", "is %d, below zero", o.MaxQueue)
	case o.Target < time.Millisecond || o.Target > time.Hour:
		return nil, badOption("gate", "Target", "is %v, not 1 ms to 1 h", o.Target)
	}
	g := &Gate{opts: o, start: o.Now()}
	g.control = newControl(o.Target)
	return g, nil
}

// Admit decides on a call that arrives. A ticket comes with every call that is
// admitted, and with no other: the caller calls Start or Leave on it, once.
func (g *Gate) Admit(c Call) (*Ticket, Verdict) {
	g.mu.Lock()
	now := g.clock()
	v, turned := g.decide(now, c)
	g.mu.Unlock()
	g.arrived(c.Priority, v, turned)
	if !v.Admit {
		return nil, v
	}
	return &Ticket{g: g, call: c, at: now}, v
}

// decide answers for a call that arrives and counts it in. It returns what the log
// is to be told.
func (g *Gate) decide(now time.Duration, c Call) (Verdict, turn) {
	turned := g.control.tick(now)
	v := Verdict{Admit: true}
	rank := c.Priority.rank()
	admitted := g.control.arrive(rank)
	switch {
	case g.control.waiting >= g.opts.MaxQueue:
		v = Verdict{Reason: QueueFull}
	case !c.Deadline.IsZero() && c.Deadline.Sub(g.start) <= now:
		v = Verdict{Reason: Expired}
	case !admitted:
		v = Verdict{Reason: Overload}
	}
	if !v.Admit {
		if v.Reason != Expired {
			v.RetryAfter = overloadWait
		}
		v.Admit = g.opts.Shadow
	}
	if v.Admit {
		g.control.waiting++
	}
	return v, turned
}

// overloadWait is what refused callers are asked to wait: longer than the gate needs
// to find a new balance, short enough to find capacity that has come free.
const overloadWait = time.Second

// clock is the time since the gate was made. It does not go back.
func (g *Gate) clock() time.Duration {
	return max(g.opts.Now().Sub(g.start), g.control.last)
}

// A Ticket is the place of an admitted call in the queue.
type Ticket struct {
	g    *Gate
	call Call
	at   time.Duration
	done atomic.Bool
}

// Start says that a worker takes the call up. If its deadline has passed meanwhile,
// the verdict refuses, and the worker drops it. A ticket that was started or left
// before answers no more: it admits, and nothing is counted.
func (t *Ticket) Start() Verdict {
	if !t.done.CompareAndSwap(false, true) {
		return Verdict{Admit: true}
	}
	g := t.g
	g.mu.Lock()
	v, turned := g.startLocked(t)
	g.mu.Unlock()
	g.dequeued(t.call.Priority, v, turned)
	return v
}

func (g *Gate) startLocked(t *Ticket) (Verdict, turn) {
	now := g.clock()
	v := Verdict{Admit: true}
	if !t.call.Deadline.IsZero() && t.call.Deadline.Sub(g.start) <= now {
		v = Verdict{Admit: g.opts.Shadow, Reason: Expired}
	}
	g.control.leave(now-t.at, v.Admit)
	return v, g.control.tick(now)
}

// Leave says that the call will not be taken up: its caller has given up.
func (t *Ticket) Leave() {
	if !t.done.CompareAndSwap(false, true) {
		return
	}
	g := t.g
	g.mu.Lock()
	g.leaveLocked(t)
	g.mu.Unlock()
}

func (g *Gate) leaveLocked(t *Ticket) {
	g.control.leave(g.clock()-t.at, false)
}
