package pgorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/order"
)

// How the functions of schema/*.sql are called, and how their numbers are written.

// A route is how calls reach the server: each in a transaction of its own, or
// all in the caller's.
type route struct {
	call  func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error
	mode  int  // of order_lock in schema/0001_tables.sql
	bound bool // to the caller's transaction, which any error aborts
}

const (
	modeWait = 0 // for keys that are locked, and fail as a whole when that takes long
	modeBusy = 2 // wait as long, and answer for such a key that it is busy
)

// unbound is the route of calls in transactions of their own. Where the
// database's default isolation is above READ COMMITTED the call refuses it, and
// is sent again with the isolation it needs. Where a key stays locked, nothing
// was done, and the call is sent again to do what can be done without that key:
// waiting for a lock in a way that can fail alone is dearer.
func (s *Store) unbound() route {
	var do func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error
	do = func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
		err := call(ctx, s.pool, read, sql, args...)
		if hasCode(err, "25000") {
			err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return call(ctx, tx, read, sql, args...)
			})
		}
		if mode, ok := lockMode(args); ok && mode == modeWait && hasCode(err, "55P03") {
			args = slices.Clone(args)
			args[1] = modeBusy
			return do(ctx, read, sql, args...)
		}
		return err
	}
	return route{call: do}
}

// lockMode returns the mode among the arguments of a call that has one.
func lockMode(args []any) (mode int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	mode, ok = args[1].(int)
	return mode, ok
}

// within is the route of calls in the caller's transaction.
func within(tx pgx.Tx) route {
	return route{mode: modeBusy, bound: true, call: func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
		return call(ctx, tx, read, sql, args...)
	}}
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func call(ctx context.Context, q querier, read func(pgx.Rows) error, sql string, args ...any) error {
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

type statements struct {
	push, claim, settle, deliver, account, find, gaps, parked, totals, sweep string
}

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		push: "SELECT n, answer, at_epoch, at_place, elsewhere FROM " + q + ".order_push($1::text, $2::integer, $3::bigint, $4::bigint," +
			" $5::bigint, $6::boolean, $7::boolean, $8::bigint, $9::bigint, $10::text[], $11::bigint[], $12::bigint[], $13::text[]," +
			" $14::bytea[], $15::bytea[], $16::bytea[], $17::boolean[])",
		claim: "SELECT what, at_key, coalesce(at_token, 0), coalesce(remains, 0), coalesce(at_epoch, 0), coalesce(at_place, 0)," +
			" coalesce(stop, 0), coalesce(tries, 0), coalesce(age, 0), coalesce(flag, false), coalesce(old, false)," +
			" has_id, has_payload, has_context, has_error FROM " + q + ".order_claim($1::text, $2::bytea, $3::integer, $4::integer, $5::bigint, $6::bigint)",
		settle: "SELECT n, outcome FROM " + q + ".order_settle($1::text, $2::integer, $3::bigint, $4::bigint, $5::boolean, $6::bigint," +
			" $7::bigint, $8::text[], $9::smallint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[]," +
			" $15::bigint[], $16::bigint[], $17::boolean[], $18::integer[], $19::smallint[], $20::smallint[], $21::text[], $22::text[])",
		deliver: "SELECT " + q + ".order_deliver($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::boolean, $7::bigint, $8::bigint)",
		account: "SELECT epoch, base, cursor, head, ended, voids, skipped, late, buffered, parked, unordered, void_ahead, out_of_order," +
			" counts, coalesce(oldest, 0), late_held, at_cursor, claimed FROM " + q + ".order_account($1::text, $2::text)",
		find: "SELECT n, state, at_key, at_epoch, at_place, known, coalesce(tries, 0), coalesce(age, 0), coalesce(is_late, false)," +
			" has_id, has_payload, has_context, has_error, gap_lo, coalesce(gap_hi, 0), coalesce(gap_age, 0), coalesce(alerted, false)," +
			" coalesce(asked, 0), coalesce(reason, 0), coalesce(arrived, 0), coalesce(resolution, 0), coalesce(actor, ''), coalesce(note, '')" +
			" FROM " + q + ".order_find($1::text, $2::bigint, $3::text[], $4::text[], $5::bigint[], $6::bigint[])",
		gaps:   "SELECT * FROM " + q + ".order_list_gaps($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::integer, $7::boolean)",
		parked: "SELECT * FROM " + q + ".order_list_parked($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::integer)",
		totals: "SELECT keys, buffered::bigint, parked::bigint, late_held, open_gaps, unresolved, coalesce(oldest, 0) FROM " + q + ".order_totals($1::text)",
		sweep: "SELECT * FROM " + q + ".order_sweep($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::bigint," +
			" $7::bigint, $8::integer)",
	}
}

// place is a number as it is stored. It makes 0, which is no number, -1.
func place(number uint64) int64 { return int64(number - 1) }

// number is the reverse of place.
func number(place int64) uint64 { return uint64(place) + 1 }

// bigint is a number that is not one of a sequence. None above MaxInt64 makes a
// difference there.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// wrap adds the package and the operation to an error of the server, and what to
// do where the functions are missing.
func (s *Store) wrap(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case hasCode(err, "25000"):
		return fmt.Errorf("pgorder: %s: %w: %w: %w", step, order.ErrInvalid, ErrIsolation, err)
	case hasCode(err, "42883", "42P01", "3F000"): // undefined function, table, schema
		return fmt.Errorf("pgorder: %s: schema %q: %w: %w", step, s.schema, pgschema.ErrNotMigrated, err)
	}
	return fmt.Errorf("pgorder: %s: %w", step, err)
}

// hasCode says whether the server ended the statement with one of the codes of
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
func hasCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
