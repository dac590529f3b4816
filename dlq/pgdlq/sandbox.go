package pgdlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
)

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx, whose
// transactions are savepoints.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Sandbox runs rehearsals in a transaction that is always rolled back, or, of a
// pgx.Tx, in a savepoint. It is for RunOptions.Sandbox and for dry runs. The handler
// gets the transaction with [TxFrom], and writes to it what the letter is to effect; it
// may begin transactions in it, which are savepoints, and commit those.
//
//	rehearsal, err := queue.DryRun(ctx, handle, letter, &dlq.DryRunOptions{Sandbox: pgdlq.Sandbox(pool)})
//
// It undoes what the handler wrote to that transaction, and nothing else: sequences
// stay advanced, constraints that are deferred to the commit are not checked, and what the handler did on other connections or outside of the
// database has happened. The transaction refuses to be committed or rolled back by the
// handler. One that sends the statement COMMIT itself gets around that; the error
// then says that its effects may have stayed.
func Sandbox(db Beginner) dlq.Wrap {
	return func(ctx context.Context, run func(ctx context.Context) error) (err error) {
		if db == nil {
			return fmt.Errorf("pgdlq: sandbox: %w: nothing to begin a transaction on", dlq.ErrInvalid)
		}
		tx, err := db.Begin(ctx)
		if err != nil {
			return fmt.Errorf("pgdlq: sandbox: begin: %w; the handler did not run", err)
		}
		defer func() { // also when the handler panics
			// The rollback must not depend on a context that the handler used up.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			ended := tx.Conn().PgConn().TxStatus() == 'I' && !tx.Conn().IsClosed()
			undo := tx.Rollback(ctx)
			switch {
			case ended:
				err = errors.Join(err, errEnded)
			case undo != nil && !tx.Conn().IsClosed(): // a closed connection has rolled back
				err = errors.Join(err, fmt.Errorf("pgdlq: sandbox: roll back: %w", undo))
			}
		}()
		return run(context.WithValue(ctx, txKey{}, pgx.Tx(sandboxed{tx})))
	}
}

const rollbackTimeout = 5 * time.Second

// TxFrom returns the transaction of a [Sandbox]; not ok outside of one, where the
// handler begins its own.
func TxFrom(ctx context.Context) (tx pgx.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

type txKey struct{}

var (
	errEnded = errors.New("pgdlq: sandbox: the handler has ended the transaction by a statement of its own; its effects may have stayed")
	errMine  = errors.New("pgdlq: sandbox: the transaction is rolled back by the sandbox")
)

// sandboxed is a transaction that the handler cannot end.
type sandboxed struct{ pgx.Tx }

func (sandboxed) Commit(context.Context) error   { return errMine }
func (sandboxed) Rollback(context.Context) error { return errMine }
