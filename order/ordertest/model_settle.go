package ordertest

import (
	"errors"

	"github.com/pawl-go/pawl/order"
)

// errOpen is the answer that the specification leaves open.
var errOpen = errors.New("ordertest: it may succeed or not, and changes nothing")

// settle applies a settlement to the model and returns what it is answered. The
// answer errOpen means that the specification leaves it open.
func (m *model) settle(p order.Params, s order.Settlement) error {
	k := m.keys[s.Key]
	var err error
	switch {
	case s.Kind == order.KindForget:
		m.forget(k)
		return nil
	case s.Kind == order.KindUnordered:
		err = m.outside(p, k, s)
		k = m.keys[s.Key]
	case s.Kind >= order.KindResume && (k == nil || k.epoch(s.Epoch) == nil):
		return order.ErrNotFound
	case s.Kind == order.KindResume:
		err = m.resume(k, k.epoch(s.Epoch), s)
	case s.Kind == order.KindDrop:
		err = m.drop(k, k.epoch(s.Epoch), s)
	case s.Kind == order.KindResolve:
		err = m.resolve(k, k.epoch(s.Epoch), s)
	case k == nil || s.Token == 0 || s.Token != k.token:
		return order.ErrStale
	default:
		err = m.work(k, s)
	}
	if k != nil {
		k.settled = true
		m.settleDown(k)
	}
	return err
}

func (m *model) forget(k *modelKey) {
	if k == nil {
		return
	}
	delete(m.keys, k.name)
	for id, at := range m.ids {
		if at.key == k.name {
			delete(m.ids, id)
		}
	}
}

func (m *model) work(k *modelKey, s order.Settlement) error {
	e, claimed := k.epoch(s.Epoch), k.until != 0
	active := e != nil && e == k.active()
	past := e != nil && (e.ended || active)
	switch s.Kind {
	case order.KindDeliver, order.KindSkip:
		if !past {
			return order.ErrStale
		}
		if s.To <= e.cursor {
			return nil
		}
		if !claimed || !active || s.To > e.head {
			return order.ErrStale
		}
		for n := e.cursor; n < s.To; n++ {
			x := e.state(n)
			if x == order.StateParked || (x == order.StateBuffered) != (s.Kind == order.KindDeliver) && (x == order.StateBuffered || x == order.StateMissing) {
				return order.ErrStale
			}
		}
		from := e.cursor
		m.moveTo(k, e, s.To, false, s.Reason)
		for _, r := range k.records {
			if s.Kind == order.KindSkip && r.Epoch == e.epoch && r.From == from {
				r.Alerted, r.Asked = r.Alerted || s.Alerted, max(r.Asked, s.Asked)
			}
		}
		return nil
	case order.KindVoid:
		if !past {
			return order.ErrStale
		}
		any := false
		for n := max(s.From, e.cursor); active && n < min(s.To, e.head); n++ {
			if e.state(n) == order.StateMissing {
				if any = true; claimed {
					e.numbers[n] = &modelNumber{state: order.StateVoid}
				}
			}
		}
		if any && !claimed {
			return order.ErrStale
		}
		if any {
			m.moveTo(k, e, e.cursor, false, 0)
		}
		return nil
	case order.KindLate, order.KindLateRetry, order.KindLatePark:
		return m.settleLate(k, e, s)
	case order.KindExtend:
		if !claimed {
			return order.ErrStale
		}
		k.until = m.now + s.Lease
		return nil
	}
	if !claimed {
		if !active {
			return errOpen
		}
		return nil
	}
	return m.end(k, e, active, s)
}

// end applies the settlements that release the key.
func (m *model) end(k *modelKey, e *modelEpoch, active bool, s order.Settlement) error {
	switch s.Kind {
	case order.KindRelease:
		if s.Unbegun && active && e.state(e.cursor) == order.StateBuffered {
			e.unbegin(e.cursor + 1)
			x := e.numbers[e.cursor]
			x.attempts = max(0, x.attempts-1)
		}
		if s.Delay > 0 {
			k.active().ready = m.now + s.Delay
		}
	case order.KindWait:
		if !active {
			return order.ErrStale
		}
		if e.gap && s.From == e.cursor {
			e.alerted, e.asked, e.look = s.Alerted, s.Asked, m.now+s.Delay
		}
	default:
		if !active || e.state(e.cursor) != order.StateBuffered || s.From != e.cursor {
			return order.ErrStale
		}
		x := e.numbers[e.cursor]
		x.failure = s.Error
		e.unbegin(e.cursor + 1)
		if s.Kind == order.KindRetry {
			e.ready = m.now + s.Delay
		} else {
			x.state = order.StateParked
		}
	}
	k.until = 0
	return nil
}

func (m *model) settleLate(k *modelKey, e *modelEpoch, s order.Settlement) error {
	if e == nil {
		return order.ErrStale
	}
	x := e.numbers[s.From]
	switch state := e.state(s.From); {
	case state == order.StateLate && x.waits:
	case state == order.StateLate:
		return nil
	case s.From < e.cursor && state == order.StateDelivered && (e.ended || e.cursor-s.From >= uint64(m.p.Window)):
		return errOpen // whether it was late may be forgotten
	default:
		return order.ErrStale
	}
	if k.until == 0 {
		if s.Kind != order.KindLate && x.noted == s.Token {
			return nil
		}
		return order.ErrStale
	}
	switch s.Kind {
	case order.KindLate:
		x.waits, x.parked = false, false
		return nil
	case order.KindLatePark:
		x.parked = true
	default:
		x.parked, x.due = false, m.now+s.Delay
	}
	x.noted, x.failure = s.Token, s.Error
	return nil
}

func (m *model) resume(k *modelKey, e *modelEpoch, s order.Settlement) error {
	x := e.numbers[s.From]
	atCursor := e == k.active() && s.From == e.cursor
	switch state := e.state(s.From); {
	case state == order.StateLate && x.waits && x.parked:
		x.parked, x.due, x.attempts = false, m.now, 0
	case state == order.StateLate && x.waits:
	case atCursor && state == order.StateParked:
		x.state, x.attempts, e.ready = order.StateBuffered, 0, m.now
		e.unbegin(e.cursor)
	case atCursor && state == order.StateBuffered:
	default:
		return order.ErrNotFound
	}
	return nil
}

func (m *model) drop(k *modelKey, e *modelEpoch, s order.Settlement) error {
	x := e.numbers[s.From]
	switch state := e.state(s.From); {
	case state == order.StateLate && x.waits && x.parked:
		x.waits, x.parked = false, false
		return nil
	case state == order.StateParked:
		m.moveTo(k, e, s.From+1, true, order.ReasonDropped)
		r := k.dropped(e, s.From)
		r.Resolution, r.Actor, r.Note = s.Resolution, s.Actor, s.Note
		return nil
	}
	if k.dropped(e, s.From) != nil { // the record stays as it is
		return nil
	}
	if e.state(s.From) == order.StateLate && !x.waits {
		return errOpen
	}
	return order.ErrNotFound
}

// dropped returns the record of a number that was dropped, or nil.
func (k *modelKey) dropped(e *modelEpoch, n uint64) *modelRecord {
	for _, r := range k.records {
		if r.Epoch == e.epoch && r.From == n && r.Reason == order.ReasonDropped {
			return r
		}
	}
	return nil
}

func (m *model) resolve(k *modelKey, e *modelEpoch, s order.Settlement) error {
	found := false
	if e == k.active() && e.gap && e.cursor == s.From && s.To > s.From {
		found = true
		if s.Resolution == order.ResolutionResent {
			e.opened, e.look, e.alerted, e.asked = m.now, m.now+m.p.GapLook, false, 0
			e.resent = m.now
		} else {
			m.moveTo(k, e, min(s.To, e.gapEnd()), false, order.ReasonResolved)
		}
	}
	for _, r := range k.records {
		if r.Epoch == e.epoch && r.From >= s.From && r.To <= s.To {
			r.Resolution, r.Actor, r.Note, found = s.Resolution, s.Actor, s.Note, true
		}
	}
	if !found {
		return order.ErrNotFound
	}
	return nil
}

// outside applies KindUnordered.
func (m *model) outside(p order.Params, k *modelKey, s order.Settlement) error {
	n := s.From
	e, refused, begins := m.epochFor(p, k, order.Position{Epoch: s.Epoch, Number: n})
	switch {
	case refused == order.Full:
		return errOpen
	case refused != 0 || n < e.base:
		return nil
	case n < e.cursor:
		if state := e.state(n); state == order.StateSkipped || state == order.StateVoid {
			m.becomesLate(k, e, n, false)
			x := e.numbers[n]
			x.outside, x.verifiable, x.open = true, false, x.arrival.ID != ""
		}
		return nil
	case n-e.cursor >= p.MaxAhead:
		return order.ErrTooFar
	}
	state := e.state(n)
	if state == order.StateParked || state == order.StateUnordered {
		return nil
	}
	k = m.begin(p, s.Key, k, e, begins)
	x := e.numbers[n]
	if x == nil {
		x = &modelNumber{}
		e.numbers[n] = x
	}
	x.open, x.verifiable = state == order.StateBuffered, false
	x.state, x.outside = order.StateUnordered, true
	e.head = max(e.head, n+1)
	m.moveTo(k, e, e.cursor, false, 0)
	return nil
}
