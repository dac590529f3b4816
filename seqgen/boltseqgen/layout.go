package boltseqgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/seqgen"
)

// What the top bucket holds: see the package comment.
var (
	layoutKey = []byte("layout")
	sweptKey  = []byte("swept")
	scopeName = []byte("scope:")
	keysName  = []byte("keys")
	voidsName = []byte("voids")
)

// layoutValue names the kind of the bucket and the version of its layout.
var layoutValue = []byte("seqgen 1")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltseqgen, nor by an earlier one")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first step would do the same. It refuses a bucket
// of another kind or of a later version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", "", func(*step) error { return nil })
}

// Check says whether the store can do its work in this file: nil, or why not.
// [seqgen.ErrAtRisk] means that the file was opened with options under which a
// crash of the machine can lose numbers, which are then assigned again. Nothing is
// written. A file without the bucket is in order: the first step makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk
// that acknowledges a flush it did not do, numbers are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	if err := s.view(ctx, "check", "", func(*step) error { return nil }); err != nil {
		return err
	}
	switch {
	case s.db.IsReadOnly():
		return wrap("check", bbolterrors.ErrDatabaseReadOnly)
	case s.db.NoSync:
		return wrap("check", fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", seqgen.ErrAtRisk))
	case s.db.NoGrowSync:
		return wrap("check", fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", seqgen.ErrAtRisk))
	}
	return nil
}

// A step is the buckets of a scope within one transaction.
type step struct {
	top         *bbolt.Bucket // of the scope
	keys, voids *bbolt.Bucket

	now     int64
	changed bool // something has to be committed
}

// open opens the buckets of a scope, and makes them if the transaction is to
// write. An empty scope opens the top bucket alone. It returns nil if there are
// none.
func (s *Store) open(tx *bbolt.Tx, scope string, write bool) (*step, error) {
	st := &step{now: now()}
	top := tx.Bucket(s.bucket)
	if top != nil && !bytes.Equal(top.Get(layoutKey), layoutValue) {
		return nil, fmt.Errorf("bucket %q: %w", s.bucket, errLayout)
	}
	if top == nil {
		if !write {
			return nil, nil
		}
		var err error
		if top, err = tx.CreateBucket(s.bucket); err == nil {
			err = top.Put(layoutKey, layoutValue)
		}
		if err != nil {
			return nil, fmt.Errorf("bucket %q: %w", s.bucket, err)
		}
		st.changed = true
	}
	if scope == "" {
		return st, nil
	}
	name := append(bytes.Clone(scopeName), scope...)
	if st.top = top.Bucket(name); st.top == nil {
		if !write {
			return nil, nil
		}
		if err := st.make(top, name); err != nil {
			return nil, fmt.Errorf("bucket %q: %w", s.bucket, err)
		}
	}
	st.keys, st.voids = st.top.Bucket(keysName), st.top.Bucket(voidsName)
	if st.keys == nil || st.voids == nil {
		return nil, fmt.Errorf("bucket %q of %q: %w", name, s.bucket, errLayout)
	}
	return st, nil
}

func (st *step) make(top *bbolt.Bucket, name []byte) (err error) {
	if st.top, err = top.CreateBucket(name); err != nil {
		return err
	}
	for _, name := range [][]byte{keysName, voidsName} {
		if _, err := st.top.CreateBucket(name); err != nil {
			return err
		}
	}
	st.changed = true
	return nil
}

func (st *step) put(b *bbolt.Bucket, key, value []byte) error {
	st.changed = true
	return b.Put(key, value)
}

func (st *step) delete(b *bbolt.Bucket, key []byte) error {
	st.changed = true
	return b.Delete(key)
}

// epochKey places the voids of an epoch. No key has a NUL, so none is the
// beginning of another one's.
func epochKey(key string, epoch uint64) []byte {
	b := make([]byte, 0, len(key)+1+16)
	return binary.BigEndian.AppendUint64(append(append(b, key...), 0), epoch)
}

// voidKey places a void in its epoch.
func voidKey(epoch []byte, lo uint64) []byte {
	return binary.BigEndian.AppendUint64(epoch[:len(epoch):len(epoch)], lo)
}

// numberIn says which number of an epoch a place is.
func numberIn(epoch, place []byte) (number uint64, ok bool) {
	if len(place) != len(epoch)+8 || !bytes.HasPrefix(place, epoch) {
		return 0, false
	}
	return binary.BigEndian.Uint64(place[len(epoch):]), true
}
