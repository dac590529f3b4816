package pgwatchdog_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/watchdogtest"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestStore(t *testing.T) {
	t.Parallel()
	watchdogtest.Run(t, suite(t))
}

func suite(t *testing.T, change ...func(*pgxpool.Config)) watchdogtest.Config {
	store, _, _ := newStore(t, change...)
	return watchdogtest.Config{New: func(*testing.T) watchdog.Store { return store }}
}

// TestLongStoreInOtherModes runs the suite as it would run behind a pooler that keeps no
// prepared statements, and on a database whose transactions are serializable.
func TestLongStoreInOtherModes(t *testing.T) {
	testenv.Long(t)
	for name, change := range map[string]func(*pgxpool.Config){
		"Exec":           func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"SimpleProtocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"Serializable": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watchdogtest.Run(t, suite(t, change))
		})
	}
}
