package pginbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// ErrNotMigrated is what Check and every step return when the database lacks
// the tables or functions that this version needs: call [Store.Migrate].
var ErrNotMigrated = pgschema.ErrNotMigrated

// A NewerSchemaError is what Migrate and Check return when a newer program has
// migrated the database. Nothing was changed.
type NewerSchemaError = pgschema.NewerError

// ErrIsolation is what Check returns when transactions of this pool begin above
// READ COMMITTED. Steps outside of transactions work all the same. For
// [Store.Tx] begin transactions with pgx.TxOptions{IsoLevel: pgx.ReadCommitted}:
// above it every step of the view fails with this error.
var ErrIsolation = errors.New("pginbox: transactions begin above READ COMMITTED")

// Migrate creates the schema, the tables and the functions, or brings them up to
// date. It may be called at every start and by many processes at once; where
// nothing is missing it changes nothing and needs no right to create. People who
// migrate with a tool of their own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pginbox: migrate: %w", err)
	}
	return nil
}

// Schema returns the SQL files that Migrate applies, in order, for a schema of
// that name, which has to exist; an empty name means "pawl". Apply each in a
// transaction; they contain functions, so a tool that splits files at semicolons
// has to be told not to. Afterwards tell Check and Migrate:
//
//	CREATE TABLE IF NOT EXISTS pawl.pawl_versions (
//		component text PRIMARY KEY, version integer NOT NULL,
//		migrated_at timestamptz NOT NULL DEFAULT now());
//	INSERT INTO pawl.pawl_versions VALUES ('inbox', 9)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// RoleNames are the names of the roles that [Roles] grants rights to. They have to
// exist.
type RoleNames struct {
	Ingest   string // accepts, and can read no body
	Worker   string // claims and settles
	Operator string // reads, counts, and changes what a person decides
	Purge    string // sweeps, and can read no body
}

// Roles returns the SQL that grants each of four roles what its steps need and
// nothing else, and takes the right to call the functions from everybody else but
// their owner. Apply it after each migration. An empty schema means "pawl".
//
// The functions run with the rights of their caller, so what a role cannot do with
// its own statements it cannot do through them either. Three things need more than one
// of the roles: inbox.Operator.Redecode accepts, and needs Ingest beside Operator; and
// with inbox.Options.Payloads an acceptance looks at what is stored and
// [inbox.Box.Sweep] lists, so those need Operator beside Ingest and beside Purge, and
// can then read bodies. What a role may not do fails as if the server were away, with
// inbox.ErrUnavailable and the server's words, and Work goes on asking.
//
// All four may Check, and none may Migrate: leave that to the owner.
func Roles(schema string, names RoleNames) (string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	if err := pgschema.CheckName(schema); err != nil {
		return "", fmt.Errorf("pginbox: %w: %w", inbox.ErrInvalid, err)
	}
	pairs := []string{"{schema}", pgschema.Quote(schema)}
	for _, r := range []struct{ place, name string }{
		{"{ingest}", names.Ingest}, {"{worker}", names.Worker}, {"{operator}", names.Operator}, {"{purge}", names.Purge},
	} {
		if err := pgschema.CheckName(r.name); err != nil {
			return "", fmt.Errorf("pginbox: %w: the role for %s: %w", inbox.ErrInvalid, r.place, err)
		}
		pairs = append(pairs, r.place, pgx.Identifier{r.name}.Sanitize())
	}
	return strings.NewReplacer(pairs...).Replace(roles), nil
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: [ErrNotMigrated] or a [*NewerSchemaError];
// [inbox.ErrAtRisk] for a server that can lose what it has committed;
// [ErrIsolation]; an unsupported server. It is [inbox.ErrUnchecked] when the server
// does not say. Nil means that none of these was found.
//
// It looks at the settings of one connection of the pool. It cannot see whether
// a failover would promote a standby that lags behind.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

// A sweepPlace is where the next Sweep goes on.
type sweepPlace struct {
	after       int64
	key, stream string
}

// Sweep implements [inbox.Sweeper]. It passes over rows that are locked, works in
// short transactions of its own, and goes on where the last Sweep of this Store
// stopped; a new Store begins at the first record. It looks at as many keys as
// records, and forgets those that have had nothing pending for the retention. A pending
// record that workers would not find, which no fault that is known of can bring about, is
// found again when it is looked at. Call
// it every minute or so, with an n well above the number of events that are
// accepted meanwhile. It fails with [inbox.ErrInvalid] unless n is positive.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pginbox: sweep of %d records: %w", n, inbox.ErrInvalid)
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	for n > 0 {
		size, done := min(n, stretch), false
		err := s.alone().Call(ctx, func(rows pgx.Rows) error {
			var gone, looked int
			var after *int64
			var key, stream *string
			if err := rows.Scan(&gone, &looked, &after, &key, &stream); err != nil {
				return err
			}
			removed += gone
			done = after == nil && key == nil
			s.swept = sweepPlace{}
			if after != nil {
				s.swept.after = *after
			}
			if key != nil && stream != nil {
				s.swept.key, s.swept.stream = *key, *stream
			}
			return nil
		}, s.sql.sweep, s.swept.after, size, s.swept.key, s.swept.stream)
		if err != nil {
			return removed, s.wrap("sweep", err)
		}
		if done {
			break
		}
		n -= size
	}
	return removed, nil
}

// stretch is how many records a transaction of Sweep looks at.
const stretch = 5_000
