package pgorder

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

// InTx makes a handler for [order.Buffer.RunTx]: fn writes to tx what the message
// is to effect, and that and the move of the cursor are one commit, so the effect
// happens once. Several messages of a key share a transaction, and so a flush of
// the disk: at most RunOptions.PerTx.
//
// Each message has a savepoint of its own. When fn fails for one, what it wrote is
// rolled back to it, the messages before it commit, and the message is tried again
// later. When the connection breaks in a message, those before it are handed to fn
// once more in a new transaction; what they wrote the first time is gone.
//
// The transaction begins with the first statement of fn, and savepoints travel
// with the first statement of their message, so they cost no round trip. It is READ
// COMMITTED. fn must not commit it or roll it back, which is refused, nor use tx
// after it has returned.
//
// Every run holds a connection while its handlers work. The pool should have a few
// more connections than RunOptions.Concurrency, or else claims and leases wait.
//
// Late messages do not come here: Options.OnLate of the buffer runs outside of the
// transaction, and may be handed one more than once.
func (s *Store) InTx(fn func(ctx context.Context, tx pgx.Tx, m order.Message) error) order.TxHandler {
	return func(ctx context.Context, run *order.TxRun) (delivered int, err error) {
		var failure error
		for n := len(run.Messages); n > 0; {
			delivered, again, err := s.deliverIn(ctx, run, n, fn)
			if again == 0 {
				if err == nil {
					err = failure
				}
				return delivered, err
			}
			n, failure = again, err
		}
		return 0, failure
	}
}

// deliverIn hands the first n messages to fn in one transaction, and returns how
// many are delivered, and why not all. When the transaction was lost in a message
// that is not the first, it returns how many come before it, to be done again.
func (s *Store) deliverIn(ctx context.Context, run *order.TxRun, n int, fn func(context.Context, pgx.Tx, order.Message) error) (delivered, again int, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, 0, s.wrap("begin a transaction", err)
	}
	defer conn.Release()
	tx := &handlerTx{conn: conn.Conn(), ctx: ctx, pending: []string{"BEGIN ISOLATION LEVEL READ COMMITTED"}}
	defer tx.rollback()

	var failure error
	for i, m := range run.Messages[:n] {
		if i > 0 {
			tx.nextSavepoint()
		}
		err := run.Do(i, func(ctx context.Context) error {
			tx.ctx = ctx
			if err := fn(ctx, tx, m); err != nil {
				return err
			}
			return tx.state()
		})
		if err == nil {
			continue
		}
		if i == 0 {
			return 0, 0, err
		}
		if tx.undo(ctx) != nil {
			return 0, i, err
		}
		n, failure = i, err
		break
	}
	tx.ctx = ctx
	if err := run.Settle(ctx, &committer{bound{s, within(tx)}, tx}, n); err != nil {
		return 0, 0, errors.Join(err, failure)
	}
	return n, 0, failure
}

// A committer is the view of the store whose settlement is the end of its
// transaction: both are one round trip, so that the key is not locked for longer.
type committer struct {
	bound
	tx *handlerTx
}

func (c *committer) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
	d, release := settlements[0], len(settlements) == 2 // that is all that a TxRun sends
	var b pgx.Batch
	c.tx.queuePending(&b)
	b.Queue(c.s.sql.deliver, p.Scope, d.Key, bigint(d.Token), int64(d.Epoch), place(d.From), place(d.To), release,
		p.GapLook.Microseconds(), p.KeepBody.Microseconds())
	if c.s.lazy && !release {
		b.Queue("SET LOCAL synchronous_commit = off")
	}
	b.Queue("COMMIT")
	results := c.tx.conn.SendBatch(ctx, &b)
	err := execAll(results, b.Len())
	switch {
	case err == nil:
		c.tx.over = true
		return nil, nil
	case pgcall.HasCode(err, "PW001"):
		refused := make([]error, len(settlements))
		for i := range refused {
			refused[i] = order.ErrStale
		}
		return refused, nil
	}
	return nil, c.s.wrap("settle and commit", err)
}

// execAll reads n results and returns the first error.
func execAll(results pgx.BatchResults, n int) error {
	var first error
	for range n {
		if _, err := results.Exec(); err != nil {
			first = err
			break
		}
	}
	if err := results.Close(); first == nil {
		first = err
	}
	return first
}
