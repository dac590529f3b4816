package boltorder

import (
	"bytes"
	"encoding/binary"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

func (st *step) account(name string) (order.Account, error) {
	a := order.Account{Key: name}
	k, err := st.keySet().get(name)
	if err != nil || !k.exists {
		return a, err
	}
	a.Arrivals = k.row.arrivals
	a.LateWaiting = int(k.row.late)
	a.Claimed = k.row.until > st.now
	for _, number := range k.row.live {
		e, err := k.epoch(number)
		if err != nil {
			return a, err
		}
		if e == nil {
			return a, boltrow.ErrRecord
		}
		a.Ledgers = append(a.Ledgers, e.ledger())
		a.Parked = a.Parked || e.parked
	}
	if k.row.head != 0 {
		a.Oldest = micros(st.now - k.row.head)
	}
	ended, err := k.endedBefore(k.row.live[0])
	a.Ledgers = append(a.Ledgers, ended...)
	return a, err
}

// endedBefore returns the ledgers of epochs that have ended, the latest first.
func (k *key) endedBefore(number uint64) (ledgers []order.Ledger, err error) {
	c := k.epochs.Cursor()
	prefix := append([]byte(k.name), 0)
	c.Seek(epochKey(k.name, number))
	for b, v := c.Prev(); bytes.HasPrefix(b, prefix) && len(ledgers) < order.MaxEpochs; b, v = c.Prev() {
		row, err := decodeEpoch(v)
		if err != nil {
			return nil, err
		}
		e := &epoch{epochRow: row, number: binary.BigEndian.Uint64(b[len(prefix):])}
		ledgers = append(ledgers, e.ledger())
	}
	return ledgers, nil
}

func (e *epoch) ledger() order.Ledger {
	return order.Ledger{
		Epoch: e.number, Base: e.base, Cursor: e.cursor, Head: e.head, Ended: e.ended,
		Delivered: e.delivered, Void: e.void, Skipped: e.skipped, Late: e.late,
		Buffered: e.buffered, Parked: e.parkedCount(), Unordered: e.unordered, VoidAhead: e.voidAhead, Missing: e.missing(),
		OutOfOrder: e.outOfOrder,
	}
}

// nothing is what Find answers where nothing is stored.
func nothing(places []order.Place) []order.Found {
	found := make([]order.Found, len(places))
	for i, p := range places {
		if p.ID == "" {
			found[i].Key, found[i].Position = p.Key, p.Position
		}
	}
	return found
}

func (st *step) find(p *order.Params, places []order.Place) ([]order.Found, error) {
	found := nothing(places)
	keys := st.keySet()
	for i, at := range places {
		if at.ID != "" {
			b := st.ids.Get([]byte(at.ID))
			if b == nil || st.messages.Get(b) == nil {
				continue
			}
			at.Key, at.Position.Epoch, at.Position.Number = splitPlace(b)
			found[i].Key, found[i].Position = at.Key, at.Position
		}
		k, err := keys.get(at.Key)
		if err != nil {
			return nil, err
		}
		if err := k.find(p, &found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// find fills in what is known of the place that f names.
func (k *key) find(p *order.Params, f *order.Found) error {
	e, err := k.epoch(f.Position.Epoch)
	n := f.Position.Number
	if err != nil || e == nil || n < e.base || n >= e.head {
		return err
	}
	place := placeKey(e.prefix, n)
	s, marked, err := k.covering(e, n)
	if err != nil {
		return err
	}
	var m message
	b := k.messages.Get(place)
	if b != nil {
		if m, err = decodeMessage(b); err != nil {
			return err
		}
		if m.known || len(m.id) > 0 {
			whole, err := k.message(place)
			if err != nil {
				return err
			}
			f.Message = &whole
		}
	}
	switch {
	case marked && s.kind == void:
		f.State = order.StateVoid
	case marked && s.kind == unordered:
		f.State = order.StateUnordered
	case marked:
		f.State = order.StateSkipped
		return k.findGap(e, f)
	case n < e.cursor && e.cursor-n >= uint64(p.Window):
		f.State = order.StateSettled
	case m.late:
		f.State = order.StateLate
	case n < e.cursor:
		f.State = order.StateDelivered
	case b == nil:
		f.State = order.StateMissing
	case e.parked && n == e.cursor:
		f.State = order.StateParked
	default:
		f.State = order.StateBuffered
	}
	if n == e.cursor && f.Message != nil {
		f.Message.Attempt, f.Message.Error = int(e.attempts), string(e.err)
	}
	return nil
}

// findGap fills in the record of the gap in which a number was skipped.
func (k *key) findGap(e *epoch, f *order.Found) error {
	place, g, ok, err := k.recordOf(e, f.Position.Number)
	if ok && err == nil {
		gap := k.gap(place, &g)
		f.Gap = &gap
	}
	return err
}

// gap returns the record of a gap.
func (st *step) gap(place []byte, g *gapRow) order.Gap {
	key, epoch, from := splitPlace(place)
	return order.Gap{
		Key: key, Epoch: epoch, From: from, To: g.to, Age: micros(st.now - g.opened), Alerted: g.alerted, Asked: int(g.asked),
		Reason: g.reason, Arrived: g.arrived, Resolution: g.resolution, Actor: string(g.actor), Note: string(g.note),
	}
}

func (st *step) listGaps(q *order.Query) (gaps []order.Gap, err error) {
	keys := st.keySet()
	c := st.gaps.Cursor()
	for place, v := c.Seek(beginning(q)); place != nil && len(gaps) < q.N && selects(q, place); place, v = c.Next() {
		if !behindCursor(q, place) {
			continue
		}
		row, err := decodeGap(v)
		if err != nil {
			return nil, err
		}
		if !row.open {
			if !q.Unresolved || row.resolution == 0 {
				gaps = append(gaps, st.gap(place, &row))
			}
			continue
		}
		name, number, _ := splitPlace(place)
		k, err := keys.get(name)
		if err != nil {
			return nil, err
		}
		e, err := k.epoch(number)
		if e == nil && err == nil {
			err = boltrow.ErrRecord
		}
		if err != nil {
			return nil, err
		}
		g, err := k.openGap(e)
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, g)
	}
	return gaps, nil
}

func (st *step) listParked(q *order.Query) (messages []order.Message, err error) {
	keys := st.keySet()
	c := st.parked.Cursor()
	for place, _ := c.Seek(beginning(q)); place != nil && len(messages) < q.N && selects(q, place); place, _ = c.Next() {
		if !behindCursor(q, place) {
			continue
		}
		m, err := st.message(place)
		if err != nil {
			return nil, err
		}
		if !m.Late {
			k, err := keys.get(m.Key)
			if err != nil {
				return nil, err
			}
			e, err := k.epoch(m.Position.Epoch)
			if err != nil {
				return nil, err
			}
			m.Attempt, m.Error = int(e.attempts), string(e.err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// beginning is where a list begins: at the key it is about, or behind the place
// where the last page ended.
func beginning(q *order.Query) []byte {
	after := place(q.After)
	if first := append([]byte(q.Key), 0); q.Key != "" && bytes.Compare(after, first) < 0 {
		return first
	}
	return after
}

// place is a cursor as a place; the zero cursor is before all of them.
func place(c order.Cursor) []byte {
	if c == (order.Cursor{}) {
		return nil
	}
	return placeKey(epochKey(c.Key, c.Position.Epoch), c.Position.Number)
}

// selects says whether a place is of the key that a list is about.
func selects(q *order.Query, b []byte) bool {
	return q.Key == "" || bytes.HasPrefix(b, append([]byte(q.Key), 0))
}

// behindCursor says whether a place was not listed before.
func behindCursor(q *order.Query, b []byte) bool { return !bytes.Equal(b, place(q.After)) }

func (st *step) total() (order.Totals, error) {
	t := order.Totals{
		Keys: int(st.totals.keys), Buffered: int(st.totals.buffered), Parked: int(st.totals.parked),
		LateWaiting: int(st.totals.late), OpenGaps: int(st.totals.open), Unresolved: int(st.totals.unresolved),
	}
	if b, _ := st.heads.Cursor().First(); b != nil {
		t.Oldest = micros(st.now - int64(binary.BigEndian.Uint64(b)))
	}
	return t, nil
}
