package pgreconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/reconcile"
)

// InTx makes a call for [reconcile.Ledger.Do] and Run out of an effect that is a write to
// the same database: what fn writes to tx and the operation's confirmation are one commit, so
// the effect happens exactly once. The store is the ledger's.
//
//	call := store.InTx(ledger, func(ctx context.Context, tx pgx.Tx, op reconcile.Op) ([]byte, error) {
//		_, err := tx.Exec(ctx, "UPDATE balances SET ... WHERE account = $1", op.Account)
//		return nil, err
//	})
//	err := ledger.Do(ctx, op, call, pgreconcile.NotConfirmed)
//
// When fn returns an error, when the lease was lost and when a receipt came first, what fn
// wrote is rolled back: the operation certainly did not happen. An error of fn that is not
// marked counts as marked [reconcile.NotYet], and it is sent again; [reconcile.Refused] keeps
// it from that. It is rolled back, too, when fn panics, which goes on. When the commit has no answer, nobody can tell, and the
// operation is Unknown. [NotConfirmed] then finds out.
//
// The transaction is READ COMMITTED and holds a connection of the pool, beside those that the
// ledger needs. fn must not end tx, which is refused, nor use it after it has returned.
func (s *Store) InTx(ledger *reconcile.Ledger, fn func(ctx context.Context, tx pgx.Tx, op reconcile.Op) (result []byte, err error)) reconcile.CallFunc {
	return func(ctx context.Context, op reconcile.Op) (result []byte, err error) {
		done, failed := false, false
		err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			if result, err = fn(ctx, callTx{tx}, op); err != nil {
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
		case done && !errors.Is(err, pgx.ErrTxCommitRollback):
			return nil, s.wrap("commit", err)
		case failed:
			return nil, rolledBack{err, reconcile.NotYet(errRolledBack)}
		}
		return nil, rolledBack{err, reconcile.NotDone(errRolledBack)}
	}
}

// A callTx is a transaction that its user does not end.
type callTx struct{ pgx.Tx }

var errNotYours = fmt.Errorf("pgreconcile: %w: the transaction of a call is ended by InTx", reconcile.ErrInvalid)

func (callTx) Commit(context.Context) error   { return errNotYours }
func (callTx) Rollback(context.Context) error { return errNotYours }

// A rolledBack is an error after which nothing has happened. How it is marked counts unless
// fn has marked it: the first mark that is found does.
type rolledBack struct {
	error
	marked error
}

func (r rolledBack) Unwrap() []error { return []error{r.error, r.marked} }

var errRolledBack = errors.New("it was rolled back")

// NotConfirmed is the probe for operations whose calls are all made by [Store.InTx]: it
// finds nothing. Effect and confirmation are one commit, which holds the operation until its
// end: what is not Confirmed when it is looked at has not happened.
func NotConfirmed(context.Context, reconcile.Op) (reconcile.Evidence, error) {
	return reconcile.Evidence{Seen: reconcile.SeenNothing, Note: "not confirmed, and so not done"}, nil
}
