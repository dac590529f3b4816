package boltseqgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/seqgen"
)

// orphan records what the owner of a key has not accounted for.
func (k *key) orphan(reason seqgen.Reason) (seqgen.Range, error) {
	if !k.owned || k.used >= k.last {
		return seqgen.Range{}, nil
	}
	lost := seqgen.Range{Epoch: k.epoch, Lo: k.used + 1, Hi: k.last}
	return lost, k.insert(lost, voidRow{kind: seqgen.Orphaned, reason: reason, token: k.token})
}

// certain records a certain void, joined with those that it touches.
func (k *key) certain(what seqgen.Range, reason seqgen.Reason) (seqgen.Range, error) {
	prefix := epochKey(k.name, what.Epoch)
	joined := what
	var gone [][]byte
	c := k.voids.Cursor()
	behind, _ := c.Seek(voidKey(prefix, what.Lo))
	place, v := seekBefore(c, behind)
	if _, ok := numberIn(prefix, place); !ok {
		place, v = c.Seek(voidKey(prefix, what.Lo))
	}
	for ; place != nil; place, v = c.Next() {
		lo, ok := numberIn(prefix, place)
		if !ok {
			break
		}
		if lo > joined.Hi+1 {
			break
		}
		row, err := decodeVoid(v)
		if err != nil {
			return what, err
		}
		if row.kind != seqgen.Certain || row.hi+1 < joined.Lo {
			continue
		}
		joined.Lo, joined.Hi = min(joined.Lo, lo), max(joined.Hi, row.hi)
		gone = append(gone, bytes.Clone(place))
	}
	for _, place := range gone {
		if err := k.delete(k.voids, place); err != nil {
			return what, err
		}
	}
	return what, k.insert(joined, voidRow{kind: seqgen.Certain, reason: reason})
}

func (k *key) insert(at seqgen.Range, v voidRow) error {
	v.hi, v.at, v.expires = at.Hi, k.now, k.now+k.p.Retention.Microseconds()
	return k.put(k.voids, voidKey(epochKey(k.name, at.Epoch), at.Lo), v.append(nil))
}

// seekBefore returns what lies before the place that a cursor was just set to; nil
// is behind the last one.
func seekBefore(c *bbolt.Cursor, place []byte) (before, v []byte) {
	if place == nil {
		return c.Last()
	}
	return c.Prev()
}

// epochOf is the epoch that a prefix of voids names.
func epochOf(prefix []byte) uint64 { return binary.BigEndian.Uint64(prefix[len(prefix)-8:]) }

// sweepStep is how many voids one commit looks at.
const sweepStep = 250

// Sweep looks at up to n voids, drops those whose retention has passed, and
// returns how many it dropped. In each scope it goes on where the last call stopped,
// also after a restart, and behind the last one it begins anew with the next call.
// Scopes have their turn.
//
// It takes the writer's lock for 250 voids at a time, so a reservation never
// waits long for it. bbolt uses the space again; it does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it dropped stays
// dropped. An n below 1 is an error.
func (s *Store) Sweep(ctx context.Context, n int) (dropped int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltseqgen: sweep: %w: n is %d, and must be at least 1", seqgen.ErrInvalid, n)
	}
	scopes, err := s.scopes(ctx)
	if err != nil {
		return 0, err
	}
	// Each call begins with another scope, so that none waits for ever behind a large
	// one when n is small.
	first := int(s.sweeps.Add(1) % int64(max(len(scopes), 1)))
	for _, scope := range slices.Concat(scopes[first:], scopes[:first]) {
		for more := true; more && n > 0; {
			swept, seen := 0, 0
			err := s.update(ctx, "sweep", scope, func(st *step) (err error) {
				swept, seen, more, err = st.sweep(min(n, sweepStep))
				return err
			})
			if err != nil {
				return dropped, err
			}
			dropped += swept
			n -= seen
		}
	}
	return dropped, nil
}

// scopes returns the names of all scopes of the file.
func (s *Store) scopes(ctx context.Context) (names []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("sweep", err)
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		top := tx.Bucket(s.bucket)
		if top == nil {
			return nil
		}
		return top.ForEachBucket(func(name []byte) error {
			if scope, ok := bytes.CutPrefix(name, scopeName); ok {
				names = append(names, string(scope))
			}
			return nil
		})
	})
	return names, wrap("sweep", err)
}

// sweep looks at n voids, and says how many it saw and whether there are more.
func (st *step) sweep(n int) (dropped, seen int, more bool, err error) {
	var last []byte
	if v := st.top.Get(sweptKey); v != nil {
		d := decode(v)
		if d.Failed {
			return 0, 0, false, fmt.Errorf("the place of the sweep cannot be read: %w", boltrow.ErrRecord)
		}
		last = d.Rest
	}
	var gone [][]byte
	c := st.voids.Cursor()
	place, v := c.Seek(last)
	for ; place != nil && seen < n; place, v = c.Next() {
		seen++
		row, err := decodeVoid(v)
		if err != nil {
			return 0, 0, false, err
		}
		if row.expires <= st.now {
			gone = append(gone, bytes.Clone(place))
		}
	}
	next := append([]byte{layout}, place...)
	if more = place != nil; !bytes.Equal(place, last) {
		if err := st.put(st.top, sweptKey, next); err != nil {
			return 0, 0, false, err
		}
	}
	for _, place := range gone {
		if err := st.delete(st.voids, place); err != nil {
			return 0, 0, false, err
		}
	}
	return len(gone), seen, more, nil
}
