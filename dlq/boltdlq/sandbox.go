package boltdlq

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// Sandbox runs rehearsals in a transaction of the file that is always rolled back. It
// is for RunOptions.Sandbox and for dry runs. The handler gets the transaction with
// [TxFrom], and writes to it what the letter is to effect.
//
//	rehearsal, err := queue.DryRun(ctx, handle, letter, &dlq.DryRunOptions{Sandbox: boltdlq.Sandbox(db)})
//
// It undoes what the handler wrote to that transaction, and nothing else. The handler
// does not commit it or roll it back: bbolt answers that with a panic, which fails the
// rehearsal.
//
// The transaction is the only writer of the file while the handler runs, so nobody
// puts or settles a letter meanwhile, and no lease is renewed: the handler should be
// quick, and must not call a queue, a store or the file but through the transaction,
// or it waits for itself.
func Sandbox(db *bbolt.DB) dlq.Wrap {
	return func(ctx context.Context, run func(ctx context.Context) error) error {
		if db == nil {
			return fmt.Errorf("boltdlq: sandbox: %w: the database is nil", dlq.ErrInvalid)
		}
		err := db.Update(func(tx *bbolt.Tx) error {
			if err := ctx.Err(); err != nil {
				return err // it ended while another transaction had the lock
			}
			_ = run(context.WithValue(ctx, txKey{}, tx)) // the queue has seen what it returned
			return errUndone
		})
		if errors.Is(err, errUndone) {
			return nil
		}
		return fmt.Errorf("boltdlq: sandbox: %w; the handler did not run", err)
	}
}

// TxFrom returns the transaction of the [Sandbox] that a handler runs in; false: it is
// no rehearsal, and the handler makes a transaction of its own.
func TxFrom(ctx context.Context) (tx *bbolt.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*bbolt.Tx)
	return tx, ok
}

type txKey struct{}

var errUndone = errors.New("a rehearsal is rolled back")
