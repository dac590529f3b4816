package boltreconcile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

// Store is a [reconcile.Store] in a bbolt file, and the way to the other stores in the
// same bucket: [Store.Timeline]. It is safe for concurrent use, and several stores,
// also of one bucket, may share a file.
type Store struct {
	db     *bbolt.DB
	bucket []byte
}

// Options say how a [Store] uses the file. Nil means the defaults.
type Options struct {
	// Bucket is the top bucket that holds everything the store writes. Stores of
	// one file with different buckets know nothing of each other.
	// Empty: "pawl/reconcile".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and it never closes the file. It refuses a nil db and a bucket name that is
// too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltreconcile: new: %w: the database is nil", reconcile.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltreconcile: new: %w: a bucket name of %d bytes; bbolt takes at most %d", reconcile.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/reconcile"))}, nil
}

// Begin implements [reconcile.Store]. A batch is one commit: when it fails, nothing was
// recorded. One that changes nothing costs no commit.
func (s *Store) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	return run(ctx, s.update, "begin", func(st *step) ([]reconcile.Answer, error) { return st.begin(p, asks) })
}

// Claim implements [reconcile.Store]. A claim that finds nothing costs no commit. It
// looks at what it takes, and at what is looked at just now.
func (s *Store) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	c, err := run(ctx, s.update, "claim", func(st *step) (claimed, error) { return st.claim(p, &a) })
	return c.entries, c.next, err
}

// Settle implements [reconcile.Store]. A batch is one commit, as in Begin.
func (s *Store) Settle(ctx context.Context, p reconcile.Params, settlements []reconcile.Settlement) ([]error, error) {
	return run(ctx, s.update, "settle", func(st *step) ([]error, error) { return st.settle(p, settlements) })
}

// List implements [reconcile.Store]. It takes no lock that a writer waits for.
//
// Operations are found by key, among those in review, among the open ones, among the
// failed ones and by account, whichever comes first in this order and is asked for, and
// what else is asked for is looked for among those; nothing of these, or Confirmed alone,
// looks at all.
func (s *Store) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	return run(ctx, s.view, "list", func(st *step) ([]reconcile.Entry, error) { return st.list(&q) })
}

// Counts implements [reconcile.Store]. The counts are stored, and read as they are: what
// has expired is counted until Sweep removes it.
func (s *Store) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	return run(ctx, s.view, "counts", func(st *step) ([]reconcile.Counts, error) { return st.listCounts(kind, after, first, n) })
}

// A transaction runs one step in a transaction: one of its own, or the caller's.
type transaction = func(ctx context.Context, op string, do func(*step) error) error

// run runs one step in a transaction, and returns nothing of it when it has failed.
func run[T any](ctx context.Context, in transaction, op string, do func(*step) (T, error)) (answer T, err error) {
	err = in(ctx, op, func(st *step) (err error) {
		answer, err = do(st)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return answer, nil
}

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well. bbolt shows a commit to
// readers before it is on the disk, and who hears that an operation is Confirmed, or
// that an observation is known, lets go of it: it must not be lost to a power cut after
// that.
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
	err = do(st)
	return st.changed, err
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltreconcile: %s: %w", op, err)
}

// now is the store's clock: the wall clock of this process, in microseconds. It
// is read once per step, within its transaction.
func now() int64 { return time.Now().UnixMicro() }

// micros is a span as a duration. It is never negative, also when the clock was
// set back.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

// moment is a stored time; zero is none.
func moment(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at)
}
