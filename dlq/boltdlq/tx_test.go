package boltdlq_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dlq"
)

// What a transaction puts is there when it commits, and was never there when it does
// not.
func TestPutInATransaction(t *testing.T) {
	f := verified(t, open(t))
	failure := errors.New("no")
	for _, want := range []error{failure, nil} {
		err := f.db.Update(func(tx *bbolt.Tx) error {
			put(t, f.Tx(tx), letter("k", "a"))
			require.Equal(t, "a", newest(t, f.Tx(tx), "a").ID, "it is there within the transaction")
			return want
		})
		require.ErrorIs(t, err, want)
		p, err := f.List(t.Context(), dlq.Query{Stream: "s", N: 9})
		require.NoError(t, err)
		require.Equal(t, want == nil, len(p.Records) == 1)
	}
}

// An effect and the settlement of its letter are one commit.
func TestEffectAndSettlementAreOneCommit(t *testing.T) {
	f := verified(t, open(t))
	put(t, f, letter("k", "a"))
	c := claim(t, f, "a")
	failure := errors.New("the business says no")
	settle := func(after error) error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			if err := effect(tx, c.Record.Seq); err != nil {
				return err
			}
			return errors.Join(joined(f.Tx(tx).Settle(t.Context(), params, resolveAll([]dlq.Claim{c}))), after)
		})
	}
	require.ErrorIs(t, settle(failure), failure)
	require.Equal(t, dlq.StateWaiting, newest(t, f, "a").State)
	require.Empty(t, effects(t, f))
	require.NoError(t, settle(nil))
	require.Equal(t, dlq.StateResolved, newest(t, f, "a").State)
	require.Len(t, effects(t, f)[c.Record.Seq], 1)
}

// A worker whose letter a person has changed meanwhile commits nothing.
func TestSettlementOfAStaleOwnerIsRefused(t *testing.T) {
	f := verified(t, open(t))
	put(t, f, letter("k", "a"))
	c := claim(t, f, "a")
	edit(t, f, "a")
	err := f.db.Update(func(tx *bbolt.Tx) error {
		require.NoError(t, effect(tx, c.Record.Seq))
		return joined(f.Tx(tx).Settle(t.Context(), params, resolveAll([]dlq.Claim{c})))
	})
	require.ErrorIs(t, err, dlq.ErrStale)
	require.Empty(t, effects(t, f))
}

func TestUnusableTransactions(t *testing.T) {
	f, other := open(t), openPath(t, filepath.Join(t.TempDir(), "other.db"))
	ctx := t.Context()
	letters := []dlq.Put{letter("k", "a")}
	_, err := f.Tx(nil).Put(ctx, params, letters)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	tx, err := f.db.Begin(true)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = f.Tx(tx).Totals(ctx, "", 1)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).Put(ctx, params, letters)
		require.ErrorIs(t, err, bbolterrors.ErrTxNotWritable)
		totals, err := f.Tx(tx).Totals(ctx, "", 1)
		require.NoError(t, err)
		require.Empty(t, totals)
		return nil
	}))
	require.NoError(t, other.db.Update(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).List(ctx, dlq.Query{Stream: "s", N: 1})
		require.ErrorContains(t, err, "another file")
		return nil
	}))
}
