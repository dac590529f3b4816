package pgreconcile_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	runSuites(t, false)
}

// TestLongStoreInOtherModes runs the suites as they would run behind a pooler that
// keeps no prepared statements, and on a database whose transactions are
// serializable.
func TestLongStoreInOtherModes(t *testing.T) {
	for name, change := range map[string]func(*pgxpool.Config){
		"Exec":           unprepared,
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"Serializable": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuites(t, testenv.LongShort(t), change)
		})
	}
}

func unprepared(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// runSuites runs the suites on one store: every subtest has a kind of its own.
func runSuites(t *testing.T, once bool, change ...func(*pgxpool.Config)) {
	store, _, _ := newStore(t, change...)
	t.Run("Ledger", func(t *testing.T) {
		t.Parallel()
		reconciletest.Run(t, reconciletest.Config{New: func(*testing.T) reconcile.Store { return store }, Once: once})
	})
	t.Run("Timeline", func(t *testing.T) {
		t.Parallel()
		reconciletest.RunTimeline(t, reconciletest.TimelineConfig{New: func(*testing.T) reconcile.TimelineStore { return store.Timeline() }})
	})
	t.Run("Checks", func(t *testing.T) {
		t.Parallel()
		reconciletest.RunChecks(t, reconciletest.CheckConfig{
			New:   func(*testing.T) reconcile.CheckStore { return store.Checks() },
			Sweep: store.Sweep,
		})
	})
}
