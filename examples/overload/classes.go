package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/backpressure"
)

// What the service of the first two tables can do: 10 workers, 5 to 15 ms a call.
const (
	workers  = 10
	meanCall = 10 * time.Millisecond
	capacity = 1000.0 // calls a second
	deadline = 500 * time.Millisecond
	perTask  = 2 // calls, one after the other; the task fails with any of them
)

// loads are what is asked for, as multiples of what can be served.
var loads = []float64{0.5, 1, 1.5, 2, 3, 4}

// A classRow is one load before one admitter.
type classRow struct {
	Load     float64    `json:"load"`
	Admitter string     `json:"admitter"`
	OfIdeal  float64    `json:"of_ideal"` // tasks that succeeded, as a share of those that could have
	Classes  [5]float64 `json:"classes"`  // share of the tasks of each class that succeeded, the highest first
	P99      float64    `json:"p99_ms"`   // of tasks that succeeded
}

// A stepRow is one admitter while the load grows from 0.9 to 3.6.
type stepRow struct {
	Admitter string  `json:"admitter"`
	First    float64 `json:"first_2s_of_ideal"`
	Settled  float64 `json:"after_2s_of_ideal"`
	Highest  float64 `json:"after_2s_highest_class"`
}

// admitters are what stands before the service, the baselines first.
var admitters = []struct {
	name string
	make func(*world) admitter
}{
	{"nothing", func(*world) admitter { return nothing{} }},
	{"x/time/rate", func(*world) admitter { return newBucket(capacity) }},
	{"gate", func(w *world) admitter { return newGate(w) }},
}

// classes runs the two-call overload: five equal classes, each task of a user of its
// own, from 2 to 7 seconds after the start, the median of runs.
func classes(c config) (rows []classRow) {
	for _, load := range loads {
		for _, a := range admitters {
			var all, p99 []float64
			var byClass [5][]float64
			for run := range c.runs {
				t := newTwoCall(c.seed+uint64(run), a.make, func(time.Duration) float64 { return load })
				t.w.run(8 * time.Second)
				s := t.share(2*time.Second, 7*time.Second)
				all, p99 = append(all, s.all), append(p99, s.p99)
				for i := range byClass {
					byClass[i] = append(byClass[i], s.classes[i])
				}
			}
			row := classRow{Load: load, Admitter: a.name, OfIdeal: median(all) * max(load, 1), P99: median(p99)}
			for i := range byClass {
				row.Classes[i] = median(byClass[i])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// step runs the growth of the load to four times what it was.
func step(c config) (rows []stepRow) {
	const at, before, after = 3 * time.Second, 0.9, 3.6
	for _, a := range admitters {
		var first, settled, highest []float64
		for run := range c.runs {
			t := newTwoCall(c.seed+uint64(run), a.make, func(d time.Duration) float64 {
				if d < at {
					return before
				}
				return after
			})
			t.w.run(at + 6*time.Second)
			first = append(first, after*t.share(at, at+2*time.Second).all)
			s := t.share(at+2*time.Second, at+5*time.Second)
			settled, highest = append(settled, after*s.all), append(highest, s.classes[0])
		}
		rows = append(rows, stepRow{a.name, median(first), median(settled), median(highest)})
	}
	return rows
}

// A twoCall is the overload of two-call tasks.
type twoCall struct {
	w     *world
	s     *service
	tasks []*task
}

type task struct {
	at       time.Duration
	priority backpressure.Priority
	done     bool // with success
	took     time.Duration
}

func newTwoCall(seed uint64, make func(*world) admitter, load func(time.Duration) float64) *twoCall {
	w := newWorld(seed)
	t := &twoCall{w: w, s: &service{w: w, gate: make(w), idle: workers}}
	t.s.took = func() time.Duration { return w.around(meanCall) }
	w.poisson(func(at time.Duration) float64 { return load(at) * capacity / perTask }, t.arrive)
	return t
}

func (t *twoCall) arrive() {
	n := &task{at: t.w.since(), priority: backpressure.Priority{
		Class: backpressure.ClassHighest - backpressure.Class(len(t.tasks)%5),
		User:  backpressure.UserLevel(strconv.Itoa(t.w.random.IntN(1_000_000)), t.w.now),
	}}
	t.tasks = append(t.tasks, n)
	t.call(n, 1)
}

func (t *twoCall) call(n *task, nth int) {
	t.s.offer(call{priority: n.priority, deadline: t.w.now.Add(deadline), done: func(inTime bool) {
		switch {
		case !inTime:
		case nth < perTask:
			t.call(n, nth+1)
		default:
			n.done, n.took = true, t.w.since()-n.at
		}
	}})
}

// shares are which parts of tasks succeeded.
type shares struct {
	all     float64
	classes [5]float64
	p99     float64 // of those that did, in ms
}

// share looks at the tasks that came in a span.
func (t *twoCall) share(from, to time.Duration) (s shares) {
	var done, came [5]float64
	var took []float64
	for _, n := range t.tasks {
		if n.at < from || n.at >= to {
			continue
		}
		i := backpressure.ClassHighest - n.priority.Class
		came[i]++
		if n.done {
			done[i]++
			took = append(took, float64(n.took)/1e6)
		}
	}
	var sumDone, sumCame float64
	for i := range came {
		s.classes[i] = done[i] / max(came[i], 1)
		sumDone += done[i]
		sumCame += came[i]
	}
	s.all, s.p99 = sumDone/max(sumCame, 1), quantile(took, 0.99)
	return s
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile is the smallest value that so large a part of the values is not above; 0
// of none.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
