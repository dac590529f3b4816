package main

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-go/pawl/backpressure"
)

// A service has a number of workers and a queue, first come first served. Whom it
// lets into the queue its admitter decides.
type service struct {
	w     *world
	gate  admitter
	took  func() time.Duration // what a call takes of a worker
	idle  int                  // workers
	queue []call
	head  int
}

// A call has failed for its caller when it has no answer by its deadline. A worker
// takes it up all the same, unless start refuses: it cannot know who still waits.
type call struct {
	priority backpressure.Priority
	deadline time.Time
	done     func(inTime bool) // when a worker has finished with it, or has dropped it
	start    func() bool
}

// An admitter decides on a call that arrives, and when a worker takes it up.
type admitter interface {
	admit(c backpressure.Call, now time.Time) (start func() bool, v backpressure.Verdict)
}

// offer brings a call. If the verdict refuses, done is never called.
func (s *service) offer(c call) backpressure.Verdict {
	start, v := s.gate.admit(backpressure.Call{Priority: c.priority, Deadline: c.deadline}, s.w.now)
	if !v.Admit {
		return v
	}
	c.start = start
	s.queue = append(s.queue, c)
	s.work()
	return v
}

// work gives free workers to the calls that wait.
func (s *service) work() {
	for s.idle > 0 && s.head < len(s.queue) {
		c := s.queue[s.head]
		s.queue[s.head] = call{}
		if s.head++; s.head > 1000 && s.head > len(s.queue)/2 {
			s.queue, s.head = append(s.queue[:0], s.queue[s.head:]...), 0
		}
		if !c.start() {
			c.done(false)
			continue
		}
		s.idle--
		s.w.after(s.took(), func() {
			s.idle++
			c.done(!s.w.now.After(c.deadline))
			s.work()
		})
	}
}

// around is a duration between half and one and a half of the mean.
func (w *world) around(mean time.Duration) time.Duration {
	return time.Duration((0.5 + w.random.Float64()) * float64(mean))
}

// nothing admits everything.
type nothing struct{}

func (nothing) admit(backpressure.Call, time.Time) (func() bool, backpressure.Verdict) {
	return always, backpressure.Verdict{Admit: true}
}

func always() bool { return true }

// drops admits everything, and workers pass over calls whose callers have gone.
type drops struct{ w *world }

func (d drops) admit(c backpressure.Call, _ time.Time) (func() bool, backpressure.Verdict) {
	return func() bool { return d.w.now.Before(c.Deadline) }, backpressure.Verdict{Admit: true}
}

// A bucket is x/time/rate, set by hand to just below what can be served.
type bucket struct{ *rate.Limiter }

func newBucket(capacity float64) bucket {
	return bucket{rate.NewLimiter(rate.Limit(0.98*capacity), 20)}
}

func (b bucket) admit(_ backpressure.Call, now time.Time) (func() bool, backpressure.Verdict) {
	return always, backpressure.Verdict{Admit: b.AllowN(now, 1)}
}

// A gate is a backpressure.Gate with its defaults: it is told no capacity.
type gate struct{ *backpressure.Gate }

func newGate(w *world) gate {
	g, err := backpressure.NewGate(&backpressure.GateOptions{Now: w.clock})
	if err != nil {
		panic(err) // the options are right
	}
	return gate{g}
}

func (g gate) admit(c backpressure.Call, _ time.Time) (func() bool, backpressure.Verdict) {
	t, v := g.Admit(c)
	if !v.Admit {
		return nil, v
	}
	return func() bool { return t.Start().Admit }, v
}
