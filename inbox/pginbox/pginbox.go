// Package pginbox keeps the events of an [inbox.Box] in PostgreSQL 15 or later.
//
// What was answered is committed: with PostgreSQL's default settings an accepted
// event survives a crash of the server and of its machine, and so does what became
// of it. All events of a call are one commit. With [Store.InTx] the effects of an
// event and its completion commit together or not at all, so the effect happens
// exactly once in this database. Any number of processes may work one inbox.
//
// What is not guaranteed: a server with fsync or synchronous_commit off, and a
// failover to an asynchronous standby, can lose the last events that were
// accepted; [Store.Check] reports the settings. Claims are not flushed to disk: a
// crash of the server, not of a worker, can undo the last of them, and the attempts
// they counted, and the events are then worked again, after some five seconds. Claims of a stream take turns: a
// client that is stopped in the middle of reading a large one holds up the others of
// the stream until its connection ends. Effects outside of the
// database are at least once, as with any store.
//
// # Setting up
//
//	store, err := pginbox.New(pool, nil)
//	...
//	err = store.Migrate(ctx) // once per release, with the right to create
//	...
//	if err := store.Check(ctx); errors.Is(err, pginbox.ErrNotMigrated) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, isolation, or not reachable yet
//	}
//	box, err := inbox.New(store, nil)
//
// The service's own role needs USAGE on the schema, USAGE and SELECT on its sequence,
// and SELECT, INSERT, UPDATE and DELETE on its tables. [Roles] divides that among four
// roles, of which those that accept and that clean up can read no body.
//
// Call [inbox.Box.Sweep] from time to time: without it events are kept for ever.
// Store.Sweep is enough where no bodies are kept outside (inbox.Options.Payloads).
//
// # Waking workers
//
// What a box accepts wakes its own workers at once. Workers in other processes look
// at every WorkOptions.Poll, or are woken: set Options.Notify where events are
// accepted, and run [Store.Listen] where they are worked. Notifications are sent
// after the commit, by a connection that does nothing else meanwhile, one at a time
// for all events that came in between: PostgreSQL commits notifying transactions
// one after the other, and an acceptance must not wait for that.
//
// # Transactions
//
// [Store.InTx] makes a handler for [inbox.Box.Work]. [Store.Tx] is a view of the store
// in a transaction of your own: use it through [inbox.Box.With], to accept what the
// transaction writes about, or to complete an event. Workers find what was accepted
// in it when it has committed: at once after Box.Wake, and at the next poll
// otherwise; after up to five seconds if the transaction took longer than three.
// Work is claimed outside of transactions only.
//
// An acceptance takes no lock that others share. It waits for another transaction
// that is accepting the same event, and for at most a few seconds. A settlement locks
// the row of its key until its transaction ends: a handler should complete the event
// last. Others then wait for a second, and are told [ErrBusy]; a claim passes over the
// key at once. A batch locks its keys in ascending order. A transaction that makes
// several steps should do the same, or it can deadlock with another, which PostgreSQL
// then ends with an error.
//
// Transactions have to be READ COMMITTED, PostgreSQL's default: above it a step
// would not see what others have committed since, such as that an event was
// forgotten, and fails with [ErrIsolation].
//
// # Cost
//
// An acceptance inserts one row for each stream of an event, whatever its key is
// doing. Five indexes hold it, two of which only if it has a message ID or an external
// ID. That an event is done is a short row beside it, and its own stays as it is unless
// an attempt has failed. The row of its key is written twice: when it is claimed and when
// it is released; it stays for the retention. schema/0003_claim.sql says why claims stay
// cheap while a long transaction keeps the server from removing dead rows. A transaction
// that stays open and has written something, in whatever table, makes every look from
// the front, every five seconds or less often, read what was accepted since it began.
//
// A call is one round trip, whatever the size of the batch; bodies of more than 64 MiB
// together, or more than 10,000 events, take several in one transaction.
// [inbox.Box.Totals] reads up to a million index entries for each state, and what was
// accepted since the front, which is a few seconds back unless such a transaction is open.
//
// # Poolers
//
// Behind a pooler in transaction mode that keeps no prepared statements, set
// DefaultQueryExecMode of the pool's connections to pgx.QueryExecModeExec: every
// step is one statement, which the server plans once per server connection. Listen
// needs a session of its own, and says so if it has none: give [Options].Listen a
// connection that goes past the pooler.
package pginbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// Options set up a [Store]. The zero value of each field is a working default.
type Options struct {
	// Schema is the PostgreSQL schema that holds the tables and the functions.
	// Stores in different schemas share nothing. It may be one that other things
	// live in; the names in it begin with "inbox_" or "pawl". Empty means "pawl".
	Schema string

	// Notify makes acceptances tell the workers of other processes that run
	// [Store.Listen]. False: they find the events when they next look.
	Notify bool

	// Listen connects for [Store.Listen], past a pooler that gives no sessions. The
	// connection is closed by Listen. Nil: with the configuration of the pool.
	Listen func(ctx context.Context) (*pgx.Conn, error)
}

// A Store keeps events in PostgreSQL. It is safe for concurrent use, and any
// number of processes may share a schema.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	listen func(ctx context.Context) (*pgx.Conn, error)
	bell   *bell // nil: nobody is told

	mu     sync.Mutex
	scouts map[string]*scout // by stream

	rescanEvery, staleAfter time.Duration // as the constants, but in tests

	sweeping sync.Mutex // held for the whole of a Sweep
	swept    sweepPlace
}

var (
	_ inbox.Store   = (*Store)(nil)
	_ inbox.Sweeper = (*Store)(nil)
	_ inbox.Widener = (*Store)(nil)
)

// New returns a store over a pool, which it never closes. Nil options mean
// defaults. It fails on a nil pool and on a schema name that PostgreSQL would
// not take. It does no I/O: see [Store.Migrate] and [Store.Check].
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pginbox: %w: nil pool", inbox.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Schema == "" {
		o.Schema = pgschema.DefaultSchema
	}
	if err := pgschema.CheckName(o.Schema); err != nil {
		return nil, fmt.Errorf("pginbox: %w: %w", inbox.ErrInvalid, err)
	}
	s := &Store{pool: pool, schema: o.Schema, sql: newStatements(o.Schema), listen: o.Listen,
		scouts: map[string]*scout{}, rescanEvery: rescanEvery, staleAfter: staleAfter}
	if s.listen == nil {
		s.listen = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, pool.Config().ConnConfig) }
	}
	if o.Notify {
		s.bell = &bell{ring: s.notify}
	}
	return s, nil
}

// ErrBusy says that events were not accepted, a settlement or a change not applied,
// because another transaction had the event or its key locked. Nothing was changed:
// send it again.
var ErrBusy = errors.New("pginbox: another transaction is at work on this event or key, nothing was changed")

// MergeWidth is how many calls an [inbox.Box] makes of many callers' acceptances at
// once, and of their settlements: one is worked while another waits for the disk.
func (s *Store) MergeWidth() int { return 2 }

// Accept implements [inbox.Store]. It is one transaction. It waits for another one
// that is accepting one of the events for at most a few seconds, and then fails with
// [ErrBusy].
func (s *Store) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	answers, err := s.accept(ctx, s.alone(), p, arrivals)
	if err != nil {
		return nil, s.wrap("accept", err)
	}
	if slices.Contains(answers, inbox.Accepted) {
		s.bell.press()
	}
	return answers, nil
}

// Claim implements [inbox.Store]. It passes over keys that other transactions have
// locked.
func (s *Store) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	claimed, err := s.claim(ctx, a)
	return claimed, s.wrap("claim", err)
}

// Settle implements [inbox.Store]. A settlement waits for another transaction that
// has its key locked for at most about two seconds, and then carries [ErrBusy].
func (s *Store) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) ([]error, error) {
	errs, err := s.settle(ctx, s.alone(), p, settlements)
	return errs, s.wrap("settle", err)
}

// Change implements [inbox.Store]. It waits as Settle does.
func (s *Store) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]error, error) {
	errs, err := s.change(ctx, s.alone(), p, changes)
	return errs, s.wrap("change", err)
}

// List implements [inbox.Store]. It reads no more records than it returns, except
// that it goes through all of a stream that was accepted since its front, and through
// those that keys hold, for what is pending.
func (s *Store) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	records, err := s.list(ctx, s.alone(), q)
	return records, s.wrap("list", err)
}

// Totals implements [inbox.Store].
func (s *Store) Totals(ctx context.Context) (inbox.Totals, error) {
	totals, err := s.totals(ctx, s.alone())
	return totals, s.wrap("totals", err)
}

//go:embed schema/0*.sql
var files embed.FS

//go:embed schema/roles.sql
var roles string

var component = pgschema.Component{Name: "inbox", Files: files}
