package pgdedup_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestStore(t *testing.T) {
	t.Parallel() // with the modes below
	store, _, _ := newStore(t)
	deduptest.Run(t, deduptest.Config{New: func(*testing.T) dedup.Store { return store }})
}

// TestLongStoreInOtherModes runs the suite as it would run behind a pooler that
// keeps no prepared statements, and on a database whose transactions are
// serializable.
func TestLongStoreInOtherModes(t *testing.T) {
	for name, change := range map[string]func(*pgxpool.Config){
		"Exec":           func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"Serializable": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := testenv.LongShort(t)
			store, _, _ := newStore(t, change)
			deduptest.Run(t, deduptest.Config{New: func(*testing.T) dedup.Store { return store }, Once: once})
		})
	}
}

func BenchmarkStore(b *testing.B) {
	deduptest.Bench(b, func(b *testing.B) dedup.Store {
		store, pool, schema := newStore(b)
		_, err := pool.Exec(context.Background(), "TRUNCATE "+schema+".dedup")
		if err != nil {
			b.Fatal(err)
		}
		return store
	})
}
