package boltdedup

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
)

// Between the look of a sweep and the removal anything can happen to a record.
func TestSweepLooksAgainBeforeItRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db, err := bbolt.Open(filepath.Join(t.TempDir(), "test.db"), 0o600, &bbolt.Options{Timeout: time.Second})
		require.NoError(t, err)
		defer db.Close()
		s, err := New(db, nil)
		require.NoError(t, err)
		g, err := dedup.New(s, &dedup.Options{Scope: "s", Retention: time.Hour})
		require.NoError(t, err)
		_, err = g.FirstSeen(ctx, "seen again", "forgotten", "left alone")
		require.NoError(t, err)
		_, err = g.Claim(ctx, dedup.Request{ID: "claimed again"})
		require.NoError(t, err)
		time.Sleep(time.Hour)

		var found findings
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			found = look(tx.Bucket(s.bucket), nil, 10)
			return nil
		}))
		require.Len(t, found.expired, 4)
		first, err := g.FirstSeen(ctx, "seen again")
		require.NoError(t, err)
		require.Equal(t, []bool{true}, first)
		owner, err := g.Claim(ctx, dedup.Request{ID: "claimed again"})
		require.NoError(t, err)
		require.Equal(t, dedup.Acquired, owner.State)
		require.NoError(t, g.Forget(ctx, "forgotten"))

		removed, err := s.remove(ctx, found)
		require.NoError(t, err)
		require.Equal(t, 1, removed)
		require.NoError(t, g.Settle(ctx, owner.Complete(nil)), "its claim is untouched")
		first, err = g.FirstSeen(ctx, "seen again")
		require.NoError(t, err)
		require.Equal(t, []bool{false}, first)
	})
}

// Tokens rise for an ID whose record is gone, also when the clock was set back
// in between: here the erased token is an hour ahead of it.
func TestTokensRiseAfterARecordWasErased(t *testing.T) {
	ahead := time.Now().Add(time.Hour).UnixMicro()
	erase := map[string]func(*Store, *dedup.Guard) error{
		"forgotten": func(_ *Store, g *dedup.Guard) error { return g.Forget(t.Context(), "id") },
		"swept":     func(s *Store, _ *dedup.Guard) error { _, err := s.Sweep(t.Context(), 10); return err },
	}
	for name, erase := range erase {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
			require.NoError(t, err)
			s, err := New(db, nil)
			require.NoError(t, err)
			g, err := dedup.New(s, &dedup.Options{Scope: "s"})
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				sc, err := s.makeScope(tx, "s")
				require.NoError(t, err)
				return sc.write([]byte("id"), &record{}, &record{state: done, token: uint64(ahead), since: ahead, expires: 1, attempt: 1})
			}))
			require.NoError(t, erase(s, g))
			require.NoError(t, db.Close())

			db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
			require.NoError(t, err)
			defer db.Close()
			s, err = New(db, nil)
			require.NoError(t, err)
			g, err = dedup.New(s, &dedup.Options{Scope: "s"})
			require.NoError(t, err)
			c, err := g.Claim(t.Context(), dedup.Request{ID: "id"})
			require.NoError(t, err)
			require.Equal(t, dedup.Acquired, c.State)
			require.Equal(t, 1, c.Attempt)
			require.Equal(t, uint64(ahead)+1, c.Token)
		})
	}
}
