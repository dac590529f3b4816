package pgseqgen

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/seqgen"
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
var ErrIsolation = errors.New("pgseqgen: transactions begin above READ COMMITTED")

// Migrate creates the schema, the tables and the functions, or brings them up to
// date. It may be called at every start and by many processes at once; where
// nothing is missing it changes nothing and needs no right to create. People who
// migrate with a tool of their own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pgseqgen: migrate: %w", err)
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
//	INSERT INTO pawl.pawl_versions VALUES ('seqgen', 2)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: [ErrNotMigrated] or a [*NewerSchemaError];
// [seqgen.ErrAtRisk] for a server that can lose what it has committed;
// [ErrIsolation]; an unsupported server. It is [seqgen.ErrUnchecked] when the
// server does not say. Nil means that none of these was found.
//
// It looks at the settings of one connection of the pool. It cannot see whether
// a failover would promote a standby that lags behind.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

// Sweep drops at most n voids whose retention has passed, of all scopes, in short
// transactions that pass over rows which are locked, and returns how many it
// dropped. It fails with [seqgen.ErrInvalid] unless n is positive.
func (s *Store) Sweep(ctx context.Context, n int) (dropped int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pgseqgen: sweep of %d voids: %w", n, seqgen.ErrInvalid)
	}
	for dropped < n {
		most, gone := min(sweepRows, n-dropped), 0
		if err := s.pool.QueryRow(ctx, s.sql.sweep, most).Scan(&gone); err != nil {
			return dropped, s.wrap("sweep", err)
		}
		dropped += gone
		if gone < most {
			break
		}
	}
	return dropped, nil
}

// sweepRows is how many voids a transaction of Sweep drops.
const sweepRows = 1000
