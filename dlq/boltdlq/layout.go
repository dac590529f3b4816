package boltdlq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dlq"
)

// layoutKey and layoutValue name the kind of the top bucket and the version of its
// layout, which the package comment describes.
var layoutKey, layoutValue = []byte("layout"), []byte("dlq 1")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltdlq")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first step would do the same. It refuses a bucket
// of another kind or of another version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", func(*step) error { return nil })
}

// Check says whether the store can do its work in this file: nil, or why not.
// [dlq.ErrAtRisk] means that the file was opened with options under which a
// crash of the machine can lose letters. Nothing is written. A file without the
// bucket is in order: the first step makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk
// that acknowledges a flush it did not do, letters are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	if err := s.view(ctx, "check", func(*step) error { return nil }); err != nil {
		return err
	}
	switch {
	case s.db.IsReadOnly():
		return wrap("check", bbolterrors.ErrDatabaseReadOnly)
	case s.db.NoSync:
		return wrap("check", fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", dlq.ErrAtRisk))
	case s.db.NoGrowSync:
		return wrap("check", fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", dlq.ErrAtRisk))
	}
	return nil
}

// A step is the buckets within one transaction.
type step struct {
	top                              *bbolt.Bucket
	letters, bodies, originals, logs *bbolt.Bucket
	lanes, due, claimed              *bbolt.Bucket
	groups, totals                   *bbolt.Bucket
	entries, jobs, alarms            *bbolt.Bucket
	index, expiring                  *bbolt.Bucket

	now     int64
	changed bool // something has to be committed
}

// open opens the buckets, and makes them if the transaction is to write. It
// returns nil if there are none.
func (s *Store) open(tx *bbolt.Tx, write bool) (*step, error) {
	st := &step{now: now(), top: tx.Bucket(s.bucket)}
	if st.top != nil && !bytes.Equal(st.top.Get(layoutKey), layoutValue) {
		return nil, fmt.Errorf("bucket %q: %w", s.bucket, errLayout)
	}
	if st.top == nil {
		if !write {
			return nil, nil
		}
		if err := st.make(tx, s.bucket); err != nil {
			return nil, fmt.Errorf("bucket %q: %w", s.bucket, err)
		}
	}
	for name, b := range st.buckets {
		*b = st.top.Bucket([]byte(name))
	}
	// Their keys rise, so that full pages are not split in halves.
	for _, b := range []*bbolt.Bucket{st.letters, st.bodies, st.logs, st.entries} {
		b.FillPercent = 0.9
	}
	return st, nil
}

// buckets yields the names of the buckets and where a step keeps them.
func (st *step) buckets(yield func(name string, b **bbolt.Bucket) bool) {
	for _, b := range []struct {
		name string
		b    **bbolt.Bucket
	}{
		{"letters", &st.letters}, {"bodies", &st.bodies}, {"originals", &st.originals}, {"logs", &st.logs},
		{"lanes", &st.lanes}, {"due", &st.due}, {"claimed", &st.claimed},
		{"groups", &st.groups}, {"totals", &st.totals},
		{"entries", &st.entries}, {"jobs", &st.jobs}, {"alarms", &st.alarms},
		{"index", &st.index}, {"expiring", &st.expiring},
	} {
		if !yield(b.name, b.b) {
			return
		}
	}
}

func (st *step) make(tx *bbolt.Tx, name []byte) (err error) {
	if st.top, err = tx.CreateBucket(name); err != nil {
		return err
	}
	for name := range st.buckets {
		if _, err := st.top.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	st.changed = true
	return st.top.Put(layoutKey, layoutValue)
}

// write writes a row and notes that there is something to commit.
func (st *step) write(b *bbolt.Bucket, key, value []byte) error {
	st.changed = true
	return b.Put(key, value)
}

// erase removes a row, if there is one, and notes that there is something to commit.
func (st *step) erase(b *bbolt.Bucket, key []byte) error {
	st.changed = true
	return b.Delete(key)
}

// relist moves an empty row from one key to another. Nil is no place: it was not
// there, or is to be there no longer.
func (st *step) relist(b *bbolt.Bucket, from, to []byte) error {
	if bytes.Equal(from, to) {
		return nil
	}
	if from != nil {
		if err := st.erase(b, from); err != nil {
			return err
		}
	}
	if to != nil {
		return st.write(b, to, nil)
	}
	return nil
}

// seqKey is a number of a stream as a key.
func seqKey(stream string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(nameKey(stream, ""), seq)
}

// nameKey is a name of a stream as a key: that of a lane, of a job or a fingerprint.
// No stream has a NUL.
func nameKey(stream, name string) []byte {
	b := make([]byte, 0, len(stream)+1+len(name)+8)
	return append(append(append(b, stream...), 0), name...)
}

// What the index finds the numbers of letters and entries by.
const (
	byID          = 'i'
	byKey         = 'k'
	byState       = 's'
	byFingerprint = 'f'
	byJob         = 'j'
	byLane        = 'l' // unresolved letters only
	entryByID     = 'I'
	entryByJob    = 'J'
	entryByNonce  = 'N'
)

// indexPrefix is what the keys in the index begin with for a value. Values have no
// NUL, or are of one length.
func indexPrefix(stream string, by byte, value string) []byte {
	b := make([]byte, 0, len(stream)+2+len(value)+1+8)
	return append(append(append(append(append(b, stream...), 0), by), value...), 0)
}

// indexKey lists a number under a value.
func indexKey(stream string, by byte, value string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(indexPrefix(stream, by, value), seq)
}

// dueKey places a lane among those of its stream whose first letter waits. Of lanes
// that become due at once, the one with the older letter is the first.
func dueKey(stream string, at int64, first uint64) []byte {
	b := binary.BigEndian.AppendUint64(nameKey(stream, ""), uint64(at))
	return binary.BigEndian.AppendUint64(b, first)
}

// claimKey lists a lane under the nonce of the ask that claimed it.
func claimKey(nonce [16]byte, stream, lane string) []byte {
	return append(nonce[:], nameKey(stream, lane)...)
}

// What can expire.
const (
	letterExpires = 'l'
	entryExpires  = 'e'
	jobExpires    = 'j'
	alarmExpires  = 'a'
	laneExpires   = 'k'
)

// expiringKey lists a row by the time from which it may be forgotten. Zero: it may
// not, and the key is nil.
func expiringKey(at int64, what byte, key []byte) []byte {
	if at == 0 {
		return nil
	}
	b := make([]byte, 0, 8+1+len(key))
	return append(append(binary.BigEndian.AppendUint64(b, uint64(at)), what), key...)
}

// behind yields the numbers behind a number from keys that are a prefix and a number.
func behind(b *bbolt.Bucket, prefix []byte, after uint64) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if after == math.MaxUint64 {
			return // nothing is behind the last number
		}
		c := b.Cursor()
		for k, _ := c.Seek(binary.BigEndian.AppendUint64(bytes.Clone(prefix), after+1)); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			if !yield(binary.BigEndian.Uint64(k[len(prefix):])) {
				return
			}
		}
	}
}

// first is the first number under a prefix; zero if there is none.
func first(b *bbolt.Bucket, prefix []byte) uint64 {
	for seq := range behind(b, prefix, 0) {
		return seq
	}
	return 0
}

// last is the last number under a prefix; zero if there is none.
func last(b *bbolt.Bucket, prefix []byte) uint64 {
	c := b.Cursor()
	k, _ := c.Seek(binary.BigEndian.AppendUint64(bytes.Clone(prefix), math.MaxUint64))
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	if !bytes.HasPrefix(k, prefix) {
		return 0
	}
	return binary.BigEndian.Uint64(k[len(prefix):])
}
