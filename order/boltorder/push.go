package boltorder

import (
	"bytes"
	"slices"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// push is [order.Store.Push] within a transaction, whosever it is.
func (st *step) push(p *order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers := make([]order.Answer, len(arrivals))
	keys := st.keySet()
	for i := range arrivals {
		var err error
		if answers[i], err = keys.push(p, &arrivals[i]); err != nil {
			return nil, err
		}
	}
	for _, k := range keys.order {
		if err := k.refresh(p); err != nil {
			return nil, err
		}
	}
	return answers, keys.save()
}

func (s *keySet) push(p *order.Params, a *order.Arrival) (order.Answer, error) {
	if a.Assign {
		if answer, known, err := s.assigned(a); known || err != nil {
			return answer, err
		}
	}
	k, err := s.get(a.Key)
	if err != nil {
		return order.Answer{}, err
	}
	answer := order.Answer{Key: a.Key, Position: a.Position}
	if a.Assign {
		if answer.Position, err = k.nextPosition(p, a.Position.Epoch); err != nil {
			return answer, err
		}
	}
	epochs := len(k.read)
	answer.State, answer.Unverified, err = k.push(p, a, answer.Position)
	if err == nil && len(k.read) > epochs { // an epoch may have begun, and others ended
		err = k.refresh(p)
	}
	if err != nil {
		return answer, err
	}
	if k.exists {
		k.arrived(answer.State)
	}
	return answer, nil
}

// assigned answers an arrival whose ID has a position already (rule 1).
func (s *keySet) assigned(a *order.Arrival) (answer order.Answer, known bool, err error) {
	place := s.ids.Get([]byte(a.ID))
	if place == nil || s.messages.Get(place) == nil {
		return answer, false, nil
	}
	name, epoch, number := splitPlace(place)
	k, err := s.get(name)
	if err != nil {
		return answer, false, err
	}
	k.arrived(order.Duplicate)
	return order.Answer{State: order.Duplicate, Key: name, Position: order.Position{Epoch: epoch, Number: number}}, true, nil
}

// nextPosition is where an assigned message goes: behind the others of the highest
// epoch, or to the beginning of a higher one.
func (k *key) nextPosition(p *order.Params, asked uint64) (order.Position, error) {
	n := len(k.row.live)
	asked = max(asked, 1)
	if n == 0 || asked > k.row.live[n-1] {
		return order.Position{Epoch: asked, Number: max(p.Start, 1)}, nil
	}
	highest := k.row.live[n-1]
	e, err := k.epoch(highest)
	if e == nil && err == nil {
		err = boltrow.ErrRecord
	}
	if err != nil {
		return order.Position{}, err
	}
	return order.Position{Epoch: highest, Number: e.head}, nil
}

// push answers one arrival. The rules are those of [order.Store.Push], in their
// order, from the second on.
func (k *key) push(p *order.Params, a *order.Arrival, at order.Position) (state order.Arrived, unverified bool, err error) {
	if len(k.row.live) > 0 && at.Epoch < k.row.live[0] { // rule 2
		return order.StaleEpoch, false, nil
	}
	e, err := k.epoch(at.Epoch)
	if err != nil {
		return 0, false, err
	}
	isNew := e == nil
	if isNew { // rule 3
		if len(k.row.live) >= order.MaxEpochs {
			return order.Full, false, nil
		}
		base := p.Start
		if base == 0 {
			base = at.Number
		}
		e = k.begin(at.Epoch, base)
	}
	n := at.Number
	switch {
	case n < e.base: // rule 4
		return order.StaleEpoch, false, nil
	case n < e.cursor:
		return k.pushBelow(p, a, e, n)
	}
	place := placeKey(e.prefix, n)
	marked, ok := span{}, false
	if e.voidAhead+e.unordered > 0 {
		if marked, ok, err = k.covering(e, n); err != nil {
			return 0, false, err
		}
		if ok && marked.kind == unordered {
			return order.Duplicate, true, nil
		}
	}
	if b := k.messages.Get(place); b != nil { // rule 8
		return compare(b, a)
	}
	if n-e.cursor >= p.MaxAhead || n > order.MaxNumber { // rule 9
		if a.Assign {
			return order.Full, false, nil
		}
		return order.TooFar, false, nil
	}
	held := uint64(0)
	if !(isNew && p.Abandon && k.isHighest(at.Epoch)) { // which would make room
		if held, err = k.buffered(); err != nil {
			return 0, false, err
		}
	}
	isNext := n == e.cursor && (len(k.row.live) == 0 || at.Epoch <= k.row.live[0])
	if held >= uint64(p.MaxBuffered) && !isNext { // rule 10
		return order.Full, false, nil
	}
	if isNew {
		if err := k.addEpoch(p, e); err != nil {
			return 0, false, err
		}
	}
	if ok { // it was void
		e.voidAhead--
		if err := k.unmark(e, marked, n); err != nil {
			return 0, false, err
		}
	}
	e.buffered++
	k.count(&k.totals.buffered, 1)
	e.head = max(e.head, n+1)
	m := message{digest: a.Digest, known: true, pushed: k.now, id: []byte(a.ID), context: a.Context, payload: a.Payload}
	if err := k.put(k.messages, place, m.append(nil)); err != nil {
		return 0, false, err
	}
	return order.Buffered, false, k.putID(a.ID, place)
}

// pushBelow answers an arrival whose number has ended.
func (k *key) pushBelow(p *order.Params, a *order.Arrival, e *epoch, n uint64) (state order.Arrived, unverified bool, err error) {
	place := placeKey(e.prefix, n)
	s, marked, err := k.covering(e, n)
	if err != nil {
		return 0, false, err
	}
	if marked { // rule 5
		if p.Late && k.row.late >= uint64(p.MaxBuffered) {
			return order.Full, false, nil
		}
		if err := k.cameLate(e, s, n); err != nil {
			return 0, false, err
		}
		if err := k.unname(place); err != nil { // an abandoned message stood there
			return 0, false, err
		}
		m := message{digest: a.Digest, known: true, late: true, pushed: k.now, due: k.now, id: []byte(a.ID)}
		if p.Late {
			m.waiting, m.context, m.payload = true, a.Context, a.Payload
			k.row.late++
			k.count(&k.totals.late, 1)
			if err := k.put(k.late, lateKey(k.name, m.due, place), nil); err != nil {
				return 0, false, err
			}
		}
		if err := k.put(k.messages, place, m.append(nil)); err != nil {
			return 0, false, err
		}
		return order.Late, false, k.putID(a.ID, place)
	}
	if b := k.messages.Get(place); b != nil { // rule 6
		return compare(b, a)
	}
	return order.Duplicate, true, nil // rule 7
}

// cameLate takes a number out of the range in which it was skipped or void.
func (k *key) cameLate(e *epoch, s span, n uint64) error {
	e.late++
	if s.kind == skipped {
		e.skipped--
		if err := k.arrivedIn(e, n); err != nil {
			return err
		}
	} else {
		e.void--
	}
	return k.unmark(e, s, n)
}

// arrivedIn counts a late number in the record of its gap, if that is kept.
func (k *key) arrivedIn(e *epoch, n uint64) error {
	place, g, ok, err := k.recordOf(e, n)
	if !ok || err != nil {
		return err
	}
	g.arrived++
	return k.put(k.gaps, place, g.append(nil))
}

// recordOf returns the record of the gap that a number was skipped in.
func (k *key) recordOf(e *epoch, n uint64) (place []byte, g gapRow, ok bool, err error) {
	c := k.gaps.Cursor()
	b, v := c.Seek(placeKey(e.prefix, n))
	if at, here := numberIn(e.prefix, b); !here || at > n {
		if b == nil {
			b, v = c.Last()
		} else {
			b, v = c.Prev()
		}
	}
	if _, here := numberIn(e.prefix, b); !here {
		return nil, g, false, nil
	}
	if g, err = decodeGap(v); err != nil {
		return nil, g, false, err
	}
	return bytes.Clone(b), g, !g.open && n < g.to, nil
}

func compare(b []byte, a *order.Arrival) (state order.Arrived, unverified bool, err error) {
	m, err := decodeMessage(b)
	switch {
	case err != nil:
		return 0, false, err
	case !m.known:
		return order.Duplicate, true, nil
	case m.digest != a.Digest:
		return order.Conflict, false, nil
	}
	return order.Duplicate, false, nil
}

// putID remembers where the message with an ID is, unless another one has it.
func (k *key) putID(id string, place []byte) error {
	if id == "" {
		return nil
	}
	if other := k.ids.Get([]byte(id)); other != nil && !bytes.Equal(other, place) && k.messages.Get(other) != nil {
		return nil
	}
	return k.put(k.ids, []byte(id), place)
}

// unname forgets the ID of the message at a place, if there is one.
func (k *key) unname(place []byte) error {
	b := k.messages.Get(place)
	if b == nil {
		return nil
	}
	m, err := decodeMessage(b)
	if err != nil || len(m.id) == 0 || !bytes.Equal(k.ids.Get(m.id), place) {
		return err
	}
	return k.delete(k.ids, bytes.Clone(m.id))
}

// addEpoch gives the key a new epoch, which may end those below it.
func (k *key) addEpoch(p *order.Params, e *epoch) error {
	if err := k.refresh(p); err != nil { // the batch may have closed the gap
		return err
	}
	lower := slices.Clone(k.row.live)
	k.add(e)
	if !p.Abandon || !k.isHighest(e.number) {
		return nil
	}
	for _, number := range lower {
		old, err := k.epoch(number)
		if err != nil {
			return err
		}
		if err := k.abandon(old); err != nil {
			return err
		}
	}
	return nil
}

// isHighest says whether an epoch is none of those that wait, or the last of them.
func (k *key) isHighest(epoch uint64) bool {
	n := len(k.row.live)
	return n == 0 || k.row.live[n-1] <= epoch
}

// abandon skips all that an epoch has not delivered. It ends with the next
// refresh.
func (k *key) abandon(e *epoch) error {
	left, err := k.notMarked(e, e.cursor, e.head)
	if err != nil {
		return err
	}
	k.count(&k.totals.buffered, -int(e.buffered))
	if err := k.unpark(e); err != nil {
		return err
	}
	e.buffered = 0
	return k.skip(e, left, e.head, gapRow{reason: order.ReasonAbandoned})
}

// unpark takes the mark of a parked message from the cursor.
func (k *key) unpark(e *epoch) error {
	if !e.parked {
		return nil
	}
	e.parked = false
	k.count(&k.totals.parked, -1)
	return k.delete(k.parked, placeKey(e.prefix, e.cursor))
}

// skip skips ranges, keeps a record like g of each, and moves the cursor to to.
func (k *key) skip(e *epoch, spans []span, to uint64, g gapRow) error {
	gap, from := e.gap, e.cursor
	if err := k.closeGap(e); err != nil {
		return err
	}
	for _, s := range spans {
		row := g
		row.to, row.opened = s.to, k.now
		if gap.open && s.from == from {
			row.opened, row.alerted, row.asked = gap.opened, gap.alerted || g.alerted, max(gap.asked, g.asked)
		} else {
			row.alerted, row.asked = false, 0
		}
		if row.resolution == 0 {
			k.count(&k.totals.unresolved, 1)
		}
		if err := k.put(k.gaps, placeKey(e.prefix, s.from), row.append(nil)); err != nil {
			return err
		}
		if err := k.mark(e, s); err != nil {
			return err
		}
		e.skipped += s.to - s.from
	}
	if err := k.passed(e, to); err != nil {
		return err
	}
	if err := k.moveTo(e, to); err != nil {
		return err
	}
	return k.ended(e)
}

// passed counts what lies void or unordered between the cursor and to.
func (k *key) passed(e *epoch, to uint64) error {
	if e.voidAhead+e.unordered == 0 {
		return nil
	}
	for n := e.cursor; n < to; {
		s, ok, err := k.covering(e, n)
		if err != nil {
			return err
		}
		if !ok {
			n = k.behind(e, n, to)
			continue
		}
		crossed := min(s.to, to) - n
		switch s.kind {
		case void:
			e.voidAhead -= crossed
			e.void += crossed
		case unordered:
			e.unordered -= crossed
			e.delivered += crossed
			e.outOfOrder += crossed
			if err := k.delete(k.ranges, placeKey(e.prefix, s.from)); err != nil {
				return err
			}
			if to < s.to {
				rest := span{unordered, to, s.to}
				if err := k.put(k.ranges, placeKey(e.prefix, to), rest.append(nil)); err != nil {
					return err
				}
			}
		}
		n = s.to
	}
	return nil
}

func (k *key) arrived(state order.Arrived) {
	a := &k.row.arrivals
	a.Pushed++
	switch state {
	case order.Buffered:
		a.Accepted++
	case order.Duplicate:
		a.Duplicate++
	case order.Conflict:
		a.Conflict++
	case order.Late:
		a.Late++
	case order.StaleEpoch:
		a.Stale++
	case order.Full:
		a.Full++
	case order.TooFar:
		a.TooFar++
	}
}
