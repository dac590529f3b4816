package boltinbox_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/boltinbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/internal/testenv"
)

// A file is a store with the file it is in. It is not flushed to the disk, which
// would make tests slow that are not about that.
type file struct {
	*boltinbox.Store
	db   *bbolt.DB
	path string
}

func open(t testing.TB) *file {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "inbox.db"))
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
	f.Store, err = boltinbox.New(f.db, nil)
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
	inboxtest.Run(t, inboxtest.Config{
		Steps: steps,
		New:   func(t *testing.T) inbox.Store { return verified(t, open(t)) },
		Reopen: func(t *testing.T, s inbox.Store) inbox.Store {
			f := s.(*file)
			require.NoError(t, f.db.View(f.Verify))
			require.NoError(t, f.db.Close())
			f.open(t)
			return f
		},
		Bubble: true,
	})
}

// inTransactions is the store as a caller uses it who has a transaction of his own
// for each step.
type inTransactions struct{ *file }

func within[T any](f *file, step func(inbox.Store) (T, error)) (answer T, err error) {
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		answer, err = step(f.Tx(tx))
		return err
	})
	return answer, err
}

func (s inTransactions) Accept(ctx context.Context, p inbox.Params, a []inbox.Arrival) ([]inbox.Answer, error) {
	return within(s.file, func(tx inbox.Store) ([]inbox.Answer, error) { return tx.Accept(ctx, p, a) })
}

func (s inTransactions) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	return within(s.file, func(tx inbox.Store) (inbox.Claimed, error) { return tx.Claim(ctx, a) })
}

func (s inTransactions) Settle(ctx context.Context, p inbox.Params, ss []inbox.Settlement) ([]error, error) {
	return within(s.file, func(tx inbox.Store) ([]error, error) { return tx.Settle(ctx, p, ss) })
}

func (s inTransactions) Change(ctx context.Context, p inbox.Params, cs []inbox.Change) ([]error, error) {
	return within(s.file, func(tx inbox.Store) ([]error, error) { return tx.Change(ctx, p, cs) })
}

func (s inTransactions) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	return within(s.file, func(tx inbox.Store) ([]inbox.Record, error) { return tx.List(ctx, q) })
}

func (s inTransactions) Totals(ctx context.Context) (inbox.Totals, error) {
	return within(s.file, func(tx inbox.Store) (inbox.Totals, error) { return tx.Totals(ctx) })
}

func TestStoreInTransactions(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Config{
		New:    func(t *testing.T) inbox.Store { return inTransactions{verified(t, open(t))} },
		Bubble: true,
		Once:   true, // TestStore sends every step twice as well
	})
}

// Several stores, in one bucket or in others, share a file.
func TestStoresShareAFile(t *testing.T) {
	f := verified(t, open(t))
	same, err := boltinbox.New(f.db, &boltinbox.Options{})
	require.NoError(t, err)
	other, err := boltinbox.New(f.db, &boltinbox.Options{Bucket: "another"})
	require.NoError(t, err)
	one, err := inbox.New(f, nil)
	require.NoError(t, err)
	two, err := inbox.New(same, nil)
	require.NoError(t, err)
	three, err := inbox.New(other, nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		box  *inbox.Box
		want inbox.Answer
	}{{one, inbox.Accepted}, {two, inbox.Duplicate}, {three, inbox.Accepted}} {
		got, err := tt.box.Accept(t.Context(), event("k", "a"))
		require.NoError(t, err)
		require.Equal(t, []inbox.Answer{tt.want}, got)
	}
}

func event(key, id string) inbox.Event {
	return inbox.Event{ID: "p/" + id, Provider: "p", Type: "t", Key: key, Payload: []byte("payload of " + id)}
}

// What changes nothing is not committed: a duplicate costs no flush of the disk.
func TestDuplicatesAreNotCommitted(t *testing.T) {
	f := verified(t, open(t))
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	_, err = b.Accept(t.Context(), event("k", "a"), event("k", "b"))
	require.NoError(t, err)
	before := lastTx(t, f)
	_, err = b.Accept(t.Context(), event("k", "a"), event("k", "b"))
	require.NoError(t, err)
	_, err = f.Claim(t.Context(), inbox.Ask{Stream: "idle", Keys: 1, Events: 1, Lease: time.Minute})
	require.NoError(t, err)
	_, err = f.Settle(t.Context(), inbox.Params{}, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: "s", Key: "k", Token: 7}})
	require.NoError(t, err)
	_, err = f.Sweep(t.Context(), 1000)
	require.NoError(t, err)
	require.Equal(t, before, lastTx(t, f))
}

// lastTx is the number of the last commit.
func lastTx(t testing.TB, f *file) (id int) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// Deliveries that arrive together share commits, and so do settlements.
func TestConcurrentStepsShareCommits(t *testing.T) {
	f := verified(t, open(t))
	f.db.NoSync = false // or nobody ever waits for a commit
	b, err := inbox.New(f, nil)
	require.NoError(t, err)
	const n = 300
	before := lastTx(t, f)
	failed := make(chan error, n)
	for i := range n {
		go func() {
			_, err := b.Accept(context.Background(), event(keyOf(i), idOf(i)))
			failed <- err
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
	if commits := lastTx(t, f) - before; commits > n/3 {
		t.Errorf("%d deliveries at once took %d commits", n, commits)
	}
	before = lastTx(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan string, n)
	ended := make(chan error)
	go func() {
		ended <- b.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
			worked <- r.ID
			return inbox.Done()
		}, &inbox.WorkOptions{Concurrency: 64})
	}()
	for range n {
		<-worked
	}
	cancel()
	require.NoError(t, <-ended)
	totals, err := b.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: n}, totals)
	if commits := lastTx(t, f) - before; commits > n {
		t.Errorf("%d events were worked with %d commits", n, commits)
	}
}
