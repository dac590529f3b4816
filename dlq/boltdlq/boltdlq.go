package boltdlq

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// Store is a [dlq.Store] in a bbolt file. It is safe for concurrent use, and
// several stores, also of one bucket, may share a file.
type Store struct {
	db     *bbolt.DB
	bucket []byte
}

// Options say how a [Store] uses the file. Nil means the defaults.
type Options struct {
	// Bucket is the top bucket that holds everything the store writes. Stores of
	// one file with different buckets know nothing of each other.
	// Empty: "pawl/dlq".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and it never closes the file. It refuses a nil db and a bucket name that is
// too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltdlq: new: %w: the database is nil", dlq.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltdlq: new: %w: a bucket name of %d bytes; bbolt takes at most %d", dlq.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/dlq"))}, nil
}

// Put implements [dlq.Store]. A batch is one commit: when it fails, nothing was
// stored.
func (s *Store) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	return run(ctx, s.update, "put", func(st *step) ([]dlq.Answer, error) { return st.put(p, letters) })
}

// Claim implements [dlq.Store]. A claim that finds nothing costs no commit.
func (s *Store) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	return run(ctx, s.update, "claim", func(st *step) (dlq.Claimed, error) { return st.claim(&a) })
}

// Settle implements [dlq.Store]. A batch is one commit, as in Put.
func (s *Store) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	return run(ctx, s.update, "settle", func(st *step) ([]error, error) { return st.settle(p, settlements) })
}

// Change implements [dlq.Store]. A batch and its entries are one commit.
func (s *Store) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	return run(ctx, s.update, "change", func(st *step) ([]error, error) { return st.change(p, changes) })
}

// SaveJob implements [dlq.Store].
func (s *Store) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	return saved(run(ctx, s.update, "save a job", func(st *step) (savedJob, error) { return st.saveJob(p, &j) }))
}

// Alert implements [dlq.Store]. A batch is one commit, and one in which no alarm is
// the first costs none.
func (s *Store) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	return run(ctx, s.update, "alert", func(st *step) ([]bool, error) { return st.alert(alarms) })
}

// List implements [dlq.Store]. It looks at no more than 10,000 letters, and ends a
// page with the letter that brings its bodies and logs to 8 MiB.
//
// Letters are found by ID, by redrive job, by fingerprint, by key and by state,
// whichever comes first in this order and is asked for, and what else is asked for
// is looked for among those.
func (s *Store) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	return run(ctx, s.view, "list", func(st *step) (dlq.Page, error) { return st.list(&q) })
}

// Groups implements [dlq.Store]. The counts are stored, and read as they are.
func (s *Store) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	return run(ctx, s.view, "groups", func(st *step) ([]dlq.Group, error) { return st.listGroups(stream, after, n) })
}

// Audit implements [dlq.Store]. It looks at no more than 10,000 entries.
func (s *Store) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	p, err := run(ctx, s.view, "audit", func(st *step) (entryPage, error) { return st.audit(&q) })
	return p.entries, p.next, err
}

// Jobs implements [dlq.Store].
func (s *Store) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	return run(ctx, s.view, "jobs", func(st *step) ([]dlq.Job, error) { return st.listJobs(stream, after, n) })
}

// Totals implements [dlq.Store]. The counts are stored, and read as they are.
func (s *Store) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	return run(ctx, s.view, "totals", func(st *step) ([]dlq.Totals, error) { return st.listTotals(after, n) })
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

// A savedJob is the answer to a SaveJob: a refusal is no failure of the step.
type savedJob struct {
	job     dlq.Job
	refused error
}

func saved(j savedJob, err error) (dlq.Job, error) { return j.job, cmp.Or(err, j.refused) }

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well. bbolt shows a commit to
// readers before it is on the disk, and who hears Added or Duplicate lets go of the
// message: the letter must not be lost to a power cut after that.
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
	return fmt.Errorf("boltdlq: %s: %w", op, err)
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
