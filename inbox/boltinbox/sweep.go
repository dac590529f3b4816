package boltinbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// sweepStep is how many records, and how many keys, one commit looks at.
const sweepStep = 250

// Sweep looks at up to n records that have ended, and at as many keys, removes
// those whose retention has passed, and returns how many records it removed. It
// goes on where the last call stopped, also after a restart, and stops behind the
// last one, from where the next call begins anew. So calls of n records at regular
// times come round the whole file, and n is what one call costs.
//
// It takes the writer's lock for 250 records at a time, so an acceptance never
// waits long for it. bbolt uses the space again; it does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it removed stays
// removed. An n below 1 is an error.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltinbox: sweep: %w: n is %d, and must be at least 1", inbox.ErrInvalid, n)
	}
	for _, part := range []func(*step, int) (int, bool, error){(*step).sweepRecords, (*step).sweepKeys} {
		for left, more := n, true; left > 0 && more; left -= sweepStep {
			swept := 0
			err := s.update(ctx, "sweep", func(st *step) (err error) {
				swept, more, err = part(st, min(left, sweepStep))
				return err
			})
			if err != nil {
				return removed, err
			}
			removed += swept
		}
	}
	return removed, nil
}

// sweepRecords looks at n records that have ended, and says whether there are
// more.
func (st *step) sweepRecords(n int) (removed int, more bool, err error) {
	seqs, more, err := st.page(st.settled, sweptRecordsKey, n)
	for _, k := range seqs {
		gone, err := st.expire(binary.BigEndian.Uint64(k))
		if err != nil {
			return 0, false, err
		}
		if gone {
			removed++
		}
	}
	return removed, more, err
}

// sweepKeys does the same for keys, which it does not count.
func (st *step) sweepKeys(n int) (none int, more bool, err error) {
	names, more, err := st.page(st.keys, sweptKeysKey, n)
	for _, name := range names {
		if err := st.forget(name); err != nil {
			return 0, false, err
		}
	}
	return 0, more, err
}

// page returns the next n keys of a bucket, and remembers under place where to go
// on.
func (st *step) page(b *bbolt.Bucket, place []byte, n int) (keys [][]byte, more bool, err error) {
	d := decode(st.top.Get(place))
	if d.Failed && st.top.Get(place) != nil {
		return nil, false, fmt.Errorf("the place of the sweep cannot be read: %w", boltrow.ErrRecord)
	}
	c := b.Cursor()
	k, _ := c.Seek(d.Rest)
	for ; k != nil && len(keys) < n; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	next := append([]byte{layout}, k...)
	if bytes.Equal(k, d.Rest) {
		return keys, k != nil, nil
	}
	st.changed = true
	return keys, k != nil, st.top.Put(place, next)
}

// expire removes a record that has ended, if its retention has passed, or redacts
// it if that of its body has.
func (st *step) expire(seq uint64) (gone bool, err error) {
	ev, s, err := st.record(seq)
	switch {
	case err != nil || ev.form&inbox.FormOutside != 0:
		return false, err
	case s.expires != 0 && s.expires <= st.now:
		return true, st.remove(seq, &ev, &s)
	case s.erases != 0 && s.erases <= st.now && s.deleted == 0:
		return false, st.redact(seq, &ev, &s)
	}
	return false, nil
}

// remove takes a record that has ended out of the file, and its event with the last
// of them.
func (st *step) remove(seq uint64, ev *event, s *status) error {
	st.count(s.state, -1)
	if err := st.dropSettled(seq, ev.form, s); err != nil {
		return err
	}
	return st.erase(seq, ev)
}

// erase takes out what arrived.
func (st *step) erase(seq uint64, ev *event) error {
	e, _, err := st.entry(ev.ID)
	if err != nil {
		return err
	}
	if e.seqs = slices.DeleteFunc(e.seqs, func(other uint64) bool { return other == seq }); len(e.seqs) > 0 {
		err = st.ids.Put([]byte(ev.ID), e.append(nil))
	} else {
		err = st.ids.Delete([]byte(ev.ID))
	}
	if err != nil {
		return err
	}
	return st.dropEvent(seq, ev)
}

// dropEvent takes back what putEvent wrote.
func (st *step) dropEvent(seq uint64, ev *event) error {
	for id, b := range st.foreign(ev) {
		if err := b.Delete(foreignKey(id, seq)); err != nil {
			return err
		}
	}
	return st.events.Delete(seqKey(seq))
}

// forget removes a key that has had nothing pending for its retention. It may still
// be claimed, by an owner that died after it had ended the last record.
func (st *step) forget(name []byte) error {
	k, _, err := st.key(name)
	if err != nil || k.until > st.now || k.expires > st.now || st.first(name) != 0 {
		return err
	}
	st.changed = true
	if k.until != 0 {
		if err := st.claimed.Delete(claimKey(k.nonce, name)); err != nil {
			return err
		}
	}
	return st.keys.Delete(name)
}
