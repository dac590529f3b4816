package boltorder

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/order"
)

// Store is an [order.Store] in a bbolt file. It is safe for concurrent use, and
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
	// Empty: "pawl/order".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and it never closes the file. It refuses a nil db and a bucket name that is
// too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltorder: new: %w: the database is nil", order.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltorder: new: %w: a bucket name of %d bytes; bbolt takes at most %d", order.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/order"))}, nil
}

// Push implements [order.Store]. A batch is one commit: when it fails, nothing
// was stored.
func (s *Store) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) (answers []order.Answer, err error) {
	err = s.update(ctx, "push", p.Scope, func(st *step) (err error) {
		answers, err = st.push(&p, arrivals)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Claim implements [order.Store]. A claim that finds nothing costs no commit.
func (s *Store) Claim(ctx context.Context, p order.Params, a order.Ask) (c order.Claimed, err error) {
	err = s.update(ctx, "claim", p.Scope, func(st *step) (err error) {
		c, err = st.claim(&p, &a)
		return err
	})
	if err != nil {
		return order.Claimed{}, err
	}
	return c, nil
}

// Settle implements [order.Store]. A batch is one commit, as in Push.
func (s *Store) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) (errs []error, err error) {
	err = s.update(ctx, "settle", p.Scope, func(st *step) (err error) {
		errs, err = st.settle(&p, settlements)
		return err
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// Account implements [order.Store].
func (s *Store) Account(ctx context.Context, scope, key string) (a order.Account, err error) {
	a.Key = key
	err = s.view(ctx, "account", scope, func(st *step) (err error) {
		a, err = st.account(key)
		return err
	})
	return a, err
}

// Find implements [order.Store].
func (s *Store) Find(ctx context.Context, p order.Params, places []order.Place) (found []order.Found, err error) {
	found = nothing(places)
	err = s.view(ctx, "find", p.Scope, func(st *step) (err error) {
		found, err = st.find(&p, places)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Gaps implements [order.Store].
func (s *Store) Gaps(ctx context.Context, scope string, q order.Query) (gaps []order.Gap, err error) {
	err = s.view(ctx, "gaps", scope, func(st *step) (err error) {
		gaps, err = st.listGaps(&q)
		return err
	})
	return gaps, err
}

// Parked implements [order.Store].
func (s *Store) Parked(ctx context.Context, scope string, q order.Query) (messages []order.Message, err error) {
	err = s.view(ctx, "parked", scope, func(st *step) (err error) {
		messages, err = st.listParked(&q)
		return err
	})
	return messages, err
}

// Totals implements [order.Store]. The counts are stored, and read as they are.
func (s *Store) Totals(ctx context.Context, scope string) (t order.Totals, err error) {
	err = s.view(ctx, "totals", scope, func(st *step) (err error) {
		t, err = st.total()
		return err
	})
	return t, err
}

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well. bbolt shows a commit to
// readers before it is on the disk, and who hears Duplicate acknowledges the
// delivery: the message must not be lost to a power cut after that.
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
	if err := do(st); err != nil {
		return false, err
	}
	return st.changed, st.close()
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltorder: %s: %w", op, err)
}

// now is the store's clock: the wall clock of this process, in microseconds. It
// is read once per step, within its transaction. Zero means never in the records, so
// a clock that stands before 1970 reads 1.
func now() int64 { return max(time.Now().UnixMicro(), 1) }

// micros is a span of time as a duration. It is never negative, also when the clock was
// set back.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
