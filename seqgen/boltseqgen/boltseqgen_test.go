package boltseqgen_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/boltseqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

// A file is a store with the file it is in. It is not flushed to the disk, which
// would make tests slow that are not about that.
type file struct {
	*boltseqgen.Store
	db   *bbolt.DB
	path string
}

func open(t testing.TB) *file {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "seqgen.db"))
}

func openPath(t testing.TB, path string) *file {
	t.Helper()
	f := &file{path: path}
	f.open(t)
	t.Cleanup(func() { f.db.Close() })
	return f
}

func (f *file) open(t testing.TB) {
	t.Helper()
	var err error
	f.db, err = bbolt.Open(f.path, 0o600, &bbolt.Options{
		Timeout: time.Second, NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType,
	})
	require.NoError(t, err)
	f.Store, err = boltseqgen.New(f.db, nil)
	require.NoError(t, err)
}

// verified checks at the end of a test that the parts of the file agree.
func verified(t testing.TB, f *file) *file {
	t.Cleanup(func() { require.NoError(t, f.db.View(f.Verify)) })
	return f
}

func TestStore(t *testing.T) {
	t.Parallel()
	seqgentest.Run(t, seqgentest.Config{
		New: func(t *testing.T) seqgen.Store { return verified(t, open(t)) },
		Reopen: func(t *testing.T, s seqgen.Store) seqgen.Store {
			f := s.(*file)
			require.NoError(t, f.db.View(f.Verify))
			require.NoError(t, f.db.Close())
			f.open(t)
			return f
		},
		Bubble: true,
	})
}

func TestNewRefuses(t *testing.T) {
	_, err := boltseqgen.New(nil, nil)
	require.ErrorIs(t, err, seqgen.ErrInvalid)
	f := open(t)
	_, err = boltseqgen.New(f.db, &boltseqgen.Options{Bucket: string(make([]byte, bbolt.MaxKeySize+1))})
	require.ErrorIs(t, err, seqgen.ErrInvalid)
}

func TestCheckAndMigrate(t *testing.T) {
	f := open(t)
	require.ErrorIs(t, f.Check(t.Context()), seqgen.ErrAtRisk, "the file is not flushed")
	f.db.NoSync, f.db.NoGrowSync = false, false
	require.NoError(t, f.Check(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Migrate(t.Context()))
	require.NoError(t, f.Check(t.Context()))

	other, err := boltseqgen.New(f.db, &boltseqgen.Options{Bucket: "other"})
	require.NoError(t, err)
	require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("other"))
		return err
	}))
	require.Error(t, other.Check(t.Context()), "a bucket of somebody else")
	require.Error(t, other.Migrate(t.Context()))
}

// A number of a transaction that is rolled back is assigned to the next.
func TestGapless(t *testing.T) {
	f := open(t)
	g, err := seqgen.New(f, nil)
	require.NoError(t, err)
	next := func(end func(*bbolt.Tx) error) uint64 {
		tx, err := f.db.Begin(true)
		require.NoError(t, err)
		at, err := g.With(f.Tx(tx)).NextTx(t.Context(), "invoices")
		require.NoError(t, err)
		require.NoError(t, end(tx))
		return at.Number
	}
	commit := func(tx *bbolt.Tx) error { return tx.Commit() }
	rollback := func(tx *bbolt.Tx) error { return tx.Rollback() }
	require.EqualValues(t, 1, next(commit))
	require.EqualValues(t, 2, next(rollback))
	require.EqualValues(t, 2, next(commit))
	require.EqualValues(t, 3, next(commit))
	voids, err := f.Voids(t.Context(), seqgen.VoidQuery{Scope: "default", Key: "invoices", Epoch: 1, From: 1, To: seqgen.MaxNumber, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, voids)
}

func TestTxThatCannotServe(t *testing.T) {
	f, other := open(t), open(t)
	g, err := seqgen.New(f, nil)
	require.NoError(t, err)
	use := func(tx *bbolt.Tx) error {
		_, err := g.With(f.Tx(tx)).NextTx(context.Background(), "k")
		return err
	}
	require.ErrorIs(t, use(nil), seqgen.ErrInvalid)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		require.ErrorIs(t, use(tx), bbolterrors.ErrTxNotWritable)
		return nil
	}))
	require.NoError(t, other.db.Update(func(tx *bbolt.Tx) error {
		require.ErrorIs(t, use(tx), seqgen.ErrInvalid)
		return nil
	}))
	tx, err := f.db.Begin(true)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, use(tx), bbolterrors.ErrTxClosed)
}
