package pgreconcile_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// An event that is known of another message is found although nothing was said of this one,
// and keeps none of the others from being stored.
func TestAppendKnownEventOfANewMessage(t *testing.T) {
	t.Parallel()
	store, _, _ := newStore(t)
	timeline := store.Timeline()
	known := said("known", "first", "")
	answers, err := timeline.Append(t.Context(), lines, []reconcile.Observation{known})
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Appended}, answers)

	other := said("known", "second", "")
	other.Digest = [32]byte{2}
	batch := []reconcile.Observation{other, said("a", "third", "own"), said("b", "third", "own"), known, said("c", "first", "")}
	answers, err = timeline.Append(t.Context(), lines, batch)
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Differs, reconcile.Appended, reconcile.Appended, reconcile.Repeated, reconcile.Appended}, answers)
	require.Equal(t, []string{"a", "b"}, events(t, timeline, reconcile.Ref{Own: "own"}))
	require.Equal(t, []string{"known", "c"}, events(t, timeline, reconcile.Ref{Message: "first"}))
	require.Empty(t, events(t, timeline, reconcile.Ref{Message: "second"}))

	answers, err = timeline.Append(t.Context(), lines, batch)
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Differs, reconcile.Repeated, reconcile.Repeated, reconcile.Repeated, reconcile.Repeated}, answers)
}

// What an older program stored is there after Migrate, under the functions of this one.
func TestMigrateFromTheFirstLayout(t *testing.T) {
	t.Parallel()
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	const first = 9 // files of the first layout
	files, err := pgreconcile.Schema(schema)
	require.NoError(t, err)
	require.Greater(t, len(files), first)
	exec("CREATE SCHEMA " + schema)
	exec("CREATE TABLE " + schema + ".pawl_versions (component text PRIMARY KEY, version integer NOT NULL, migrated_at timestamptz NOT NULL DEFAULT now())")
	for _, sql := range files[:first] {
		exec(sql)
	}
	exec(fmt.Sprintf("INSERT INTO %s.pawl_versions VALUES ('reconcile', %d)", schema, first))
	store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema})
	require.NoError(t, err)
	require.ErrorIs(t, store.Check(t.Context()), pgreconcile.ErrNotMigrated)

	done, open := start(t, store, "done"), start(t, store, "open")
	settle(t, store, with(reconcile.VerbConfirm, done))
	old := []reconcile.Observation{said("1", "m", "own"), said("2", "m", "own")}
	_, err = store.Timeline().Append(t.Context(), lines, old)
	require.NoError(t, err)

	require.NoError(t, store.Migrate(t.Context()))
	require.NoError(t, store.Check(t.Context()))
	require.Equal(t, []string{"done", "open"}, keys(list(t, store, reconcile.Query{})))
	settle(t, store, with(reconcile.VerbConfirm, open))
	require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: 2}, counts(t, store))
	answers, err := store.Timeline().Append(t.Context(), lines, append(old, said("3", "m", "own")))
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Repeated, reconcile.Repeated, reconcile.Appended}, answers)
	require.Equal(t, []string{"1", "2", "3"}, events(t, store.Timeline(), reconcile.Ref{Own: "own"}))
}

// A number that was left out is given to somebody who has not committed yet, and the sweep
// removes the others: nobody can store more than Most beside it.
func TestAppendNoMoreThanMost(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	timeline := store.Timeline()
	p := lines
	p.Most, p.Retention = 8, 50*time.Millisecond
	about := func(events ...string) (all []reconcile.Observation) {
		for _, e := range events {
			all = append(all, said(e, "m", ""))
		}
		return all
	}
	_, err := timeline.Append(t.Context(), p, about("1", "2", "3"))
	require.NoError(t, err)
	answers, err := timeline.Append(t.Context(), p, about("3", "4", "5", "6", "7")) // 3 leaves a number out
	require.NoError(t, err)
	require.Equal(t, reconcile.Repeated, answers[0])

	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	answers, err = store.Timeline().Tx(tx).Append(t.Context(), lines, about("8"))
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Appended}, answers)
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 100)
		return err == nil && n == 7
	}, time.Minute, 10*time.Millisecond)

	p.Retention = time.Hour
	done := make(chan []reconcile.Appending, 1)
	go func() {
		answers, err := timeline.Append(context.Background(), p, about("a", "b", "c", "d", "e", "f", "g", "h"))
		assert.NoError(t, err)
		done <- answers
	}()
	waiting := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = "+
			"(SELECT t.transactionid FROM pg_locks AS t WHERE t.pid = $1 AND t.locktype = 'transactionid')", tx.Conn().PgConn().PID()).Scan(&n))
		return n
	}
	for len(done) == 0 && waiting() == 0 {
		runtime.Gosched()
	}
	require.NoError(t, tx.Commit(t.Context()))
	answers = <-done
	require.Len(t, events(t, timeline, reconcile.Ref{Message: "m"}), 8)
	require.Equal(t, reconcile.Overflow, answers[7])
	require.NotContains(t, answers[:7], reconcile.Overflow)
}
