// Package pgorder keeps the messages and cursors of an [order.Buffer] in
// PostgreSQL 15 or later.
//
// What was answered is committed: with PostgreSQL's default settings it survives
// a crash of the server and of its machine. With [Store.InTx] the effects of a message
// and the move of the cursor over it commit together or not at all, so the effect
// happens exactly once in this database.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, and a
// failover to an asynchronous standby, can lose the last messages that were
// pushed, and can deliver the last ones that were delivered again; [Store.Check]
// reports the settings. Effects outside of the database are at least once, as with
// any store.
//
// # Setting up
//
//	store, err := pgorder.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgorder.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//
// The service's own role needs USAGE on the schema, and SELECT, INSERT, UPDATE and
// DELETE on its tables. Keys, IDs and payloads stand in the tables in clear.
//
// Call [Store.Sweep] from time to time: without it delivered messages are kept for
// ever.
//
// # Transactions
//
// [Store.InTx] makes a handler for [order.Buffer.RunTx]. [Store.Tx] is a view of the
// store in a transaction of your own: use it through [order.Buffer.With], to push
// what the transaction writes about, or to settle.
//
// Every step locks the row of its key until its transaction ends. Pushing and
// delivering need the same row, so a transaction that pushes through a view holds
// up everybody else at that key until it ends: keep it short. They do not wait for
// ever: after a second or two a push or a settlement is answered with
// [ErrBusy], which means that nothing was done, and a claim passes over the key at
// once. InTx holds a key from the settlement to the commit, which is one round
// trip, and not while handlers work.
//
// A batch locks its keys in ascending order. A transaction that makes several
// steps should do the same, or it can deadlock with another, which PostgreSQL then
// ends with an error.
//
// Transactions have to be READ COMMITTED, PostgreSQL's default: above it a step
// would not see what others have committed since, such as that the cursor has
// moved, and fails with [ErrIsolation].
//
// # Cost
//
// A message is one row, inserted when it is pushed and deleted when it is
// forgotten; delivering writes no row of it, only the cursor and its counters, in
// place. Two indexes hold it, one of them only if it has an ID. On disk, a message
// with an ID of 36 bytes takes about 300 bytes and its payload, the indexes included.
// An idle key is two rows, of which deliveries write one; with 10,000 keys of 36
// bytes it takes about 3 kB, most of it room that updates have left and use again:
// rewritten by VACUUM FULL, it is 800 bytes.
//
// A push or a settlement is one round trip, whatever the size of the batch. With
// [Store.InTx] so is the end of a transaction, and so is its beginning together with the
// first statement of the handler. A transaction writes about 180 bytes of log beside
// what the handler does. Both that and a loop of your own, which locks a cursor, does
// the work and moves the cursor, wait for one flush of the disk per commit, so with
// one message per transaction neither is much faster than the other; what makes a
// difference is several messages per transaction, or LazyFlush.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec: every
// step is one statement, which the server plans once per server connection.
package pgorder

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/order"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "order_" or "pawl". Empty means "pawl".
	Schema string

	// LazyFlush makes [Store.InTx] wait for the disk with the last transaction of a
	// run only: those before it are flushed with it, or by the server's WAL writer
	// within a second (synchronous_commit = off). A crash of the server then can
	// undo the last transactions of a key, their effects and the move of the cursor
	// together, and their messages are delivered again; each effect still is there
	// once, and in order. A worker that notices only afterwards rolls back what comes
	// behind them, and its key waits for the lease to lapse. Pushes, claims and the ends
	// of runs are flushed as ever: no answered push is lost. What handlers do outside
	// of the database may be done again for up to a run of messages, as with several
	// messages per transaction. Use it where each message has a transaction of its own
	// and nobody outside acts on its commit.
	LazyFlush bool
}

// A Store keeps messages and cursors in PostgreSQL. It is safe for concurrent use,
// and any number of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	lazy   bool

	mu    sync.Mutex // held for the whole of a Sweep
	swept map[string]sweepPlace
}

var (
	_ order.Store   = (*Store)(nil)
	_ order.Sweeper = (*Store)(nil)
)

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgorder: %w: nil pool", order.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Schema == "" {
		o.Schema = pgschema.DefaultSchema
	}
	if err := pgschema.CheckName(o.Schema); err != nil {
		return nil, fmt.Errorf("pgorder: %w: %w", order.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: o.Schema, sql: newStatements(o.Schema), lazy: o.LazyFlush, swept: map[string]sweepPlace{}}, nil
}

// ErrBusy says that a message was not pushed, or a settlement not applied, because
// another transaction had the key locked. Nothing was changed: send it again.
var ErrBusy = errors.New("pgorder: another transaction is at work on this key, nothing was changed")

// Push implements [order.Store]. It waits for another transaction that is at work
// on one of the keys for at most about two seconds; the messages of that key then
// carry [ErrBusy].
func (s *Store) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers, err := s.push(ctx, s.alone(), p, arrivals)
	return answers, s.wrap("push", err)
}

// Claim implements [order.Store].
func (s *Store) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	claimed, err := s.claim(ctx, s.alone(), p, a)
	return claimed, s.wrap("claim", err)
}

// Settle implements [order.Store]. It waits as [Store.Push] does.
func (s *Store) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
	errs, err := s.settle(ctx, s.alone(), p, settlements)
	return errs, s.wrap("settle", err)
}

// Account implements [order.Store].
func (s *Store) Account(ctx context.Context, scope, key string) (order.Account, error) {
	account, err := s.account(ctx, s.alone(), scope, key)
	return account, s.wrap("account", err)
}

// Find implements [order.Store].
func (s *Store) Find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	found, err := s.find(ctx, s.alone(), p, places)
	return found, s.wrap("find", err)
}

// Gaps implements [order.Store].
func (s *Store) Gaps(ctx context.Context, scope string, q order.Query) ([]order.Gap, error) {
	gaps, err := s.gaps(ctx, s.alone(), scope, q)
	return gaps, s.wrap("gaps", err)
}

// Parked implements [order.Store].
func (s *Store) Parked(ctx context.Context, scope string, q order.Query) ([]order.Message, error) {
	parked, err := s.parked(ctx, s.alone(), scope, q)
	return parked, s.wrap("parked", err)
}

// Totals implements [order.Store]. It reads every key of the scope.
func (s *Store) Totals(ctx context.Context, scope string) (order.Totals, error) {
	totals, err := s.totals(ctx, s.alone(), scope)
	return totals, s.wrap("totals", err)
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "order", Files: files}
