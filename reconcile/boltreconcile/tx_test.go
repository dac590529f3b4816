package boltreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/boltreconcile"
)

var errFailed = errors.New("it failed")

func newLedger(t testing.TB, s reconcile.Store, o *reconcile.Options) *reconcile.Ledger {
	t.Helper()
	l, err := reconcile.New(s, o)
	require.NoError(t, err)
	return l
}

// What a transaction begins, says and reports is there when it commits, and was never
// there when it does not.
func TestStepsOfATransaction(t *testing.T) {
	f := verified(t, open(t))
	for _, want := range []error{errFailed, nil} {
		err := f.db.Update(func(tx *bbolt.Tx) error {
			settle(t, f.Tx(tx), with(reconcile.VerbConfirm, begin(t, f.Tx(tx), "a")[0]))
			appended(t, f.Timeline().Tx(tx), said("e", "m", "o"))
			reported(t, f.Checks().Tx(tx), reconcile.Raised, report(reconcile.ReportRaise, "s"))
			require.Equal(t, reconcile.Confirmed, get(t, f.Tx(tx), "a").State, "it is there within the transaction")
			return want
		})
		require.ErrorIs(t, err, want)
		counts, err := f.Counts(t.Context(), "k", "", true, 9)
		require.NoError(t, err)
		open, err := f.Checks().Open(t.Context(), "k")
		require.NoError(t, err)
		committed := want == nil
		require.Equal(t, committed, len(counts) == 1)
		require.Equal(t, committed, len(open) == 1)
		require.Equal(t, committed, len(read(t, f.Timeline(), reconcile.Ref{Own: "o"}).Observations) == 1)
	}
}

func TestUnusableTransactions(t *testing.T) {
	f, other := open(t), openPath(t, filepath.Join(t.TempDir(), "other.db"))
	ctx := t.Context()
	asks := []reconcile.Ask{ask("a")}
	_, err := f.Tx(nil).Begin(ctx, params, asks)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	tx, err := f.db.Begin(true)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = f.Tx(tx).Counts(ctx, "k", "", true, 1)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).Begin(ctx, params, asks)
		require.ErrorIs(t, err, bbolterrors.ErrTxNotWritable)
		_, err = f.Timeline().Tx(tx).Append(ctx, timeline, []reconcile.Observation{said("e", "m", "")})
		require.ErrorIs(t, err, bbolterrors.ErrTxNotWritable)
		require.ErrorIs(t, f.Checks().Tx(tx).Tally(ctx, checks, nil), bbolterrors.ErrTxNotWritable)
		counts, err := f.Tx(tx).Counts(ctx, "k", "", true, 1)
		require.NoError(t, err)
		require.Empty(t, counts)
		return nil
	}))
	require.NoError(t, other.db.Update(func(tx *bbolt.Tx) error {
		_, err := f.Tx(tx).List(ctx, reconcile.Query{Kind: "k", N: 1})
		require.ErrorContains(t, err, "another file")
		return nil
	}))
}

// effects counts what was written in the place of an effect.
func effects(t testing.TB, f *file, key string) (n int) {
	t.Helper()
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		return each(tx, "effects", func(k string, v []byte) {
			if k == key {
				n = len(v)
			}
		})
	}))
	return n
}

// An effect and its confirmation are one commit; what fails is rolled back, and certainly
// did not happen.
func TestInTxCommitsWhatSucceedsAndNothingElse(t *testing.T) {
	f := verified(t, open(t))
	l := newLedger(t, f, nil)
	ctx := t.Context()
	fail := error(nil)
	call := f.InTx(l, func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
		require.NoError(t, count(tx, "effects", op.Key))
		return []byte("result"), fail
	})
	for _, tt := range []struct {
		fail  error
		again bool
	}{{errFailed, true}, {errFailed, true}, {reconcile.NotDone(errFailed), true}, {errFailed, true}, {errFailed, true}, {errFailed, true},
		{fmt.Errorf("no money: %w", reconcile.Refused(errFailed)), false}} {
		fail = tt.fail
		err := l.Do(ctx, reconcile.Op{Key: "a"}, call, nil)
		got := (*reconcile.StateError)(nil)
		require.ErrorAs(t, err, &got)
		require.ErrorIs(t, err, errFailed)
		require.Equal(t, reconcile.Failed, got.State)
		require.Equal(t, tt.again, got.Again)
		require.Zero(t, effects(t, f, "a"))
	}
	require.Zero(t, l.Stats().Outage, "that it did not do it is an answer")
	fail = nil
	for range 2 {
		result, err := l.DoResult(ctx, reconcile.Op{Key: "b"}, call, nil)
		require.NoError(t, err)
		require.Equal(t, "result", string(result))
		require.Equal(t, 1, effects(t, f, "b"))
	}
}

// A panic is rolled back and goes on, and the queue does it when it has found out that
// nothing happened.
func TestInTxOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		l := newLedger(t, f, &reconcile.Options{Kind: "k"})
		panics := true
		call := f.InTx(l, func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
			require.NoError(t, count(tx, "effects", op.Key))
			if panics {
				panic("in a call")
			}
			return nil, nil
		})
		require.Panics(t, func() { _ = l.Do(t.Context(), reconcile.Op{Key: "a"}, call, nil) })
		require.Zero(t, effects(t, f, "a"))
		require.Equal(t, reconcile.Unknown, get(t, f, "a").State)
		panics = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, l.Run(ctx, call, boltreconcile.NotConfirmed, nil))
		require.Equal(t, reconcile.Confirmed, get(t, f, "a").State)
		require.Equal(t, 1, effects(t, f, "a"))
	})
}

// A call that was overtaken while it ran commits nothing.
func TestInTxOfALostLeaseIsRolledBack(t *testing.T) {
	f := verified(t, open(t))
	l := newLedger(t, f, &reconcile.Options{Kind: "k"})
	call := f.InTx(l, func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
		require.NoError(t, count(tx, "effects", op.Key))
		en := get(t, f.Tx(tx), op.Key)
		decided := with(reconcile.VerbResolve, en) // which is rolled back, too
		decided.Nonce, decided.State = nonce(), reconcile.Failed
		settle(t, f.Tx(tx), decided)
		return nil, nil
	})
	err := l.Do(t.Context(), reconcile.Op{Key: "a"}, call, nil)
	require.ErrorIs(t, err, reconcile.ErrStale)
	require.ErrorIs(t, err, reconcile.ErrFailed)
	require.Zero(t, effects(t, f, "a"))
	en := get(t, f, "a")
	require.Equal(t, reconcile.Failed, en.State)
	require.True(t, en.Again)
}

// Outside of a ledger there is nothing that could be confirmed, and nothing happens. When a
// lease was lost while another transaction had the file, fn does not run.
func TestInTxOutsideOfALedger(t *testing.T) {
	f := verified(t, open(t))
	ran := 0
	call := f.InTx(newLedger(t, f, nil), func(_ context.Context, tx *bbolt.Tx, op reconcile.Op) ([]byte, error) {
		ran++
		return nil, count(tx, "effects", op.Key)
	})
	_, err := call(t.Context(), reconcile.Op{Key: "a"})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	require.Zero(t, effects(t, f, "a"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reconcile.ErrStale)
	_, err = call(ctx, reconcile.Op{Key: "a"})
	require.ErrorIs(t, err, reconcile.ErrStale)
	require.Equal(t, 1, ran)
	begin(t, f, "after")
}

// An order and the message about it are both there or neither, and the queue sends it.
func TestRecordInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		l := newLedger(t, f, &reconcile.Options{Kind: "k"})
		for key, want := range map[string]error{"rolled back": errFailed, "stored": nil} {
			require.ErrorIs(t, f.db.Update(func(tx *bbolt.Tx) error {
				require.NoError(t, l.With(f.Tx(tx)).Record(t.Context(), reconcile.Op{Key: key, Payload: []byte("hello")}))
				return want
			}), want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var sent []string
		require.NoError(t, l.Run(ctx, func(_ context.Context, op reconcile.Op) ([]byte, error) {
			sent = append(sent, op.Key+": "+string(op.Payload))
			return nil, nil
		}, nil, nil))
		require.Equal(t, []string{"stored: hello"}, sent)
		require.Equal(t, reconcile.Confirmed, get(t, f, "stored").State)
	})
}

// Operations that are begun together share commits.
func TestConcurrentCallsShareCommits(t *testing.T) {
	f := verified(t, open(t))
	f.db.NoSync = false // or nobody ever waits for a commit
	l := newLedger(t, f, &reconcile.Options{Kind: "k"})
	const n = 200
	before := lastTx(t, f)
	failed := make(chan error, n)
	for i := range n {
		go func() {
			failed <- l.Do(context.Background(), reconcile.Op{Key: keyOf(i)}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, nil }, nil)
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
	if commits := lastTx(t, f) - before; commits > n {
		t.Errorf("%d operations at once took %d commits", n, commits)
	}
	counts, err := f.Counts(t.Context(), "k", "", true, 2)
	require.NoError(t, err)
	require.Equal(t, []reconcile.Counts{{Confirmed: n}}, counts)
}
