package main

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/retry"
)

// A hiccup: a service at 70 % of what it can do, 200 calls a second, can do a quarter
// of that for 20 seconds. Callers whose call has failed try again, each until it
// succeeds or a minute is over. (A report from a messaging service in production has
// 42 % fewer retries with the gradient, and does not say than with what.)
const (
	hiccupWorkers  = 4
	hiccupMean     = 20 * time.Millisecond
	hiccupLoad     = 140 // new tasks a second
	hiccupFrom     = 10 * time.Second
	hiccupTo       = 30 * time.Second
	hiccupSlow     = 4 // times as long as usual is what a call takes
	hiccupPatience = time.Minute
	hiccupEnd      = 150 * time.Second
)

// The rows that others look for.
const (
	noGate, withGate      = "no gate", "gate"
	everySecond, gradient = "every second", "gradient"
)

// A retryRow is how callers who try again, and the service, fare.
type retryRow struct {
	Service   string  `json:"service"`
	Retry     string  `json:"retry"`
	Retries   float64 `json:"retries"`
	Fewer     float64 `json:"fewer_retries"` // than every second, before the same service
	Peak      float64 `json:"peak_calls_per_s"`
	Failed    float64 `json:"gave_up"`      // part of the tasks of the whole time
	Recovered float64 `json:"well_after_s"` // seconds after the hiccup from which on 99 % of the new tasks succeed at once; -1: never
	PerSecond []int   `json:"-"`            // calls, in the first run
}

// A retryCase is a row to be made.
type retryCase struct {
	service, retry string
	admit          func(*world) admitter
	backoff        retry.Backoff
}

// retryCases are all rows, those with the same service together and a retry every
// second first, which the others are compared with.
func retryCases() (cases []retryCase) {
	for _, s := range []struct {
		name  string
		admit func(*world) admitter
	}{
		{noGate, func(w *world) admitter { return drops{w} }},
		{withGate, func(w *world) admitter { return newGate(w) }},
	} {
		cases = append(cases,
			retryCase{s.name, everySecond, s.admit, retry.Constant(time.Second)},
			retryCase{s.name, gradient, s.admit, retry.Gradient()},
			retryCase{s.name, gradient + ", equal jitter", s.admit, retry.Gradient().WithJitter(retry.EqualJitter)})
	}
	return cases
}

// retries runs the hiccup with and without the gradient, before a service without a
// gate and one with; the median of runs, at most three.
func retries(c config, cases []retryCase) (rows []retryRow) {
	often := map[string]float64{} // retries every second, by service
	for _, r := range cases {
		row := retryRow{Service: r.service, Retry: r.retry}
		row.run(c, r.admit, r.backoff)
		if r.retry == everySecond {
			often[r.service] = row.Retries
		} else if n := often[r.service]; n > 0 {
			row.Fewer = 1 - row.Retries/n
		}
		rows = append(rows, row)
	}
	return rows
}

func (row *retryRow) run(c config, admit func(*world) admitter, backoff retry.Backoff) {
	var count, peak, failed, recovered []float64
	for run := range min(c.runs, 3) {
		h := newHiccup(c.seed+uint64(run), admit, backoff)
		h.w.run(hiccupEnd)
		count, peak = append(count, float64(h.retries)), append(peak, float64(slices.Max(h.perSecond)))
		failed = append(failed, float64(h.gaveUp)/float64(h.tasks))
		recovered = append(recovered, h.recovered())
		if run == 0 {
			row.PerSecond = h.perSecond
		}
	}
	row.Retries, row.Peak, row.Failed, row.Recovered = median(count), median(peak), median(failed), median(recovered)
}

type hiccup struct {
	w       *world
	s       *service
	backoff retry.Backoff

	tasks, retries, gaveUp int
	perSecond              []int // calls
	first, atOnce          []int // tasks that came in each second, and that succeeded at once
}

func newHiccup(seed uint64, admit func(*world) admitter, backoff retry.Backoff) *hiccup {
	w := newWorld(seed)
	seconds := int(hiccupEnd/time.Second) + 1
	h := &hiccup{w: w, backoff: backoff, perSecond: make([]int, seconds), first: make([]int, seconds), atOnce: make([]int, seconds)}
	h.s = &service{w: w, gate: admit(w), idle: hiccupWorkers, took: func() time.Duration {
		if now := w.since(); now >= hiccupFrom && now < hiccupTo {
			return w.around(hiccupSlow * hiccupMean)
		}
		return w.around(hiccupMean)
	}}
	w.poisson(func(time.Duration) float64 { return hiccupLoad }, func() {
		h.tasks++
		h.first[h.second()]++
		p := backpressure.Priority{User: int8(w.random.IntN(128) - 64)}
		h.try(p, w.now, 1)
	})
	return h
}

func (h *hiccup) second() int { return int(h.w.since() / time.Second) }

// try makes the nth attempt of a task that came at that time. Its caller hears of a
// refusal at once, and gives up on an answer at the deadline.
func (h *hiccup) try(p backpressure.Priority, came time.Time, nth int) {
	h.perSecond[h.second()]++
	answered := false
	v := h.s.offer(call{priority: p, deadline: h.w.now.Add(deadline), done: func(inTime bool) {
		if inTime {
			answered = true
			if nth == 1 {
				h.atOnce[int(came.Sub(h.w.start)/time.Second)]++
			}
		}
	}})
	if !v.Admit {
		h.again(p, came, nth, v.RetryAfter)
		return
	}
	h.w.after(deadline+1, func() {
		if !answered {
			h.again(p, came, nth, 0)
		}
	})
}

// again waits as long as the backoff says, and no less than the service asked for.
func (h *hiccup) again(p backpressure.Priority, came time.Time, nth int, asked time.Duration) {
	wait := h.backoff.DelayAfter(nth, h.w.random.Uint64(), asked)
	if h.w.now.Add(wait).Sub(came) > hiccupPatience {
		h.gaveUp++
		return
	}
	h.w.after(wait, func() {
		h.retries++
		h.try(p, came, nth+1)
	})
}

// recovered is how many seconds after the hiccup the last second begins in which less
// than 99 % of the new tasks succeed at once.
func (h *hiccup) recovered() float64 {
	from, last := int(hiccupTo/time.Second), len(h.first)-3 // the last ones are under way
	for i := last; i >= from; i-- {
		if float64(h.atOnce[i]) < 0.99*float64(h.first[i]) {
			if i == last {
				return -1
			}
			return float64(i + 1 - from)
		}
	}
	return 0
}
