package pgorder_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/crashtest"
	"github.com/pawl-go/pawl/order"
)

// The tables are put back to an older copy of them, sequences included.
func TestRestoredFromAnOlderCopy(t *testing.T) {
	store, pool, schema := newStore(t)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	rows, err := pool.Query(t.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'order%'", schema)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "order_keys")
	crashtest.OrderRestored(t, store, func() {
		for _, table := range tables {
			exec("CREATE TABLE " + schema + ".copy_of_" + table + " AS TABLE " + schema + "." + table)
		}
	}, func() order.Store {
		for _, table := range tables {
			exec("TRUNCATE " + schema + "." + table)
		}
		for _, table := range tables {
			exec("INSERT INTO " + schema + "." + table + " OVERRIDING SYSTEM VALUE TABLE " + schema + ".copy_of_" + table)
		}
		return store
	})
}
