package boltreconcile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/reconcile"
)

// layoutKey and layoutValue name the kind of the top bucket and the version of its
// layout, which the package comment describes.
var layoutKey, layoutValue = []byte("layout"), []byte("reconcile 1")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltreconcile")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first step would do the same. It refuses a bucket
// of another kind or of another version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", func(*step) error { return nil })
}

// Check says whether the store can do its work in this file: nil, or why not.
// [reconcile.ErrAtRisk] means that the file was opened with options under which a crash of the
// machine can lose operations that were sent. Nothing is written. A file without the
// bucket is in order: the first step makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk that
// acknowledges a flush it did not do, records are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	if err := s.view(ctx, "check", func(*step) error { return nil }); err != nil {
		return err
	}
	switch {
	case s.db.IsReadOnly():
		return wrap("check", bbolterrors.ErrDatabaseReadOnly)
	case s.db.NoSync:
		return wrap("check", fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", reconcile.ErrAtRisk))
	case s.db.NoGrowSync:
		return wrap("check", fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", reconcile.ErrAtRisk))
	}
	return nil
}

// A step is the buckets within one transaction.
type step struct {
	top                                  *bbolt.Bucket
	operations, payloads, results, logs  *bbolt.Bucket
	due, claims, index, ages, totals     *bbolt.Bucket
	subjects, observations, events, owns *bbolt.Bucket
	findings, changes, checks            *bbolt.Bucket
	looks, opened, cells                 *bbolt.Bucket
	expiring                             *bbolt.Bucket

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
	return st, nil
}

// buckets yields the names of the buckets and where a step keeps them.
func (st *step) buckets(yield func(name string, b **bbolt.Bucket) bool) {
	for _, b := range []struct {
		name string
		b    **bbolt.Bucket
	}{
		{"operations", &st.operations}, {"payloads", &st.payloads}, {"results", &st.results}, {"logs", &st.logs},
		{"due", &st.due}, {"claims", &st.claims}, {"index", &st.index}, {"ages", &st.ages}, {"totals", &st.totals},
		{"subjects", &st.subjects}, {"observations", &st.observations}, {"events", &st.events}, {"owns", &st.owns},
		{"findings", &st.findings}, {"changes", &st.changes}, {"checks", &st.checks}, {"looks", &st.looks}, {"opened", &st.opened},
		{"cells", &st.cells},
		{"expiring", &st.expiring},
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

// raise makes the number of a bucket, above which those of new things begin, at least n.
func (st *step) raise(b *bbolt.Bucket, n uint64) error {
	if b.Sequence() >= n {
		return nil
	}
	st.changed = true
	return b.SetSequence(n)
}

// relist moves a row from one key to another, with what it says there. A nil key is no
// place: it was not there, or is to be there no longer.
func (st *step) relist(b *bbolt.Bucket, from, to row) error {
	if bytes.Equal(from.key, to.key) && bytes.Equal(from.value, to.value) {
		return nil
	}
	if from.key != nil && !bytes.Equal(from.key, to.key) {
		if err := st.erase(b, from.key); err != nil {
			return err
		}
	}
	if to.key != nil {
		return st.write(b, to.key, to.value)
	}
	return nil
}

// A row is where something is listed; most say nothing more than that.
type row struct{ key, value []byte }

// nameKey is a name of a kind as a key. No kind has a NUL.
func nameKey(kind string, names ...string) []byte {
	n := len(kind) + 1
	for _, name := range names {
		n += len(name) + 1
	}
	b := append(append(make([]byte, 0, n+16), kind...), 0)
	for i, name := range names {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, name...)
	}
	return b
}

// Lists of operations and findings in the index, in the order of their keys.
const (
	byAccount = "a" // all of an account
	openOnes  = "o"
	failed    = "f"
	inReview  = "r"

	unresolved = "u" // findings
)

// dueKey places an operation among those of its kind that may be claimed.
func dueKey(kind string, at int64, key string) []byte {
	return append(binary.BigEndian.AppendUint64(nameKey(kind), uint64(at)), key...)
}

// timeKey places something by time among those of the same name: an open operation among
// those of its account, a finding among those of its check.
func timeKey(kind, name string, at int64, key string) []byte {
	return append(binary.BigEndian.AppendUint64(nameKey(kind, name, ""), uint64(at)), key...)
}

// claimKey lists an operation under the nonce of the claim that granted it.
func claimKey(nonce [16]byte, kind, key string) []byte {
	return append(nonce[:], nameKey(kind, key)...)
}

// What can expire.
const (
	operationExpires = 'o'
	subjectExpires   = 's'
	findingExpires   = 'f'
	cellExpires      = 'c'
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

// behind yields the rows whose keys begin with a prefix and are greater than from, if that
// is not nil: what follows the prefix, and the values.
func behind(b *bbolt.Bucket, prefix, from []byte) func(yield func(rest, value []byte) bool) {
	return func(yield func(rest, value []byte) bool) {
		c := b.Cursor()
		k, v := c.Seek(prefix)
		if bytes.Compare(prefix, from) <= 0 {
			if k, v = c.Seek(from); bytes.Equal(k, from) {
				k, v = c.Next()
			}
		}
		for ; k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if !yield(k[len(prefix):], v) {
				return
			}
		}
	}
}
