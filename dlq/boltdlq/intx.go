package boltdlq

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
)

// InTx makes a handler for [dlq.Queue.Run]: fn writes to tx what the letter is to
// effect, and that and the letter's resolution are one commit, so the effect happens
// once. The store is the queue's, and tx is of its file.
//
//	err := queue.Run(ctx, store.InTx(queue, func(ctx context.Context, tx *bbolt.Tx, l dlq.Letter) error {
//		return tx.Bucket(orders).Put(key(l), l.Payload)
//	}), &dlq.RunOptions{Stream: "orders"})
//
// When fn returns an error or panics, when the lease was lost or a person has changed
// the letter, and when the commit fails, what fn wrote is rolled back, and the try has
// failed. In a rehearsal it is rolled back in any case: in the transaction of the
// [Sandbox] if there is one.
//
// The transaction is the only writer of the file while it lasts, so letters are worked
// one after another, whatever RunOptions.Concurrency says, at two flushes of the disk
// each: fn should be quick, and must not call a queue, a store or the file but through
// tx. It does not commit tx or roll it back: bbolt answers that with a panic.
func (s *Store) InTx(queue *dlq.Queue, fn func(ctx context.Context, tx *bbolt.Tx, l dlq.Letter) error) dlq.HandlerFunc {
	return func(ctx context.Context, l dlq.Letter) error {
		in, _ := dlq.InSandbox(ctx)
		if tx, ok := TxFrom(ctx); ok {
			return fn(ctx, tx, l)
		}
		err := s.db.Update(func(tx *bbolt.Tx) error {
			if ctx.Err() != nil {
				return context.Cause(ctx) // the lease was lost while another transaction had the lock
			}
			if err := fn(ctx, tx, l); err != nil {
				return err
			}
			if in.Rehearsal {
				return errUndone
			}
			return queue.With(s.Tx(tx)).Complete(ctx)
		})
		if errors.Is(err, errUndone) {
			return nil
		}
		return err
	}
}
