package pgdedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// ErrNotMigrated is what Check, Claim and Settle return when the database lacks
// the tables or functions that this version needs: call [Store.Migrate].
var ErrNotMigrated = pgschema.ErrNotMigrated

// A NewerSchemaError is what Migrate and Check return when a newer program has
// migrated the database. Nothing was changed.
type NewerSchemaError = pgschema.NewerError

// ErrIsolation is what Check returns when transactions of this pool begin above
// READ COMMITTED. Claims outside of transactions work all the same. For
// [Store.Tx] begin transactions with pgx.TxOptions{IsoLevel: pgx.ReadCommitted}:
// above it every step of the view fails with this error.
var ErrIsolation = errors.New("pgdedup: transactions begin above READ COMMITTED")

// Migrate creates the schema, the table and the functions, or brings them up to
// date. It may be called at every start and by many processes at once; where
// nothing is missing it changes nothing and needs no right to create. People who
// migrate with a tool of their own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pgdedup: migrate: %w", err)
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
//	INSERT INTO pawl.pawl_versions VALUES ('dedup', 2)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: [ErrNotMigrated] or a [*NewerSchemaError];
// [dedup.ErrAtRisk] for a server that can lose what it has committed;
// [ErrIsolation]; an unsupported server. It is [dedup.ErrUnchecked] when the
// server does not say. Nil means that none of these was found.
//
// It looks at the settings of one connection of the pool. It cannot see whether
// a failover would promote a standby that lags behind.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

// Sweep removes at most n expired records and looks at no more than n pages of
// the table (8 kB each), in short transactions of their own that pass over
// records which are locked. It goes on where the last Sweep of this Store
// stopped, so a whole pass takes about as many calls as the table has pages
// divided by n; when calls that make a whole pass have all returned 0, nothing
// was expired. A new Store begins at the first page.
//
// Call it every minute or so, with an n well above the number of records that
// expire meanwhile; 10000 reads at most 80 MB. A claim that meets a record just
// being removed waits for that short transaction. It fails with
// [dedup.ErrInvalid] unless n is positive.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pgdedup: sweep of %d records: %w", n, dedup.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for pages := n; pages > 0 && removed < n; pages -= stretch {
		most, gone := min(sweepRows, n-removed), 0
		err := s.alone().Call(ctx, func(rows pgx.Rows) error {
			return rows.Scan(&gone, &s.next)
		}, s.sql.sweep, s.next, min(stretch, pages), most)
		if err != nil {
			return removed, s.wrap("sweep", err)
		}
		removed += gone
		if s.next == 0 && gone < most { // behind the last page
			break
		}
	}
	return removed, nil
}

// A transaction of Sweep reads at most stretch pages and removes at most
// sweepRows records.
const (
	stretch   = 64
	sweepRows = 1000
)
