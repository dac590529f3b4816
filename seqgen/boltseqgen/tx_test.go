package boltseqgen_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

// inTransactions is the store as a caller uses it who has a transaction of his own
// for each step.
type inTransactions struct{ *file }

func within[T any](f *file, step func(seqgen.Store) (T, error)) (answer T, err error) {
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		answer, err = step(f.Tx(tx))
		return err
	})
	return answer, err
}

func (s inTransactions) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	return within(s.file, func(tx seqgen.Store) ([]seqgen.Grant, error) { return tx.Reserve(ctx, p, asks) })
}

func (s inTransactions) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	return within(s.file, func(tx seqgen.Store) ([]seqgen.Outcome, error) { return tx.Settle(ctx, p, changes) })
}

func (s inTransactions) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	return within(s.file, func(tx seqgen.Store) ([]seqgen.State, error) { return tx.Look(ctx, scope, keys) })
}

func (s inTransactions) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	return within(s.file, func(tx seqgen.Store) ([]seqgen.Void, error) { return tx.Voids(ctx, q) })
}

func TestStoreInTransactions(t *testing.T) {
	t.Parallel()
	seqgentest.Run(t, seqgentest.Config{
		New:    func(t *testing.T) seqgen.Store { return inTransactions{verified(t, open(t))} },
		Bubble: true,
		Once:   true, // TestStore sends every step twice as well
	})
}

// Whatever ends a transaction but a commit gives its numbers back: an error, a
// panic, a commit that fails.
func TestGaplessWhateverEndsTheTransaction(t *testing.T) {
	f := verified(t, open(t))
	g, err := seqgen.New(f, nil)
	require.NoError(t, err)
	failure := errors.New("no")
	draw := func(end func(tx *bbolt.Tx) error) (number uint64, err error) {
		err = f.db.Update(func(tx *bbolt.Tx) error {
			for range 3 {
				at, err := g.With(f.Tx(tx)).NextTx(t.Context(), "invoices")
				require.NoError(t, err)
				number = at.Number
			}
			return end(tx)
		})
		return number, err
	}
	for range 2 {
		n, err := draw(func(*bbolt.Tx) error { return failure })
		require.ErrorIs(t, err, failure)
		require.Equal(t, uint64(3), n)
		require.Panics(t, func() { draw(func(*bbolt.Tx) error { panic("no") }) })
		f.db.MaxSize = 1 // the commit needs a larger file
		_, err = draw(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("large"))
			require.NoError(t, err)
			return b.Put([]byte("large"), make([]byte, 1<<20))
		})
		f.db.MaxSize = 0
		require.Error(t, err)
	}
	n, err := draw(func(*bbolt.Tx) error { return nil })
	require.NoError(t, err)
	require.Equal(t, uint64(3), n)
	require.NoError(t, f.db.Close())
	f.open(t)
	g, err = seqgen.New(f, nil)
	require.NoError(t, err)
	n, err = draw(func(*bbolt.Tx) error { return nil })
	require.NoError(t, err)
	require.Equal(t, uint64(6), n)
}
