package boltdedup_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
)

// seen marks n IDs as done, in one commit.
func seen(t testing.TB, g *dedup.Guard, from, n int) {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("id-%06d", from+i)
	}
	first, err := g.FirstSeen(t.Context(), ids...)
	require.NoError(t, err)
	require.NotContains(t, first, false)
}

// records is how many records the store has in all scopes.
func records(t testing.TB, db *bbolt.DB) (n int) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		top := tx.Bucket([]byte("pawl/dedup"))
		return top.ForEachBucket(func(name []byte) error {
			n += top.Bucket(name).Stats().KeyN
			return nil
		})
	}))
	return n
}

// sweepRound sweeps until the whole file was looked at, with calls of n records.
func sweepRound(t testing.TB, s *boltdedup.Store, db *bbolt.DB, n int) (removed int) {
	t.Helper()
	for calls := records(t, db)/n + 1; calls > 0; calls-- {
		k, err := s.Sweep(t.Context(), n)
		require.NoError(t, err)
		require.LessOrEqual(t, k, n, "one call is bounded")
		removed += k
	}
	return removed
}

func TestSweepComesRoundTheFile(t *testing.T) {
	for _, n := range []int{1, 7, 1000, 2500, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := open(t)
				s := newStore(t, db)
				size := min(3*n, 3000) + 5
				short := newGuard(t, s, &dedup.Options{Scope: "b", Retention: time.Hour})
				long := newGuard(t, s, &dedup.Options{Scope: "c", Retention: 3 * time.Hour})
				last := newGuard(t, s, &dedup.Options{Scope: "d", Retention: time.Hour})
				for _, g := range []*dedup.Guard{short, long, last} {
					seen(t, g, 0, size)
				}
				time.Sleep(time.Hour - time.Microsecond)
				require.Zero(t, sweepRound(t, s, db, n), "nothing is forgotten early")
				time.Sleep(time.Microsecond)
				require.Equal(t, 2*size, sweepRound(t, s, db, n)+sweepRound(t, s, db, n))
				require.Equal(t, size, records(t, db))
				time.Sleep(2 * time.Hour)
				require.Equal(t, size, sweepRound(t, s, db, n)+sweepRound(t, s, db, n))
				require.Zero(t, records(t, db))
			})
		})
	}
}

func TestSweepSparesWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := open(t)
		s := newStore(t, db)
		hold := newGuard(t, s, &dedup.Options{Scope: "hold", OnLapse: dedup.Hold, Lease: time.Second, Retention: time.Second})
		rerun := newGuard(t, s, &dedup.Options{Scope: "rerun", Lease: time.Hour, Retention: time.Second})
		lapsed, err := hold.Claim(ctx, dedup.Request{ID: "lapsed"})
		require.NoError(t, err)
		held, err := hold.Claim(ctx, dedup.Request{ID: "held"})
		require.NoError(t, err)
		running, err := rerun.Claim(ctx, dedup.Request{ID: "running"})
		require.NoError(t, err)
		require.NoError(t, hold.Settle(ctx, held.Hold()))

		time.Sleep(time.Minute)
		removed, err := s.Sweep(ctx, 100)
		require.NoError(t, err)
		require.Zero(t, removed)

		require.NoError(t, hold.Settle(ctx, lapsed.Complete(nil), held.Release()))
		require.NoError(t, rerun.Settle(ctx, running.Complete(nil)))
		time.Sleep(time.Minute)
		removed, err = s.Sweep(ctx, 100)
		require.NoError(t, err)
		require.Equal(t, 3, removed)
	})
}

func TestSweepGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		db := openFile(t, path, nil)
		seen(t, newGuard(t, newStore(t, db), &dedup.Options{Retention: time.Hour}), 0, 50)
		time.Sleep(30 * time.Minute)
		seen(t, newGuard(t, newStore(t, db), &dedup.Options{Retention: time.Hour}), 50, 50)
		time.Sleep(31 * time.Minute)
		for i := range 10 { // each process gets no further than a tenth
			removed, err := newStore(t, db).Sweep(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, i < 5, removed == 10, "call %d removed %d", i, removed)
			require.NoError(t, db.Close())
			db = openFile(t, path, nil)
		}
		require.Equal(t, 50, records(t, db))
		require.Equal(t, 50, bytesWith(t, db, "id-0000"), "the second half, and no place of a sweep: its round is over")
	})
}

// Forget leaves nothing of the ID in the tree, also where a sweep was to go on.
func TestForgetErasesThePlaceOfASweep(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, &dedup.Options{OnLapse: dedup.Hold})
	for _, id := range []string{"customer-1", "customer-2", "customer-3"} {
		_, err := g.Claim(ctx, dedup.Request{ID: id})
		require.NoError(t, err)
	}
	_, err := s.Sweep(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, 2, bytesWith(t, db, "customer-2"), "the record and the sweep name it")
	require.NoError(t, g.Forget(ctx, "customer-2"))
	require.Zero(t, bytesWith(t, db, "customer-2"))
	require.Equal(t, 1, bytesWith(t, db, "customer-3"))
}

// bytesWith counts the keys and values of the store that contain s.
func bytesWith(t testing.TB, db *bbolt.DB, s string) (n int) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		n = countIn(tx.Bucket([]byte("pawl/dedup")), s)
		return nil
	}))
	return n
}

func TestSweepRefusesNothingToLookAt(t *testing.T) {
	s := newStore(t, open(t))
	for _, n := range []int{0, -1} {
		_, err := s.Sweep(t.Context(), n)
		require.ErrorIs(t, err, dedup.ErrInvalid)
	}
	removed, err := s.Sweep(t.Context(), 1)
	require.NoError(t, err, "an empty file is swept")
	require.Zero(t, removed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Sweep(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestSweepAndClaimsAtOnce(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, &dedup.Options{Retention: time.Millisecond, Lease: time.Hour})
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Sweep(ctx, 10); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var claims sync.WaitGroup
	for w := range 4 {
		claims.Go(func() {
			for i := range 50 {
				c, err := g.Claim(ctx, dedup.Request{ID: fmt.Sprint(w, "-", i%3)})
				if err != nil {
					t.Error(err)
					return
				}
				if c.State == dedup.Acquired { // else it is done, and not yet forgotten
					if err := g.Settle(ctx, c.Complete(nil)); err != nil {
						t.Error("a running claim was swept away:", err)
					}
				}
			}
		})
	}
	claims.Wait()
	close(stop)
	sweeps.Wait()
}

func countIn(b *bbolt.Bucket, s string) (n int) {
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if strings.Contains(string(k), s) || strings.Contains(string(v), s) {
			n++
		}
		if nested := b.Bucket(k); v == nil && nested != nil {
			n += countIn(nested, s)
		}
	}
	return n
}
