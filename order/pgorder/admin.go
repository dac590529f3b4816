package pgorder

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/order"
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
var ErrIsolation = errors.New("pgorder: transactions begin above READ COMMITTED")

// Migrate creates the schema, the tables and the functions, or brings them up to
// date. It may be called at every start and by many processes at once; where
// nothing is missing it changes nothing and needs no right to create. People who
// migrate with a tool of their own apply [Schema] instead.
func (s *Store) Migrate(ctx context.Context) error {
	if err := component.Migrate(ctx, s.pool, s.schema); err != nil {
		return fmt.Errorf("pgorder: migrate: %w", err)
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
//	INSERT INTO pawl.pawl_versions VALUES ('order', 7)  -- the number of files
//		ON CONFLICT (component) DO UPDATE SET version = excluded.version;
func Schema(schema string) ([]string, error) {
	if schema == "" {
		schema = pgschema.DefaultSchema
	}
	return component.SQL(schema)
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: [ErrNotMigrated] or a [*NewerSchemaError];
// [order.ErrAtRisk] for a server that can lose what it has committed;
// [ErrIsolation]; an unsupported server. It is [order.ErrUnchecked] when the
// server does not say. Nil means that none of these was found.
//
// It looks at the settings of one connection of the pool. It cannot see whether
// a failover would promote a standby that lags behind.
func (s *Store) Check(ctx context.Context) error {
	return errorsOf.Check(ctx, s.pool, component, s.schema)
}

// A sweepPlace is where the next Sweep of a scope goes on.
type sweepPlace struct {
	key          string
	epoch, place int64
}

// Sweep implements [order.Sweeper]. It passes over rows that are locked, works in
// short transactions of its own, and goes on where the last Sweep of this Store
// and scope stopped; keys without messages count as one message each. A new Store
// begins at the first key. Call it every minute or so, with an n well above the
// number of messages that are delivered meanwhile. It fails with [order.ErrInvalid]
// unless n is positive.
func (s *Store) Sweep(ctx context.Context, p order.Params, n int) (forgotten int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pgorder: sweep of %d messages: %w", n, order.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n > 0 {
		at, size := s.swept[p.Scope], min(n, stretch)
		done := false
		err := s.alone().Call(ctx, func(rows pgx.Rows) error {
			var gone int
			var key *string
			var epoch, place *int64
			if err := rows.Scan(&gone, &key, &epoch, &place); err != nil {
				return err
			}
			forgotten += gone
			if done = key == nil; done {
				delete(s.swept, p.Scope)
			} else {
				s.swept[p.Scope] = sweepPlace{*key, *epoch, *place}
			}
			return nil
		}, s.sql.sweep, p.Scope, int64(p.Window), p.KeepBody.Microseconds(), p.KeepGaps.Microseconds(), at.key, at.epoch, at.place, size)
		if err != nil {
			return forgotten, s.wrap("sweep", err)
		}
		if done {
			break
		}
		n -= size
	}
	return forgotten, nil
}

// stretch is how many messages a transaction of Sweep looks at.
const stretch = 10_000
