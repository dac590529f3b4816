// Package pgdlq keeps the letters of a [dlq.Queue] in PostgreSQL 15 or later.
//
// What was answered is committed: with PostgreSQL's default settings a letter
// survives a crash of the server and of its machine, and so does what became of it
// and who decided it. With [Store.Tx] a letter and what else a transaction writes
// commit together or not at all. Any number of processes may share one store.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, and a
// failover to an asynchronous standby, can lose the last letters; [Store.Check]
// reports the settings. Claims are not flushed to disk: a crash of the server, not of
// a worker, can undo the last of them, and the tries they counted, and the letters are
// then tried again. Effects outside of the database are at least once, as with any
// store.
//
// # Setting up
//
//	store, err := pgdlq.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgdlq.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//	queue, err := dlq.New(store, nil)
//
// The service's own role needs USAGE on the schema and its sequences, and SELECT,
// INSERT, UPDATE and DELETE on its tables. IDs, keys and failures stand in the tables in
// clear, and bodies as the queue encoded them: sealed if it has keys.
//
// Call [Store.Sweep] from time to time: without it letters that have ended are kept
// for ever.
//
// # Transactions
//
// [Store.Tx] is a view of the store in a transaction of your own: use it through
// [dlq.Queue.With] to dead-letter a message in the transaction that acknowledges it, or
// by itself to settle a claimed letter together with its effects. Letters are claimed
// outside of transactions only. [Sandbox] runs rehearsals in a transaction that is rolled
// back.
//
// A letter that is the only one of its ID and its lane takes no lock that others
// share. One that parks behind another locks the first of its lane until its
// transaction ends; a settlement locks its letter and its lane; a change locks the
// letter, and holds up all other changes of its stream. Keep such transactions short.
// Others wait for two seconds, and are told [ErrBusy]; a claim passes over what is
// locked. A batch of letters or settlements locks lanes in ascending order. A
// transaction that makes several steps should do the same, or it can deadlock with
// another, which PostgreSQL then ends with an error.
//
// Transactions have to be READ COMMITTED, PostgreSQL's default: above it a step would
// not see what others have committed since, and fails with [ErrIsolation].
//
// # Cost
//
// A batch of letters is one round trip and one commit, which inserts a row for each;
// up to eight indexes hold it. Letters that park, and those of which an ID is known, are
// put one by one in the server. More than 2,000 letters, or 32 MiB, are several
// commits. A try writes the row of the lane twice and that of the letter once. Batches
// that only resolve, or only approve, are a few statements; others are worked one by one
// in the server. A claim reads the lanes of its stream that are held, and passes over
// their letters. A change reads the audit entries of its ID. The row of a lane stays for
// the retention, one for each key and for each letter without key.
//
// Counts do not depend on how many letters there are: groups, totals and jobs are kept
// in dlq_counts. No step waits for the row of a count: it inserts what it adds or takes
// away, and now and then a step folds that into the counts; see
// schema/0002_counts.sql. A page looks at 10,000 rows at most, along the index of the
// rarest thing that is asked for, and may be short.
//
// While a long transaction, or an idle one, keeps the server from removing dead rows,
// claims and counts read past those of all that was settled meanwhile, and get slower.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec: every step
// is one statement, which the server plans once per server connection.
package pgdlq

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "dlq_" or "pawl". Empty means "pawl".
	Schema string
}

// A Store keeps letters in PostgreSQL. It is safe for concurrent use, and any number
// of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements

	mu    sync.Mutex // held for the whole of a Sweep
	swept sweepPlace
}

var (
	_ dlq.Store   = (*Store)(nil)
	_ dlq.Sweeper = (*Store)(nil)
	_ dlq.Widener = (*Store)(nil)
)

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgdlq: %w: nil pool", dlq.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Schema == "" {
		o.Schema = pgschema.DefaultSchema
	}
	if err := pgschema.CheckName(o.Schema); err != nil {
		return nil, fmt.Errorf("pgdlq: %w: %w", dlq.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: o.Schema, sql: newStatements(o.Schema)}, nil
}

// ErrBusy says that letters were not put, or a settlement or a change not applied,
// because another transaction had the letter or its lane locked. Nothing was changed:
// send it again.
var ErrBusy = errors.New("pgdlq: another transaction is at work on this letter or its lane, nothing was changed")

// MergeWidth is how many calls a [dlq.Queue] makes of many callers' letters at once, and
// of their settlements: one is worked while another waits for the disk.
func (s *Store) MergeWidth() int { return 2 }

// Put implements [dlq.Store]. It waits for another transaction that is putting the
// same ID, or is at work on the first letter of the lane, for at most a few seconds, and
// then fails with [ErrBusy].
func (s *Store) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	answers, err := s.put(ctx, s.alone(), p, letters)
	return answers, s.wrap("put", err)
}

// Claim implements [dlq.Store]. It passes over letters that other transactions have
// locked.
func (s *Store) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	claimed, err := s.claim(ctx, a)
	return claimed, s.wrap("claim", err)
}

// Settle implements [dlq.Store]. A settlement waits for another transaction that has
// its letter or its lane locked for at most a few seconds, and then carries [ErrBusy].
func (s *Store) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	errs, err := s.settle(ctx, s.alone(), p, settlements)
	return errs, s.wrap("settle", err)
}

// Change implements [dlq.Store]. It waits as Settle does. It fails with [ErrBusy] as a
// whole if another transaction that changed letters of the stream does not end.
func (s *Store) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	errs, err := s.change(ctx, s.alone(), p, changes)
	return errs, s.wrap("change", err)
}

// SaveJob implements [dlq.Store].
func (s *Store) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	saved, err := s.saveJob(ctx, s.alone(), p, j)
	return saved, s.saving(err)
}

// Alert implements [dlq.Store].
func (s *Store) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	first, err := s.alert(ctx, s.alone(), alarms)
	return first, s.wrap("alert", err)
}

// List implements [dlq.Store]. It looks at no more than 10,000 letters, or one more
// than q.N.
func (s *Store) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	page, err := s.list(ctx, s.alone(), q)
	return page, s.wrap("list", err)
}

// Groups implements [dlq.Store].
func (s *Store) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	groups, err := s.groups(ctx, s.alone(), stream, after, n)
	return groups, s.wrap("groups", err)
}

// Audit implements [dlq.Store]. It looks at no more than 10,000 entries, or one more
// than q.N.
func (s *Store) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	entries, next, err := s.audit(ctx, s.alone(), q)
	return entries, next, s.wrap("audit", err)
}

// Jobs implements [dlq.Store].
func (s *Store) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	jobs, err := s.jobs(ctx, s.alone(), stream, after, n)
	return jobs, s.wrap("jobs", err)
}

// Totals implements [dlq.Store]. All numbers are exact.
func (s *Store) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	totals, err := s.totals(ctx, s.alone(), after, n)
	return totals, s.wrap("totals", err)
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "dlq", Files: files}
