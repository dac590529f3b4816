package boltdlq_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/boltdlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
	"github.com/pawl-go/pawl/internal/testenv"
)

// A file is a store with the file it is in. It is not flushed to the disk, which
// would make tests slow that are not about that.
type file struct {
	*boltdlq.Store
	db   *bbolt.DB
	path string
}

func open(t testing.TB) *file {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "dlq.db"))
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
	f.Store, err = boltdlq.New(f.db, nil)
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
	dlqtest.Run(t, dlqtest.Config{
		Steps: steps,
		New:   func(t *testing.T) dlq.Store { return verified(t, open(t)) },
		Reopen: func(t *testing.T, s dlq.Store) dlq.Store {
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

func within[T any](f *file, step func(dlq.Store) (T, error)) (answer T, err error) {
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		answer, err = step(f.Tx(tx))
		return err
	})
	return answer, err
}

func (s inTransactions) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	return within(s.file, func(tx dlq.Store) ([]dlq.Answer, error) { return tx.Put(ctx, p, letters) })
}

func (s inTransactions) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	return within(s.file, func(tx dlq.Store) (dlq.Claimed, error) { return tx.Claim(ctx, a) })
}

func (s inTransactions) Settle(ctx context.Context, p dlq.Params, ss []dlq.Settlement) ([]error, error) {
	return within(s.file, func(tx dlq.Store) ([]error, error) { return tx.Settle(ctx, p, ss) })
}

func (s inTransactions) Change(ctx context.Context, p dlq.Params, cs []dlq.Change) ([]error, error) {
	return within(s.file, func(tx dlq.Store) ([]error, error) { return tx.Change(ctx, p, cs) })
}

func (s inTransactions) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	return within(s.file, func(tx dlq.Store) (dlq.Job, error) { return tx.SaveJob(ctx, p, j) })
}

func (s inTransactions) Alert(ctx context.Context, as []dlq.Alarm) ([]bool, error) {
	return within(s.file, func(tx dlq.Store) ([]bool, error) { return tx.Alert(ctx, as) })
}

func (s inTransactions) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	return within(s.file, func(tx dlq.Store) (dlq.Page, error) { return tx.List(ctx, q) })
}

func (s inTransactions) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	return within(s.file, func(tx dlq.Store) ([]dlq.Group, error) { return tx.Groups(ctx, stream, after, n) })
}

func (s inTransactions) Audit(ctx context.Context, q dlq.AuditQuery) (entries []dlq.Entry, next uint64, err error) {
	entries, err = within(s.file, func(tx dlq.Store) (entries []dlq.Entry, err error) {
		entries, next, err = tx.Audit(ctx, q)
		return entries, err
	})
	return entries, next, err
}

func (s inTransactions) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	return within(s.file, func(tx dlq.Store) ([]dlq.Job, error) { return tx.Jobs(ctx, stream, after, n) })
}

func (s inTransactions) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	return within(s.file, func(tx dlq.Store) ([]dlq.Totals, error) { return tx.Totals(ctx, after, n) })
}

func TestStoreInTransactions(t *testing.T) {
	t.Parallel()
	dlqtest.Run(t, dlqtest.Config{
		New:    func(t *testing.T) dlq.Store { return inTransactions{verified(t, open(t))} },
		Bubble: true,
		Once:   true, // TestStore sends every step twice as well
		Steps:  300,  // TestStore has more of both
		Many:   120,
	})
}

// Several stores, in one bucket or in others, share a file.
func TestStoresShareAFile(t *testing.T) {
	f := verified(t, open(t))
	same, err := boltdlq.New(f.db, &boltdlq.Options{})
	require.NoError(t, err)
	other, err := boltdlq.New(f.db, &boltdlq.Options{Bucket: "another"})
	require.NoError(t, err)
	for _, tt := range []struct {
		store *boltdlq.Store
		want  dlq.Answer
	}{{f.Store, dlq.Added}, {same, dlq.Duplicate}, {other, dlq.Added}} {
		got, err := tt.store.Put(t.Context(), params, []dlq.Put{letter("k", "a")})
		require.NoError(t, err)
		require.Equal(t, []dlq.Answer{tt.want}, got)
	}
}

// What changes nothing is not committed, and costs no flush of the disk.
func TestWhatChangesNothingIsNotCommitted(t *testing.T) {
	f := verified(t, open(t))
	ctx := t.Context()
	full := params
	full.Capacity = 1
	a, parked := letter("k", "a"), letter("other", "b")
	parked.IfBlocked = true
	put(t, f, a)
	alarm := dlq.Alarm{Nonce: nonce(), Stream: "s", Fingerprint: "aa", Window: time.Hour}
	job := dlq.Job{Stream: "s", ID: "j", Nonce: nonce()}
	note := dlq.Change{Kind: dlq.ChangeNote, Nonce: nonce(), Stream: "s", Verb: "looked", Actor: "ana"}
	send := func() {
		_, err := f.Alert(ctx, []dlq.Alarm{alarm})
		require.NoError(t, err)
		_, err = f.SaveJob(ctx, params, job)
		require.NoError(t, err)
		_, err = f.Change(ctx, params, []dlq.Change{note})
		require.NoError(t, err)
	}
	send()
	before := lastTx(t, f)
	answers, err := f.Put(ctx, full, []dlq.Put{a, parked, letter("", "c")})
	require.NoError(t, err)
	require.Equal(t, []dlq.Answer{dlq.Added, dlq.NotBlocked, dlq.Full}, answers)
	_, err = f.Claim(ctx, dlq.Ask{Nonce: nonce(), Stream: "idle", N: 1, Bytes: 1, Lease: time.Minute})
	require.NoError(t, err)
	errs, err := f.Settle(ctx, params, []dlq.Settlement{{Kind: dlq.KindRelease, Stream: "s", Lane: "kk", Token: 7}})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], dlq.ErrStale)
	send() // again
	alarm.Nonce = nonce()
	first, err := f.Alert(ctx, []dlq.Alarm{alarm})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, first)
	_, err = f.Sweep(ctx, 1000)
	require.NoError(t, err)
	require.Equal(t, before, lastTx(t, f))
}

// A page ends with the letter that brings it to its bound, and the next goes on.
func TestPagesAreBounded(t *testing.T) {
	f := verified(t, open(t))
	const n = 20
	for i := range n {
		l := letter("k", idOf(i))
		l.Body = make([]byte, 1<<20)
		put(t, f, l)
	}
	q := dlq.Query{Stream: "s", N: 100}
	var sizes []int
	for {
		p, err := f.List(t.Context(), q)
		require.NoError(t, err)
		sizes = append(sizes, len(p.Records))
		for i, r := range p.Records {
			require.Equal(t, q.After+uint64(i)+1, r.Seq)
		}
		if p.Next == 0 {
			break
		}
		q.After = p.Next
	}
	require.Equal(t, []int{8, 8, 4}, sizes)
	p, err := f.List(t.Context(), dlq.Query{Stream: "s", N: 100, Heads: true})
	require.NoError(t, err)
	require.Len(t, p.Records, n)
}

// A query that selects next to nothing does not hold up the caller: it looks at a
// part of the letters, and says where to go on.
func TestPagesLookAtAPart(t *testing.T) {
	f := verified(t, open(t))
	const n = 25_000
	var letters []dlq.Put
	for i := range n {
		l := letter("k", idOf(i))
		if i == n-1 {
			l.Key = "other"
		}
		letters = append(letters, l)
	}
	put(t, f, letters...)
	q := dlq.Query{Stream: "s", Key: "other", State: dlq.StateWaiting, Fingerprint: "aa", N: 100}
	pages, found := 0, 0
	for {
		p, err := f.List(t.Context(), q)
		require.NoError(t, err)
		pages++
		found += len(p.Records)
		if p.Next == 0 {
			break
		}
		require.Greater(t, p.Next, q.After)
		q.After = p.Next
	}
	require.Equal(t, 3, pages)
	require.Equal(t, 1, found)
}
