package pgdedup_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")

	setting := func(name, value string) func(*pgxpool.Config) {
		return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
	}
	check := func(change func(*pgxpool.Config)) error {
		s, err := pgdedup.New(connect(t, testenv.Postgres(t), change), &pgdedup.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	err := check(setting("synchronous_commit", "off"))
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "synchronous_commit is off")
	err = check(setting("default_transaction_isolation", "repeatable read"))
	require.ErrorIs(t, err, pgdedup.ErrIsolation)
	require.NotErrorIs(t, err, dedup.ErrAtRisk)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'dedup'")
	require.NoError(t, err)
	var newer *pgdedup.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
	assert.Equal(t, 99, newer.Version)
}

func TestCheckOfAServerThatLoses(t *testing.T) {
	server := testenv.PostgresOwn(t, "fsync=off", "full_page_writes=off")
	store, _, _ := newStoreOn(t, server.URL())
	err := store.Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "fsync is off, full_page_writes is off")
}

// TestSchemaByHand applies the exported files as a migration tool would.
func TestSchemaByHand(t *testing.T) {
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	steps, err := pgdedup.Schema(schema)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	defer pool.Exec(t.Context(), "DROP SCHEMA "+schema+" CASCADE")
	for _, step := range steps {
		require.NotContains(t, step, "{schema}")
		_, err = pool.Exec(t.Context(), step)
		require.NoError(t, err)
	}
	store, err := pgdedup.New(pool, &pgdedup.Options{Schema: schema})
	require.NoError(t, err)
	claims, err := store.Claim(t.Context(), params, asks("x", 3))
	require.NoError(t, err)
	assert.Equal(t, dedup.Acquired, claims[2].State)

	text, err := pgdedup.Schema("")
	require.NoError(t, err)
	assert.True(t, strings.Contains(text[0], `CREATE TABLE "pawl".dedup (`))
}

// TestStrangeSchemaName shows that nothing relies on names that need no quotes.
func TestStrangeSchemaName(t *testing.T) {
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t) + ` Über select.`
	store, err := pgdedup.New(pool, &pgdedup.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	defer pool.Exec(t.Context(), `DROP SCHEMA "`+schema+`" CASCADE`)
	require.NoError(t, store.Check(t.Context()))
	claims, err := store.Claim(t.Context(), params, asks("x", 3))
	require.NoError(t, err)
	errs, err := store.Settle(t.Context(), params, []dedup.Settlement{claims[0].Complete(nil), claims[1].Hold()})
	require.NoError(t, err)
	require.Nil(t, errs)
	held, err := store.Held(t.Context(), "test", "", 10)
	require.NoError(t, err)
	assert.Len(t, held, 1)
	_, err = store.Sweep(t.Context(), 10)
	require.NoError(t, err)
}
