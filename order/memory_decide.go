package order

// decide applies what a person decided of a key.
func (m *Memory) decide(k *keyRow, now int64, p *Params, t *Settlement) error {
	i, known := k.epoch(t.Epoch)
	if !known {
		return ErrNotFound
	}
	e := k.epochs[i]
	switch t.Kind {
	case KindResume:
		return m.resume(k, e, now, t)
	case KindDrop:
		return m.dropParked(k, e, now, p, t)
	case KindResolve:
		return m.resolve(k, e, now, p, t)
	}
	return ErrNotFound
}

// lateWaiting returns the late message that waits at a number, nil if there is none.
func (e *epochRow) lateWaiting(n uint64) *keptMessage {
	if l := e.kept[n]; l != nil && l.late && l.ended == 0 {
		return l
	}
	return nil
}

func (m *Memory) resume(k *keyRow, e *epochRow, now int64, t *Settlement) error {
	l := e.lateWaiting(t.From)
	switch atCursor := e == k.now() && t.From == e.Cursor && e.atCursor() != nil; {
	case l != nil && l.parked:
		l.attempts = 0
		k.wakeLate(l, now)
	case atCursor && e.parked:
		e.parked, e.attempts, e.begun, e.ready = false, 0, e.Cursor, now
		e.Parked, e.Buffered = e.Parked-1, e.Buffered+1
	case l == nil && !atCursor:
		return ErrNotFound
	}
	return nil // applied, or before
}

func (m *Memory) dropParked(k *keyRow, e *epochRow, now int64, p *Params, t *Settlement) error {
	l := e.lateWaiting(t.From)
	switch {
	case l != nil && l.parked:
		k.scope.endLate(l, now)
		return nil
	case l == nil && e == k.now() && e.parked && t.From == e.Cursor:
		m.cross(e, now, p, crossing{to: e.Cursor + 1, drop: true, reason: ReasonDropped})
		i, _ := k.recordAt(e.Epoch, t.From)
		k.records[i].resolve(now, t)
		return nil
	}
	// Dropped before. The record stays as it is: somebody may have resolved it since.
	i, ok := k.recordAt(e.Epoch, t.From)
	switch {
	case ok && k.records[i].from == t.From && k.records[i].reason == ReasonDropped:
		return nil
	case l == nil && e.state(t.From, p) == StateLate:
		return nil // or handed over
	}
	return ErrNotFound
}

func (m *Memory) resolve(k *keyRow, e *epochRow, now int64, p *Params, t *Settlement) error {
	found := false
	if e == k.now() && e.gap.open && e.Cursor == t.From && t.From < t.To {
		found = true
		if t.Resolution == ResolutionResent {
			e.gap = gapRow{gapNotes: gapNotes{opened: now}, open: true, look: now + p.GapLook.Microseconds(), since: now, above: e.gap.above}
		} else {
			m.cross(e, now, p, crossing{to: min(t.To, e.gapEnd()), reason: ReasonResolved})
		}
	}
	for i, _ := k.recordAt(e.Epoch, t.From); i < len(k.records); i++ {
		r := k.records[i]
		if r.epoch != e.Epoch || r.from >= t.To {
			break
		}
		if r.from >= t.From && r.to <= t.To {
			r.resolve(now, t)
			found = true
		}
	}
	if !found {
		return ErrNotFound
	}
	return nil
}

// resolve notes what a person made of a gap. Said again, it changes nothing.
func (r *gapRecord) resolve(now int64, t *Settlement) {
	if r.resolution != t.Resolution {
		r.resolution, r.resolved = t.Resolution, now
	}
	r.actor, r.note = t.Actor, t.Note
}

// outside applies KindUnordered: a number was delivered outside of the buffer.
func (m *Memory) outside(s *scopeRow, k *keyRow, now int64, p *Params, t *Settlement) error {
	e, refused := m.epoch(s, k, p, Position{t.Epoch, t.From})
	n := t.From
	switch {
	case refused == Full:
		return ErrTooFar
	case refused != 0 || n < e.Base:
		return nil
	case n < e.Cursor:
		if i, ended := e.ranges.find(n); ended {
			e.becomeLate(i, n, p)
			e.OutOfOrder++
		}
		return nil
	case n-e.Cursor >= p.MaxAhead:
		return ErrTooFar
	case n == e.Cursor && e.parked, e.pages.has(n, unorderedSet):
		return nil
	}
	if e.key == nil {
		m.begin(s, t.Key, k, e, now, p)
	}
	if _, isVoid := e.ranges.find(n); isVoid {
		e.ranges.remove(n)
		e.VoidAhead--
	}
	page := e.pages.room(n)
	off, bit := pageOffset(n)
	if page.held&bit != 0 {
		m.end(e, page, n, now, &page.messages[off-page.first])
		e.Buffered--
	}
	page.unordered |= bit
	e.Unordered++
	e.known(n)
	m.cross(e, now, p, crossing{to: e.Cursor})
	m.changed(e.key, now, p)
	return nil
}
