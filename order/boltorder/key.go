package boltorder

import (
	"bytes"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// A key is an ordering key in the hands of a step: its row, and those of its
// epochs that the step has read. What a step changes is written by save.
type key struct {
	*step
	name   string
	row    keyRow
	exists bool // it has a row, or will have one
	before keyRow
	stored bool // it has a row
	read   []*epoch
}

// An epoch is one sequence of a key, likewise.
type epoch struct {
	epochRow
	number uint64
	prefix []byte // of its places
	before []byte // its row as it was read
}

// keySet are the keys of a batch, each read once.
type keySet struct {
	*step
	byName map[string]*key
	order  []*key
}

func (st *step) keySet() *keySet { return &keySet{step: st, byName: map[string]*key{}} }

func (s *keySet) get(name string) (*key, error) {
	if k := s.byName[name]; k != nil {
		return k, nil
	}
	k := &key{step: s.step, name: name}
	if b := s.keys.Get([]byte(name)); b != nil {
		var err error
		if k.row, err = decodeKey(b); err != nil {
			return nil, err
		}
		k.exists, k.stored = true, true
		k.before = k.row
		k.before.live = slices.Clone(k.row.live)
	}
	s.byName[name] = k
	s.order = append(s.order, k)
	return k, nil
}

// save writes all that has changed.
func (s *keySet) save() error {
	for _, k := range s.order {
		if err := k.save(); err != nil {
			return err
		}
	}
	return nil
}

// epoch returns an epoch that exists, or nil.
func (k *key) epoch(number uint64) (*epoch, error) {
	for _, e := range k.read {
		if e.number == number {
			return e, nil
		}
	}
	prefix := epochKey(k.name, number)
	b := k.epochs.Get(prefix)
	if b == nil {
		return nil, nil
	}
	row, err := decodeEpoch(b)
	if err != nil {
		return nil, err
	}
	e := &epoch{epochRow: row, number: number, prefix: prefix, before: bytes.Clone(b)}
	k.read = append(k.read, e)
	return e, nil
}

// active returns the epoch that is delivered, or nil for a key that does not
// exist.
func (k *key) active() (*epoch, error) {
	if len(k.row.live) == 0 {
		return nil, nil
	}
	e, err := k.epoch(k.row.live[0])
	if e == nil && err == nil {
		err = boltrow.ErrRecord // a key without its epoch
	}
	return e, err
}

// begin returns a new epoch, which the key has once it is added.
func (k *key) begin(number, base uint64) *epoch {
	return &epoch{epochRow: epochRow{base: base, cursor: base, head: base}, number: number, prefix: epochKey(k.name, number)}
}

func (k *key) add(e *epoch) {
	if !k.exists {
		k.exists = true
		k.count(&k.totals.keys, 1)
	}
	k.read = append(k.read, e)
	i, _ := slices.BinarySearch(k.row.live, e.number)
	k.row.live = slices.Insert(k.row.live, i, e.number)
}

// buffered is how many messages of the key are buffered.
func (k *key) buffered() (n uint64, err error) {
	for _, number := range k.row.live {
		e, err := k.epoch(number)
		if err != nil {
			return 0, err
		}
		if e == nil {
			return 0, boltrow.ErrRecord
		}
		n += e.buffered
	}
	return n, nil
}

// refresh brings everything that follows from the numbers up to date: which epoch
// is active, its gap, and when the key is due. p.GapLook is the only parameter it
// needs.
func (k *key) refresh(p *order.Params) error {
	if !k.exists {
		return nil
	}
	e, err := k.active()
	if err != nil {
		return err
	}
	for e.cursor == e.head && len(k.row.live) > 1 {
		if err := k.closeGap(e); err != nil {
			return err
		}
		e.ended, e.due, e.attempts, e.begun, e.err = true, 0, 0, 0, nil
		k.row.live = k.row.live[1:]
		if e, err = k.active(); err != nil {
			return err
		}
	}
	next, found, err := k.next(e)
	if err != nil {
		return err
	}
	if k.row.head, err = k.oldest(next, found); err != nil {
		return err
	}
	switch at := found && next.number == e.cursor; {
	case e.parked:
		e.due = 0
		err = k.closeGap(e)
	case at && (e.gap.open || e.due == 0): // it has just come, or its turn has
		e.due = k.now
		err = k.closeGap(e)
	case !at:
		err = k.watch(p, e, next, found)
	}
	if err != nil {
		return err
	}
	k.row.due = e.due
	if k.row.late == 0 {
		return nil
	}
	late, err := k.lateDue()
	if late != 0 && (k.row.due == 0 || late < k.row.due) {
		k.row.due = late
	}
	return err
}

// oldest is when the message was pushed that is delivered next: of the active epoch
// or, if that has none, of the lowest that waits and has one. Zero: there is none.
func (k *key) oldest(next waiting, found bool) (pushed int64, err error) {
	for i := 1; !found && i < len(k.row.live); i++ {
		waits, err := k.epoch(k.row.live[i])
		if waits == nil && err == nil {
			err = boltrow.ErrRecord
		}
		if err == nil {
			next, found, err = k.next(waits)
		}
		if err != nil {
			return 0, err
		}
	}
	if !found {
		return 0, nil
	}
	return next.pushed, nil
}

// A waiting message is one that is buffered or parked.
type waiting struct {
	number uint64
	pushed int64
}

// next returns the message that is to be delivered next, there being one.
func (k *key) next(e *epoch) (w waiting, found bool, err error) {
	if e.buffered == 0 && !e.parked {
		return w, false, nil
	}
	c := k.messages.Cursor()
	for place, v := c.Seek(placeKey(e.prefix, e.cursor)); place != nil; place, v = c.Next() {
		n, ok := numberIn(e.prefix, place)
		if !ok {
			break
		}
		m, err := decodeMessage(v)
		if err != nil {
			return w, false, err
		}
		if !m.outside {
			return waiting{n, m.pushed}, true, nil
		}
	}
	return w, false, boltrow.ErrRecord // the counts do not fit the messages
}

// lateDue is when the first late message can be claimed; zero: never.
func (k *key) lateDue() (at int64, err error) {
	prefix := append([]byte(k.name), 0)
	b, _ := k.late.Cursor().Seek(prefix)
	if !bytes.HasPrefix(b, prefix) {
		return 0, nil
	}
	at, _, err = splitLate(prefix, b)
	return at, err
}

// moveTo sets the cursor behind what was delivered or skipped, and carries it over
// all that is void or was delivered outside.
func (k *key) moveTo(e *epoch, to uint64) error {
	if err := k.closeGap(e); err != nil {
		return err
	}
	e.cursor, e.due, e.parked, e.err = to, 0, false, nil
	if err := k.cross(e); err != nil {
		return err
	}
	e.attempts = 0
	if e.cursor < e.begun {
		e.attempts = 1
	}
	return nil
}

// cross carries the cursor on over what is void or was delivered outside.
func (k *key) cross(e *epoch) error {
	from := e.cursor
	for e.voidAhead+e.unordered > 0 {
		s, ok, err := k.covering(e, e.cursor)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if e.cursor == from {
			if err := k.closeGap(e); err != nil {
				return err
			}
			e.due = 0
		}
		n := s.to - e.cursor
		if s.kind == unordered {
			e.unordered -= n
			e.delivered += n
			e.outOfOrder += n
			if err := k.delete(k.ranges, placeKey(e.prefix, s.from)); err != nil {
				return err
			}
		} else {
			e.voidAhead -= n
			e.void += n
		}
		e.cursor = s.to
	}
	if e.cursor == from {
		return nil
	}
	e.attempts, e.err = 0, nil
	if e.cursor < e.begun {
		e.attempts = 1
	}
	return k.ended(e)
}

// ended notes that everything below the cursor has ended by now: for how long
// messages are remembered counts from there. Where the cursor passed none, there is
// nothing to note.
func (k *key) ended(e *epoch) error {
	place := placeKey(e.prefix, e.cursor)
	if !k.messageSince(e, place) {
		return nil
	}
	return k.put(k.ends, place, binary.BigEndian.AppendUint64([]byte{layout}, uint64(k.now)))
}

// messageSince says whether there is a message between an end and the one before
// it.
func (k *key) messageSince(e *epoch, end []byte) bool {
	b, _ := before(k.messages.Cursor(), end)
	last, ok := numberIn(e.prefix, b)
	if !ok {
		return false
	}
	b, _ = before(k.ends.Cursor(), end)
	from, ok := numberIn(e.prefix, b)
	return !ok || last >= from
}

// before returns what stands before a place, whether there is anything at it or not.
func before(c *bbolt.Cursor, place []byte) (b, v []byte) {
	if b, _ := c.Seek(place); b == nil {
		return c.Last()
	}
	return c.Prev()
}

// save writes the rows of a key and keeps it where it belongs in due, claimed and
// heads.
func (k *key) save() error {
	if !k.exists {
		return nil
	}
	for _, e := range k.read {
		if b := e.append(nil); !bytes.Equal(b, e.before) {
			if err := k.put(k.epochs, e.prefix, b); err != nil {
				return err
			}
		}
	}
	old := k.before
	if err := k.index(k.due, old.at(), k.row.at()); err != nil {
		return err
	}
	if err := k.index(k.heads, old.head, k.row.head); err != nil {
		return err
	}
	was, is := old.until != 0, k.row.until != 0
	if was && (!is || old.nonce != k.row.nonce) {
		if err := k.delete(k.claimed, claimKey(old.nonce, k.name)); err != nil {
			return err
		}
	}
	if is && (!was || old.nonce != k.row.nonce) {
		if err := k.put(k.claimed, claimKey(k.row.nonce, k.name), nil); err != nil {
			return err
		}
	}
	b := k.row.append(nil)
	if k.stored && bytes.Equal(b, old.append(nil)) {
		return nil
	}
	return k.put(k.keys, []byte(k.name), b)
}

// index moves the key from one time to another; zero is nowhere.
func (k *key) index(b interface {
	Put(key, value []byte) error
	Delete(key []byte) error
}, old, now int64) error {
	if old == now {
		return nil
	}
	k.changed = true
	if old != 0 {
		if err := b.Delete(timeKey(old, k.name)); err != nil {
			return err
		}
	}
	if now == 0 {
		return nil
	}
	return b.Put(timeKey(now, k.name), nil)
}
