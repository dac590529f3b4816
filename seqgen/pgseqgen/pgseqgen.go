// Package pgseqgen keeps the numbers of a [seqgen.Generator] in PostgreSQL 15 or
// later.
//
// A number that was handed out is committed before: with PostgreSQL's default
// settings no crash of the server, of its machine or of the process makes it come
// twice. In the caller's transaction ([Store.Tx], mode Gapless) the number commits
// with what it numbers, or is not assigned at all.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, a failover
// to an asynchronous standby and a restored backup can go back behind numbers that
// were handed out, and would hand them out again; [Store.Check] reports the
// settings, and seqgen.Options.Witness and any process that outlives it notice it.
//
// # Setting up
//
//	store, err := pgseqgen.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgseqgen.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//
// The service's own role needs USAGE on the schema, and SELECT, INSERT, UPDATE and
// DELETE on its tables. Keys stand in the tables in clear. Call [Store.Sweep] now
// and then: voids are kept until it drops them. Keys are never dropped.
//
// # Gapless numbers
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		at, err := generator.With(store.Tx(tx)).NextTx(ctx, "invoices")
//		if err != nil {
//			return err
//		}
//		_, err = tx.Exec(ctx, "INSERT INTO invoices (number, ...) VALUES ($1, ...)", at.Number)
//		return err
//	})
//
// NextTx locks the key's row until the transaction ends, and waits for whoever has
// it: one transaction per key at a time, so a key has at most 1/(duration of your
// transaction) numbers per second. Take the number late in the transaction, and
// several keys always in the same order, or two transactions can deadlock, which
// PostgreSQL ends with an error. A rollback returns the number.
//
// Steps outside of a transaction wait for one that has the key for about two
// seconds at most, and then fail with [ErrBusy]: nothing was assigned.
//
// The transaction has to be READ COMMITTED, PostgreSQL's default: above it a step
// would not see the numbers that others have taken since it began, and fails with
// [ErrIsolation].
//
// # Cost
//
// A reservation is one round trip and one commit, which writes one row of up to 900
// bytes in place, however many numbers it has and however many keys the batch.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec.
package pgseqgen

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/seqgen"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "seqgen_" or "pawl". Empty means "pawl".
	Schema string
}

// A Store keeps sequences in PostgreSQL. It is safe for concurrent use, and any
// number of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
}

var _ seqgen.Store = (*Store)(nil)

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgseqgen: %w: nil pool", seqgen.ErrInvalid)
	}
	schema := pgschema.DefaultSchema
	if opts != nil && opts.Schema != "" {
		schema = opts.Schema
	}
	if err := pgschema.CheckName(schema); err != nil {
		return nil, fmt.Errorf("pgseqgen: %w: %w", seqgen.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: schema, sql: newStatements(schema)}, nil
}

// ErrBusy says that a step was not applied because another transaction had the key
// locked. Nothing was assigned or changed: try again.
var ErrBusy = errors.New("pgseqgen: another transaction is at work on this key, nothing was changed")

// Reserve implements [seqgen.Store].
func (s *Store) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	grants, err := s.reserve(ctx, s.alone(), p, asks)
	return grants, s.wrap("reserve", err)
}

// Settle implements [seqgen.Store].
func (s *Store) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	outcomes, err := s.settle(ctx, s.alone(), p, changes)
	return outcomes, s.wrap("settle", err)
}

// Look implements [seqgen.Store].
func (s *Store) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	states, err := s.look(ctx, s.alone(), scope, keys)
	return states, s.wrap("look", err)
}

// Voids implements [seqgen.Store].
func (s *Store) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	voids, err := s.voids(ctx, s.alone(), q)
	return voids, s.wrap("voids", err)
}

// Tx returns a view of the store that works within the caller's transaction: see
// the package comment. It costs nothing to make. Use it through
// [seqgen.Generator.With], from the goroutine of the transaction, and not after the
// transaction has ended. A call of the view that fails with a database error has
// aborted the transaction, as any statement would.
func (s *Store) Tx(tx pgx.Tx) seqgen.Store {
	return &bound{s, within(tx)}
}

// bound is the view of a Store within a transaction.
type bound struct {
	s *Store
	r pgcall.Route
}

func (b *bound) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	grants, err := b.s.reserve(ctx, b.r, p, asks)
	return grants, b.s.wrap("reserve in a transaction", err)
}

func (b *bound) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	outcomes, err := b.s.settle(ctx, b.r, p, changes)
	return outcomes, b.s.wrap("settle in a transaction", err)
}

func (b *bound) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	states, err := b.s.look(ctx, b.r, scope, keys)
	return states, b.s.wrap("look in a transaction", err)
}

func (b *bound) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	voids, err := b.s.voids(ctx, b.r, q)
	return voids, b.s.wrap("voids in a transaction", err)
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "seqgen", Files: files}

func micros(n int64) time.Time { return time.UnixMicro(n).UTC() }
