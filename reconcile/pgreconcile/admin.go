package pgreconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/reconcile"
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
// above it every step of the view that writes fails with this error.
var ErrIsolation = errors.New("pgreconcile: transactions begin above READ COMMITTED")

// Migrate creates the schema, the tables and the functions, or brings them up to
// date. It may be called at every start and by many processes at once; where
// nothing is missing it changes nothing and needs no right to create. People who
// migrate with a tool of their own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pgreconcile: migrate: %w", err)
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
//	INSERT INTO pawl.pawl_versions VALUES ('reconcile', 10)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: [ErrNotMigrated] or a [*NewerSchemaError]; [reconcile.ErrAtRisk] for
// a server that can lose what it has committed; [ErrIsolation]; an unsupported server.
// It is [reconcile.ErrUnchecked] when the server does not say. Nil means that none of these
// was found.
//
// It looks at the settings of one connection of the pool. It cannot see whether
// a failover would promote a standby that lags behind.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

// A place is where the next Sweep goes on.
type place struct{ kind, name string }

// Sweep implements [reconcile.Sweeper], for all kinds, and for observations and findings too.
// It looks at n operations and at n messages, and goes on where the last Sweep of this Store
// stopped; of findings and cells it removes at most n each. It
// passes over operations that are locked, and works in short transactions of its own. Call it
// every minute or so, with an n that takes it through the tables in a fraction of the
// retention. It fails with [reconcile.ErrInvalid] unless n is positive.
func (s *Store) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pgreconcile: sweep of %d operations: %w", n, reconcile.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, sql := range []string{s.sql.sweep, s.sql.sweepTimeline} {
		for left := n; left > 0; {
			size, looked := min(left, stretch), 0
			err := s.alone().Call(ctx, func(rows pgx.Rows) error {
				var gone int
				var kind, name *string
				err := rows.Scan(&gone, &looked, &kind, &name)
				removed += gone
				s.swept[i] = place{value(kind), value(name)}
				return err
			}, sql, size, s.swept[i].kind, s.swept[i].name)
			if err != nil {
				return removed, s.wrap("sweep", err)
			}
			if looked < size {
				break
			}
			left -= size
		}
	}
	gone, err := s.Checks().SweepChecks(ctx, n)
	return removed + gone, err
}

// stretch is how many of each a transaction of Sweep looks at.
const stretch = 1_000
