package pgdlq_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
)

// What a handler writes in a sandbox is undone, however it ends.
func TestSandbox(t *testing.T) {
	t.Parallel()
	_, pool, schema := newStore(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+schema+".effects (id text)")
	require.NoError(t, err)
	count := func(db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (n int) {
		require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".effects").Scan(&n))
		return n
	}
	outer := begin(t, pool)
	_, err = outer.Exec(t.Context(), "INSERT INTO "+schema+".effects VALUES ('outer')")
	require.NoError(t, err)

	errNo := errors.New("no")
	write := func(ctx context.Context) pgx.Tx {
		tx, ok := pgdlq.TxFrom(ctx)
		require.True(t, ok)
		_, err := tx.Exec(ctx, "INSERT INTO "+schema+".effects VALUES ('a')")
		require.NoError(t, err)
		return tx
	}
	for name, db := range map[string]pgdlq.Beginner{"pool": pool, "savepoint": outer} {
		box := pgdlq.Sandbox(db)
		require.NoError(t, box(t.Context(), func(ctx context.Context) error {
			tx := write(ctx)
			require.Positive(t, count(tx))
			require.Error(t, tx.Commit(ctx), name)
			require.Error(t, tx.Rollback(ctx), name)
			return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
				_, err := inner.Exec(ctx, "INSERT INTO "+schema+".effects VALUES ('b')")
				return err
			})
		}), name)
		require.ErrorIs(t, box(t.Context(), func(ctx context.Context) error { write(ctx); return errNo }), errNo, name)
		require.Panics(t, func() { _ = box(t.Context(), func(ctx context.Context) error { write(ctx); panic("no") }) }, name)
		require.NoError(t, box(t.Context(), func(ctx context.Context) error {
			_, err := write(ctx).Exec(ctx, "SELECT 1/0")
			require.Error(t, err)
			return nil
		}), name)
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, box(ctx, func(ctx context.Context) error { write(ctx); cancel(); return ctx.Err() }), context.Canceled)
	}
	require.Zero(t, count(pool))
	require.Equal(t, 1, count(outer))
	_, ok := pgdlq.TxFrom(t.Context())
	require.False(t, ok)

	err = pgdlq.Sandbox(pool)(t.Context(), func(ctx context.Context) error {
		_, err := write(ctx).Exec(ctx, "COMMIT")
		return err
	})
	require.ErrorContains(t, err, "may have stayed")
	require.Equal(t, 1, count(pool))
	require.ErrorIs(t, pgdlq.Sandbox(nil)(t.Context(), nil), dlq.ErrInvalid)
}

// A dry run says what would happen, and leaves nothing.
func TestDryRunInASandbox(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+schema+".effects (id text PRIMARY KEY)")
	require.NoError(t, err)
	queue, err := dlq.New(store, nil)
	require.NoError(t, err)
	handle := func(ctx context.Context, l dlq.Letter) error {
		tx, ok := pgdlq.TxFrom(ctx)
		require.True(t, ok)
		_, err := tx.Exec(ctx, "INSERT INTO "+schema+".effects VALUES ($1)", l.ID)
		return err
	}
	opts := &dlq.DryRunOptions{Sandbox: pgdlq.Sandbox(pool)}
	l := dlq.Letter{Stream: orders, ID: "a"}
	for range 2 {
		r, err := queue.DryRun(t.Context(), handle, l, opts)
		require.NoError(t, err)
		require.Equal(t, dlq.WouldPass, r.Verdict)
	}
	_, err = pool.Exec(t.Context(), "INSERT INTO "+schema+".effects VALUES ('a')")
	require.NoError(t, err)
	r, err := queue.DryRun(t.Context(), handle, l, opts)
	require.NoError(t, err)
	require.Equal(t, dlq.OtherFailure, r.Verdict)
}
