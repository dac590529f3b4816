package boltorder

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// sweepStep is how many messages, and how many records, one commit looks at.
const sweepStep = 250

// Sweep implements [order.Sweeper]. It looks at up to n messages and gap records,
// beginning with the ones and the others in turn, forgets those that need not be
// remembered any longer, erases the bodies of those that need be without them, and
// goes on where the last call stopped, also after a
// restart. So calls of n at regular times come round the whole file, and n is what
// one call costs.
//
// It takes the writer's lock for 250 at a time, so a push never waits long for
// it. bbolt uses the space again; it does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it forgot stays
// forgotten. An n below 1 is an error.
func (s *Store) Sweep(ctx context.Context, p order.Params, n int) (forgotten int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltorder: sweep: %w: n is %d, and must be at least 1", order.ErrInvalid, n)
	}
	parts := []func(*step, *order.Params, int) (sweep, error){(*step).sweepMessages, (*step).sweepGaps}
	if s.sweeps.Add(1)%2 == 0 {
		slices.Reverse(parts)
	}
	for _, part := range parts {
		for more := true; more && n > 0; {
			var done sweep
			err := s.update(ctx, "sweep", p.Scope, func(st *step) (err error) {
				done, err = part(st, &p, min(n, sweepStep))
				return err
			})
			if err != nil {
				return forgotten, err
			}
			n -= done.seen
			forgotten += done.forgotten
			more = done.more
		}
	}
	return forgotten, nil
}

// A sweep is what one step of Sweep did.
type sweep struct {
	seen, forgotten int
	more            bool // behind those it has seen
}

// sweepMessages looks at n messages.
func (st *step) sweepMessages(p *order.Params, n int) (done sweep, err error) {
	places, more, err := st.page(st.messages, sweptKey, n)
	if err != nil {
		return sweep{}, err
	}
	done = sweep{seen: len(places), more: more}
	keys := st.keySet()
	for _, place := range places {
		gone, err := keys.forgetMessage(p, place)
		if err != nil {
			return sweep{}, err
		}
		if gone {
			done.forgotten++
		}
	}
	return done, nil
}

// forgetMessage forgets a message, if it need not be remembered.
func (s *keySet) forgetMessage(p *order.Params, place []byte) (gone bool, err error) {
	name, number, n := splitPlace(place)
	k, err := s.get(name)
	if err != nil {
		return false, err
	}
	e, err := k.epoch(number)
	if e == nil && err == nil {
		err = boltrow.ErrRecord // a message without its epoch
	}
	if err != nil || n >= e.cursor {
		return false, err
	}
	m, err := decodeMessage(s.messages.Get(place))
	if err != nil || m.waiting {
		return false, err
	}
	at, end, err := k.endOf(e, n)
	if err != nil || len(m.id) > 0 && max(at, m.pushed, m.due)+p.KeepBody.Microseconds() > s.now {
		return false, err
	}
	if e.cursor-n < uint64(p.Window) { // it is remembered for its digest, without its body
		if len(m.payload)+len(m.context) == 0 {
			return false, nil
		}
		m = m.clone()
		m.payload, m.context = nil, nil
		return false, s.put(s.messages, place, m.append(nil))
	}
	if err := k.unname(place); err != nil {
		return false, err
	}
	if err := s.delete(s.messages, place); err != nil {
		return false, err
	}
	if end != nil && !k.messageSince(e, end) { // nobody asks for this end any more
		return true, s.delete(s.ends, end)
	}
	return true, nil
}

// endOf returns when a number below the cursor had ended, and where that is
// noted.
func (k *key) endOf(e *epoch, n uint64) (at int64, place []byte, err error) {
	b, v := k.ends.Cursor().Seek(placeKey(e.prefix, n+1))
	if _, ok := numberIn(e.prefix, b); !ok {
		return 0, nil, nil
	}
	if len(v) != 9 || v[0] != layout {
		return 0, nil, boltrow.ErrRecord
	}
	return int64(binary.BigEndian.Uint64(v[1:])), bytes.Clone(b), nil
}

// sweepGaps looks at n gap records.
func (st *step) sweepGaps(p *order.Params, n int) (done sweep, err error) {
	places, more, err := st.page(st.gaps, sweptGaps, n)
	if err != nil {
		return sweep{}, err
	}
	done = sweep{seen: len(places), more: more}
	for _, place := range places {
		g, err := decodeGap(st.gaps.Get(place))
		if err != nil {
			return sweep{}, err
		}
		if g.open || g.resolution == 0 || g.resolved+p.KeepGaps.Microseconds() > st.now {
			continue
		}
		if err := st.delete(st.gaps, place); err != nil {
			return sweep{}, err
		}
		done.forgotten++
	}
	return done, nil
}

// page returns the next n keys of a bucket, and remembers under mark where to go
// on.
func (st *step) page(b *bbolt.Bucket, mark []byte, n int) (keys [][]byte, more bool, err error) {
	var last []byte
	if v := st.top.Get(mark); v != nil {
		d := decode(v)
		if d.Failed {
			return nil, false, fmt.Errorf("the place of the sweep cannot be read: %w", boltrow.ErrRecord)
		}
		last = d.Rest
	}
	c := b.Cursor()
	k, _ := c.Seek(last)
	for ; k != nil && len(keys) < n; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	if bytes.Equal(k, last) {
		return keys, k != nil, nil
	}
	return keys, k != nil, st.put(st.top, mark, append([]byte{layout}, k...))
}
