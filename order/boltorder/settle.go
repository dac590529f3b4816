package boltorder

import (
	"bytes"

	"github.com/pawl-go/pawl/order"
)

// settle is [order.Store.Settle] within a transaction.
func (st *step) settle(p *order.Params, settlements []order.Settlement) (errs []error, err error) {
	keys := st.keySet()
	for i := range settlements {
		s := &settlements[i]
		if s.Kind == order.KindForget {
			if err := keys.forget(s.Key); err != nil {
				return nil, err
			}
			continue
		}
		k, err := keys.get(s.Key)
		if err != nil {
			return nil, err
		}
		var answer error
		if s.Kind >= order.KindResume {
			answer, err = k.decide(p, s)
		} else {
			answer, err = k.settle(p, s)
		}
		if err == nil {
			err = k.refresh(p)
		}
		if err != nil {
			return nil, err
		}
		if answer != nil {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = answer
		}
	}
	return errs, keys.save()
}

// settle applies the settlement of a worker. Its answer is nil or ErrStale.
func (k *key) settle(p *order.Params, s *order.Settlement) (answer, err error) {
	if !k.exists || s.Token == 0 || s.Token != k.row.token {
		return order.ErrStale, nil
	}
	e, err := k.epoch(s.Epoch)
	if err != nil {
		return nil, err
	}
	held := k.row.until != 0
	switch s.Kind {
	case order.KindRelease:
		return nil, k.releaseAll(e, s)
	case order.KindExtend:
		if !held {
			return order.ErrStale, nil
		}
		k.row.until = k.now + s.Lease.Microseconds()
		return nil, nil
	case order.KindLate, order.KindLateRetry, order.KindLatePark:
		return k.settleLate(p, s, e, held)
	case order.KindDeliver, order.KindSkip:
		if e == nil {
			return order.ErrStale, nil
		}
		if s.To <= e.cursor {
			return nil, nil // it was applied before
		}
	}
	if !held {
		if s.Kind == order.KindVoid && e != nil && k.nothingMissing(e, s) {
			return nil, nil
		}
		if releases(s.Kind) {
			return nil, nil // it was applied before
		}
		return order.ErrStale, nil
	}
	if e == nil || e.ended {
		if s.Kind == order.KindVoid && e != nil {
			return nil, nil // nothing of it is missing any more
		}
		return order.ErrStale, nil
	}
	if active := k.row.live[0]; e.number != active {
		return order.ErrStale, nil
	}
	switch s.Kind {
	case order.KindDeliver:
		return k.deliver(e, s.To)
	case order.KindVoid:
		return nil, k.makeVoid(e, s.From, s.To)
	case order.KindSkip:
		return k.skipTo(e, s)
	case order.KindRetry, order.KindPark:
		return k.fail(e, s)
	case order.KindWait:
		if e.gap.open && (s.From == 0 || s.From == e.cursor) {
			e.gap.alerted, e.gap.asked = s.Alerted, uint64(s.Asked)
			e.gap.look = k.now + s.Delay.Microseconds()
			e.due = k.now + s.Delay.Microseconds()
		}
		k.release()
		return nil, nil
	}
	return order.ErrStale, nil
}

func releases(kind order.Kind) bool {
	switch kind {
	case order.KindRetry, order.KindPark, order.KindWait:
		return true
	}
	return false
}

func (k *key) release() { k.row.until = 0 }

// releaseAll releases the key, and unbegins what was not handed to anybody.
func (k *key) releaseAll(e *epoch, s *order.Settlement) error {
	if k.row.until == 0 {
		return nil // it was applied before
	}
	k.release()
	if isActive := e != nil && e.number == k.row.live[0]; isActive && s.Unbegun && e.attempts > 0 && e.cursor < e.taken {
		e.attempts--
		e.begun = e.cursor
		if e.attempts > 0 {
			e.begun = e.cursor + 1
		}
	}
	// What is due is the active epoch's, whichever the settlement names.
	active, err := k.active()
	switch {
	case err != nil || active.due == 0 || active.gap.open:
	case s.Delay > 0:
		active.due = k.now + s.Delay.Microseconds()
	default:
		active.due = max(active.due, k.now) // behind the keys that became due meanwhile
	}
	return err
}

// nothingMissing says whether there is nothing in [From, To) that could be made
// void.
func (k *key) nothingMissing(e *epoch, s *order.Settlement) bool {
	from, to := max(s.From, e.cursor), min(s.To, e.head)
	if from >= to {
		return true
	}
	missing, err := k.missingIn(e, from, to)
	return err == nil && len(missing) == 0
}

// deliver moves the cursor over messages that were handed over.
func (k *key) deliver(e *epoch, to uint64) (answer, err error) {
	if to > e.head || e.parked {
		return order.ErrStale, nil
	}
	missing, err := k.missingIn(e, e.cursor, to)
	if err != nil || len(missing) > 0 {
		return order.ErrStale, err
	}
	before := e.voidAhead + e.unordered
	n := to - e.cursor
	if err := k.passed(e, to); err != nil {
		return nil, err
	}
	n -= before - e.voidAhead - e.unordered
	e.buffered -= n
	e.delivered += n
	k.count(&k.totals.buffered, -int(n))
	if err := k.moveTo(e, to); err != nil {
		return nil, err
	}
	return nil, k.ended(e)
}

// makeVoid makes what is missing of [from, to) void.
func (k *key) makeVoid(e *epoch, from, to uint64) error {
	from, to = max(from, e.cursor), min(to, e.head)
	if from >= to {
		return nil
	}
	missing, err := k.missingIn(e, from, to)
	if err != nil {
		return err
	}
	for _, s := range missing {
		s.kind = void
		if err := k.mark(e, s); err != nil {
			return err
		}
		e.voidAhead += s.to - s.from
	}
	return k.cross(e)
}

// skipTo skips what is missing below s.To.
func (k *key) skipTo(e *epoch, s *order.Settlement) (answer, err error) {
	if s.To > e.head || e.parked {
		return order.ErrStale, nil
	}
	if w, found, err := k.next(e); err != nil || found && w.number < s.To {
		return order.ErrStale, err
	}
	missing, err := k.missingIn(e, e.cursor, s.To)
	if err != nil {
		return nil, err
	}
	return nil, k.skip(e, missing, s.To, gapRow{reason: s.Reason, alerted: s.Alerted, asked: uint64(max(s.Asked, 0)), actor: []byte(s.Actor), note: []byte(s.Note)})
}

// fail notes that the message at the cursor was not handled.
func (k *key) fail(e *epoch, s *order.Settlement) (answer, err error) {
	if !k.isBuffered(e, e.cursor) || e.parked || s.From != 0 && s.From != e.cursor {
		return order.ErrStale, nil
	}
	e.err, e.begun = []byte(s.Error), e.cursor+1
	e.due = k.now + s.Delay.Microseconds()
	k.release()
	if s.Kind == order.KindRetry {
		return nil, nil
	}
	e.parked, e.due = true, 0
	e.buffered--
	k.count(&k.totals.buffered, -1)
	k.count(&k.totals.parked, 1)
	return nil, k.put(k.parked, placeKey(e.prefix, e.cursor), []byte{layout})
}

// settleLate notes what became of a late message.
func (k *key) settleLate(p *order.Params, s *order.Settlement, e *epoch, held bool) (answer, err error) {
	place := placeKey(epochKey(k.name, s.Epoch), s.From)
	b := k.messages.Get(place)
	if b == nil {
		if e != nil && e.base <= s.From && s.From+uint64(p.Window) <= e.cursor {
			_, marked, err := k.covering(e, s.From)
			if !marked {
				return nil, err // it may have ended, and is forgotten
			}
		}
		return order.ErrStale, nil
	}
	m, err := decodeMessage(b)
	if err != nil {
		return nil, err
	}
	switch {
	case !m.late:
		return order.ErrStale, nil
	case !m.waiting:
		return nil, nil // it was applied before
	case !held && s.Kind != order.KindLate && m.noted == s.Token:
		return nil, nil // it was applied before the key was released
	case !held:
		return order.ErrStale, nil
	}
	m = m.clone()
	m.noted = s.Token
	switch s.Kind {
	case order.KindLateRetry:
		if err := k.delete(k.late, lateKey(k.name, m.due, place)); err != nil {
			return nil, err
		}
		if err := k.unparkLate(place, &m); err != nil {
			return nil, err
		}
		m.err, m.due = []byte(s.Error), k.now+s.Delay.Microseconds()
		if err := k.put(k.late, lateKey(k.name, m.due, place), nil); err != nil {
			return nil, err
		}
	case order.KindLatePark:
		if err := k.delete(k.late, lateKey(k.name, m.due, place)); err != nil {
			return nil, err
		}
		m.err, m.parked = []byte(s.Error), true
		if err := k.put(k.parked, place, []byte{layout}); err != nil {
			return nil, err
		}
	default:
		if err := k.endLate(place, &m); err != nil {
			return nil, err
		}
	}
	return nil, k.put(k.messages, place, m.append(nil))
}

// endLate notes that a late message is not to be handed over any longer.
func (k *key) endLate(place []byte, m *message) error {
	if err := k.unparkLate(place, m); err != nil {
		return err
	}
	err := k.delete(k.late, lateKey(k.name, m.due, place)) // one that was parked is not there
	m.waiting, m.due = false, k.now
	k.row.late--
	k.count(&k.totals.late, -1)
	return err
}

// unparkLate takes the mark of a parked message from a late one, if it has it.
func (k *key) unparkLate(place []byte, m *message) error {
	if !m.parked {
		return nil
	}
	m.parked = false
	return k.delete(k.parked, place)
}

// clone returns a message that shares no bytes with the file.
func (m message) clone() message {
	m.err, m.id = bytes.Clone(m.err), bytes.Clone(m.id)
	m.context, m.payload = bytes.Clone(m.context), bytes.Clone(m.payload)
	return m
}
