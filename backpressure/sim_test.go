package backpressure_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pawl-go/pawl/backpressure"
)

// A sim is a service under overload, on virtual time and from a seed: 10 workers
// take 5 to 15 ms for a call, tasks of k calls one after the other arrive as a
// Poisson process in five equal classes, each of a user of its own, and a call that
// has no answer after 500 ms has failed, and its task with it. All of its state
// changes in step, on one goroutine.
type sim struct {
	gate   admitter
	calls  int                                       // of a task
	load   func(at time.Duration) float64            // 1: as many calls as can be served
	class  func(at time.Duration) backpressure.Class // of the next task; nil: all in turn
	slow   func(at time.Duration) float64            // how many times as long a call takes; nil: 1
	random *rand.Rand
	now    time.Time
	start  time.Time
	events events
	queue  []*simCall
	idle   int
	tasks  []*task
}

const (
	simWorkers  = 10
	simCapacity = 1000.0 // calls a second: 10 workers at 10 ms
	simDeadline = 500 * time.Millisecond
)

// An admitter decides on arrival and when a worker takes the call up.
type admitter interface {
	admit(c backpressure.Call, now time.Time) (start func() bool, ok bool)
}

type task struct {
	at       time.Duration
	priority backpressure.Priority
	done     bool // with success
}

type simCall struct {
	task  *task
	nth   int
	due   time.Time
	start func() bool
}

type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newSim(seed uint64, calls int, load func(time.Duration) float64) *sim {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &sim{calls: calls, load: load, random: rand.New(rand.NewPCG(seed, 1)), now: start, start: start, idle: simWorkers}
}

func (s *sim) at(d time.Duration, do func()) { heap.Push(&s.events, event{s.now.Add(d), do}) }

func (s *sim) run(length time.Duration) {
	s.arrive()
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		if e.at.Sub(s.start) > length {
			return
		}
		s.now = e.at
		e.do()
	}
}

// arrive brings the next task, and then itself again.
func (s *sim) arrive() {
	perSecond := s.load(s.now.Sub(s.start)) * simCapacity / float64(s.calls)
	s.at(time.Duration(s.random.ExpFloat64()/perSecond*1e9), func() {
		at, class := s.now.Sub(s.start), backpressure.ClassHighest-backpressure.Class(len(s.tasks)%5)
		if s.class != nil {
			class = s.class(at)
		}
		t := &task{at: at, priority: backpressure.Priority{
			Class: class,
			User:  backpressure.UserLevel(strconv.Itoa(s.random.IntN(1_000_000)), s.now),
		}}
		s.tasks = append(s.tasks, t)
		s.call(t, 1)
		s.arrive()
	})
}

func (s *sim) call(t *task, nth int) {
	c := &simCall{task: t, nth: nth, due: s.now.Add(simDeadline)}
	start, ok := s.gate.admit(backpressure.Call{Priority: t.priority, Deadline: c.due}, s.now)
	if !ok {
		return
	}
	c.start = start
	s.queue = append(s.queue, c)
	s.work()
}

func (s *sim) work() {
	for s.idle > 0 && len(s.queue) > 0 {
		c := s.queue[0]
		s.queue = s.queue[1:]
		if !c.start() {
			continue
		}
		s.idle--
		took := 5e6 + s.random.Float64()*10e6
		if s.slow != nil {
			took *= s.slow(s.now.Sub(s.start))
		}
		s.at(time.Duration(took), func() {
			s.idle++
			if !s.now.After(c.due) {
				if c.nth == s.calls {
					c.task.done = true
				} else {
					s.call(c.task, c.nth+1)
				}
			}
			s.work()
		})
	}
}

// share returns which part of the tasks that arrived in a span succeeded, in all and
// by class, the highest first.
func (s *sim) share(from, to time.Duration) (all float64, byClass [5]float64) {
	var done, came [5]float64
	for _, t := range s.tasks {
		if t.at < from || t.at >= to {
			continue
		}
		i := backpressure.ClassHighest - t.priority.Class
		came[i]++
		if t.done {
			done[i]++
		}
	}
	var sumDone, sumCame float64
	for i := range came {
		byClass[i] = done[i] / max(came[i], 1)
		sumDone += done[i]
		sumCame += came[i]
	}
	return sumDone / sumCame, byClass
}

// noGate admits everything, first come first served.
type noGate struct{}

func (noGate) admit(backpressure.Call, time.Time) (func() bool, bool) {
	return func() bool { return true }, true
}

// bucketGate is a token bucket tuned to just below the capacity.
type bucketGate struct{ *rate.Limiter }

func (b bucketGate) admit(_ backpressure.Call, now time.Time) (func() bool, bool) {
	return func() bool { return true }, b.AllowN(now, 1)
}

type pawlGate struct{ *backpressure.Gate }

func (g pawlGate) admit(c backpressure.Call, _ time.Time) (func() bool, bool) {
	t, v := g.Admit(c)
	if !v.Admit {
		return nil, false
	}
	return func() bool { return t.Start().Admit }, true
}

func (s *sim) withGate(t testing.TB) *sim {
	g, err := backpressure.NewGate(&backpressure.GateOptions{Now: func() time.Time { return s.now }})
	require.NoError(t, err)
	s.gate = pawlGate{g}
	return s
}

// seedsFor is how many runs a median is taken of: nine for tasks of two calls, which
// the gate is measured by, and three for the others.
func seedsFor(calls int) int {
	if calls == 2 {
		return 9
	}
	return 3
}

// median runs the simulation for each seed, and returns the medians of the shares
// in a span.
func median(t testing.TB, seeds int, length, from, to time.Duration, make func(seed uint64) *sim) (all float64, byClass [5]float64) {
	if raceEnabled {
		seeds = min(seeds, 3)
	}
	t.Helper()
	var totals []float64
	var classes [5][]float64
	for seed := range uint64(seeds) {
		s := make(seed)
		s.run(length)
		a, c := s.share(from, to)
		totals = append(totals, a)
		for i := range c {
			classes[i] = append(classes[i], c[i])
		}
	}
	for i := range classes {
		slices.Sort(classes[i])
		byClass[i] = classes[i][seeds/2]
	}
	slices.Sort(totals)
	return totals[seeds/2], byClass
}

func steady(load float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return load }
}

// Under two-call overload the gate gets nearly all that could be got, and it is the
// important classes that get it. The same gate, with its defaults, serves each load.
func TestSimulatedOverload(t *testing.T) {
	for _, c := range []struct {
		load  float64
		calls int
		full  int // classes that could be served in full
	}{
		{0.5, 2, 5}, {0.9, 2, 5}, {2, 1, 2}, {2, 2, 2}, {2, 4, 2}, {4, 1, 1}, {4, 2, 1}, {4, 4, 1},
	} {
		all, byClass := median(t, seedsFor(c.calls), 8*time.Second, 2*time.Second, 7*time.Second, func(seed uint64) *sim {
			return newSim(seed, c.calls, steady(c.load)).withGate(t)
		})
		ideal := min(1/c.load, 1)
		t.Logf("load %v, %d calls: %.3f of ideal; %.3f", c.load, c.calls, all/ideal, byClass)
		least := 0.95
		if c.calls > 2 {
			least = 0.9 // one call refused late wastes three
		}
		require.GreaterOrEqual(t, all/ideal, least, "load %v, %d calls", c.load, c.calls)
		for i := range c.full {
			require.GreaterOrEqual(t, byClass[i], 0.99, "load %v, %d calls, class %d", c.load, c.calls, i)
		}
	}
}

// After the load has grown to four times what it was, the gate is settled within
// two seconds. Tasks of four calls lose more: the first refusals take from each of
// them what was done for it before.
func TestSimulatedStep(t *testing.T) {
	const step = 3 * time.Second
	for calls, least := range map[int]float64{1: 0.95, 2: 0.95, 4: 0.85} {
		all, byClass := median(t, seedsFor(calls), step+6*time.Second, step+2*time.Second, step+5*time.Second, func(seed uint64) *sim {
			return newSim(seed, calls, func(at time.Duration) float64 {
				if at < step {
					return 0.9
				}
				return 3.6
			}).withGate(t)
		})
		t.Logf("%d calls: %.3f of ideal; %.3f", calls, all*3.6, byClass)
		require.GreaterOrEqual(t, all*3.6, least)
		require.GreaterOrEqual(t, byClass[0], 0.99)
	}
}
