package ordertest

import (
	"github.com/pawl-go/pawl/order"
)

// due says whether a key can be claimed now.
func (m *model) due(k *modelKey) bool {
	e := k.active()
	switch {
	case k.until > m.now:
		return false
	case len(m.lateDue(k)) > 0:
		return true
	case e.state(e.cursor) == order.StateBuffered:
		return e.ready <= m.now
	}
	return e.gap && e.look <= m.now
}

// lateDue returns the late messages of a key that are due.
func (m *model) lateDue(k *modelKey) (due []*modelNumber) {
	for _, x := range k.lateWaiting() {
		if !x.parked && x.due <= m.now {
			due = append(due, x)
		}
	}
	return due
}

func (k *modelKey) lateWaiting() (waiting []*modelNumber) {
	for _, e := range k.epochs {
		for _, x := range e.numbers {
			if x.waits {
				waiting = append(waiting, x)
			}
		}
	}
	return waiting
}

// begun begins what a new claim of a key carries in order.
func (m *model) begun(k *modelKey, a order.Ask) {
	e := k.active()
	k.run, k.settled = nil, false
	size := 0
	for n := e.cursor; e.state(n) == order.StateBuffered && e.ready <= m.now && len(k.run) < a.Messages; n++ {
		x := e.numbers[n]
		if n > e.cursor && (size >= a.Bytes || x.attempts > 0 || e.numbers[e.cursor].attempts > 1) {
			break
		}
		x.attempts++
		size += len(x.arrival.Payload)
		k.run = append(k.run, n)
	}
}

// unbegin takes back what was begun from n on.
func (e *modelEpoch) unbegin(n uint64) {
	for ; n < e.head; n++ {
		if x := e.numbers[n]; x != nil && x.state == order.StateBuffered {
			x.attempts = 0
		}
	}
}
