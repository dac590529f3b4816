package boltorder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// Verify says whether all buckets of the file agree with each other.
func (s *Store) Verify(tx *bbolt.Tx) error {
	top := tx.Bucket(s.bucket)
	if top == nil {
		return nil
	}
	return top.ForEachBucket(func(name []byte) error {
		scope, ok := bytes.CutPrefix(name, scopeName)
		if !ok {
			return fmt.Errorf("a bucket %q", name)
		}
		st, err := s.open(tx, string(scope), false)
		if err != nil {
			return err
		}
		v := &verification{step: st}
		if err := v.verify(); err != nil {
			return fmt.Errorf("scope %s: %w", scope, err)
		}
		return nil
	})
}

// A verification counts what it finds, to compare it with what is counted.
type verification struct {
	*step
	found         totals
	lateParked    int
	due, claimed  int
	heads, epochs int
	waiting       int // late messages that can be handed over
	ranges        int
	messages      int
}

func (v *verification) verify() error {
	err := v.keys.ForEach(func(name, _ []byte) error {
		k, err := v.keySet().get(string(name))
		if err != nil {
			return err
		}
		v.found.keys++
		return v.key(k)
	})
	if err != nil {
		return err
	}
	if err := v.lists(); err != nil {
		return err
	}
	for name, n := range map[string][2]int{
		"due": {size(v.step.due), v.due}, "claimed": {size(v.step.claimed), v.claimed}, "heads": {size(v.step.heads), v.heads},
		"epochs": {size(v.step.epochs), v.epochs}, "late": {size(v.late), v.waiting}, "ranges": {size(v.step.ranges), v.ranges},
		"parked": {size(v.parked), v.lateParked + int(v.found.parked)}, "messages": {size(v.step.messages), v.messages},
	} {
		if n[0] != n[1] {
			return fmt.Errorf("%s has %d entries, want %d", name, n[0], n[1])
		}
	}
	if v.found != v.totals {
		return fmt.Errorf("found %+v, counted %+v", v.found, v.totals)
	}
	return nil
}

// key verifies one key with all its epochs.
func (v *verification) key(k *key) error {
	if len(k.row.live) == 0 || !slices.IsSorted(k.row.live) {
		return fmt.Errorf("key %q has the live epochs %v", k.name, k.row.live)
	}
	late, err := v.epochsOf(k)
	if err != nil {
		return fmt.Errorf("key %q: %w", k.name, err)
	}
	if uint64(late) != k.row.late {
		return fmt.Errorf("key %q has %d late messages, counted %d", k.name, late, k.row.late)
	}
	v.found.late += uint64(late)
	e, err := k.active()
	if err != nil {
		return err
	}
	next, found, err := k.next(e)
	if err != nil {
		return fmt.Errorf("key %q: %w", k.name, err)
	}
	if oldest, err := k.oldest(next, found); err != nil || k.row.head != oldest {
		return fmt.Errorf("key %q: its next message is of %d, noted %d (%w)", k.name, oldest, k.row.head, err)
	}
	due, err := k.lateDue()
	if err != nil {
		return err
	}
	if due == 0 || e.due != 0 && e.due < due {
		due = e.due
	}
	if due != k.row.due {
		return fmt.Errorf("key %q is due at %d, noted %d", k.name, due, k.row.due)
	}
	above, _, err := k.above(e, next, found)
	if err != nil {
		return err
	}
	atCursor := found && next.number == e.cursor
	if gap := above != 0 && !atCursor && !e.parked; gap != e.gap.open || (gap || atCursor && !e.parked) != (e.due != 0) {
		return fmt.Errorf("key %q: next %d, cursor %d, due %d, gap %+v", k.name, next.number, e.cursor, e.due, e.gap)
	}
	for _, in := range []struct {
		b     *bbolt.Bucket
		key   []byte
		want  bool
		count *int
	}{
		{v.step.due, timeKey(k.row.at(), k.name), k.row.at() != 0, &v.due},
		{v.step.heads, timeKey(k.row.head, k.name), k.row.head != 0, &v.heads},
		{v.step.claimed, claimKey(k.row.nonce, k.name), k.row.until != 0, &v.claimed},
	} {
		if has(in.b, in.key) != in.want {
			return fmt.Errorf("key %q is or is not where it belongs: %+v", k.name, k.row)
		}
		if in.want {
			*in.count++
		}
	}
	return nil
}

// epochsOf verifies the epochs of a key and returns how many late messages wait.
func (v *verification) epochsOf(k *key) (late int, err error) {
	prefix := append([]byte(k.name), 0)
	c := k.epochs.Cursor()
	live := 0
	for b, _ := c.Seek(prefix); bytes.HasPrefix(b, prefix); b, _ = c.Next() {
		v.epochs++
		e, err := k.epoch(binary.BigEndian.Uint64(b[len(prefix):]))
		if err != nil {
			return 0, err
		}
		isLive := slices.Contains(k.row.live, e.number)
		if isLive {
			live++
		}
		switch {
		case isLive == e.ended:
			return 0, fmt.Errorf("epoch %d is live: %t, ended: %t", e.number, isLive, e.ended)
		case e.ended && e.cursor != e.head:
			return 0, fmt.Errorf("epoch %d has ended at %d of %d", e.number, e.cursor, e.head)
		case e.number != k.row.live[0] && (e.parked || e.gap.open || e.due != 0):
			return 0, fmt.Errorf("epoch %d is not active: %+v", e.number, e.epochRow)
		case e.base > e.cursor || e.cursor > e.head || e.delivered+e.void+e.skipped+e.late != e.cursor-e.base,
			e.buffered+e.parkedCount()+e.unordered+e.voidAhead > e.head-e.cursor:
			return 0, fmt.Errorf("epoch %d: the sums do not hold: %+v", e.number, e.epochRow)
		}
		v.found.buffered += e.buffered
		v.found.parked += e.parkedCount()
		if e.parked && !has(v.parked, placeKey(e.prefix, e.cursor)) {
			return 0, fmt.Errorf("epoch %d: the parked message is not listed", e.number)
		}
		if err := v.rangesOf(k, e); err != nil {
			return 0, fmt.Errorf("epoch %d: %w", e.number, err)
		}
		n, err := v.messagesOf(k, e)
		if err != nil {
			return 0, fmt.Errorf("epoch %d: %w", e.number, err)
		}
		late += n
	}
	if live != len(k.row.live) {
		return 0, fmt.Errorf("%d of the live epochs %v are there", live, k.row.live)
	}
	return late, nil
}

func (v *verification) rangesOf(k *key, e *epoch) error {
	var found epochRow
	var last span
	c := k.ranges.Cursor()
	for b, value := c.Seek(e.prefix); ; b, value = c.Next() {
		from, ok := numberIn(e.prefix, b)
		if !ok {
			break
		}
		v.ranges++
		s, err := decodeSpan(from, value)
		if err != nil {
			return err
		}
		isAhead := s.from >= e.cursor
		switch n := s.to - s.from; {
		case s.to <= s.from || s.from < e.base || s.to > e.head || s.from < last.to || s.from == last.to && s.kind == last.kind:
			return fmt.Errorf("range %v follows %v, of %d to %d", s, last, e.base, e.head)
		case s.from <= e.cursor && e.cursor < s.to, isAhead && s.kind == skipped, !isAhead && s.kind == unordered:
			return fmt.Errorf("range %v with the cursor at %d", s, e.cursor)
		case s.kind == skipped:
			found.skipped += n
		case s.kind == unordered:
			found.unordered += n
		case isAhead:
			found.voidAhead += n
		default:
			found.void += n
		}
		last = s
	}
	if found.skipped != e.skipped || found.unordered != e.unordered || found.voidAhead != e.voidAhead || found.void != e.void {
		return fmt.Errorf("ranges %+v, counted %+v", found, e.epochRow)
	}
	return nil
}

// messagesOf verifies the messages of an epoch and returns how many late ones wait.
func (v *verification) messagesOf(k *key, e *epoch) (late int, err error) {
	held, ended := uint64(0), e.base
	c := k.messages.Cursor()
	for b, value := c.Seek(e.prefix); ; b, value = c.Next() {
		n, ok := numberIn(e.prefix, b)
		if !ok {
			break
		}
		v.messages++
		m, err := decodeMessage(value)
		if err != nil {
			return 0, err
		}
		s, marked, err := k.covering(e, n)
		if err != nil {
			return 0, err
		}
		switch {
		case n < e.base || n >= e.head:
			return 0, fmt.Errorf("message %d of %d to %d", n, e.base, e.head)
		case n >= e.cursor && (m.late || m.outside != marked || marked && s.kind != unordered):
			return 0, fmt.Errorf("message %d is late %t, outside %t, in %v", n, m.late, m.outside, s)
		case m.waiting && (!m.late || marked || n >= e.cursor):
			return 0, fmt.Errorf("message %d waits, late %t, in %v", n, m.late, s)
		case m.waiting && has(v.late, lateKey(k.name, m.due, b)) == m.parked:
			return 0, fmt.Errorf("late message %d, parked %t, is or is not to be handed over", n, m.parked)
		case m.parked && (!m.waiting || !has(v.parked, b)):
			return 0, fmt.Errorf("parked late message %d waits %t", n, m.waiting)
		}
		if n >= e.cursor && !m.outside {
			held++
		}
		if m.waiting {
			late++
			if m.parked {
				v.lateParked++
			} else {
				v.waiting++
			}
		}
	}
	if held != e.buffered+e.parkedCount() {
		return 0, fmt.Errorf("%d messages are held, counted %d and %d", held, e.buffered, e.parkedCount())
	}
	c = k.ends.Cursor()
	for b, value := c.Seek(e.prefix); ; b, value = c.Next() {
		n, ok := numberIn(e.prefix, b)
		if !ok {
			return late, nil
		}
		if len(value) != 9 || n > e.cursor {
			return 0, fmt.Errorf("an end at %d with the cursor at %d", n, e.cursor)
		}
		first, _ := k.messages.Cursor().Seek(placeKey(e.prefix, ended))
		if m, ok := numberIn(e.prefix, first); !ok || m >= n {
			return 0, fmt.Errorf("an end at %d without a message behind the one at %d", n, ended)
		}
		ended = n
	}
}

// lists verifies what is listed over all keys.
func (v *verification) lists() error {
	err := v.step.ids.ForEach(func(id, place []byte) error {
		b := v.step.messages.Get(place)
		if b == nil {
			return fmt.Errorf("an ID without its message")
		}
		m, err := decodeMessage(b)
		if err == nil && !bytes.Equal(m.id, id) {
			err = fmt.Errorf("ID %q leads to the message %q", id, m.id)
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.step.gaps.ForEach(func(place, b []byte) error {
		g, err := decodeGap(b)
		if err != nil {
			return err
		}
		name, number, from := splitPlace(place)
		k, err := v.keySet().get(name)
		if err != nil {
			return err
		}
		e, err := k.epoch(number)
		switch {
		case err != nil:
			return err
		case e == nil:
			return fmt.Errorf("a gap of key %q in epoch %d, which is not there", name, number)
		case g.open && (!e.gap.open || from != e.cursor):
			return fmt.Errorf("an open gap of key %q at %d, the cursor is %d", name, from, e.cursor)
		case !g.open && (g.to <= from || g.to > e.cursor || g.reason == 0):
			return fmt.Errorf("the record of a gap of key %q from %d to %d, the cursor is %d", name, from, g.to, e.cursor)
		case g.open:
			v.found.open++
		case g.resolution == 0:
			v.found.unresolved++
		}
		return nil
	})
}

func has(b *bbolt.Bucket, key []byte) bool {
	k, _ := b.Cursor().Seek(key)
	return bytes.Equal(k, key)
}

func size(b *bbolt.Bucket) int { return b.Stats().KeyN }
