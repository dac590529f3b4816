package pgschema_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/internal/testenv"
)

func component(steps ...string) pgschema.Component {
	files := fstest.MapFS{}
	for i, s := range steps {
		files[fmt.Sprintf("schema/%04d_step.sql", i+1)] = &fstest.MapFile{Data: []byte(s)}
	}
	return pgschema.Component{Name: "test", Files: files}
}

// The second step only works behind the first, and neither works twice.
const (
	first  = "CREATE TABLE {schema}.t (a int); INSERT INTO {schema}.t VALUES (1);"
	second = "ALTER TABLE {schema}.t ADD b int; UPDATE {schema}.t SET b = a;"
)

func connect(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	schema := testenv.SchemaName(t)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		assert.NoError(t, err)
	})
	return pool, schema
}

func TestMigrateInStepsAndAgain(t *testing.T) {
	pool, schema := connect(t)
	old, current := component(first), component(first, second)

	require.ErrorIs(t, old.Check(t.Context(), pool, schema), pgschema.ErrNotMigrated)
	for range 2 {
		require.NoError(t, old.Migrate(t.Context(), pool, schema))
	}
	require.NoError(t, old.Check(t.Context(), pool, schema))
	require.ErrorIs(t, current.Check(t.Context(), pool, schema), pgschema.ErrNotMigrated)
	for range 2 {
		require.NoError(t, current.Migrate(t.Context(), pool, schema))
	}
	require.NoError(t, current.Check(t.Context(), pool, schema))
	var rows, b int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*), max(b) FROM "+schema+".t").Scan(&rows, &b))
	assert.Equal(t, []int{1, 1}, []int{rows, b}, "each step once")

	var newer *pgschema.NewerError
	require.ErrorAs(t, old.Migrate(t.Context(), pool, schema), &newer)
	assert.Equal(t, &pgschema.NewerError{Schema: schema, Component: "test", Version: 2, Known: 1}, newer)
	require.ErrorAs(t, old.Check(t.Context(), pool, schema), &newer)
	assert.Contains(t, newer.Error(), "use a newer program")
}

func TestMigrateFromManyProcessesAtOnce(t *testing.T) {
	_, schema := connect(t)
	c := component(first, second)
	var wg sync.WaitGroup
	for range 8 {
		pool, err := pgxpool.New(t.Context(), testenv.Postgres(t)) // one each, as processes have
		require.NoError(t, err)
		wg.Go(func() {
			defer pool.Close()
			assert.NoError(t, c.Migrate(t.Context(), pool, schema))
			assert.NoError(t, c.Check(t.Context(), pool, schema))
		})
	}
	wg.Wait()
}

func TestComponentsShareASchema(t *testing.T) {
	pool, schema := connect(t)
	one, two := component(first), component("CREATE TABLE {schema}.other (a int)")
	two.Name = "other"
	require.NoError(t, one.Migrate(t.Context(), pool, schema))
	require.NoError(t, two.Migrate(t.Context(), pool, schema))
	require.NoError(t, one.Check(t.Context(), pool, schema))
	require.NoError(t, two.Check(t.Context(), pool, schema))
}

func TestAFailedStepLeavesNothing(t *testing.T) {
	pool, schema := connect(t)
	broken := component(first, "CREATE TABLE {schema}.half (a int); SELECT 1/0;")
	err := broken.Migrate(t.Context(), pool, schema)
	require.ErrorContains(t, err, "test, version 2")
	require.ErrorIs(t, broken.Check(t.Context(), pool, schema), pgschema.ErrNotMigrated)
	require.NoError(t, component(first).Check(t.Context(), pool, schema), "the step before it stands")
	var half *string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT to_regclass($1::text)::text", schema+".half").Scan(&half))
	assert.Nil(t, half)
	require.NoError(t, component(first, second).Migrate(t.Context(), pool, schema))
}

func TestNothingToDoNeedsNoRights(t *testing.T) {
	pool, schema := connect(t)
	require.NoError(t, component(first).Migrate(t.Context(), pool, schema))
	role := "role_" + schema
	_, err := pool.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN; GRANT USAGE ON SCHEMA "+schema+" TO "+role+
		"; GRANT SELECT ON "+schema+".pawl_versions TO "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		assert.NoError(t, err)
	})
	config := pool.Config()
	config.ConnConfig.User = role
	poor, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer poor.Close()
	require.NoError(t, component(first).Migrate(t.Context(), poor, schema))
	require.ErrorContains(t, component(first, second).Migrate(t.Context(), poor, schema), "42501")
}

func TestRefusedNamesAndFiles(t *testing.T) {
	for _, name := range []string{"", "a\nb", "a$b$", `a"b`, "a'b", strings.Repeat("n", 64), "\xff"} {
		require.Error(t, pgschema.CheckName(name), "%q", name)
	}
	for _, name := range []string{"pawl", "Über den Wolken", "select", strings.Repeat("n", 63)} {
		require.NoError(t, pgschema.CheckName(name), "%q", name)
	}
	for _, files := range []fstest.MapFS{
		{"schema/0002_late.sql": {}},
		{"schema/0001_a.sql": {}, "schema/0003_gap.sql": {}},
		{"schema/0001_a.sql": {}, "schema/0001_b.sql": {}},
		{"schema/0001_a.txt": {}},
		{"other/0001_a.sql": {}},
	} {
		_, err := pgschema.Component{Name: "test", Files: files}.SQL("pawl")
		require.Error(t, err)
	}
	steps, err := component("CREATE TABLE {schema}.t (a int)").SQL(`Über`)
	require.NoError(t, err)
	assert.Equal(t, []string{`CREATE TABLE "Über".t (a int)`}, steps)
	assert.Equal(t, pgx.Identifier{"a b"}.Sanitize(), pgschema.Quote("a b"))
}
