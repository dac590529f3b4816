// Package pgreconcile keeps what package reconcile has to keep in PostgreSQL 15 or later:
// the operations of a [reconcile.Ledger] ([Store]), the observations of a
// [reconcile.Timeline] ([Store.Timeline]), and what [reconcile.Checks] found and counted
// ([Store.Checks]).
//
// What was answered is committed: with PostgreSQL's default settings it survives a crash
// of the server and of its machine. An operation is recorded as Started before Do calls the
// remote, so whoever dies in the call leaves a record behind. With [Store.Tx] an operation and what
// else a transaction writes commit together or not at all. Any number of processes may share
// one store.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, and a failover
// to an asynchronous standby, can lose the last operations, and what was sent is then
// sent again; [Store.Check] reports the settings. Tokens follow the server's clock: if that
// is set back by more than the retention, or a failover brings an older one, the token of a key
// that was forgotten meanwhile may be given out again.
//
// # Setting up
//
//	store, err := pgreconcile.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgreconcile.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//	ledger, err := reconcile.New(store, nil)
//	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
//
// The service's own role needs USAGE on the schema and its sequences, and SELECT,
// INSERT, UPDATE and DELETE on its tables. Keys, accounts, notes and all of an observation
// stand in the tables in clear; payloads and results as the ledger encoded them: sealed
// if it has keys.
//
// Call [Store.Sweep] from time to time: without it what has expired is kept for ever.
//
// # Transactions
//
// [Store.Tx], and Tx of the other two parts, are views of the store in a transaction of
// your own, for [reconcile.Ledger.With]: Record an operation in the transaction that
// makes it necessary, and Confirm it in the one that is its effect, as [Store.InTx] does.
// Operations and findings are claimed outside of transactions only.
//
// A transaction that has begun, recorded or settled an operation holds it until its end;
// one that has appended an observation holds up others that append to the same message, or the
// same event. Keep such transactions short. Others wait for two seconds, and are told
// [ErrBusy]; a claim passes over what is locked. A batch locks keys in ascending order. A
// transaction that makes several steps should do the same, or it can deadlock with
// another, which PostgreSQL then ends with an error.
//
// Transactions have to be READ COMMITTED, PostgreSQL's default: above it a step would
// not see what others have committed since, and fails with [ErrIsolation].
//
// # Cost
//
// A batch of new operations is one round trip, one statement and one commit, and so is a
// batch of their outcomes. The record is inserted with three index entries, and leaves two of
// these indexes when it is Confirmed or Failed, which writes one entry anew. What is asked
// again, looked at, or said by receipts and persons is worked one by one in the server. A
// batch of observations is one statement that inserts them with three index entries each;
// those that repeat are found before. More than 1,000 asks or settlements, 2,000
// observations, or 32 MiB are several commits. In a transaction of yours each item is worked
// by itself, so that one that is locked does not abort it.
//
// Counts do not depend on how many operations there are: a batch adds one row with what it
// changes, and now and then a step folds such rows into one for each account; see
// schema/0002_counts.sql. A list of one key, of what is open, or of what waits for a person
// reads no more than that, but a page of what is open reads all of it; any other list goes
// through the operations of the kind. A list of findings goes through those of the check or
// the kind.
//
// While a long transaction, or an idle one, keeps the server from removing dead rows,
// claims read past those of all that has ended meanwhile, and get slower.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec: every step
// is one statement, which the server plans once per server connection.
package pgreconcile

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/reconcile"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "reconcile_" or "pawl". Empty means "pawl".
	Schema string
}

// A Store keeps operations in PostgreSQL, and observations through [Store.Timeline]. It is
// safe for concurrent use, and any number of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements

	mu    sync.Mutex // held for the whole of a Sweep
	swept [2]place
}

var (
	_ reconcile.Store   = (*Store)(nil)
	_ reconcile.Sweeper = (*Store)(nil)
)

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgreconcile: %w: nil pool", reconcile.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Schema == "" {
		o.Schema = pgschema.DefaultSchema
	}
	if err := pgschema.CheckName(o.Schema); err != nil {
		return nil, fmt.Errorf("pgreconcile: %w: %w", reconcile.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: o.Schema, sql: newStatements(o.Schema)}, nil
}

// ErrBusy says that an operation was not begun, a settlement not applied, or a batch of
// observations not stored, because another transaction had it locked. Nothing was changed:
// send it again.
var ErrBusy = errors.New("pgreconcile: another transaction is at work on this, nothing was changed")

// Begin implements [reconcile.Store]. It waits for another transaction that is at work on
// one of the operations for at most a few seconds; its answer then carries [ErrBusy], and
// the others have theirs.
func (s *Store) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	answers, err := s.begin(ctx, s.alone(), p, asks)
	return answers, s.wrap("begin", err)
}

// Claim implements [reconcile.Store]. It passes over operations that other transactions
// have locked. Its second result is zero when the next is due in more than ten seconds.
func (s *Store) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	entries, next, err := s.claim(ctx, p, a)
	return entries, next, s.wrap("claim", err)
}

// Settle implements [reconcile.Store]. It waits as Begin does.
func (s *Store) Settle(ctx context.Context, p reconcile.Params, settlements []reconcile.Settlement) ([]error, error) {
	errs, err := s.settle(ctx, s.alone(), p, settlements)
	return errs, s.wrap("settle", err)
}

// List implements [reconcile.Store].
func (s *Store) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	entries, err := s.list(ctx, s.alone(), q)
	return entries, s.wrap("list", err)
}

// Counts implements [reconcile.Store]. Operations that have expired count until they are
// swept.
func (s *Store) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	counts, err := s.counts(ctx, s.alone(), kind, after, first, n)
	return counts, s.wrap("counts", err)
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "reconcile", Files: files}
