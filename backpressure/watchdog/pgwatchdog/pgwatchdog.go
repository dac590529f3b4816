// Package pgwatchdog keeps the heartbeats of [watchdog] in PostgreSQL 15 or later, for
// workers and watchdogs in several processes.
//
// Every step is one function call and one commit, with the server's clock, and may be
// sent twice: what [watchdog.Store] promises holds between any number of processes. One
// of several watchdogs is granted an attempt, and with PostgreSQL's default settings no
// crash makes it forget that, nor that a worker was given up.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, a failover to an
// asynchronous standby and a restored backup can go back behind what was written. Workers
// join again then, and an attempt can be granted twice; [Store.Check] reports the
// settings.
//
// # Setting up
//
//	store, err := pgwatchdog.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pgwatchdog.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//
// The service's own role needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE
// on its table. Names and details stand in it in clear.
//
// A step waits for at most two seconds for one that has the worker's row, and then fails:
// nothing was changed. Functions that run above READ COMMITTED by the database's default
// are sent again in a transaction of their own.
//
// # Cost
//
// A heartbeat is one round trip and one commit, which writes one row of up to 600 bytes in
// place: a thousand workers at 15 seconds are 67 commits per second. A pool that is
// exhausted by the work would hold the heartbeat up: give the reporter a pool of its own.
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec.
package pgwatchdog

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the table and the functions. Stores in
	// different schemas share nothing. It may be one that other things live in; the names
	// in it begin with "watchdog_" or "pawl". Empty means "pawl".
	Schema string
}

// A Store keeps workers in PostgreSQL. It is safe for concurrent use, and any number of
// processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
}

var _ watchdog.Store = (*Store)(nil)

// New returns a store over a pool, which it never closes. Nil options mean defaults. It
// fails on a nil pool and on a schema name that PostgreSQL would not take. It does no
// I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgwatchdog: %w: nil pool", watchdog.ErrInvalid)
	}
	schema := pgschema.DefaultSchema
	if opts != nil && opts.Schema != "" {
		schema = opts.Schema
	}
	if err := pgschema.CheckName(schema); err != nil {
		return nil, fmt.Errorf("pgwatchdog: %w: %w", watchdog.ErrInvalid, err)
	}
	return &Store{pool: pool, schema: schema, sql: newStatements(schema)}, nil
}

// ErrNotMigrated is what Check and every step return when the database lacks the table
// or functions that this version needs: call [Store.Migrate].
var ErrNotMigrated = pgschema.ErrNotMigrated

// A NewerSchemaError is what Migrate and Check return when a newer program has migrated
// the database. Nothing was changed.
type NewerSchemaError = pgschema.NewerError

// ErrIsolation is what Check returns when transactions of this pool begin above READ
// COMMITTED. Steps work all the same, with one more round trip each.
var ErrIsolation = errors.New("pgwatchdog: transactions begin above READ COMMITTED")

// Migrate creates the schema, the table and the functions, or brings them up to date. It
// may be called at every start and by many processes at once; where nothing is missing it
// changes nothing and needs no right to create. People who migrate with a tool of their
// own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pgwatchdog: migrate: %w", err)
	}
	return nil
}

// Schema returns the SQL files that Migrate applies, in order, for a schema of that name,
// which has to exist; an empty name means "pawl". Apply each in a transaction; they
// contain functions, so a tool that splits files at semicolons has to be told not to.
// Afterwards tell Check and Migrate:
//
//	CREATE TABLE IF NOT EXISTS pawl.pawl_versions (
//		component text PRIMARY KEY, version integer NOT NULL,
//		migrated_at timestamptz NOT NULL DEFAULT now());
//	INSERT INTO pawl.pawl_versions VALUES ('watchdog', 1)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// Check reports what stands in the way of the package's guarantees, all of it joined in
// one error: [ErrNotMigrated] or a [*NewerSchemaError]; [watchdog.ErrAtRisk] for a server
// that can lose what it has committed; [ErrIsolation]; an unsupported server. It is
// [watchdog.ErrUnchecked] when the server does not say. Nil means that none of these was
// found. It looks at the settings of one connection of the pool.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

//go:embed schema/*.sql
var files embed.FS

var component = pgschema.Component{Name: "watchdog", Files: files}

var errorsOf = pgcall.Package{
	Name: "pgwatchdog", Invalid: watchdog.ErrInvalid, AtRisk: watchdog.ErrAtRisk, Unchecked: watchdog.ErrUnchecked, Isolation: ErrIsolation,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }
