package pgdlq_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
)

// begin begins a transaction that is rolled back at the end of the test.
func begin(t *testing.T, db pgdlq.Beginner) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// What is put in a transaction is there when it has committed, and was never there
// when it has not.
func TestTxPut(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	queue, err := dlq.New(store, nil)
	require.NoError(t, err)
	for _, commit := range []bool{false, true} {
		tx := begin(t, pool)
		bound := queue.With(store.Tx(tx))
		_, err := bound.Put(t.Context(), dlq.Dead{Message: dlq.Message{Stream: orders, ID: "a", Key: "k", Payload: []byte("x")}, Cause: io.EOF})
		require.NoError(t, err)
		put(t, store.Tx(tx), letter("b", "k"), letter("c", ""))
		require.Empty(t, list(t, store, dlq.Query{}))
		require.Equal(t, []string{"a", "b", "c"}, list(t, store.Tx(tx), dlq.Query{}))
		require.Equal(t, 3, totals(t, store.Tx(tx)).Waiting)
		require.Zero(t, totals(t, store).Waiting)
		if !commit {
			require.NoError(t, tx.Rollback(t.Context()))
			require.Empty(t, list(t, store, dlq.Query{}))
			continue
		}
		require.NoError(t, tx.Commit(t.Context()))
	}
	require.Equal(t, []string{"a", "b", "c"}, list(t, store, dlq.Query{}))
	require.Equal(t, 3, totals(t, store).Waiting)
}

// An effect and the settlement of its letter are one commit.
func TestTxSettle(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+schema+".effects (id text)")
	require.NoError(t, err)
	put(t, store, letter("a", "k"), letter("b", "k"))
	c := claim(t, store, time.Minute)
	require.Len(t, c, 1)
	effect := func(commit bool) {
		tx := begin(t, pool)
		_, err := tx.Exec(t.Context(), "INSERT INTO "+schema+".effects VALUES ($1)", c[0].Record.ID)
		require.NoError(t, err)
		settle(t, store.Tx(tx), settlement(dlq.KindResolve, c[0]))
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
	effect(false)
	require.Equal(t, 2, totals(t, store).Waiting)
	effect(true)
	require.Equal(t, dlq.Totals{Stream: orders, Waiting: 1, Resolved: 1}, totals(t, store))
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".effects").Scan(&n))
	require.Equal(t, 1, n)
	next := claim(t, store, time.Minute)
	require.Len(t, next, 1)
	require.Equal(t, "b", next[0].Record.ID)
}

func TestTxRefuses(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	_, err := store.Tx(nil).Put(t.Context(), params, []dlq.Put{letter("a", "")})
	require.ErrorIs(t, err, dlq.ErrInvalid)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = store.Tx(tx).Claim(t.Context(), newAsk(time.Minute))
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = store.Tx(tx).Put(t.Context(), params, []dlq.Put{letter("a", "")})
	require.ErrorIs(t, err, pgdlq.ErrIsolation)
}

// A settlement waits for a transaction that holds its lane, and says that it did
// nothing; others of the batch are applied, and claims do not wait.
func TestSettleOfALockedLane(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	put(t, store, letter("a", "free"), letter("b", "locked"))
	c := claim(t, store, time.Minute)
	require.Len(t, c, 2)
	tx := begin(t, pool)
	settle(t, store.Tx(tx), settlement(dlq.KindRetry, c[1]))
	batch := []dlq.Settlement{settlement(dlq.KindResolve, c[1]), settlement(dlq.KindResolve, c[0])}
	errs, err := store.Settle(t.Context(), params, batch)
	require.NoError(t, err)
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[0], pgdlq.ErrBusy)
	require.NoError(t, errs[1])
	// What is due and locked is passed over.
	put(t, store, letter("c", "other"))
	got := claim(t, store, time.Minute)
	require.Len(t, got, 1)
	require.Equal(t, "c", got[0].Record.ID)
	require.NoError(t, tx.Rollback(t.Context()))
	settle(t, store, batch...)
	require.Equal(t, dlq.Totals{Stream: orders, Waiting: 1, Resolved: 2}, totals(t, store))
}

// A letter that would park waits for a transaction that takes the first of its lane
// away, and then is the first.
func TestPutBehindALockedLetter(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	put(t, store, letter("a", "k"))
	c := claim(t, store, time.Minute)
	tx := begin(t, pool)
	settle(t, store.Tx(tx), settlement(dlq.KindResolve, c[0]))
	_, err := store.Put(t.Context(), params, []dlq.Put{letter("b", "k")})
	require.ErrorIs(t, err, pgdlq.ErrBusy)
	put(t, store, letter("c", "other"))

	parked := letter("d", "k")
	parked.IfBlocked = true
	done := make(chan dlq.Answer)
	go func() {
		answers, err := store.Put(context.Background(), params, []dlq.Put{parked})
		if err != nil {
			answers = []dlq.Answer{0}
		}
		done <- answers[0]
	}()
	waitForLock(t, pool, schema)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, dlq.NotBlocked, <-done)
	put(t, store, letter("e", "k"))
	got := claim(t, store, time.Minute)
	require.Len(t, got, 2)
}

// A letter that has parked is seen by the transaction that takes the first away.
func TestResolveWaitsForWhatParks(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	put(t, store, letter("a", "k"))
	c := claim(t, store, time.Minute)
	tx := begin(t, pool)
	put(t, store.Tx(tx), letter("b", "k"))
	done := make(chan error)
	go func() {
		_, err := store.Settle(context.Background(), params, []dlq.Settlement{settlement(dlq.KindResolve, c[0])})
		done <- err
	}()
	waitForLock(t, pool, schema)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	got := claim(t, store, time.Minute)
	require.Len(t, got, 1)
	require.Equal(t, "b", got[0].Record.ID)
}

// waitForLock returns when a step in the schema waits for a lock.
func waitForLock(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
			WHERE NOT l.granted AND a.query LIKE '%'||$1||'%'`, schema).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, time.Millisecond)
}
