package pgreconcile_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crashURL); url != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(url, os.Getenv(crashSchema)))
		os.Exit(1)
	}
	testenv.MainWithPostgres(m)
}

// connect returns a pool on the server at url, closed at the test's end.
func connect(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 8
	for _, c := range change {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// newStore returns a migrated store in a schema of its own on the shared server.
func newStore(t testing.TB, change ...func(*pgxpool.Config)) (*pgreconcile.Store, *pgxpool.Pool, string) {
	t.Helper()
	return newStoreOn(t, testenv.Postgres(t), change...)
}

func newStoreOn(t testing.TB, url string, change ...func(*pgxpool.Config)) (*pgreconcile.Store, *pgxpool.Pool, string) {
	t.Helper()
	pool := connect(t, url, change...)
	schema := testenv.SchemaName(t)
	store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(context.Background()))
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			return // a server of the test's own that is gone
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
		require.NoError(t, err)
	})
	return store, pool, schema
}
