// Package pgdedup keeps the claims of a [dedup.Guard] in PostgreSQL 15 or later.
//
// A claim or a settlement that was answered is committed: with PostgreSQL's
// default settings it survives a crash of the server and of its machine. In the
// caller's transaction ([Store.Tx]) the claim, the business write and the
// completion commit together or not at all, so the effect happens exactly once
// in this database. No claim ever waits for the end of another transaction.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, and a
// failover to an asynchronous standby, can lose the last claims, which may then
// be granted twice; [Store.Check] reports the settings. Effects outside the
// database are at least once, as with any store.
//
// # Setting up
//
//	store, err := pgdedup.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgdedup.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//
// The service's own role needs USAGE on the schema, and SELECT, INSERT, UPDATE and
// DELETE on its tables. IDs, scopes and results stand in the table in clear.
//
// Call [Store.Sweep] from time to time: expired records do no harm, but stay
// until they are swept or their ID is claimed again.
//
// # Transactions
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		return guard.With(store.Tx(tx)).Do(ctx, request, func(ctx context.Context) error {
//			_, err := tx.Exec(ctx, "INSERT INTO payments ...")
//			return err
//		})
//	})
//
// The commit is the completion and a rollback the release, also when the process
// or its connection dies. Meanwhile everybody else is answered InFlight at once,
// with Left zero, because the end of a transaction is not known beforehand. The
// lease has no meaning in it: what cannot commit within reason should claim
// outside of the transaction.
//
// The transaction has to be READ COMMITTED, PostgreSQL's default: above it a step
// would not see what others have committed since, such as that an ID was
// forgotten, and fails with [ErrIsolation]. A transaction that acquires or settles
// IDs one after the other holds all of them until it ends. When two
// settle each other's IDs, one is told so after a quarter of a second, by an
// error that is not [dedup.ErrStale]; its transaction can go on or roll back.
// Take few IDs per transaction: each holds one entry of the server's lock table
// (max_locks_per_transaction times max_connections), which all share.
//
// # Cost
//
// A batch of new IDs costs about as much as inserting them. It is sent in
// transactions of at most 256 IDs, to be easy on the lock table, each in one
// round trip; IDs that stand in a batch twice take a further one. There is one
// index on the table, and a second one over held claims only. A claim writes one
// row, and its completion writes it again on the same page, which is half empty
// for that purpose. On disk, an ID of 36 bytes takes about 400 bytes, the index
// included: 100 IDs a second, kept for 8 days, are 69 million rows and 28 GB. A
// duplicate writes nothing.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec: every
// step is one statement, which the server plans once per server connection.
package pgdedup

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the table and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "dedup" or "pawl". Empty means "pawl".
	Schema string
}

// A Store keeps claims in PostgreSQL. It is safe for concurrent use, and any
// number of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements

	mu   sync.Mutex // held for the whole of a Sweep
	next int64      // the page at which Sweep goes on
}

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgdedup: %w: nil pool", dedup.ErrInvalid)
	}
	schema := pgschema.DefaultSchema
	if opts != nil && opts.Schema != "" {
		schema = opts.Schema
	}
	if err := pgschema.CheckName(schema); err != nil {
		return nil, fmt.Errorf("pgdedup: %w: %w", dedup.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: schema, sql: newStatements(schema)}, nil
}

// MergeWidth is how many calls a [dedup.Guard] makes of many callers' claims at once,
// and of their settlements: one is worked while another waits for the disk.
func (s *Store) MergeWidth() int { return 2 }

var _ dedup.Widener = (*Store)(nil)

// Claim implements [dedup.Store]. When the connection breaks or the context
// ends within a batch, the claims without an answer carry the error.
func (s *Store) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	claims, err := s.claim(ctx, s.alone(), p, asks)
	return claims, s.wrap("claim", err)
}

// Settle implements [dedup.Store]. A settlement waits for another transaction
// that is settling the same ID or has claimed it anew, each time for at most a
// quarter of a second, and then carries [ErrBusy].
func (s *Store) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	errs, err := s.settle(ctx, s.alone(), p, settlements)
	return errs, s.wrap("settle", err)
}

// Held implements [dedup.Store].
func (s *Store) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	claims, err := s.held(ctx, s.alone(), scope, after, n)
	return claims, s.wrap("held", err)
}

// Tx returns a view of the store that works within the caller's transaction: see
// the package comment. It costs nothing to make. Use it through
// [dedup.Guard.With], from the goroutine of the transaction, and not after the
// transaction has ended.
//
// A call of the view that fails with a database error has aborted the
// transaction, as any statement would.
func (s *Store) Tx(tx pgx.Tx) dedup.Store {
	return &bound{s, within(tx)}
}

// ErrBusy says that a settlement was not applied because another transaction
// had the ID locked. Nothing was changed: settle again, which [dedup.Guard.Settle]
// does by itself outside of transactions.
var ErrBusy = errors.New("pgdedup: another transaction is at work on this ID, nothing was changed")

// bound is the view of a Store within a transaction.
type bound struct {
	*Store
	r pgcall.Route
}

func (b *bound) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	claims, err := b.claim(ctx, b.r, p, asks)
	return claims, b.wrap("claim in a transaction", err)
}

func (b *bound) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	errs, err := b.settle(ctx, b.r, p, settlements)
	return errs, b.wrap("settle in a transaction", err)
}

func (b *bound) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	claims, err := b.held(ctx, b.r, scope, after, n)
	return claims, b.wrap("held in a transaction", err)
}

func (s *Store) held(ctx context.Context, r pgcall.Route, scope, after string, n int) (claims []dedup.Claim, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var token, age int64
		c := dedup.Claim{State: dedup.Unknown}
		err := rows.Scan(&c.ID, &token, &c.Attempt, &age)
		c.Token, c.Age = uint64(token), micros(age)
		claims = append(claims, c)
		return err
	}, s.sql.held, scope, after, n)
	return claims, err
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "dedup", Files: files}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
