package boltreconcile_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

var (
	_ reconcile.Sweeper           = (*boltreconcile.Store)(nil)
	_ reconcile.TimelineForgetter = (*boltreconcile.TimelineStore)(nil)
	_ reconcile.CheckSweeper      = (*boltreconcile.CheckStore)(nil)
)

// A file is a store with the file it is in. It is not flushed to the disk, which
// would make tests slow that are not about that.
type file struct {
	*boltreconcile.Store
	db   *bbolt.DB
	path string
}

func open(t testing.TB) *file {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "reconcile.db"))
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
	f.Store, err = boltreconcile.New(f.db, nil)
	require.NoError(t, err)
}

// verified checks at the end of a test that all parts of the file agree.
func verified(t testing.TB, f *file) *file {
	t.Cleanup(func() { require.NoError(t, f.db.View(f.Verify)) })
	return f
}

func TestStore(t *testing.T) {
	t.Parallel()
	reconciletest.Run(t, reconciletest.Config{
		New:    func(t *testing.T) reconcile.Store { return verified(t, open(t)) },
		Bubble: true,
	})
}

// TestLongHistories is TestStore with longer histories, which CI has no time for.
func TestLongHistories(t *testing.T) {
	testenv.LongFull(t)
	reconciletest.Run(t, reconciletest.Config{
		Steps:  5_000,
		New:    func(t *testing.T) reconcile.Store { return verified(t, open(t)) },
		Bubble: true,
	})
}

func TestTimelineStore(t *testing.T) {
	t.Parallel()
	reconciletest.RunTimeline(t, reconciletest.TimelineConfig{
		New:    func(t *testing.T) reconcile.TimelineStore { return verified(t, open(t)).Timeline() },
		Bubble: true,
	})
}

// inTransactions is the store as a caller uses it who has a transaction of his own
// for each step.
type inTransactions struct{ *file }

func within[T any](f *file, step func(tx *bbolt.Tx) (T, error)) (answer T, err error) {
	err = f.db.Update(func(tx *bbolt.Tx) (err error) {
		answer, err = step(tx)
		return err
	})
	return answer, err
}

func (s inTransactions) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Answer, error) { return s.Tx(tx).Begin(ctx, p, asks) })
}

func (s inTransactions) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) (entries []reconcile.Entry, next time.Duration, err error) {
	entries, err = within(s.file, func(tx *bbolt.Tx) (entries []reconcile.Entry, err error) {
		entries, next, err = s.Tx(tx).Claim(ctx, p, a)
		return entries, err
	})
	return entries, next, err
}

func (s inTransactions) Settle(ctx context.Context, p reconcile.Params, ss []reconcile.Settlement) ([]error, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]error, error) { return s.Tx(tx).Settle(ctx, p, ss) })
}

func (s inTransactions) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Entry, error) { return s.Tx(tx).List(ctx, q) })
}

func (s inTransactions) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Counts, error) { return s.Tx(tx).Counts(ctx, kind, after, first, n) })
}

func TestStoreInTransactions(t *testing.T) {
	t.Parallel()
	reconciletest.Run(t, reconciletest.Config{
		New:    func(t *testing.T) reconcile.Store { return inTransactions{verified(t, open(t))} },
		Bubble: true,
		Once:   true, // TestStore sends every step twice as well
	})
}

type timelineInTransactions struct{ *file }

func (s timelineInTransactions) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Appending, error) { return s.Timeline().Tx(tx).Append(ctx, p, os) })
}

func (s timelineInTransactions) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	return within(s.file, func(tx *bbolt.Tx) (reconcile.History, error) { return s.Timeline().Tx(tx).Read(ctx, p, ref) })
}

func (s timelineInTransactions) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (n int, err error) {
	return within(s.file, func(tx *bbolt.Tx) (int, error) {
		return s.Timeline().Tx(tx).(reconcile.TimelineForgetter).Forget(ctx, p, ref)
	})
}

func TestTimelineStoreInTransactions(t *testing.T) {
	t.Parallel()
	reconciletest.RunTimeline(t, reconciletest.TimelineConfig{
		New:    func(t *testing.T) reconcile.TimelineStore { return timelineInTransactions{verified(t, open(t))} },
		Bubble: true,
	})
}

func TestCheckStore(t *testing.T) {
	t.Parallel()
	reconciletest.RunChecks(t, reconciletest.CheckConfig{
		New:    func(t *testing.T) reconcile.CheckStore { return verified(t, open(t)).Checks() },
		Bubble: true,
	})
}

type checksInTransactions struct{ *file }

func (s checksInTransactions) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Outcome, error) { return s.Checks().Tx(tx).Report(ctx, p, rs) })
}

func (s checksInTransactions) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) ([]reconcile.Finding, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Finding, error) {
		return s.Checks().Tx(tx).Claim(ctx, p, check, n, hold)
	})
}

func (s checksInTransactions) List(ctx context.Context, q reconcile.FindingQuery) ([]reconcile.Finding, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Finding, error) { return s.Checks().Tx(tx).List(ctx, q) })
}

func (s checksInTransactions) Open(ctx context.Context, kind string) ([]reconcile.OpenFindings, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.OpenFindings, error) { return s.Checks().Tx(tx).Open(ctx, kind) })
}

func (s checksInTransactions) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	return s.db.Update(func(tx *bbolt.Tx) error { return s.Checks().Tx(tx).Tally(ctx, p, cells) })
}

func (s checksInTransactions) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) ([]reconcile.Volume, error) {
	return within(s.file, func(tx *bbolt.Tx) ([]reconcile.Volume, error) {
		return s.Checks().Tx(tx).Volumes(ctx, p, after, n, starts)
	})
}

func TestCheckStoreInTransactions(t *testing.T) {
	t.Parallel()
	reconciletest.RunChecks(t, reconciletest.CheckConfig{
		New:    func(t *testing.T) reconcile.CheckStore { return checksInTransactions{verified(t, open(t))} },
		Bubble: true,
	})
}
