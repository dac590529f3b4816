package boltinbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
)

// Store is an [inbox.Store] in a bbolt file. It is safe for concurrent use, and
// several stores, also of one bucket, may share a file.
type Store struct {
	db     *bbolt.DB
	bucket []byte
}

// Options say how a [Store] uses the file. Nil means the defaults.
type Options struct {
	// Bucket is the top bucket that holds everything the store writes. Stores of
	// one file with different buckets know nothing of each other.
	// Empty: "pawl/inbox".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and it never closes the file. It refuses a nil db and a bucket name that is
// too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltinbox: new: %w: the database is nil", inbox.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltinbox: new: %w: a bucket name of %d bytes; bbolt takes at most %d", inbox.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/inbox"))}, nil
}

// Accept implements [inbox.Store]. A batch is one commit: when it fails, nothing
// was stored. A batch of duplicates costs no commit.
func (s *Store) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) (answers []inbox.Answer, err error) {
	err = s.update(ctx, "accept", func(st *step) (err error) {
		answers, err = st.accept(p, arrivals)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Claim implements [inbox.Store]. A claim that finds nothing costs no commit.
func (s *Store) Claim(ctx context.Context, a inbox.Ask) (c inbox.Claimed, err error) {
	err = s.update(ctx, "claim", func(st *step) (err error) {
		c, err = st.claim(&a)
		return err
	})
	if err != nil {
		return inbox.Claimed{}, err
	}
	return c, nil
}

// Settle implements [inbox.Store]. A batch is one commit, as in Accept.
func (s *Store) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) (errs []error, err error) {
	err = s.update(ctx, "settle", func(st *step) (err error) {
		errs, err = st.settle(p, settlements)
		return err
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// List implements [inbox.Store]. It reads no more records than it returns,
// except for those that are done, which it looks for among all that have ended.
func (s *Store) List(ctx context.Context, q inbox.Query) (records []inbox.Record, err error) {
	err = s.view(ctx, "list", func(st *step) (err error) {
		records, err = st.list(&q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Totals implements [inbox.Store]. The counts are stored, and read as they are.
func (s *Store) Totals(ctx context.Context) (t inbox.Totals, err error) {
	err = s.view(ctx, "totals", func(st *step) (err error) {
		t, err = st.totals()
		return err
	})
	if err != nil {
		return inbox.Totals{}, err
	}
	return t, nil
}

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well. bbolt shows a commit to
// readers before it is on the disk, and who hears Duplicate acknowledges the
// delivery: the record must not be lost to a power cut after that.
func (s *Store) update(ctx context.Context, op string, do func(*step) error) error {
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
	changed, err := s.within(tx, true, do)
	if err == nil && changed {
		err = tx.Commit()
	}
	return wrap(op, err)
}

func (s *Store) view(ctx context.Context, op string, do func(*step) error) error {
	if err := ctx.Err(); err != nil {
		return wrap(op, err)
	}
	return wrap(op, s.db.View(func(tx *bbolt.Tx) error {
		_, err := s.within(tx, false, do)
		return err
	}))
}

// within runs a step in a transaction, whosever it is.
func (s *Store) within(tx *bbolt.Tx, write bool, do func(*step) error) (changed bool, err error) {
	st, err := s.open(tx, write)
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
	return fmt.Errorf("boltinbox: %s: %w", op, err)
}

// now is the store's clock: the wall clock of this process, in microseconds. It
// is read once per step, within its transaction.
func now() int64 { return time.Now().UnixMicro() }

// micros is a span as a duration. It is never negative, also when the clock was
// set back.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
