package boltorder

import (
	"context"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/order"
)

// InTx makes a handler for [order.Buffer.RunTx]: fn writes to tx what the message
// is to effect, and that and the move of the cursor are one commit. The store and
// tx are of the same file. Several messages of a key share a transaction, and so a
// flush of the disk: at most RunOptions.PerTx.
//
// bbolt has no savepoints. When fn fails for a message, the transaction is rolled
// back, the messages before it are handed to fn again in a new one, which commits,
// and the message is tried again later. So fn may be called more than once for a
// message that it has not failed for; what it wrote the first time is gone.
//
// The transaction is the only writer of the file while it lasts: fn should be
// quick, and must not call a buffer, a store or the file but through tx. It does
// not commit tx or roll it back: bbolt answers that with a panic, which fails the
// message.
//
// Late messages do not come here: Options.OnLate of the buffer runs outside of the
// transaction, and may be handed one more than once.
func (s *Store) InTx(fn func(ctx context.Context, tx *bbolt.Tx, m order.Message) error) order.TxHandler {
	return func(ctx context.Context, run *order.TxRun) (delivered int, err error) {
		n := len(run.Messages)
		for n > 0 {
			failed, failure := n, error(nil)
			if err := s.deliver(ctx, run, n, func(i int, tx *bbolt.Tx) error {
				failure = run.Do(i, func(ctx context.Context) error { return fn(ctx, tx, run.Messages[i]) })
				if failure != nil {
					failed = i
				}
				return failure
			}); err != nil && failure == nil {
				return 0, wrap("deliver in a transaction", err) // it was not fn that failed
			}
			if failure == nil {
				break
			}
			n, err = failed, failure
		}
		return n, err
	}
}

// deliver hands the first n messages to do and settles them, in one transaction.
func (s *Store) deliver(ctx context.Context, run *order.TxRun, n int, do func(i int, tx *bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := ctx.Err(); err != nil {
			return err // the lease was lost while another transaction had the lock
		}
		for i := range n {
			if err := do(i, tx); err != nil {
				return err
			}
		}
		return run.Settle(ctx, s.Tx(tx), n)
	})
}
