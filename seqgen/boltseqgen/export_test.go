package boltseqgen

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/seqgen"
)

// Verify says whether the records and voids of the file agree with each other.
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
		if err := st.verifyKeys(); err != nil {
			return fmt.Errorf("scope %s: %w", scope, err)
		}
		if err := st.verifyVoids(); err != nil {
			return fmt.Errorf("scope %s: %w", scope, err)
		}
		return nil
	})
}

func (st *step) verifyKeys() error {
	return st.keys.ForEach(func(name, v []byte) error {
		r, err := decodeRecord(v)
		switch {
		case err != nil:
			return err
		case r.epoch == 0 || r.used > r.last || r.last > seqgen.MaxNumber || len(r.log) > seqgen.LogSize:
			return fmt.Errorf("key %q has the record %+v", name, r)
		}
		for i, e := range r.log {
			at := seqgen.Position{Epoch: e.epoch, Number: e.hi}
			if e.hi < e.lo || at.Compare(r.position()) > 0 {
				return fmt.Errorf("key %q at %v has the step %+v", name, r.position(), e)
			}
			for _, other := range r.log[:i] {
				if other.nonce == e.nonce {
					return fmt.Errorf("key %q has a nonce twice", name)
				}
			}
		}
		return nil
	})
}

// verifyVoids says whether the voids lie within what was reserved, apart from each
// other.
func (st *step) verifyVoids() error {
	var last voidRow
	var prefix []byte
	return st.voids.ForEach(func(place, v []byte) error {
		row, err := decodeVoid(v)
		if err != nil {
			return err
		}
		n := len(place) - 8
		lo := binary.BigEndian.Uint64(place[n:])
		name, epoch := place[:n-9], binary.BigEndian.Uint64(place[n-8:])
		record, err := decodeRecord(st.keys.Get(name))
		if err != nil {
			return fmt.Errorf("a void of key %q: %w", name, err)
		}
		at := seqgen.Position{Epoch: epoch, Number: row.hi}
		if lo == 0 || row.hi < lo || at.Compare(record.position()) > 0 || (row.kind == seqgen.Orphaned) != (row.token != 0) {
			return fmt.Errorf("key %q at %v has the void %+v from %d of epoch %d", name, record.position(), row, lo, epoch)
		}
		if bytes.Equal(prefix, place[:n]) {
			if lo <= last.hi || lo == last.hi+1 && row.kind == seqgen.Certain && last.kind == seqgen.Certain {
				return fmt.Errorf("key %q has the void %+v from %d next to %+v", name, row, lo, last)
			}
		}
		prefix, last = bytes.Clone(place[:n]), row
		return nil
	})
}
