package boltorder

import (
	"bytes"
	"encoding/binary"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// claim is [order.Store.Claim] within a transaction.
func (st *step) claim(p *order.Params, a *order.Ask) (c order.Claimed, err error) {
	if c.Claims, err = st.claimedBefore(p, a); err != nil || len(c.Claims) > 0 {
		return c, err
	}
	var names []string
	cur := st.due.Cursor()
	for d, _ := cur.First(); d != nil; d, _ = cur.Next() {
		at := int64(binary.BigEndian.Uint64(d))
		if len(names) == a.Keys {
			break
		}
		if at > st.now {
			c.Next = micros(at - st.now)
			break
		}
		names = append(names, string(d[8:]))
	}
	keys := st.keySet()
	for _, name := range names {
		k, err := keys.get(name)
		if err != nil {
			return order.Claimed{}, err
		}
		claim, err := k.grant(p, a)
		if err != nil {
			return order.Claimed{}, err
		}
		c.Claims = append(c.Claims, claim)
	}
	if n := len(names); n > 0 && n < a.Keys && (c.Next == 0 || a.Lease < c.Next) {
		c.Next = a.Lease // those just claimed may lapse first
	}
	return c, keys.save()
}

// claimedBefore is what an earlier sending of the ask has claimed.
func (st *step) claimedBefore(p *order.Params, a *order.Ask) (claims []order.Claim, err error) {
	prefix := a.Nonce[:]
	cur := st.claimed.Cursor()
	for n, _ := cur.Seek(prefix); bytes.HasPrefix(n, prefix); n, _ = cur.Next() {
		k, err := st.keySet().get(string(n[16:]))
		if err != nil {
			return nil, err
		}
		if k.row.until <= st.now {
			continue
		}
		c, err := k.owned(p, a)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// grant makes the ask the owner of a key, and begins what it gets.
func (k *key) grant(p *order.Params, a *order.Ask) (order.Claim, error) {
	if k.row.token == 0 {
		k.row.token = k.keys.Sequence() // the highest that was erased
	}
	k.row.token = max(k.row.token+1, uint64(k.now))
	k.row.nonce = a.Nonce
	k.row.until = k.now + a.Lease.Microseconds()
	e, err := k.active()
	if err != nil {
		return order.Claim{}, err
	}
	e.taken = 0
	if k.ready(e) {
		n, err := k.runLength(e, a)
		if err != nil {
			return order.Claim{}, err
		}
		e.attempts++
		e.taken = e.cursor + n
		e.begun = max(e.begun, e.taken)
	}
	if err := k.beginLate(lateMost(a)); err != nil {
		return order.Claim{}, err
	}
	return k.owned(p, a)
}

// ready says whether the message at the cursor can be handed over.
func (k *key) ready(e *epoch) bool { return e.due != 0 && e.due <= k.now && !e.gap.open }

// runLength is how many messages the run has that begins at the cursor: one if it
// was begun before.
func (k *key) runLength(e *epoch, a *order.Ask) (length uint64, err error) {
	if e.attempts > 0 {
		return 1, nil
	}
	size := 0
	c := k.messages.Cursor()
	for place, v := c.Seek(placeKey(e.prefix, e.cursor)); ; place, v = c.Next() {
		n, ok := numberIn(e.prefix, place)
		if !ok || n != e.cursor+length {
			return length, nil
		}
		m, err := decodeMessage(v)
		if err != nil {
			return 0, err
		}
		if m.outside {
			return length, nil
		}
		length++
		if size += len(m.payload); length == uint64(a.Messages) || size >= a.Bytes {
			return length, nil
		}
	}
}

// lateMost is how many late messages of a key a claim carries.
func lateMost(a *order.Ask) int {
	if a.Late > 0 {
		return min(a.Late, a.Messages)
	}
	return a.Messages
}

// beginLate counts an attempt of the late messages that a claim carries.
func (k *key) beginLate(most int) error {
	places, _, err := k.lateNow(most)
	for _, place := range places {
		m, err := decodeMessage(k.messages.Get(place))
		if err != nil {
			return err
		}
		m.attempts++
		if err := k.put(k.messages, place, m.append(nil)); err != nil {
			return err
		}
	}
	return err
}

// lateNow returns the places of the late messages that can be handed over, at
// most most, and whether there are more.
func (k *key) lateNow(most int) (places [][]byte, more bool, err error) {
	if k.row.late == 0 {
		return nil, false, nil
	}
	prefix := append([]byte(k.name), 0)
	c := k.late.Cursor()
	for b, _ := c.Seek(prefix); bytes.HasPrefix(b, prefix); b, _ = c.Next() {
		due, place, err := splitLate(prefix, b)
		if err != nil || due > k.now {
			return places, false, err
		}
		if len(places) == most {
			return places, true, nil
		}
		places = append(places, place)
	}
	return places, false, nil
}

// owned is a claimed key as its owner gets it: what was begun, or the gap.
func (k *key) owned(p *order.Params, a *order.Ask) (order.Claim, error) {
	e, err := k.active()
	if err != nil {
		return order.Claim{}, err
	}
	c := order.Claim{Key: k.name, Token: k.row.token, Left: micros(k.row.until - k.now), Epoch: e.number}
	places, more, err := k.lateNow(lateMost(a))
	if err != nil {
		return order.Claim{}, err
	}
	c.More = more
	for _, place := range places {
		m, err := k.message(place)
		if err != nil {
			return order.Claim{}, err
		}
		c.Late = append(c.Late, m)
	}
	switch {
	case e.gap.open && e.due <= k.now:
		g, err := k.openGap(e)
		c.Gap = &g
		return c, err
	case !k.ready(e) || e.attempts == 0:
		return c, nil
	}
	for n := e.cursor; n < e.taken && k.isBuffered(e, n); n++ {
		m, err := k.message(placeKey(e.prefix, n))
		if err != nil {
			return order.Claim{}, err
		}
		m.Attempt = 1
		if n == e.cursor {
			m.Attempt, m.Error = int(e.attempts), string(e.err)
		}
		c.Run = append(c.Run, m)
	}
	// When the run ends the epoch, a higher one that waits is due at once.
	if len(c.Run) > 0 && !c.More {
		c.More, err = k.more(e, e.cursor+uint64(len(c.Run)))
	}
	return c, err
}

// more says whether a message stands at a number, or the epoch ends there and a
// higher one has a message.
func (k *key) more(e *epoch, n uint64) (bool, error) {
	if k.isBuffered(e, n) {
		return true, nil
	}
	for _, number := range k.row.live[1:] {
		waits, err := k.epoch(number)
		if waits == nil && err == nil {
			err = boltrow.ErrRecord
		}
		if err != nil || waits.buffered > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// isBuffered says whether a number from the cursor on is buffered or parked.
func (k *key) isBuffered(e *epoch, n uint64) bool {
	b := k.messages.Get(placeKey(e.prefix, n))
	if b == nil || n < e.cursor {
		return false
	}
	m, err := decodeMessage(b)
	return err != nil || !m.outside // whoever reads it whole finds the error
}

// message returns a message that shares no bytes with the file. Attempt and Error
// are those of a late one.
func (st *step) message(place []byte) (order.Message, error) {
	m, err := decodeMessage(st.messages.Get(place))
	if err != nil {
		return order.Message{}, err
	}
	key, epoch, number := splitPlace(place)
	return order.Message{
		Key: key, Position: order.Position{Epoch: epoch, Number: number}, ID: string(m.id),
		Payload: bytes.Clone(m.payload), Context: bytes.Clone(m.context),
		Attempt: int(m.attempts), Age: micros(st.now - m.pushed), Late: m.late, Error: string(m.err),
	}, nil
}

// openGap returns the gap at the cursor.
func (k *key) openGap(e *epoch) (order.Gap, error) {
	w, found, err := k.next(e)
	if err != nil {
		return order.Gap{}, err
	}
	to, _, err := k.above(e, w, found)
	if err == nil && to == 0 {
		err = boltrow.ErrRecord // a gap with nothing behind it
	}
	return order.Gap{
		Key: k.name, Epoch: e.number, From: e.cursor, To: to, Age: micros(k.now - e.gap.opened), Since: micros(k.now - e.gap.since),
		Open: true, Old: len(k.row.live) > 1, Alerted: e.gap.alerted, Asked: int(e.gap.asked),
	}, err
}
