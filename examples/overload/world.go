package main

import (
	"math/rand/v2"
	"time"
)

// A world is virtual time: events happen one after the other, on one goroutine,
// and take no time. From one seed all happens the same again.
type world struct {
	now    time.Time
	start  time.Time
	random *rand.Rand
	events events
	count  uint64
}

func newWorld(seed uint64) *world {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{now: start, start: start, random: rand.New(rand.NewPCG(seed, 1))}
}

// clock is what the primitives take for their Now.
func (w *world) clock() time.Time { return w.now }

// since is the time since the start.
func (w *world) since() time.Duration { return w.now.Sub(w.start) }

// after has do happen in a while.
func (w *world) after(d time.Duration, do func()) {
	w.count++
	w.events.push(event{w.since() + d, w.count, do})
}

// run lets events happen until that time since the start, or until there are none.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 {
		e := w.events.pop()
		if e.at > until {
			return
		}
		w.now = w.start.Add(e.at)
		e.do()
	}
}

// poisson has do happen at random times, so often in a second as perSecond says at
// the time. A rate of 0 is asked about again after a tenth of a second.
func (w *world) poisson(perSecond func(at time.Duration) float64, do func()) {
	rate := perSecond(w.since())
	if rate <= 0 {
		w.after(100*time.Millisecond, func() { w.poisson(perSecond, do) })
		return
	}
	w.after(time.Duration(w.random.ExpFloat64()/rate*1e9), func() {
		do()
		w.poisson(perSecond, do)
	})
}

type event struct {
	at    time.Duration // since the start
	count uint64        // of events at the same time the first made is the first
	do    func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.count < f.count }

// events are a heap, the next one first. It does the work of container/heap without
// an allocation for each event.
type events []event

func (e *events) push(x event) {
	h := append(*e, x)
	i := len(h) - 1
	for i > 0 && x.before(&h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
	*e = h
}

func (e *events) pop() event {
	h := *e
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*e = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return first
}
