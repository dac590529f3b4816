package boltdedup_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
)

func TestStore(t *testing.T) {
	deduptest.Run(t, deduptest.Config{
		New:    func(t *testing.T) dedup.Store { return newStore(t, open(t)) },
		Bubble: true,
	})
}

func BenchmarkStore(b *testing.B) {
	deduptest.Bench(b, func(b *testing.B) dedup.Store {
		return newStore(b, openFile(b, filepath.Join(b.TempDir(), "bench.db"), nil))
	})
}

// open opens a file that is closed at the end of the test. It does not flush the
// disk: what becomes of a commit when the power fails is bbolt's matter, and the
// tests are several times faster.
func open(t testing.TB) *bbolt.DB {
	return openFile(t, filepath.Join(t.TempDir(), "test.db"), &bbolt.Options{Timeout: 10 * time.Second, NoSync: true})
}

func openFile(t testing.TB, path string, opts *bbolt.Options) *bbolt.DB {
	t.Helper()
	if opts == nil {
		opts = &bbolt.Options{Timeout: 10 * time.Second}
	}
	db, err := bbolt.Open(path, 0o600, opts)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func newStore(t testing.TB, db *bbolt.DB) *boltdedup.Store {
	t.Helper()
	s, err := boltdedup.New(db, nil)
	require.NoError(t, err)
	return s
}

func newGuard(t testing.TB, s dedup.Store, opts *dedup.Options) *dedup.Guard {
	t.Helper()
	g, err := dedup.New(s, opts)
	require.NoError(t, err)
	return g
}

// count is the number of keys in the file, in buckets within buckets too.
func count(t testing.TB, db *bbolt.DB) (n int) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			n += b.Stats().KeyN
			return nil
		})
	}))
	return n
}

func TestNewRefusesBadArguments(t *testing.T) {
	_, err := boltdedup.New(nil, nil)
	require.ErrorIs(t, err, dedup.ErrInvalid)
	_, err = boltdedup.New(open(t), &boltdedup.Options{Bucket: strings.Repeat("x", bbolt.MaxKeySize+1)})
	require.ErrorIs(t, err, dedup.ErrInvalid)
}

func TestNewDoesNoIO(t *testing.T) {
	db := open(t)
	newStore(t, db)
	require.Zero(t, count(t, db))
}

func TestReopenKeepsEverything(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "test.db")
	opts := &dedup.Options{Lease: time.Hour, OnLapse: dedup.Hold}

	db := openFile(t, path, nil)
	g := newGuard(t, newStore(t, db), opts)
	done, err := g.Claim(ctx, dedup.Request{ID: "done", Fingerprint: [32]byte{1}})
	require.NoError(t, err)
	held, err := g.Claim(ctx, dedup.Request{ID: "held"})
	require.NoError(t, err)
	running, err := g.Claim(ctx, dedup.Request{ID: "running"})
	require.NoError(t, err)
	require.NoError(t, g.Settle(ctx, done.Complete([]byte("result")), held.Hold()))
	require.NoError(t, db.Close())

	db = openFile(t, path, nil)
	g = newGuard(t, newStore(t, db), opts)
	c, err := g.Claim(ctx, dedup.Request{ID: "done"})
	require.NoError(t, err)
	require.Equal(t, dedup.Done, c.State)
	require.Equal(t, "result", string(c.Result))
	clear(c.Result) // it is the caller's, and no memory of the file
	c, err = g.Claim(ctx, dedup.Request{ID: "done", Fingerprint: [32]byte{2}})
	require.NoError(t, err)
	require.Equal(t, dedup.Conflict, c.State)
	list, err := g.Held(ctx, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, held.Token, list[0].Token)
	c, err = g.Claim(ctx, dedup.Request{ID: "running"})
	require.NoError(t, err)
	require.Equal(t, dedup.InFlight, c.State)
	require.NoError(t, g.Settle(ctx, running.Complete(nil)), "the token is still good")
}

func TestBucketsAreSeparate(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	for _, bucket := range []string{"", "other"} {
		s, err := boltdedup.New(db, &boltdedup.Options{Bucket: bucket})
		require.NoError(t, err)
		first, err := newGuard(t, s, nil).FirstSeen(ctx, "id")
		require.NoError(t, err)
		require.Equal(t, []bool{true}, first, "bucket %q", bucket)
	}
}

func TestMigrateMakesTheBucketAndMayBeRepeated(t *testing.T) {
	db := open(t)
	s := newStore(t, db)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		require.NotNil(t, tx.Bucket([]byte("pawl/dedup")))
		return nil
	}))
}

// A bucket of another kind, or of a version to come, is left alone by every
// step.
func TestForeignBucketIsRefused(t *testing.T) {
	ctx := t.Context()
	for name, layout := range map[string]string{"no layout": "", "later version": "dedup 2", "other kind": "seqgen 1"} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte("pawl/dedup"))
				if err != nil || layout == "" {
					return err
				}
				return b.Put([]byte("layout"), []byte(layout))
			}))
			before := count(t, db)
			s := newStore(t, db)
			g := newGuard(t, s, nil)
			_, err := s.Claim(ctx, dedup.Params{Scope: "s", Lease: time.Hour, Retention: time.Hour},
				[]dedup.Ask{{Request: dedup.Request{ID: "id"}}})
			require.ErrorContains(t, err, "not made by this version")
			require.ErrorContains(t, s.Check(ctx), "not made by this version")
			require.Error(t, s.Migrate(ctx))
			_, err = g.Held(ctx, "", 1)
			require.Error(t, err)
			_, err = s.Sweep(ctx, 1)
			require.Error(t, err)
			require.Equal(t, before, count(t, db))
		})
	}
}

func TestCheckNamesTheRisk(t *testing.T) {
	db := open(t)
	s := newStore(t, db)
	db.NoSync = false
	require.NoError(t, s.Check(t.Context()))
	require.Zero(t, count(t, db), "Check writes nothing")

	db.NoSync = true
	err := s.Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "NoSync")

	db.NoSync, db.NoGrowSync = false, true
	err = s.Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "NoGrowSync")
}

// TestNoAnswerIsNotNew: a file that cannot be written or read gives an error and
// never a claim.
func TestNoAnswerIsNotNew(t *testing.T) {
	ctx := t.Context()
	p := dedup.Params{Scope: "s", Lease: time.Hour, Retention: time.Hour}
	asks := []dedup.Ask{{Request: dedup.Request{ID: "id"}}}
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path, nil)
	s := newStore(t, db)
	require.NoError(t, s.Migrate(ctx))
	require.NoError(t, db.Close())

	refuses := func(s *boltdedup.Store, want error) {
		claims, err := s.Claim(ctx, p, asks)
		require.ErrorIs(t, err, want)
		require.Nil(t, claims)
		errs, err := s.Settle(ctx, p, []dedup.Settlement{{Kind: dedup.KindForget, ID: "id"}})
		require.ErrorIs(t, err, want)
		require.Nil(t, errs)
		require.ErrorIs(t, s.Check(ctx), want)
	}
	refuses(s, bbolterrors.ErrDatabaseNotOpen)
	_, err := s.Held(ctx, "s", "", 1)
	require.ErrorIs(t, err, bbolterrors.ErrDatabaseNotOpen)
	_, err = s.Sweep(ctx, 1)
	require.ErrorIs(t, err, bbolterrors.ErrDatabaseNotOpen)

	s = newStore(t, openFile(t, path, &bbolt.Options{ReadOnly: true, Timeout: 10 * time.Second}))
	refuses(s, bbolterrors.ErrDatabaseReadOnly)
	claims, err := s.Held(ctx, "s", "", 1)
	require.NoError(t, err, "reading is possible")
	require.Empty(t, claims)
}

// What is settled leaves the bucket of open records, and what is claimed again
// comes back to it, so an ID is never in two places.
func TestOpenRecordsAreKeptApart(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	g := newGuard(t, newStore(t, db), &dedup.Options{Scope: "s"})
	where := func(bucket string) (ids []string) {
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("pawl/dedup")).Bucket([]byte(bucket)).ForEach(func(id, _ []byte) error {
				ids = append(ids, string(id))
				return nil
			})
		}))
		return ids
	}
	c, err := g.Claim(ctx, dedup.Request{ID: "id"})
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, []string{"id"}, where("open:s"))
		require.Empty(t, where("closed:s"))
		require.NoError(t, g.Settle(ctx, c.Release()))
		require.Empty(t, where("open:s"))
		require.Equal(t, []string{"id"}, where("closed:s"))
		c, err = g.Claim(ctx, dedup.Request{ID: "id"})
		require.NoError(t, err)
		require.Equal(t, dedup.Acquired, c.State)
	}
}

// A full disk refuses new IDs, forgets no old one, and does no harm to the file.
func TestFullFile(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path, &bbolt.Options{Timeout: 10 * time.Second, MaxSize: 256 << 10})
	g := newGuard(t, newStore(t, db), nil)
	var full error
	n := 0
	for ; full == nil && n < 1000; n++ {
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = fmt.Sprint(n, "-", i)
		}
		_, full = g.FirstSeen(ctx, ids...)
	}
	require.ErrorIs(t, full, bbolterrors.ErrMaxSizeReached)
	require.ErrorIs(t, full, dedup.ErrUnavailable)
	first, err := g.FirstSeen(ctx, "0-0")
	require.NoError(t, err)
	require.Equal(t, []bool{false}, first)
	require.NoError(t, db.Close())

	db = openFile(t, path, nil)
	g = newGuard(t, newStore(t, db), nil)
	first, err = g.FirstSeen(ctx, "0-0", fmt.Sprint(n-1, "-0"))
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, first, "what was refused was not applied")
}

func TestContextThatEndsInTheQueueWritesNothing(t *testing.T) {
	db := open(t)
	s := newStore(t, db)
	for ends := range 2 { // before the call; while another transaction has the writer's lock
		ctx := &endingContext{Context: t.Context(), after: ends}
		_, err := s.Claim(ctx, dedup.Params{Scope: "s", Lease: time.Hour, Retention: time.Hour},
			[]dedup.Ask{{Request: dedup.Request{ID: "id"}}})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, count(t, db))
	}
}

// An endingContext ends after a number of looks at it.
type endingContext struct {
	context.Context
	after int
}

func (c *endingContext) Err() error {
	if c.after--; c.after < 0 {
		return context.Canceled
	}
	return nil
}

// A batch that only finds what is known already leaves the file as it was.
func TestDuplicatesCostNoCommit(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	g := newGuard(t, newStore(t, db), nil)
	first, err := g.FirstSeen(ctx, "a", "b")
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, first)
	before := lastTx(t, db)
	first, err = g.FirstSeen(ctx, "a", "b")
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, first)
	require.NoError(t, g.Forget(ctx, "never seen"))
	require.Equal(t, before, lastTx(t, db))
	_, err = g.FirstSeen(ctx, "c")
	require.NoError(t, err)
	require.NotEqual(t, before, lastTx(t, db))
}

// lastTx numbers the last commit.
func lastTx(t testing.TB, db *bbolt.DB) (id int) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }))
	return id
}

// A damaged record must neither be taken for a new ID nor stand in the way of
// its neighbours; Forget gets rid of it.
func TestUnreadableRecord(t *testing.T) {
	const id = "wamid.8613800138000"
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, &dedup.Options{Scope: "s", OnLapse: dedup.Hold})
	c, err := g.Claim(ctx, dedup.Request{ID: id})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("pawl/dedup")).Bucket([]byte("open:s")).Put([]byte(id), []byte{99, 1, 2})
	}))

	claims, err := g.ClaimBatch(ctx, []dedup.Request{{ID: id}, {ID: "neighbour"}})
	require.NoError(t, err)
	require.ErrorIs(t, claims[0].Err, dedup.ErrUnavailable)
	require.NotContains(t, claims[0].Err.Error(), "8613800138000", "an error names no ID")
	require.Zero(t, claims[0].State)
	require.Equal(t, dedup.Acquired, claims[1].State)

	errs, err := s.Settle(ctx, dedup.Params{Scope: "s"}, []dedup.Settlement{c.Complete(nil)})
	require.NoError(t, err)
	require.ErrorContains(t, errs[0], "cannot be read")
	require.NotErrorIs(t, errs[0], dedup.ErrStale)

	list, err := g.Held(ctx, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Error(t, list[0].Err)
	_, err = s.Sweep(ctx, 100)
	require.NoError(t, err)

	require.NoError(t, g.Forget(ctx, id))
	list, err = g.Held(ctx, "", 10)
	require.NoError(t, err)
	require.Empty(t, list)
	c, err = g.Claim(ctx, dedup.Request{ID: id})
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, c.State)
	require.Equal(t, 1, c.Attempt)
}
