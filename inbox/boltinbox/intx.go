package boltinbox

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
)

// InTx makes a handler for [inbox.Box.Work]: fn writes to tx what the event is to
// effect, and that and the event's completion are one commit, so the effect happens
// once. The store is the box's, and tx is of its file.
//
//	err := box.Work(ctx, store.InTx(box, func(ctx context.Context, tx *bbolt.Tx, r inbox.Record) inbox.Outcome {
//		return inbox.OutcomeOf(tx.Bucket(orders).Put(key(r), r.Payload))
//	}), nil)
//
// Only Done commits. With any other outcome, with a panic, when the lease was lost
// and when the commit fails, what fn wrote is rolled back, and the outcome is
// recorded by itself.
//
// The transaction is the only writer of the file while it lasts, so events are
// worked one after another, whatever WorkOptions.Concurrency says, at two flushes of
// the disk each: fn should be quick, and must not call a box, a store or the file
// but through tx. It does not commit tx or roll it back: bbolt answers that with a
// panic, which fails the event.
func (s *Store) InTx(box *inbox.Box, fn func(ctx context.Context, tx *bbolt.Tx, r inbox.Record) inbox.Outcome) func(context.Context, inbox.Record) inbox.Outcome {
	return func(ctx context.Context, r inbox.Record) (o inbox.Outcome) {
		err := s.db.Update(func(tx *bbolt.Tx) error {
			if err := ctx.Err(); err != nil {
				return err // the lease was lost while another transaction had the lock
			}
			if o = fn(ctx, tx, r); o.String() != "done" {
				return errRolledBack
			}
			return box.With(s.Tx(tx)).Complete(ctx)
		})
		if err == nil || errors.Is(err, errRolledBack) {
			return o
		}
		return inbox.Failed(wrap("work in a transaction", err))
	}
}

var errRolledBack = errors.New("the handler's outcome was not done")
