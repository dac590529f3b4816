package boltreconcile

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

// InTx makes a call for [reconcile.Ledger.Do] and Run out of an effect that is a write to
// the same file: what fn writes to tx and the operation's confirmation are one commit, so
// the effect happens exactly once. The store is the ledger's, and tx is of its file.
//
//	call := store.InTx(ledger, func(ctx context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
//		return nil, tx.Bucket(balances).Put([]byte(op.Account), op.Payload)
//	})
//	err := ledger.Do(ctx, op, call, boltreconcile.NotConfirmed)
//
// When fn returns an error, when the lease was lost and when a receipt came first, what fn
// wrote is rolled back: the operation certainly did not happen. An error of fn that is not
// marked counts as marked [reconcile.NotYet], and it is sent again; [reconcile.Refused] keeps
// it from that. It is rolled back, too, when fn panics, which goes on. When the commit fails, nobody can tell, and the operation is
// Unknown. [NotConfirmed] then finds out.
//
// The transaction is the only writer of the file while it lasts, so operations are
// worked one after another, at two flushes of the disk each: fn should be quick, and
// must not call a ledger, a store or the file but through tx. It does not commit tx or roll
// it back: bbolt answers that with a panic.
func (s *Store) InTx(ledger *reconcile.Ledger, fn func(ctx context.Context, tx *bbolt.Tx, op reconcile.Op) (result []byte, err error)) reconcile.CallFunc {
	return func(ctx context.Context, op reconcile.Op) (result []byte, err error) {
		done, failed := false, false
		err = s.db.Update(func(tx *bbolt.Tx) (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx) // the lease was lost while another transaction had the lock
			}
			if result, err = fn(ctx, tx, op); err != nil {
				failed = ctx.Err() == nil
				return err
			}
			err = ledger.With(s.Tx(tx)).Confirm(ctx, result)
			done = err == nil
			return err
		})
		switch {
		case err == nil:
			return result, nil
		case done:
			return nil, wrap("commit", err)
		case failed:
			return nil, rolledBack{err, reconcile.NotYet(errRolledBack)}
		}
		return nil, rolledBack{err, reconcile.NotDone(errRolledBack)}
	}
}

// A rolledBack is an error after which nothing has happened. How it is marked counts unless
// fn has marked it: the first mark that is found does.
type rolledBack struct {
	error
	marked error
}

func (r rolledBack) Unwrap() []error { return []error{r.error, r.marked} }

var errRolledBack = errors.New("it was rolled back")

// NotConfirmed is the probe for operations whose calls are all made by [Store.InTx]: it
// finds nothing. Effect and confirmation are one commit, so what is not Confirmed when it is
// looked at has not happened.
func NotConfirmed(context.Context, reconcile.Op) (reconcile.Evidence, error) {
	return reconcile.Evidence{Seen: reconcile.SeenNothing, Note: "not confirmed, and so not done"}, nil
}
