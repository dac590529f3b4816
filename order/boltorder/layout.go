package boltorder

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// What the top bucket holds: see the package comment.
var (
	layoutKey  = []byte("layout")
	scopeName  = []byte("scope:")
	totalsKey  = []byte("totals")
	sweptKey   = []byte("swept messages")
	sweptGaps  = []byte("swept gaps")
	keysName   = []byte("keys")
	epochsName = []byte("epochs")
	msgsName   = []byte("messages")
	rangesName = []byte("ranges")
	gapsName   = []byte("gaps")
	parkName   = []byte("parked")
	lateName   = []byte("late")
	idsName    = []byte("ids")
	endsName   = []byte("ends")
	headsName  = []byte("heads")
	dueName    = []byte("due")
	claimName  = []byte("claimed")
)

// layoutValue names the kind of the bucket and the version of its layout.
var layoutValue = []byte("order 1")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltorder, nor by an earlier one")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first step would do the same. It refuses a bucket
// of another kind or of a later version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", "", func(*step) error { return nil })
}

// Check says whether the store can do its work in this file: nil, or why not.
// [order.ErrAtRisk] means that the file was opened with options under which a
// crash of the machine can lose messages. Nothing is written. A file without the
// bucket is in order: the first step makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk
// that acknowledges a flush it did not do, messages are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	if err := s.view(ctx, "check", "", func(*step) error { return nil }); err != nil {
		return err
	}
	switch {
	case s.db.IsReadOnly():
		return wrap("check", bbolterrors.ErrDatabaseReadOnly)
	case s.db.NoSync:
		return wrap("check", fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", order.ErrAtRisk))
	case s.db.NoGrowSync:
		return wrap("check", fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", order.ErrAtRisk))
	}
	return nil
}

// A step is the buckets of a scope within one transaction, and the keys it has
// read.
type step struct {
	top                                          *bbolt.Bucket // of the scope
	keys, epochs, messages, ranges, gaps, parked *bbolt.Bucket
	late, ids, ends, heads, due, claimed         *bbolt.Bucket

	now     int64
	totals  totals
	counted bool // totals have changed
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
	for name, b := range st.buckets {
		if *b = st.top.Bucket([]byte(name)); *b == nil {
			return nil, fmt.Errorf("bucket %q of %q: %w", name, s.bucket, errLayout)
		}
	}
	var err error
	st.totals, err = decodeTotals(st.top.Get(totalsKey))
	return st, err
}

// buckets yields the names of the buckets and where a step keeps them.
func (st *step) buckets(yield func(name string, b **bbolt.Bucket) bool) {
	for _, b := range []struct {
		name []byte
		b    **bbolt.Bucket
	}{
		{keysName, &st.keys}, {epochsName, &st.epochs}, {msgsName, &st.messages}, {rangesName, &st.ranges}, {gapsName, &st.gaps},
		{parkName, &st.parked}, {lateName, &st.late}, {idsName, &st.ids}, {endsName, &st.ends}, {headsName, &st.heads},
		{dueName, &st.due}, {claimName, &st.claimed},
	} {
		if !yield(string(b.name), b.b) {
			return
		}
	}
}

func (st *step) make(top *bbolt.Bucket, name []byte) (err error) {
	if st.top, err = top.CreateBucket(name); err != nil {
		return err
	}
	for name := range st.buckets {
		if _, err := st.top.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	st.changed = true
	return nil
}

// close writes what the step has counted.
func (st *step) close() error {
	if !st.counted {
		return nil
	}
	st.changed = true
	return st.top.Put(totalsKey, st.totals.append(nil))
}

// count changes one of the totals.
func (st *step) count(n *uint64, by int) {
	if by != 0 {
		*n += uint64(by) // also when it is negative
		st.counted, st.changed = true, true
	}
}

func (st *step) put(b *bbolt.Bucket, key, value []byte) error {
	st.changed = true
	return b.Put(key, value)
}

func (st *step) delete(b *bbolt.Bucket, key []byte) error {
	st.changed = true
	return b.Delete(key)
}

// epochKey places an epoch of a key. No key has a NUL, so none is the beginning
// of another one's.
func epochKey(key string, epoch uint64) []byte {
	b := make([]byte, 0, len(key)+1+16)
	return binary.BigEndian.AppendUint64(append(append(b, key...), 0), epoch)
}

// placeKey places a number of an epoch.
func placeKey(epoch []byte, number uint64) []byte {
	b := make([]byte, 0, len(epoch)+8)
	return binary.BigEndian.AppendUint64(append(b, epoch...), number)
}

// splitPlace is the reverse of placeKey after epochKey.
func splitPlace(b []byte) (key string, epoch, number uint64) {
	n := len(b) - 17
	return string(b[:n]), binary.BigEndian.Uint64(b[n+1:]), binary.BigEndian.Uint64(b[n+9:])
}

// numberIn says which number of an epoch a place is.
func numberIn(epoch, place []byte) (number uint64, ok bool) {
	if len(place) != len(epoch)+8 || !bytes.HasPrefix(place, epoch) {
		return 0, false
	}
	return binary.BigEndian.Uint64(place[len(epoch):]), true
}

// timeKey places a key at a time.
func timeKey(at int64, key string) []byte {
	b := make([]byte, 0, 8+len(key))
	return append(binary.BigEndian.AppendUint64(b, uint64(at)), key...)
}

// lateKey lists a late message under the time at which it can be handed over.
func lateKey(key string, due int64, place []byte) []byte {
	b := make([]byte, 0, len(key)+1+24)
	b = binary.BigEndian.AppendUint64(append(append(b, key...), 0), uint64(due))
	return append(b, place[len(key)+1:]...)
}

// splitLate is the reverse of lateKey; prefix is the key and NUL.
func splitLate(prefix, b []byte) (due int64, place []byte, err error) {
	if len(b) != len(prefix)+24 {
		return 0, nil, boltrow.ErrRecord
	}
	due = int64(binary.BigEndian.Uint64(b[len(prefix):]))
	return due, append(bytes.Clone(prefix), b[len(prefix)+8:]...), nil
}

// claimKey lists a key under the nonce of the ask that claimed it.
func claimKey(nonce [16]byte, key string) []byte {
	return append(append(make([]byte, 0, 16+len(key)), nonce[:]...), key...)
}
