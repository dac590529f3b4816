package main

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// A world is virtual time: events happen one after the other and take no time. From
// one seed all happens the same again.
type world struct {
	now    time.Duration // since the start
	random *rand.Rand
	events events
	count  uint64
}

func newWorld(seed uint64) *world {
	return &world{random: rand.New(rand.NewPCG(seed, 1))}
}

// after has do happen in a while. Of events at one time the first made is the first.
func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{w.now + d, w.count, do})
}

// run lets events happen until that time, or until there are none.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

type event struct {
	at    time.Duration
	count uint64
	do    func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }

func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].count < e[j].count
}

func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}
