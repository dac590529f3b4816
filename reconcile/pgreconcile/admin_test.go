package pgreconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

func TestNewRefuses(t *testing.T) {
	_, err := pgreconcile.New(nil, nil)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = pgreconcile.New(connect(t, testenv.Postgres(t)), &pgreconcile.Options{Schema: `a"b`})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	check := func(name, value string) error {
		s, err := pgreconcile.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pgreconcile.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	require.ErrorIs(t, check("synchronous_commit", "off"), reconcile.ErrAtRisk)
	require.ErrorIs(t, check("default_transaction_isolation", "serializable"), pgreconcile.ErrIsolation)

	gone, err := pgreconcile.New(connect(t, "postgres://postgres@127.0.0.1:1/postgres"), nil)
	require.NoError(t, err)
	require.ErrorIs(t, gone.Check(t.Context()), reconcile.ErrUnchecked)

	other, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pgreconcile.ErrNotMigrated)
	_, err = other.Begin(t.Context(), params, []reconcile.Ask{ask("a", "")})
	require.ErrorIs(t, err, pgreconcile.ErrNotMigrated)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'reconcile'")
	require.NoError(t, err)
	var newer *pgreconcile.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

// Migrate may be called by many at once, and again.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema})
			assert.NoError(t, err)
			for range 2 {
				assert.NoError(t, store.Migrate(t.Context()))
			}
			_, err = store.Begin(t.Context(), params, []reconcile.Ask{ask(fmt.Sprint(i), "")})
			assert.NoError(t, err)
			assert.NoError(t, store.Check(t.Context()))
		})
	}
	all.Wait()
}

// A role needs no more than the package comment says.
func TestRights(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	role := schema + "_service"
	_, err := pool.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[2]s LOGIN; GRANT USAGE ON SCHEMA %[1]s TO %[2]s;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s`, schema, role))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
		require.NoError(t, err)
	})
	store, err := pgreconcile.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) { c.ConnConfig.User = role }),
		&pgreconcile.Options{Schema: schema})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()), "nothing is missing")
	a, b := start(t, store, "a"), start(t, store, "b")
	settle(t, store, with(reconcile.VerbConfirm, a), with(reconcile.VerbDoubt, b))
	settle(t, store, reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "b", Nonce: nonce(), State: reconcile.Failed})
	_, _, err = store.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: 5})
	require.NoError(t, err)
	_, err = store.Timeline().Append(t.Context(), lines, []reconcile.Observation{said("1", "m", "o"), said("1", "m", "o")})
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, events(t, store.Timeline(), reconcile.Ref{Own: "o"}))
	_, err = store.Checks().Report(t.Context(), finds, []reconcile.Report{raise("x")})
	require.NoError(t, err)
	require.NoError(t, store.Checks().Tally(t.Context(), finds, []reconcile.Cell{{Series: "s", Start: time.Now(), N: 1}}))
	_, err = store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: 1, Failed: 1}, counts(t, store))
}

// A sweep looks at no more than it was told, goes on where it stopped, and removes all
// that has expired in the end, and nothing else.
func TestSweepInSmallSteps(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	_, err := store.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = store.Checks().SweepChecks(t.Context(), 0)
	require.ErrorIs(t, err, reconcile.ErrInvalid)

	const n = 20
	brief := params
	brief.Retention = time.Millisecond
	briefLines := lines
	briefLines.Retention = time.Millisecond
	briefFinds := finds
	briefFinds.Retention, briefFinds.Lull = time.Millisecond, 0
	var asks []reconcile.Ask
	var os []reconcile.Observation
	var reports []reconcile.Report
	for i := range n {
		asks = append(asks, ask(fmt.Sprint("gone", i), "acct"))
		os = append(os, said(fmt.Sprint("gone", i), fmt.Sprint("gone", i), "o"))
		reports = append(reports, raise(fmt.Sprint("gone", i)))
		clear := raise(fmt.Sprint("gone", i))
		clear.Verb = reconcile.ReportClear
		reports = append(reports, clear)
	}
	var batch []reconcile.Settlement
	for _, e := range begin(t, store, asks...) {
		batch = append(batch, with(reconcile.VerbConfirm, e))
	}
	_, err = store.Settle(t.Context(), brief, batch)
	require.NoError(t, err)
	for i := range lines.Most + 1 { // one of them is dropped, and counted
		os = append(os, said(fmt.Sprint("many", i), "many", ""))
	}
	answers, err := store.Timeline().Append(t.Context(), briefLines, os)
	require.NoError(t, err)
	require.Equal(t, reconcile.Overflow, answers[len(answers)-1])
	_, err = store.Checks().Report(t.Context(), briefFinds, reports)
	require.NoError(t, err)
	old := finds
	old.Keep = 2 * time.Hour
	require.NoError(t, store.Checks().Tally(t.Context(), old, []reconcile.Cell{{Series: "s", Start: time.Now().Add(-2*time.Hour + time.Second), N: 1}}))

	kept := begin(t, store, ask("a kept", "acct"), ask("open", "acct"), ask("review", "acct"))
	settle(t, store, with(reconcile.VerbConfirm, kept[0]))
	_, err = store.Settle(t.Context(), brief, []reconcile.Settlement{with(reconcile.VerbDoubt, kept[1]), with(reconcile.VerbAsk, kept[2])})
	require.NoError(t, err)
	_, err = store.Timeline().Append(t.Context(), lines, []reconcile.Observation{said("kept", "kept", "o")})
	require.NoError(t, err)
	// The last observation of a message says how long all of it is kept.
	_, err = store.Timeline().Append(t.Context(), briefLines, []reconcile.Observation{said("early", "kept too", "")})
	require.NoError(t, err)
	_, err = store.Timeline().Append(t.Context(), lines, []reconcile.Observation{said("late", "kept too", "")})
	require.NoError(t, err)
	_, err = store.Checks().Report(t.Context(), briefFinds, []reconcile.Report{raise("kept")})
	require.NoError(t, err)

	rows := func(table string) (count int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".reconcile_"+table).Scan(&count))
		return count
	}
	sum := 0
	require.Eventually(t, func() bool {
		got, err := store.Sweep(t.Context(), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, got, 1+lines.Most+2, "one operation, one message, one finding, one cell")
		sum += got
		return rows("ops") == 3 && rows("observations") == 3 && rows("findings") == 1 && rows("cells") == 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, n+n+lines.Most+n+1, sum)
	require.Zero(t, rows("dropped"))
	for range 10 { // round and round
		got, err := store.Sweep(t.Context(), 2)
		require.NoError(t, err)
		require.Zero(t, got)
	}
	require.Equal(t, []string{"a kept", "open", "review"}, keys(list(t, store, reconcile.Query{})))
	require.Equal(t, []string{"kept"}, events(t, store.Timeline(), reconcile.Ref{Own: "o"}))
	require.Equal(t, []string{"early", "late"}, events(t, store.Timeline(), reconcile.Ref{Message: "kept too"}))
	verify(t, store, pool, schema)
}

func TestSchema(t *testing.T) {
	text, err := pgreconcile.Schema("")
	require.NoError(t, err)
	require.Len(t, text, 10, "as the comment of Schema says")
	assert.Contains(t, text[0], `CREATE TABLE "pawl".reconcile_ops (`)
	for _, s := range text {
		assert.NotContains(t, s, "{schema}")
	}
}
