package boltreconcile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/reconcile"
)

// sweepStep is how many rows one commit removes.
const sweepStep = 250

// Sweep removes up to n operations, observations, findings and cells whose retention has
// passed, the longest ago first, and returns how many. What has not expired is not looked at, so n is
// all that a call costs; the observations of one message go together, so it may be a
// message more. It serves all stores of the bucket.
//
// It takes the writer's lock for 250 of them at a time, so nobody waits long for it.
// bbolt uses the space again; it does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it removed stays
// removed. An n below 1 is an error.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltreconcile: sweep: %w: n is %d, and must be at least 1", reconcile.ErrInvalid, n)
	}
	for more := true; n > 0 && more; {
		var w swept
		err := s.update(ctx, "sweep", func(st *step) (err error) {
			w, err = st.sweep(min(n, sweepStep))
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += w.removed
		n -= w.looked
		more = w.more
	}
	return removed, nil
}

// swept is what one commit of a sweep did.
type swept struct {
	looked, removed int
	more            bool // there may be more that has expired
}

// sweep removes about n things that have expired.
func (st *step) sweep(n int) (w swept, err error) {
	for w.looked < n {
		k, _ := st.expiring.Cursor().First()
		if k == nil || int64(binary.BigEndian.Uint64(k)) > st.now {
			return w, nil
		}
		place := bytes.Clone(k)
		if err := st.erase(st.expiring, place); err != nil {
			return swept{}, err
		}
		removed, err := st.expire(place[8], place[9:])
		if err != nil {
			return swept{}, err
		}
		w.removed += removed
		w.looked += max(removed, 1)
	}
	w.more = true
	return w, nil
}

// expire removes the thing with a key, whose place among what expires is gone, and returns
// how many rows that were.
func (st *step) expire(what byte, key []byte) (removed int, err error) {
	kind, rest, _ := bytes.Cut(key, []byte{0})
	switch what {
	case operationExpires:
		o, err := st.listed(string(kind), string(rest))
		if err != nil {
			return 0, err
		}
		return 1, st.remove(o)
	case subjectExpires:
		s, err := decodeSubject(key, st.subjects.Get(key))
		if err != nil {
			return 0, err
		}
		return st.expireSubject(&s)
	case findingExpires:
		check, subject, _ := bytes.Cut(rest, []byte{0})
		f, err := st.listedFinding(string(kind), string(check), string(subject))
		if err != nil {
			return 0, err
		}
		return 1, st.rewriteFinding(f, nil)
	case cellExpires:
		return 1, st.erase(st.cells, key)
	}
	return 0, fmt.Errorf("a row of what expires cannot be read: %w", boltrow.ErrRecord)
}
