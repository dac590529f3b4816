package boltorder_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
	"github.com/pawl-go/pawl/order/ordertest"
)

// A file is a store with the file it is in. It is not flushed to the disk, which
// would make tests slow that are not about that.
type file struct {
	*boltorder.Store
	db   *bbolt.DB
	path string
}

func open(t testing.TB) *file {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "order.db"))
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
	f.Store, err = boltorder.New(f.db, nil)
	require.NoError(t, err)
}

// verified checks at the end of a test that all parts of the file agree.
func verified(t testing.TB, f *file) *file {
	t.Cleanup(func() { require.NoError(t, f.db.View(f.Verify)) })
	return f
}

func TestStore(t *testing.T) {
	t.Parallel()
	conforms(t, 0)
}

// TestLongHistories is TestStore with longer histories, which CI has no time for.
func TestLongHistories(t *testing.T) {
	testenv.LongFull(t)
	conforms(t, 20_000)
}

func conforms(t *testing.T, steps int) {
	ordertest.Run(t, ordertest.Config{
		Steps: steps,
		New:   func(t *testing.T) order.Store { return verified(t, open(t)) },
		Reopen: func(t *testing.T, s order.Store) order.Store {
			f := s.(*file)
			require.NoError(t, f.db.View(f.Verify))
			require.NoError(t, f.db.Close())
			f.open(t)
			return f
		},
		Bubble: true,
	})
}
