package pgseqgen_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	seqgentest.Run(t, suite())
}

// suite gives every subtest a schema of its own, and reopens a store by making
// another one.
func suite(change ...func(*pgxpool.Config)) seqgentest.Config {
	return seqgentest.Config{
		New: func(t *testing.T) seqgen.Store {
			store, _, _ := newStore(t, change...)
			return store
		},
	}
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
			c := suite(change)
			c.Once = testenv.LongShort(t)
			seqgentest.Run(t, c)
		})
	}
}
