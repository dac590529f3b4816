package boltdedup

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
)

// sweepStep is how many records a sweep looks at in one reading transaction, and
// so removes at most in one commit. They are neighbours in the tree, so that
// they lie in few pages and the writer is held for milliseconds.
const sweepStep = 1000

// Sweep looks at up to n records, removes those whose retention has passed, and
// returns how many it removed. It goes on where the last call stopped, also
// after a restart, and stops behind the last record, from where the next call
// begins anew. So calls of n records at regular times come round the whole file,
// and n is what one call costs.
//
// It looks without the writer's lock and takes it only to remove, for at most
// 1,000 records at a time, so a claim never waits long for it. Records in use,
// and those that are or can become Unknown, stay. bbolt uses the space again; it
// does not shrink the file.
//
// When ctx ends, Sweep stops between two steps, and what it removed stays
// removed. The error for an n below 1 is [dedup.ErrInvalid].
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("boltdedup: sweep of %d records: %w", n, dedup.ErrInvalid)
	}
	var next []byte
	for first := true; n > 0 && (first || len(next) > 0); first = false {
		var found findings
		err := s.view(ctx, "sweep", func(tx *bbolt.Tx) error {
			top, err := s.top(tx)
			if top == nil || err != nil {
				return err
			}
			if first {
				next = bytes.Clone(top.Get(sweptKey))
			}
			found = look(top, next, min(n, sweepStep))
			return nil
		})
		if err != nil {
			return removed, err
		}
		n -= sweepStep
		next = found.next
		if len(found.expired) > 0 || n <= 0 || len(next) == 0 {
			k, err := s.remove(ctx, found)
			if err != nil {
				return removed, err
			}
			removed += k
		}
	}
	return removed, nil
}

// findings is what a look at some records found. The places are those of
// records: see place.
type findings struct {
	expired [][]byte
	next    []byte // empty: there are no more
}

// look looks at n records from a place on; the empty place is before the first.
func look(top *bbolt.Bucket, from []byte, n int) (f findings) {
	name, id, _ := bytes.Cut(from, []byte{0})
	at := now()
	buckets := top.Cursor()
	for b, v := buckets.Seek(name); b != nil; b, v = buckets.Next() {
		if v != nil {
			continue // a key of the top bucket itself
		}
		if !bytes.Equal(b, name) {
			id = nil
		}
		records := top.Bucket(b).Cursor()
		for k, v := records.Seek(id); k != nil; k, v = records.Next() {
			if n == 0 {
				f.next = place(b, k)
				return f
			}
			n--
			if r, err := decode(v); err == nil && r.expired(at) {
				f.expired = append(f.expired, place(b, k))
			}
		}
	}
	return f
}

// remove removes the records found that are still expired, and remembers where
// to go on.
func (s *Store) remove(ctx context.Context, f findings) (removed int, err error) {
	err = s.update(ctx, "sweep", func(tx *bbolt.Tx) (bool, error) {
		top, err := s.top(tx)
		if top == nil || err != nil {
			return false, err
		}
		removed = 0
		at := now()
		for _, p := range f.expired {
			name, id, _ := bytes.Cut(p, []byte{0})
			b := top.Bucket(name)
			if b == nil {
				continue
			}
			r, err := decode(b.Get(id))
			if err != nil || !r.expired(at) {
				continue // it was claimed again, or forgotten, since it was found
			}
			if err := erase(b, id, r.token); err != nil {
				return false, err
			}
			removed++
		}
		switch {
		case bytes.Equal(f.next, top.Get(sweptKey)):
			return removed > 0, nil
		case len(f.next) == 0:
			return true, top.Delete(sweptKey)
		}
		return true, top.Put(sweptKey, f.next)
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

// forget erases the record of id, readable or not, and says whether there was
// anything to erase. A sweep that would have gone on at the record begins anew,
// so that nothing of the ID stays behind.
func (sc *scope) forget(id []byte) (changed bool, err error) {
	swept := sc.top.Get(sweptKey)
	for _, prefix := range [][]byte{openPrefix, closedPrefix} {
		name := join(prefix, sc.name)
		if bytes.Equal(swept, place(name, id)) {
			if err := sc.top.Delete(sweptKey); err != nil {
				return false, err
			}
			changed = true
		}
		bucket := sc.top.Bucket(name)
		stored := bucket.Get(id)
		if stored == nil {
			continue
		}
		r, err := decode(stored)
		if err != nil {
			r.token = uint64(now()) // the best that is known of it
		}
		if err := erase(bucket, id, r.token); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// place names a record within the top bucket: its scope's bucket, a NUL, which
// no name and no ID contains, and its ID.
func place(bucket, id []byte) []byte {
	p := make([]byte, 0, len(bucket)+1+len(id))
	return append(append(append(p, bucket...), 0), id...)
}
