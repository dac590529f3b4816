// Package pgcall is how the pg* packages call the functions in their schemas.
//
// A [Route] decides in which transaction a call runs, and what becomes of it when
// the database's isolation or a locked key stands in its way. A [Package] words the
// errors of a step, and says what is wrong with a server.
package pgcall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Codes with which a server ends a statement, of
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
const (
	Isolation   = "25000" // invalid transaction state: what the functions raise above READ COMMITTED
	Locked      = "55P03" // lock not available: lock_timeout has passed
	OutOfMemory = "53200" // the server has no room for more locks
)

// A Route is how calls reach the server: each in a transaction of its own, or all
// in the caller's.
type Route struct {
	// Bound says that the calls run in the caller's transaction, which any error
	// aborts.
	Bound bool

	query func(ctx context.Context, read func(pgx.Rows) error, sql string, args []any) error
	mode  int
	busy  int
}

// Alone is the route of calls in transactions of their own. Where the database's
// default isolation is above READ COMMITTED the function refuses a call, and it is
// sent again with the isolation it needs. busy is the mode of [Route.CallLocking]
// that answers for a locked key.
func Alone(pool *pgxpool.Pool, busy int) Route {
	return Route{busy: busy, query: func(ctx context.Context, read func(pgx.Rows) error, sql string, args []any) error {
		err := query(ctx, pool, read, sql, args)
		if !HasCode(err, Isolation) {
			return err
		}
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return query(ctx, tx, read, sql, args)
		})
	}}
}

// Within is the route of calls in the caller's transaction, with their mode. A nil
// transaction makes every call fail with invalid.
func Within(tx pgx.Tx, mode int, invalid error) Route {
	return Route{Bound: true, mode: mode, query: func(ctx context.Context, read func(pgx.Rows) error, sql string, args []any) error {
		if tx == nil {
			return fmt.Errorf("%w: the transaction is nil", invalid)
		}
		return query(ctx, tx, read, sql, args)
	}}
}

// Call sends a statement that locks no key, or says itself how long it waits for
// one, and hands each row to read.
func (r Route) Call(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
	return r.query(ctx, read, sql, args)
}

// CallLocking sends a statement whose first two arguments are the scope and the
// mode: what it does about a key that another transaction has locked. Alone that is
// mode 0, to wait and then to fail as a whole. Nothing was done by then, and the
// statement is sent again in the busy mode, to do what can be done without that
// key: waiting for a lock in a way that can fail for one key is dearer.
func (r Route) CallLocking(ctx context.Context, read func(pgx.Rows) error, sql, scope string, args ...any) error {
	args = append([]any{scope, r.mode}, args...)
	err := r.query(ctx, read, sql, args)
	if r.Bound || !HasCode(err, Locked) {
		return err
	}
	args[1] = r.busy
	return r.query(ctx, read, sql, args)
}

// HasCode says whether the server ended the statement with one of the codes.
func HasCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func query(ctx context.Context, q querier, read func(pgx.Rows) error, sql string, args []any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
