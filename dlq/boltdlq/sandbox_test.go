package boltdlq_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
)

// worked has the effect of a letter, in the transaction of the sandbox if there is one.
func worked(ctx context.Context, f *file, l dlq.Letter) error {
	if tx, ok := boltdlq.TxFrom(ctx); ok {
		return effect(tx, l.Seq)
	}
	return f.db.Update(func(tx *bbolt.Tx) error { return effect(tx, l.Seq) })
}

// Whatever becomes of a rehearsal, nothing of it stays in the file.
func TestSandboxIsRolledBack(t *testing.T) {
	f := verified(t, open(t))
	q := newQueue(t, f, nil)
	_, err := q.Put(t.Context(), dead("k", "a"))
	require.NoError(t, err)
	l := dlq.Letter{Stream: "s", ID: "a", Seq: 1}
	before := contents(t, f)
	for name, tt := range map[string]struct {
		after   func(tx *bbolt.Tx) error
		verdict dlq.Verdict
	}{
		"it passes":     {func(*bbolt.Tx) error { return nil }, dlq.WouldPass},
		"it fails":      {func(*bbolt.Tx) error { return errFailed }, dlq.OtherFailure},
		"it panics":     {func(*bbolt.Tx) error { panic("in a handler") }, dlq.OtherFailure},
		"it commits":    {func(tx *bbolt.Tx) error { return tx.Commit() }, dlq.OtherFailure},
		"it rolls back": {func(tx *bbolt.Tx) error { return tx.Rollback() }, dlq.OtherFailure},
		"it makes letters": {func(tx *bbolt.Tx) error {
			_, err := q.With(f.Tx(tx)).Put(t.Context(), dead("k", "another"))
			return err
		}, dlq.WouldPass},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			r, err := q.DryRun(t.Context(), func(ctx context.Context, l dlq.Letter) error {
				ran = true
				require.NoError(t, worked(ctx, f, l))
				tx, ok := boltdlq.TxFrom(ctx)
				require.True(t, ok)
				return tt.after(tx)
			}, l, &dlq.DryRunOptions{Sandbox: boltdlq.Sandbox(f.db)})
			require.NoError(t, err)
			require.True(t, ran)
			require.Equal(t, tt.verdict, r.Verdict)
			require.Empty(t, effects(t, f))
			require.Equal(t, before, contents(t, f))
		})
	}
	put(t, f, letter("k", "after")) // the file is free again
}

func TestSandboxWithoutATransaction(t *testing.T) {
	f := open(t)
	require.NoError(t, f.db.Close())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		db   *bbolt.DB
		want error
	}{
		"no file":         {t.Context(), nil, dlq.ErrInvalid},
		"a closed file":   {t.Context(), f.db, bbolterrors.ErrDatabaseNotOpen},
		"the time was up": {canceled, open(t).db, context.Canceled},
	} {
		err := boltdlq.Sandbox(tt.db)(tt.ctx, func(context.Context) error {
			t.Error("the handler ran: ", name)
			return nil
		})
		require.ErrorIs(t, err, tt.want, name)
	}
}

// A rehearsal, and then the return to the normal flow, which has the effect: once.
func TestRehearsedAndReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		q := newQueue(t, f, nil)
		_, err := q.Put(t.Context(), dead("k", "a"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		returned := 0
		require.NoError(t, q.Run(ctx, func(ctx context.Context, l dlq.Letter) error { return worked(ctx, f, l) }, &dlq.RunOptions{
			Stream: "s", Sandbox: boltdlq.Sandbox(f.db),
			Return: func(ctx context.Context, l dlq.Letter) error {
				require.Empty(t, effects(t, f), "the rehearsal left nothing")
				returned++
				return worked(ctx, f, l)
			},
		}))
		require.Equal(t, 1, returned)
		r := newest(t, f, "a")
		require.Equal(t, dlq.StateResolved, r.State)
		require.Len(t, effects(t, f)[r.Seq], 1)
	})
}
