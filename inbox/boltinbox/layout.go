package boltinbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/inbox"
)

// What the top bucket holds: see the package comment.
var (
	layoutKey       = []byte("layout")
	totalsKey       = []byte("totals")
	sweptRecordsKey = []byte("swept records")
	sweptKeysKey    = []byte("swept keys")

	idsName      = []byte("ids")
	messagesName = []byte("messages")
	externalName = []byte("externals")
	eventsName   = []byte("events")
	pendName     = []byte("pending")
	settName     = []byte("settled")
	keptName     = []byte("kept")
	outsideName  = []byte("outside")
	keysName     = []byte("keys")
	queueName    = []byte("queue")
	dueName      = []byte("due")
	claimName    = []byte("claimed")
)

// layoutValue names the kind of the bucket and the version of its layout.
var layoutValue = []byte("inbox 2")

// errLayout says that the bucket is not one this version can work with.
var errLayout = errors.New("the bucket was not made by this version of boltinbox")

// Migrate makes the top bucket, so that later failures are not those of a file
// that cannot be written. The first step would do the same. It refuses a bucket
// of another kind or of another version and leaves it alone. It may be repeated.
func (s *Store) Migrate(ctx context.Context) error {
	return s.update(ctx, "migrate", func(*step) error { return nil })
}

// Check says whether the store can do its work in this file: nil, or why not.
// [inbox.ErrAtRisk] means that the file was opened with options under which a
// crash of the machine can lose events. Nothing is written. A file without the
// bucket is in order: the first step makes it.
//
// Check cannot see what kind of disk the file is on: on a RAM disk, or a disk
// that acknowledges a flush it did not do, events are lost all the same.
func (s *Store) Check(ctx context.Context) error {
	if err := s.view(ctx, "check", func(*step) error { return nil }); err != nil {
		return err
	}
	switch {
	case s.db.IsReadOnly():
		return wrap("check", bbolterrors.ErrDatabaseReadOnly)
	case s.db.NoSync:
		return wrap("check", fmt.Errorf("%w: NoSync is set, so a commit is not on the disk when it is answered", inbox.ErrAtRisk))
	case s.db.NoGrowSync:
		return wrap("check", fmt.Errorf("%w: NoGrowSync is set, so on some file systems a crash can cut off the end of the file", inbox.ErrAtRisk))
	}
	return nil
}

// A step is the buckets within one transaction.
type step struct {
	top                                     *bbolt.Bucket
	ids, messages, externals                *bbolt.Bucket
	events, pending, settled, kept, outside *bbolt.Bucket
	keys, queue, due, claimed               *bbolt.Bucket

	now     int64
	counts  counts
	changed bool // something has to be committed
	counted bool // counts among it
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
	st.events.FillPercent, st.pending.FillPercent = 0.9, 0.9
	return st, st.counts.decode(st.top.Get(totalsKey))
}

// buckets yields the names of the buckets and where a step keeps them.
func (st *step) buckets(yield func(name string, b **bbolt.Bucket) bool) {
	for _, b := range []struct {
		name []byte
		b    **bbolt.Bucket
	}{
		{idsName, &st.ids}, {messagesName, &st.messages}, {externalName, &st.externals},
		{eventsName, &st.events}, {pendName, &st.pending}, {settName, &st.settled}, {keptName, &st.kept}, {outsideName, &st.outside},
		{keysName, &st.keys}, {queueName, &st.queue}, {dueName, &st.due}, {claimName, &st.claimed},
	} {
		if !yield(string(b.name), b.b) {
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

// close writes what the step has counted.
func (st *step) close() error {
	if !st.counted {
		return nil
	}
	return st.top.Put(totalsKey, st.counts.append(nil))
}

// count notes that a record came into a state, or left it.
func (st *step) count(s inbox.State, by int) {
	st.counts[s] += by
	st.counted, st.changed = true, true
}

// seqKey is a Seq as a key.
func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// foreignPrefix is what the keys under an ID of others begin with: no ID has a NUL.
func foreignPrefix(id string) []byte { return append([]byte(id), 0) }

// foreignKey lists a record under an ID of others.
func foreignKey(id string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(foreignPrefix(id), seq)
}

// outsideKey lists a record whose body is kept outside under its Erases.
func outsideKey(erases int64, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(erases)), seq)
}

// keyName is a key of a stream as a key.
func keyName(stream, key string) []byte {
	b := make([]byte, 0, len(stream)+1+len(key))
	return append(append(append(b, stream...), 0), key...)
}

// queuePrefix is what the keys of a key's queue begin with: no name has a NUL.
func queuePrefix(name []byte) []byte { return append(name[:len(name):len(name)], 0) }

// queueKey places a record in the queue of its key.
func queueKey(name []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(queuePrefix(name), seq)
}

// dueKey places a key among those of its stream that have pending records.
func dueKey(name []byte, at int64) []byte {
	i := bytes.IndexByte(name, 0) + 1
	b := make([]byte, 0, len(name)+8)
	b = binary.BigEndian.AppendUint64(append(b, name[:i]...), uint64(at))
	return append(b, name[i:]...)
}

// claimKey lists a key under the nonce of the ask that claimed it.
func claimKey(nonce [16]byte, name []byte) []byte {
	return append(append(make([]byte, 0, 16+len(name)), nonce[:]...), name...)
}
