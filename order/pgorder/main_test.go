package pgorder_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/internal/testenv/servers"
	"github.com/pawl-go/pawl/order/pgorder"
)

// TestMain starts the server that the tests and the examples of this package
// share, since an example has no testing.TB to start one with. Without a server
// the tests skip, each with the reason, and the examples are left out.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // they wait for leases, not for the processor
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("PAWL_TEST_POSTGRES") == "" {
		server, err := servers.StartPostgres()
		switch {
		case errors.Is(err, servers.ErrMissing) && !servers.Required():
			if flag.Lookup("test.skip").Value.String() == "" {
				_ = flag.Set("test.skip", "^Example")
			}
			return m.Run()
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Close()
		os.Setenv("PAWL_TEST_POSTGRES", server.URL())
	}
	return m.Run()
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
func newStore(t testing.TB, change ...func(*pgxpool.Config)) (*pgorder.Store, *pgxpool.Pool, string) {
	t.Helper()
	return newStoreOn(t, testenv.Postgres(t), change...)
}

func newStoreOn(t testing.TB, url string, change ...func(*pgxpool.Config)) (*pgorder.Store, *pgxpool.Pool, string) {
	t.Helper()
	pool := connect(t, url, change...)
	schema := testenv.SchemaName(t)
	store, err := pgorder.New(pool, &pgorder.Options{Schema: schema})
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
