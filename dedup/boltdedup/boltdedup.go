package boltdedup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
)

// Store is a [dedup.Store] in a bbolt file. It is safe for concurrent use, and
// several stores, also of one bucket, may share a file.
type Store struct {
	db     *bbolt.DB
	bucket []byte
}

// Options say how a [Store] uses the file. Nil means the defaults.
type Options struct {
	// Bucket is the top bucket that holds everything the store writes. Stores of
	// one file with different buckets know nothing of each other.
	// Empty: "pawl/dedup".
	Bucket string
}

// New returns a store in the caller's open file. It reads and writes nothing,
// and no method closes the file. Nil options mean the defaults. The error is
// [dedup.ErrInvalid] for a nil db and a bucket name that is too long for bbolt.
func New(db *bbolt.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("boltdedup: new: %w: the database is nil", dedup.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if len(o.Bucket) > bbolt.MaxKeySize {
		return nil, fmt.Errorf("boltdedup: new: %w: bucket name of %d bytes, at most %d", dedup.ErrInvalid, len(o.Bucket), bbolt.MaxKeySize)
	}
	return &Store{db: db, bucket: []byte(cmp.Or(o.Bucket, "pawl/dedup"))}, nil
}

// Claim implements [dedup.Store]. A batch is one commit: all of it is applied or
// nothing, and when the commit itself fails, asking again says which. A batch
// that changes nothing, such as one of duplicates, costs no commit.
func (s *Store) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) (claims []dedup.Claim, err error) {
	err = s.update(ctx, "claim", func(tx *bbolt.Tx) (changed bool, err error) {
		claims, changed, err = s.claim(tx, p, asks)
		return changed, err
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// Settle implements [dedup.Store]. A batch is one commit, as in Claim.
func (s *Store) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) (errs []error, err error) {
	err = s.update(ctx, "settle", func(tx *bbolt.Tx) (changed bool, err error) {
		errs, changed, err = s.settle(tx, p, settlements)
		return changed, err
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// Held implements [dedup.Store]. It reads the claims of the scope that are not
// settled, and no others. One whose record cannot be read is listed too, with Err
// set and no token; only Forget ends it.
func (s *Store) Held(ctx context.Context, scope, after string, n int) (claims []dedup.Claim, err error) {
	err = s.view(ctx, "held", func(tx *bbolt.Tx) (err error) {
		claims, err = s.held(tx, scope, after, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// update runs one step in a transaction of its own and commits it if it changed
// something.
//
// A step that only reads takes the writer lock as well. bbolt shows a commit to
// readers before it is on the disk, and a caller that hears Done acknowledges
// the message: the completion must not be lost to a power cut after that.
func (s *Store) update(ctx context.Context, op string, step func(*bbolt.Tx) (bool, error)) error {
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
	changed, err := step(tx)
	if err == nil && changed {
		err = tx.Commit()
	}
	return wrap(op, err)
}

func (s *Store) view(ctx context.Context, op string, step func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return wrap(op, err)
	}
	return wrap(op, s.db.View(step))
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltdedup: %s: %w", op, err)
}

// unreadable is the error for a record that decode refused. It names the ID as
// the guard's errors do, by the beginning of its SHA-256: an ID may hold a
// customer's number.
func unreadable(scope, id string, err error) error {
	sum := sha256.Sum256([]byte(id))
	return fmt.Errorf("boltdedup: the record of ID %x in scope %q cannot be read: %w; it was left as it is, and only Forget ends it",
		sum[:6], scope, err)
}

// now is the store's clock: the wall clock of this process, in microseconds. It
// is read once per step, within its transaction.
func now() int64 { return time.Now().UnixMicro() }
