package pgreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// beginTx begins a transaction that is rolled back at the end of the test.
func beginTx(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// What is recorded in a transaction is there when it has committed, and was never there
// when it has not.
func TestTxRecords(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	ledger, err := reconcile.New(store, &reconcile.Options{Kind: params.Kind})
	require.NoError(t, err)
	for _, commit := range []bool{false, true} {
		tx := beginTx(t, pool)
		require.NoError(t, ledger.With(store.Tx(tx)).Record(t.Context(), reconcile.Op{Key: "k", Account: "acct"}))
		_, err := store.Timeline().Tx(tx).Append(t.Context(), lines, []reconcile.Observation{said("1", "m", "")})
		require.NoError(t, err)
		outcomes, err := store.Checks().Tx(tx).Report(t.Context(), finds, []reconcile.Report{raise("x")})
		require.NoError(t, err)
		require.Equal(t, []reconcile.Outcome{reconcile.Raised}, outcomes)

		require.Empty(t, list(t, store, reconcile.Query{}))
		require.Equal(t, []string{"k"}, keys(list(t, store.Tx(tx), reconcile.Query{})))
		require.Equal(t, reconcile.Counts{Account: "acct", Failed: 1, Waiting: 1}, counts(t, store.Tx(tx)))
		require.Zero(t, counts(t, store))
		require.Equal(t, []string{"1"}, events(t, store.Timeline().Tx(tx), reconcile.Ref{Message: "m"}))
		require.Empty(t, events(t, store.Timeline(), reconcile.Ref{Message: "m"}))
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
	require.Equal(t, reconcile.Counts{Account: "acct", Failed: 1, Waiting: 1}, counts(t, store))
	require.Equal(t, []string{"1"}, events(t, store.Timeline(), reconcile.Ref{Message: "m"}))
	found, err := store.Checks().List(t.Context(), reconcile.FindingQuery{Kind: finds.Kind, N: 5})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

// inTx is a call whose effect is a row of the same database. before is called last.
func inTx(ledger *reconcile.Ledger, store *pgreconcile.Store, schema string, before func() error) reconcile.CallFunc {
	return store.InTx(ledger, func(ctx context.Context, tx pgx.Tx, op reconcile.Op) ([]byte, error) {
		_, err := tx.Exec(ctx, "INSERT INTO "+schema+".effects VALUES ($1)", op.Key)
		return []byte("result"), errors.Join(err, before())
	})
}

func createEffects(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+schema+".effects (key text)")
	require.NoError(t, err)
}

// effects counts the effects, and how many keys they are of.
func effects(t *testing.T, pool *pgxpool.Pool, schema string) (n, of int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), "SELECT count(*), count(DISTINCT key) FROM "+schema+".effects").Scan(&n, &of))
	return n, of
}

// An effect and its confirmation are one commit.
func TestInTx(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	createEffects(t, pool, schema)
	ledger, err := reconcile.New(store, &reconcile.Options{Kind: params.Kind, Quiet: time.Hour})
	require.NoError(t, err)
	state := func(key string) reconcile.Entry {
		t.Helper()
		return list(t, store, reconcile.Query{Key: key})[0]
	}
	none := func() {
		t.Helper()
		n, _ := effects(t, pool, schema)
		require.Zero(t, n)
	}
	do := func(key string, before func() error) error {
		return ledger.Do(t.Context(), reconcile.Op{Key: key}, inTx(ledger, store, schema, before), nil)
	}
	broken := errors.New("broken")
	require.ErrorIs(t, do("a", func() error { return broken }), broken)
	require.Equal(t, reconcile.Failed, state("a").State, "it was rolled back, and so did not happen")
	require.True(t, state("a").Again)
	err = do("refused", func() error { return fmt.Errorf("no money: %w", reconcile.Refused(broken)) })
	require.ErrorIs(t, err, broken)
	require.False(t, state("refused").Again)
	require.Panics(t, func() { _ = do("panics", func() error { panic("no") }) })
	require.Equal(t, reconcile.Unknown, state("panics").State)
	none()
	for _, key := range []string{"b", "c", "d"} {
		require.ErrorIs(t, do(key, func() error { return broken }), broken)
	}
	require.Zero(t, ledger.Stats().Outage, "that it did not do it is an answer")

	// A receipt that came first rolls back what the call did.
	err = do("receipt", func() error {
		settle(t, store, reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "receipt", Nonce: nonce(), State: reconcile.Failed})
		return nil
	})
	require.ErrorIs(t, err, reconcile.ErrEnded)
	require.Equal(t, reconcile.Failed, state("receipt").State)
	// So does somebody else who has taken the operation over.
	err = do("taken", func() error {
		_, err := pool.Exec(t.Context(), "UPDATE "+schema+".reconcile_ops SET token = token + 1 WHERE key = 'taken'")
		return err
	})
	require.ErrorIs(t, err, reconcile.ErrStale)
	none()

	err = ledger.Do(t.Context(), reconcile.Op{Key: "ends"}, store.InTx(ledger, func(ctx context.Context, tx pgx.Tx, op reconcile.Op) ([]byte, error) {
		require.ErrorIs(t, tx.Rollback(ctx), reconcile.ErrInvalid)
		return nil, tx.Commit(ctx)
	}), nil)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	swallowed := store.InTx(ledger, func(ctx context.Context, tx pgx.Tx, op reconcile.Op) ([]byte, error) {
		_, _ = tx.Exec(ctx, "INSERT INTO nowhere VALUES (1)")
		return nil, nil
	})
	require.Error(t, ledger.Do(t.Context(), reconcile.Op{Key: "swallowed"}, swallowed, nil))
	require.Equal(t, reconcile.Failed, state("swallowed").State)
	none()

	for range 2 {
		require.NoError(t, do("a", func() error { return nil }))
		n, _ := effects(t, pool, schema)
		require.Equal(t, 1, n)
	}
	require.Equal(t, reconcile.Confirmed, state("a").State)
	require.Equal(t, []byte("result"), state("a").Result)
}

// The answer to the commit is lost: the operation is Unknown, and is found to be Confirmed.
func TestInTxLostCommit(t *testing.T) {
	t.Parallel()
	store, proxy := behindProxy(t)
	ledger, err := reconcile.New(store, &reconcile.Options{Kind: params.Kind, SettleTimeout: 10 * time.Second})
	require.NoError(t, err)
	call := store.InTx(ledger, func(context.Context, pgx.Tx, reconcile.Op) ([]byte, error) { return nil, nil })
	proxy.DropRepliesTo("commit\x00", 1) // and not to READ COMMITTED
	err = ledger.Do(t.Context(), reconcile.Op{Key: "a"}, call, nil)
	require.Equal(t, 1, proxy.Dropped())
	state := list(t, store, reconcile.Query{Key: "a"})[0].State
	require.Equal(t, reconcile.Confirmed, state, "%v", err)
	require.NoError(t, ledger.Do(t.Context(), reconcile.Op{Key: "a"}, call, pgreconcile.NotConfirmed))
}

func TestTxRefuses(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	_, err := store.Tx(nil).Begin(t.Context(), params, []reconcile.Ask{ask("a", "")})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = store.Timeline().Tx(nil).Append(t.Context(), lines, []reconcile.Observation{said("1", "m", "")})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	for name, do := range map[string]func(tx pgx.Tx) error{
		"begin": func(tx pgx.Tx) error {
			_, err := store.Tx(tx).Begin(t.Context(), params, []reconcile.Ask{ask("a", "")})
			return err
		},
		"settle": func(tx pgx.Tx) error {
			_, err := store.Tx(tx).Settle(t.Context(), params, []reconcile.Settlement{{Verb: reconcile.VerbForget, Key: "a"}})
			return err
		},
		"append": func(tx pgx.Tx) error {
			_, err := store.Timeline().Tx(tx).Append(t.Context(), lines, []reconcile.Observation{said("1", "m", "")})
			return err
		},
		"report": func(tx pgx.Tx) error {
			_, err := store.Checks().Tx(tx).Report(t.Context(), finds, []reconcile.Report{raise("x")})
			return err
		},
		"tally": func(tx pgx.Tx) error {
			return store.Checks().Tx(tx).Tally(t.Context(), finds, []reconcile.Cell{{Series: "s", Start: time.Now(), N: 1}})
		},
	} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
		require.NoError(t, err)
		require.ErrorIs(t, do(tx), pgreconcile.ErrIsolation, name)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	tx := beginTx(t, pool)
	_, _, err = store.Tx(tx).Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: 1})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = store.Checks().Tx(tx).Claim(t.Context(), finds, "silent", 1, time.Minute)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
}

// A step waits for a transaction that holds an operation, and says that it did nothing;
// others of the batch are applied, and claims do not wait.
func TestLockedOperation(t *testing.T) {
	t.Parallel()
	store, pool, _ := newStore(t)
	held, free, due := start(t, store, "held"), start(t, store, "free"), start(t, store, "due")
	settle(t, store, with(reconcile.VerbDoubt, held), with(reconcile.VerbDoubt, due))
	tx := beginTx(t, pool)
	settle(t, store.Tx(tx), reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "held", Nonce: nonce(), State: reconcile.Confirmed})
	begin(t, store.Tx(tx), ask("new", "acct"))

	looks, _, err := store.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: 5})
	require.NoError(t, err)
	require.Equal(t, []string{"due"}, keys(looks), "what is locked is passed over")

	receipt := reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "held", Nonce: nonce(), State: reconcile.Failed}
	errs, err := store.Settle(t.Context(), params, []reconcile.Settlement{receipt, with(reconcile.VerbConfirm, free)})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pgreconcile.ErrBusy)
	require.NoError(t, errs[1])
	answers, err := store.Begin(t.Context(), params, []reconcile.Ask{ask("held", "acct"), ask("other", "acct"), ask("new", "acct")})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, pgreconcile.ErrBusy)
	require.NoError(t, answers[1].Err)
	require.Equal(t, reconcile.Send, answers[1].Grant)
	require.ErrorIs(t, answers[2].Err, pgreconcile.ErrBusy, "and so is one that is being recorded")

	// A transaction of the caller's survives it.
	other := beginTx(t, pool)
	answers, err = store.Tx(other).Begin(t.Context(), params, []reconcile.Ask{ask("new", "acct"), ask("mine", "acct")})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, pgreconcile.ErrBusy)
	require.Equal(t, reconcile.Send, answers[1].Grant)
	errs, err = store.Tx(other).Settle(t.Context(), params, []reconcile.Settlement{receipt, with(reconcile.VerbConfirm, answers[1].Entry)})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pgreconcile.ErrBusy)
	require.NoError(t, errs[1])
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, tx.Rollback(t.Context()))
	settle(t, store, receipt)
	require.Equal(t, reconcile.Counts{Account: "acct", Started: 1, Confirmed: 2, Failed: 1, Unknown: 1}, counts(t, store))
}

// Two transactions that add to one message take turns, and neither adds too many.
func TestAppendsOfOneMessageTakeTurns(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	tx := beginTx(t, pool)
	add := func(s reconcile.TimelineStore, from, n int) []reconcile.Appending {
		var os []reconcile.Observation
		for i := range n {
			os = append(os, said(fmt.Sprint(from+i), "m", ""))
		}
		answers, err := s.Append(context.Background(), lines, os)
		if err != nil {
			return nil
		}
		return answers
	}
	require.Len(t, add(store.Timeline().Tx(tx), 0, 6), 6)
	done := make(chan []reconcile.Appending)
	go func() { done <- add(store.Timeline(), 10, 4) }()
	waitForLock(t, pool, schema)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []reconcile.Appending{reconcile.Appended, reconcile.Appended, reconcile.Overflow, reconcile.Overflow}, <-done)
	h, err := store.Timeline().Read(t.Context(), lines, reconcile.Ref{Message: "m"})
	require.NoError(t, err)
	require.Len(t, h.Observations, lines.Most)
	require.Equal(t, 2, h.Dropped)

	tx = beginTx(t, pool)
	require.Len(t, add(store.Timeline().Tx(tx), 20, 1), 1)
	_, err = store.Timeline().Append(t.Context(), lines, []reconcile.Observation{said("30", "m", "")})
	require.ErrorIs(t, err, pgreconcile.ErrBusy, "which counts what it drops, until it ends")
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
