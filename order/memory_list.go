package order

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Account implements [Store].
func (m *Memory) Account(ctx context.Context, scope, key string) (Account, error) {
	if err := ctx.Err(); err != nil {
		return Account{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	account := Account{Key: key}
	k := m.scope(scope).keys[key]
	if k == nil {
		return account, nil
	}
	for _, e := range k.epochs[k.active:] {
		account.Ledgers = append(account.Ledgers, e.ledger())
	}
	for i := k.active - 1; i >= max(0, k.active-MaxEpochs); i-- {
		account.Ledgers = append(account.Ledgers, k.epochs[i].ledger())
	}
	account.Arrivals = k.arrivals
	account.Oldest = k.oldest(m.now())
	account.LateWaiting = k.lateWaiting
	account.Parked, account.Claimed = k.now().parked, k.until > m.now()
	return account, nil
}

// oldest is the age of the message that is to be delivered next.
func (k *keyRow) oldest(now int64) time.Duration {
	for _, e := range k.epochs[k.active:] {
		if n, ok := e.pages.next(e.Cursor, heldSet); ok {
			return micros(now - e.pages.message(n).pushed)
		}
	}
	return 0
}

// Find implements [Store].
func (m *Memory) Find(ctx context.Context, p Params, places []Place) ([]Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(p.Scope)
	found := make([]Found, len(places))
	for i, place := range places {
		var e *epochRow
		n := place.Position.Number
		if place.ID != "" {
			at := s.ids[place.ID]
			e, n = at.epoch, at.number
		} else if k := s.keys[place.Key]; k != nil {
			if j, ok := k.epoch(place.Position.Epoch); ok {
				e = k.epochs[j]
			}
		}
		if e == nil {
			found[i] = Found{Key: place.Key, Position: place.Position}
			continue
		}
		found[i] = e.find(now, &p, n)
	}
	return found, nil
}

// find says where a number is.
func (e *epochRow) find(now int64, p *Params, n uint64) Found {
	at := Position{e.Epoch, n}
	f := Found{State: e.state(n, p), Key: e.key.name, Position: at}
	if msg, ok := e.message(now, n); ok {
		f.Message = &msg
	}
	if i, ok := e.key.recordAt(e.Epoch, n); ok && f.State == StateSkipped {
		g := e.key.records[i].gap(now)
		f.Gap = &g
	}
	return f
}

// message returns what is remembered of a message.
func (e *epochRow) message(now int64, n uint64) (Message, bool) {
	if h := e.pages.message(n); h != nil {
		msg := Message{
			Key: e.key.name, Position: Position{e.Epoch, n}, ID: h.id,
			Payload: slices.Clone(h.payload), Context: slices.Clone(h.context), Age: micros(now - h.pushed),
		}
		switch {
		case n == e.Cursor:
			msg.Attempt, msg.Error = e.attempts, e.failure
		case n < e.begun:
			msg.Attempt = 1
		}
		return msg, true
	}
	if l := e.kept[n]; l != nil {
		return l.message(now), true
	}
	return Message{}, false
}

// gap is a record as it is handed out.
func (r *gapRecord) gap(now int64) Gap {
	return Gap{
		Key: r.key.name, Epoch: r.epoch, From: r.from, To: r.to, Age: micros(now - r.opened),
		Alerted: r.alerted, Asked: r.asked, Reason: r.reason, Arrived: r.arrived, Resolution: r.resolution, Actor: r.actor, Note: r.note,
	}
}

// Gaps implements [Store]. It looks at all records and at all keys that are not
// idle, or at those of q.Key.
func (m *Memory) Gaps(ctx context.Context, scope string, q Query) ([]Gap, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(scope)
	var gaps []Gap
	add := func(g Gap) {
		if (Cursor{g.Key, Position{g.Epoch, g.From}}).behind(q.After) {
			gaps = append(gaps, g)
		}
	}
	for _, k := range s.selected(q.Key) {
		if k.now().gap.open {
			add(k.openGap(now))
		}
	}
	for at := s.records.Front(); at != nil; at = at.Next() {
		r := at.Value.(*gapRecord)
		if (q.Key == "" || q.Key == r.key.name) && !(q.Unresolved && r.resolution != 0) {
			add(r.gap(now))
		}
	}
	slices.SortFunc(gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.From, b.From))
	})
	return gaps[:min(len(gaps), max(q.N, 0))], nil
}

// Parked implements [Store]. It looks at all keys that are not idle, or at q.Key.
func (m *Memory) Parked(ctx context.Context, scope string, q Query) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(scope)
	var parked []Message
	for _, k := range s.selected(q.Key) {
		if e := k.now(); e.parked {
			msg, _ := e.message(now, e.Cursor)
			parked = append(parked, msg)
		}
		if k.lateWaiting == len(k.late) {
			continue
		}
		for _, e := range k.epochs {
			for _, l := range e.kept {
				if l.parked {
					parked = append(parked, l.message(now))
				}
			}
		}
	}
	parked = slices.DeleteFunc(parked, func(msg Message) bool { return !(Cursor{msg.Key, msg.Position}).behind(q.After) })
	slices.SortFunc(parked, func(a, b Message) int { return cmp.Or(cmp.Compare(a.Key, b.Key), a.Position.Compare(b.Position)) })
	return parked[:min(len(parked), max(q.N, 0))], nil
}

// selected returns one key, or all that are not idle.
func (s *scopeRow) selected(key string) []*keyRow {
	if key == "" {
		return s.busy
	}
	if k := s.keys[key]; k != nil {
		return []*keyRow{k}
	}
	return nil
}

// behind says whether a place comes after another in a list.
func (c Cursor) behind(other Cursor) bool {
	return cmp.Or(cmp.Compare(c.Key, other.Key), c.Position.Compare(other.Position)) > 0
}

// Totals implements [Store]. It looks at all keys that are not idle and at all
// gap records.
func (m *Memory) Totals(ctx context.Context, scope string) (Totals, error) {
	if err := ctx.Err(); err != nil {
		return Totals{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(scope)
	t := Totals{Keys: len(s.keys)}
	for _, k := range s.busy {
		t.Buffered += int(k.buffered())
		t.Parked += int(k.now().Parked)
		t.LateWaiting += k.lateWaiting
		if k.now().gap.open {
			t.OpenGaps++
		}
		t.Oldest = max(t.Oldest, k.oldest(now))
	}
	for at := s.records.Front(); at != nil; at = at.Next() {
		if at.Value.(*gapRecord).resolution == 0 {
			t.Unresolved++
		}
	}
	return t, nil
}
