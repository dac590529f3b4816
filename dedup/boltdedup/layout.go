package boltdedup

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dedup"
)

// What the top bucket holds.
var (
	layoutKey    = []byte("layout")  // the value is layoutValue
	sweptKey     = []byte("swept")   // where the next Sweep goes on: see place
	openPrefix   = []byte("open:")   // and a scope: a bucket of its open records by ID
	closedPrefix = []byte("closed:") // and a scope: a bucket of its other records by ID
)

// layoutValue names the kind of the bucket and the version of its layout.
var layoutValue = []byte("dedup 1")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltdedup, nor by an earlier one")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first claim would do the same. It refuses a bucket
// of another kind or of a later version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", func(tx *bbolt.Tx) (bool, error) {
		existed := tx.Bucket(s.bucket) != nil
		_, err := s.makeTop(tx)
		return !existed, err
	})
}

// Check says whether the store can do its work in this file: nil, or why not.
// [dedup.ErrAtRisk] means that the file was opened with options under which a
// crash of the machine can lose claims. Nothing is written. A file without the
// bucket is in order: the first claim makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk
// that acknowledges a flush it did not do, claims are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	return s.view(ctx, "check", func(tx *bbolt.Tx) error {
		if _, err := s.top(tx); err != nil {
			return err
		}
		switch {
		case s.db.IsReadOnly():
			return bbolterrors.ErrDatabaseReadOnly
		case s.db.NoSync:
			return fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", dedup.ErrAtRisk)
		case s.db.NoGrowSync:
			return fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", dedup.ErrAtRisk)
		}
		return nil
	})
}

// top returns the top bucket, or nil if there is none yet.
func (s *Store) top(tx *bbolt.Tx) (*bbolt.Bucket, error) {
	top := tx.Bucket(s.bucket)
	if top != nil && !bytes.Equal(top.Get(layoutKey), layoutValue) {
		return nil, fmt.Errorf("bucket %q: %w", s.bucket, errLayout)
	}
	return top, nil
}

func (s *Store) makeTop(tx *bbolt.Tx) (*bbolt.Bucket, error) {
	top, err := s.top(tx)
	if top != nil || err != nil {
		return top, err
	}
	if top, err = tx.CreateBucket(s.bucket); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", s.bucket, err)
	}
	return top, top.Put(layoutKey, layoutValue)
}

// A scope is the records of one scope within a transaction.
//
// Those that are claimed or held are kept apart from those that are done or
// released. There are few of them at a time, so their pages are few: claiming a
// random ID does not rewrite a page among all those that are remembered, only
// its completion does. And Held finds what it lists without an index.
type scope struct {
	name         string
	top          *bbolt.Bucket
	open, closed *bbolt.Bucket // nil: the scope has no record yet
}

// scope opens a scope. It makes nothing.
func (s *Store) scope(tx *bbolt.Tx, name string) (scope, error) {
	sc := scope{name: name}
	var err error
	if sc.top, err = s.top(tx); sc.top != nil {
		sc.open = sc.top.Bucket(join(openPrefix, name))
		sc.closed = sc.top.Bucket(join(closedPrefix, name))
	}
	return sc, err
}

// makeScope opens a scope and makes what is missing.
func (s *Store) makeScope(tx *bbolt.Tx, name string) (scope, error) {
	if _, err := s.makeTop(tx); err != nil {
		return scope{}, err
	}
	sc, err := s.scope(tx, name)
	if err == nil && sc.open == nil {
		sc.open, err = sc.top.CreateBucket(join(openPrefix, name))
	}
	if err == nil && sc.closed == nil {
		sc.closed, err = sc.top.CreateBucket(join(closedPrefix, name))
	}
	return sc, err
}

// read returns the record of id, valid until the next write and the end of the
// transaction. If there is none, the record is absent and has the highest token
// that was ever erased, which the next owner's exceeds.
func (sc *scope) read(id []byte) (record, error) {
	b := sc.open.Get(id)
	if b == nil {
		b = sc.closed.Get(id)
	}
	if b == nil {
		return record{token: max(sc.open.Sequence(), sc.closed.Sequence())}, nil
	}
	return decode(b)
}

// write replaces the record of id.
func (sc *scope) write(id []byte, before, after *record) error {
	from, to := sc.home(before), sc.home(after)
	if from != to && before.state != absent {
		if err := from.Delete(id); err != nil {
			return err
		}
	}
	return to.Put(id, after.append(nil))
}

// home is the bucket where r belongs.
func (sc *scope) home(r *record) *bbolt.Bucket {
	if r.open() {
		return sc.open
	}
	return sc.closed
}

// erase takes the record of id out of a bucket of a scope. The bucket's sequence
// remembers the token: should the clock be set back, or stand still, the token of
// the next owner is higher all the same.
func erase(b *bbolt.Bucket, id []byte, token uint64) error {
	if token > b.Sequence() {
		if err := b.SetSequence(token); err != nil {
			return err
		}
	}
	return b.Delete(id)
}

// join is the key of a scope's bucket.
func join(prefix []byte, scope string) []byte {
	return append(prefix[:len(prefix):len(prefix)], scope...)
}
