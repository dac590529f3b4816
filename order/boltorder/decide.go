package boltorder

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// decide applies what a person decided. Its answer is nil or an error of the
// specification.
func (k *key) decide(p *order.Params, s *order.Settlement) (answer, err error) {
	switch s.Kind {
	case order.KindResume:
		return k.resume(s)
	case order.KindDrop:
		return k.drop(s)
	case order.KindResolve:
		return k.resolve(p, s)
	case order.KindUnordered:
		return k.outside(p, s)
	}
	return order.ErrStale, nil
}

// A parkedAt is a parked message: the one at the cursor of the active epoch, or a
// late one.
func (k *key) parkedAt(s *order.Settlement) (e *epoch, late bool, ok bool, err error) {
	e, err = k.epoch(s.Epoch)
	if e == nil || err != nil {
		return nil, false, false, err
	}
	if e.parked && e.cursor == s.From {
		return e, false, true, nil
	}
	return e, true, k.step.parked.Get(placeKey(e.prefix, s.From)) != nil, nil
}

func (k *key) resume(s *order.Settlement) (answer, err error) {
	e, late, ok, err := k.parkedAt(s)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return order.ErrNotFound, nil
	case !ok:
		return k.resumed(e, s.From)
	case !late:
		if err := k.unpark(e); err != nil {
			return nil, err
		}
		e.attempts, e.begun, e.due = 0, e.cursor, k.now
		e.buffered++
		k.count(&k.totals.buffered, 1)
		return nil, nil
	}
	place := placeKey(e.prefix, s.From)
	m, err := decodeMessage(k.messages.Get(place))
	if err != nil {
		return nil, err
	}
	m = m.clone()
	if err := k.unparkLate(place, &m); err != nil {
		return nil, err
	}
	m.attempts, m.due = 0, k.now
	if err := k.put(k.late, lateKey(k.name, m.due, place), nil); err != nil {
		return nil, err
	}
	return nil, k.put(k.messages, place, m.append(nil))
}

// resumed says whether a message that is not parked may have been resumed before.
func (k *key) resumed(e *epoch, n uint64) (answer, err error) {
	b := k.messages.Get(placeKey(e.prefix, n))
	if b == nil {
		return order.ErrNotFound, nil
	}
	m, err := decodeMessage(b)
	if err != nil || m.waiting || !m.outside && n == e.cursor && e.number == k.row.live[0] {
		return nil, err
	}
	return order.ErrNotFound, nil
}

func (k *key) drop(s *order.Settlement) (answer, err error) {
	e, late, ok, err := k.parkedAt(s)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return order.ErrNotFound, nil
	case !ok:
		return k.dropped(e, s.From)
	case late:
		place := placeKey(e.prefix, s.From)
		m, err := decodeMessage(k.messages.Get(place))
		if err != nil {
			return nil, err
		}
		m = m.clone()
		if err := k.endLate(place, &m); err != nil {
			return nil, err
		}
		return nil, k.put(k.messages, place, m.append(nil))
	}
	if err := k.unpark(e); err != nil {
		return nil, err
	}
	to := e.cursor + 1
	row := gapRow{reason: order.ReasonDropped, resolution: s.Resolution, actor: []byte(s.Actor), note: []byte(s.Note)}
	if s.Resolution != 0 {
		row.resolved = k.now
	}
	return nil, k.skip(e, []span{{skipped, e.cursor, to}}, to, row)
}

// dropped says whether a message that is not parked was dropped before.
func (k *key) dropped(e *epoch, n uint64) (answer, err error) {
	if b := k.gaps.Get(placeKey(e.prefix, n)); b != nil {
		g, err := decodeGap(b)
		if err != nil || g.reason == order.ReasonDropped {
			return nil, err
		}
	}
	if b := k.messages.Get(placeKey(e.prefix, n)); b != nil {
		m, err := decodeMessage(b)
		if err != nil || m.late && !m.waiting {
			return nil, err
		}
	}
	return order.ErrNotFound, nil
}

func (k *key) resolve(p *order.Params, s *order.Settlement) (answer, err error) {
	e, err := k.epoch(s.Epoch)
	if e == nil || err != nil {
		return order.ErrNotFound, err
	}
	found := false
	if e.gap.open && e.cursor == s.From {
		found = true
		if err := k.resolveOpen(p, e, s); err != nil {
			return nil, err
		}
	}
	var places [][]byte
	c := k.gaps.Cursor()
	for place, _ := c.Seek(placeKey(e.prefix, s.From)); ; place, _ = c.Next() {
		n, ok := numberIn(e.prefix, place)
		if !ok || n >= s.To {
			break
		}
		places = append(places, bytes.Clone(place))
	}
	for _, place := range places {
		g, err := decodeGap(k.gaps.Get(place))
		if err != nil {
			return nil, err
		}
		if g.open || g.to > s.To {
			continue
		}
		found = true
		if g.resolution == 0 {
			k.count(&k.totals.unresolved, -1)
		}
		g.resolution, g.resolved = s.Resolution, k.now
		g.actor, g.note = []byte(s.Actor), []byte(s.Note)
		if err := k.put(k.gaps, place, g.append(nil)); err != nil {
			return nil, err
		}
	}
	if !found {
		return order.ErrNotFound, nil
	}
	return nil, nil
}

// resolveOpen decides about the gap at the cursor.
func (k *key) resolveOpen(p *order.Params, e *epoch, s *order.Settlement) error {
	if s.Resolution == order.ResolutionResent {
		e.gap.opened, e.gap.since, e.gap.alerted, e.gap.asked = k.now, k.now, false, 0
		e.gap.look = k.now + p.GapLook.Microseconds()
		e.due = e.gap.look
		return nil
	}
	w, found, err := k.next(e)
	if err != nil {
		return err
	}
	above, _, err := k.above(e, w, found)
	if err != nil {
		return err
	}
	to := min(s.To, above)
	missing, err := k.missingIn(e, e.cursor, to)
	if err != nil {
		return err
	}
	return k.skip(e, missing, to, gapRow{reason: order.ReasonResolved, resolution: s.Resolution, resolved: k.now,
		actor: []byte(s.Actor), note: []byte(s.Note)})
}

// outside notes that a number was delivered outside of the buffer.
func (k *key) outside(p *order.Params, s *order.Settlement) (answer, err error) {
	n := s.From
	e, err := k.epoch(s.Epoch)
	if err != nil {
		return nil, err
	}
	isNew := e == nil
	if isNew {
		if len(k.row.live) > 0 && s.Epoch < k.row.live[0] {
			return nil, nil
		}
		if len(k.row.live) >= order.MaxEpochs {
			return order.ErrTooFar, nil
		}
		base := p.Start
		if base == 0 {
			base = n
		}
		e = k.begin(s.Epoch, base)
	}
	switch {
	case e.ended || n < e.base:
		return nil, nil
	case n < e.cursor:
		return nil, k.outsideBelow(e, n)
	case n-e.cursor >= p.MaxAhead:
		return order.ErrTooFar, nil
	case e.parked && n == e.cursor:
		return nil, nil
	}
	if isNew {
		if err := k.addEpoch(p, e); err != nil {
			return nil, err
		}
	}
	marked, ok, err := k.covering(e, n)
	if err != nil || ok && marked.kind == unordered {
		return nil, err
	}
	if ok {
		e.voidAhead--
		if err := k.unmark(e, marked, n); err != nil {
			return nil, err
		}
	}
	place := placeKey(e.prefix, n)
	if b := k.messages.Get(place); b != nil {
		m, err := decodeMessage(b)
		if err != nil {
			return nil, err
		}
		m = m.clone()
		m.outside = true
		e.buffered--
		k.count(&k.totals.buffered, -1)
		if err := k.put(k.messages, place, m.append(nil)); err != nil {
			return nil, err
		}
	}
	e.unordered++
	e.head = max(e.head, n+1)
	if err := k.mark(e, span{unordered, n, n + 1}); err != nil {
		return nil, err
	}
	return nil, k.cross(e)
}

// outsideBelow makes a skipped or void number one that came late.
func (k *key) outsideBelow(e *epoch, n uint64) error {
	s, ok, err := k.covering(e, n)
	if !ok || err != nil {
		return err
	}
	if err := k.cameLate(e, s, n); err != nil {
		return err
	}
	e.outOfOrder++
	place := placeKey(e.prefix, n)
	m := message{pushed: k.now}
	if b := k.messages.Get(place); b != nil { // an abandoned message: it can still be found by its ID
		abandoned, err := decodeMessage(b)
		if err != nil {
			return err
		}
		if len(abandoned.id) > 0 {
			m = abandoned.clone()
		}
	}
	m.known, m.late, m.outside, m.due = false, true, true, k.now // it is not known that both are the same
	return k.put(k.messages, place, m.append(nil))
}

// forget erases a key.
func (s *keySet) forget(name string) error {
	k, err := s.get(name)
	if err != nil {
		return err
	}
	if !k.exists {
		return nil
	}
	if err := s.save(); err != nil { // also what the batch did to other keys, and to this one
		return err
	}
	if err := k.erase(); err != nil {
		return err
	}
	s.byName, s.order = map[string]*key{}, nil // all was written
	return nil
}

// erase removes all that is stored of a key. Its token is remembered in the
// sequence of the keys' bucket, so that the next owner's is higher.
func (k *key) erase() error {
	if err := k.eraseCounts(); err != nil {
		return err
	}
	if k.row.token > k.keys.Sequence() {
		if err := k.keys.SetSequence(k.row.token); err != nil {
			return err
		}
	}
	if at := k.row.at(); at != 0 {
		if err := k.delete(k.due, timeKey(at, k.name)); err != nil {
			return err
		}
	}
	if k.row.head != 0 {
		if err := k.delete(k.heads, timeKey(k.row.head, k.name)); err != nil {
			return err
		}
	}
	if k.row.until != 0 {
		if err := k.delete(k.claimed, claimKey(k.row.nonce, k.name)); err != nil {
			return err
		}
	}
	prefix := append([]byte(k.name), 0)
	for _, b := range []*bbolt.Bucket{k.messages, k.epochs, k.ranges, k.gaps, k.step.parked, k.late, k.ends} {
		if err := k.erasePrefix(b, prefix); err != nil {
			return err
		}
	}
	return k.delete(k.keys, []byte(k.name))
}

func (k *key) eraseCounts() error {
	k.count(&k.totals.keys, -1)
	k.count(&k.totals.late, -int(k.row.late))
	for _, number := range k.row.live {
		e, err := k.epoch(number)
		if err != nil {
			return err
		}
		if e == nil {
			return boltrow.ErrRecord
		}
		k.count(&k.totals.buffered, -int(e.buffered))
		k.count(&k.totals.parked, -int(e.parkedCount()))
		if e.gap.open {
			k.count(&k.totals.open, -1)
		}
	}
	prefix := append([]byte(k.name), 0)
	g := k.gaps.Cursor()
	for place, v := g.Seek(prefix); bytes.HasPrefix(place, prefix); place, v = g.Next() {
		row, err := decodeGap(v)
		if err != nil {
			return err
		}
		if !row.open && row.resolution == 0 {
			k.count(&k.totals.unresolved, -1)
		}
	}
	return nil
}

// erasePrefix removes all of a bucket whose keys begin with a prefix, and the IDs
// of the messages among them.
func (k *key) erasePrefix(b *bbolt.Bucket, prefix []byte) error {
	var places [][]byte
	c := b.Cursor()
	for place, v := c.Seek(prefix); bytes.HasPrefix(place, prefix); place, v = c.Next() {
		places = append(places, bytes.Clone(place))
		if b != k.messages {
			continue
		}
		m, err := decodeMessage(v)
		if err != nil {
			return err
		}
		if id := bytes.Clone(m.id); len(id) > 0 && bytes.Equal(k.ids.Get(id), place) {
			if err := k.delete(k.ids, id); err != nil {
				return err
			}
		}
	}
	for _, place := range places {
		if err := k.delete(b, place); err != nil {
			return err
		}
	}
	return nil
}
