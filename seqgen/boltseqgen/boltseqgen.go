package boltseqgen

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/seqgen"
)

// Store is a [seqgen.Store] in a bbolt file. It is safe for concurrent use, and
// several stores, also of one bucket, may share a file.
type Store struct {
	db     *bbolt.DB
	bucket []byte
	sweeps atomic.Int64
}

// Options say how a [Store] uses the file. Nil means the defaults.
type Options struct {
	// Bucket is the top bucket that holds everything the store writes. Stores of
	// one file with different buckets know nothing of each other.
	// Empty: "pawl/seqgen".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and it never closes the file. It refuses a nil db and a bucket name that is
// too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltseqgen: new: %w: the database is nil", seqgen.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltseqgen: new: %w: a bucket name of %d bytes; bbolt takes at most %d", seqgen.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/seqgen"))}, nil
}

// Reserve implements [seqgen.Store]. A batch is one commit: when it fails, nothing
// was reserved. A key whose record cannot be read is an error of its own grant.
func (s *Store) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) (grants []seqgen.Grant, err error) {
	err = s.update(ctx, "reserve", p.Scope, func(st *step) (err error) {
		grants, err = st.reserve(p, asks)
		return err
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Settle implements [seqgen.Store]. A batch is one commit, as in Reserve.
func (s *Store) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) (outcomes []seqgen.Outcome, err error) {
	err = s.update(ctx, "settle", p.Scope, func(st *step) (err error) {
		outcomes, err = st.settle(p, changes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Look implements [seqgen.Store].
func (s *Store) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	states := unknown(keys)
	err := s.view(ctx, "look", scope, func(st *step) error {
		st.look(states)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// Voids implements [seqgen.Store].
func (s *Store) Voids(ctx context.Context, q seqgen.VoidQuery) (page []seqgen.Void, err error) {
	err = s.view(ctx, "voids", q.Scope, func(st *step) (err error) {
		page, err = st.list(&q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well: bbolt shows a commit to
// readers before it is on the disk, and a number that is answered again must not
// be lost to a power cut after that.
func (s *Store) update(ctx context.Context, op, scope string, do func(*step) error) error {
	if err := ctx.Err(); err != nil {
		return wrap(op, err)
	}
	tx, err := s.db.Begin(true)
	if err != nil {
		return wrap(op, err)
	}
	defer tx.Rollback() // after the commit it does nothing
	if err := ctx.Err(); err != nil {
		return wrap(op, err) // it ended while another transaction had the lock
	}
	changed, err := s.within(tx, scope, true, do)
	if err == nil && changed {
		err = tx.Commit()
	}
	return wrap(op, err)
}

func (s *Store) view(ctx context.Context, op, scope string, do func(*step) error) error {
	if err := ctx.Err(); err != nil {
		return wrap(op, err)
	}
	return wrap(op, s.db.View(func(tx *bbolt.Tx) error {
		_, err := s.within(tx, scope, false, do)
		return err
	}))
}

// within runs a step in a transaction, whosever it is.
func (s *Store) within(tx *bbolt.Tx, scope string, write bool, do func(*step) error) (changed bool, err error) {
	st, err := s.open(tx, scope, write)
	if err != nil || st == nil {
		return false, err // or there is nothing to read yet
	}
	err = do(st)
	return st.changed, err
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltseqgen: %s: %w", op, err)
}

// now is the store's clock: the wall clock of this process, in microseconds. It
// is read once per step, within its transaction.
func now() int64 { return time.Now().UnixMicro() }
