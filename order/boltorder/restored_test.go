package boltorder_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/crashtest"
	"github.com/pawl-go/pawl/order"
)

// The file is put back to an older copy of it.
func TestRestoredFromAnOlderCopy(t *testing.T) {
	f := verified(t, open(t))
	backup := f.path + ".backup"
	crashtest.OrderRestored(t, f, func() {
		require.NoError(t, f.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(backup, 0o600) }))
	}, func() order.Store {
		require.NoError(t, f.db.Close())
		require.NoError(t, os.Rename(backup, f.path))
		f.open(t)
		return f
	})
}
