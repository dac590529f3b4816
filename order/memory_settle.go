package order

import (
	"container/heap"
	"context"
)

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, settlements []Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(p.Scope)
	var errs []error
	for i := range settlements {
		if err := m.settle(s, now, &p, &settlements[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

// settle applies one settlement.
func (m *Memory) settle(s *scopeRow, now int64, p *Params, t *Settlement) (err error) {
	k := s.keys[t.Key]
	switch {
	case t.Kind == KindForget:
		if k != nil {
			s.erase(k)
		}
		return nil
	case t.Kind == KindUnordered:
		return m.outside(s, k, now, p, t)
	case t.Kind >= KindResume && k == nil:
		return ErrNotFound
	case t.Kind >= KindResume:
		err = m.decide(k, now, p, t)
	case k == nil || t.Token == 0 || k.token != t.Token:
		return ErrStale
	case t.Kind >= KindLate && t.Kind <= KindLatePark:
		err = k.settleLate(now, p, t)
	default:
		err = m.work(k, now, p, t)
	}
	if err == nil {
		m.changed(k, now, p)
	}
	return err
}

// work applies the settlement of a worker whose token is right. The key may have
// been released under it: then only what was applied before succeeds.
func (m *Memory) work(k *keyRow, now int64, p *Params, t *Settlement) error {
	i, known := k.epoch(t.Epoch)
	claimed, active := k.until != 0, known && i == k.active
	switch t.Kind {
	case KindDeliver, KindSkip, KindVoid:
		if !known || i > k.active {
			return ErrStale
		}
		return m.move(k.epochs[i], claimed, now, p, t)
	case KindExtend:
		if !claimed {
			return ErrStale
		}
		k.until = now + t.Lease.Microseconds()
		return nil
	}
	e := k.now()
	at := e.Cursor
	if t.From != 0 {
		at = t.From
	}
	switch {
	case !claimed: // it releases the key, and was applied before
		return nil
	case t.Kind == KindRelease:
		if begun := k.runEnd.Epoch == e.Epoch && k.runEnd.Number > e.Cursor; t.Unbegun && active && begun && e.attempts > 0 {
			e.attempts--
			e.unbegin()
		}
		if t.Delay > 0 {
			e.ready = now + t.Delay.Microseconds()
		}
	case t.Kind == KindWait && active && e.gap.open && at == e.Cursor:
		e.gap.alerted, e.gap.asked, e.gap.look = t.Alerted, t.Asked, now+t.Delay.Microseconds()
	case t.Kind == KindWait && active: // the gap has closed
	case !active || at != e.Cursor || e.parked || e.atCursor() == nil:
		return ErrStale
	case t.Kind == KindRetry:
		e.failure, e.ready = t.Error, now+t.Delay.Microseconds()
		e.unbegin()
	case t.Kind == KindPark:
		e.failure, e.parked = t.Error, true
		e.Parked, e.Buffered = e.Parked+1, e.Buffered-1
		e.unbegin()
	default:
		return ErrStale
	}
	k.scope.release(k, now)
	return nil
}

// unbegin makes all that was begun behind the message at the cursor unbegun, and
// that message itself if it has no attempts.
func (e *epochRow) unbegin() {
	e.begun = e.Cursor
	if e.attempts > 0 {
		e.begun++
	}
}

// move applies a settlement that moves the cursor, or may move it.
func (m *Memory) move(e *epochRow, claimed bool, now int64, p *Params, t *Settlement) error {
	if t.Kind == KindVoid {
		switch {
		case e.Ended || !e.missing(t.From, t.To):
			return nil // applied before
		case !claimed:
			return ErrStale
		}
		e.makeVoid(t.From, t.To)
		m.cross(e, now, p, crossing{to: e.Cursor})
		return nil
	}
	if t.To <= e.Cursor {
		return nil // applied before
	}
	if !claimed || t.Kind == KindDeliver && !e.deliverable(t.To) || t.Kind == KindSkip && !e.skippable(t.To) {
		return ErrStale
	}
	m.cross(e, now, p, crossing{to: t.To, reason: t.Reason, notes: gapNotes{alerted: t.Alerted, asked: t.Asked}})
	return nil
}

// skippable says whether nothing from the cursor to below a number is held.
func (e *epochRow) skippable(to uint64) bool {
	n, held := e.pages.next(e.Cursor, heldSet)
	return to <= e.Head && (!held || n >= to)
}

// settleLate applies the settlement of a late message.
func (k *keyRow) settleLate(now int64, p *Params, t *Settlement) error {
	i, known := k.epoch(t.Epoch)
	if !known {
		return ErrStale
	}
	e := k.epochs[i]
	l := e.kept[t.From]
	switch {
	case l == nil || !l.late || l.ended != 0:
		if s := e.state(t.From, p); s != StateLate && s != StateSettled {
			return ErrStale
		}
		return nil // applied before
	case k.until == 0 && t.Kind != KindLate && l.noted == t.Token:
		return nil // applied before
	case k.until == 0:
		return ErrStale
	case t.Kind == KindLate:
		k.scope.endLate(l, now)
		return nil
	}
	l.noted, l.failure = t.Token, t.Error
	if t.Kind == KindLatePark {
		k.parkLate(l)
	} else {
		k.wakeLate(l, now+t.Delay.Microseconds())
	}
	return nil
}

// parkLate sets a late message aside.
func (k *keyRow) parkLate(l *keptMessage) {
	l.parked = true
	if l.place >= 0 {
		heap.Remove(&k.late, l.place)
	}
}

// wakeLate makes a late message due at a time.
func (k *keyRow) wakeLate(l *keptMessage, due int64) {
	l.due, l.parked = due, false
	if l.place >= 0 {
		heap.Fix(&k.late, l.place)
	} else {
		heap.Push(&k.late, l)
	}
}
