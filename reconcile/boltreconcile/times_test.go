package boltreconcile_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/reconcile"
)

// What has ended stays for its retention to the microsecond, and is gone then, with
// everything that belongs to it.
func TestNothingIsForgottenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		ctx := t.Context()
		settle(t, f, with(reconcile.VerbConfirm, begin(t, f, "a")[0]))
		appended(t, f.Timeline(), said("e1", "m", "own"), said("e2", "m", ""), said("e3", "", "own"))
		reported(t, f.Checks(), reconcile.Raised, report(reconcile.ReportRaise, "s"))
		reported(t, f.Checks(), reconcile.Applied, report(reconcile.ReportClear, "s"))
		require.NoError(t, f.Checks().Tally(ctx, checks, []reconcile.Cell{{Series: "s", Start: time.Now(), N: 1}}))

		time.Sleep(time.Hour - time.Microsecond)
		removed, err := f.Sweep(ctx, 1000)
		require.NoError(t, err)
		require.Zero(t, removed)
		time.Sleep(time.Microsecond)
		removed, err = f.Sweep(ctx, 1000)
		require.NoError(t, err)
		require.Equal(t, 5, removed, "an operation, three observations and a finding")
		time.Sleep(time.Microsecond)
		removed, err = f.Checks().SweepChecks(ctx, 1000)
		require.NoError(t, err)
		require.Equal(t, 1, removed, "a cell of just Keep ago is still kept")
		for name, rows := range contents(t, f) {
			require.Empty(t, rows, name)
		}
	})
}

// A message that something is said of again is kept for as long again.
func TestAMessageIsKeptFromItsLastObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		s := f.Timeline()
		appended(t, s, said("e1", "m", ""))
		for i, want := range []int{2, 3, 4} {
			time.Sleep(time.Hour - time.Second)
			appended(t, s, said(fmt.Sprint("f", i), "m", ""))
			time.Sleep(2 * time.Second)
			removed, err := f.Sweep(t.Context(), 1000)
			require.NoError(t, err)
			require.Zero(t, removed)
			require.Len(t, read(t, s, reconcile.Ref{Message: "m"}).Observations, want)
		}
		time.Sleep(time.Hour)
		removed, err := f.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		require.Equal(t, 4, removed)
		require.Empty(t, read(t, s, reconcile.Ref{Event: "f0"}))
		appended(t, s, said("e1", "m", "")) // it is new
	})
}

// What is open, or waits for a person, is not even looked at, however long ago it began.
func TestWhatIsOpenIsNeverForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		ctx := t.Context()
		es := begin(t, f, "started", "accepted", "unknown", "asked", "contradicted", "again")
		again := with(reconcile.VerbFail, es[5])
		again.Again, again.Delay = true, time.Minute
		settle(t, f, with(reconcile.VerbAccept, es[1]), with(reconcile.VerbDoubt, es[2]), with(reconcile.VerbAsk, es[3]), with(reconcile.VerbConfirm, es[4]), again)
		_, err := f.Settle(ctx, params, []reconcile.Settlement{{Verb: reconcile.VerbReceipt, Key: "contradicted", Nonce: nonce(), State: reconcile.Failed}})
		require.NoError(t, err)
		later := ask("later")
		later.Later = true
		_, err = f.Begin(ctx, params, []reconcile.Ask{later})
		require.NoError(t, err)
		raised := report(reconcile.ReportRaise, "s")
		reported(t, f.Checks(), reconcile.Raised, raised)
		time.Sleep(1000 * time.Hour)
		before := lastTx(t, f)
		removed, err := f.Sweep(ctx, 1000)
		require.NoError(t, err)
		require.Zero(t, removed)
		require.Equal(t, before, lastTx(t, f))
		counts, err := f.Counts(ctx, "k", "", true, 10)
		require.NoError(t, err)
		require.Equal(t, []reconcile.Counts{{
			Account: "acct", Started: 1, Accepted: 1, Confirmed: 1, Failed: 2, Waiting: 2, Unknown: 2, Review: 2, Oldest: 1000 * time.Hour,
		}}, counts)
	})
}

// A failed receipt of an operation that was never sent is the end of it, too.
func TestARefusedRecordIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		later := ask("later")
		later.Later = true
		_, err := f.Begin(t.Context(), params, []reconcile.Ask{later})
		require.NoError(t, err)
		settle(t, f, reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "later", Nonce: nonce(), State: reconcile.Failed})
		time.Sleep(params.Retention)
		removed, err := f.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, removed)
	})
}

// A claim is in the order of Due, and says when there is more.
func TestClaimsPassOverWhatIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		for i := range 5 {
			settle(t, f, with(reconcile.VerbDoubt, begin(t, f, keyOf(i))[0]))
			time.Sleep(time.Second)
		}
		delayed := with(reconcile.VerbDoubt, begin(t, f, "delayed")[0])
		delayed.Delay = 90 * time.Second
		settle(t, f, delayed)
		require.Len(t, claim(t, f, 2), 2) // 0 and 1, for a minute
		time.Sleep(30 * time.Second)
		require.Len(t, claim(t, f, 2), 2) // 2 and 3
		next := func() (keys []string, wait time.Duration) {
			es, wait, err := f.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: 9})
			require.NoError(t, err)
			for _, e := range es {
				keys = append(keys, e.Key)
			}
			return keys, wait
		}
		keys, wait := next()
		require.Equal(t, []string{keyOf(4)}, keys)
		require.Equal(t, 30*time.Second, wait, "then the leases of the first two lapse")
		time.Sleep(wait)
		keys, wait = next()
		require.Equal(t, []string{keyOf(0), keyOf(1)}, keys)
		require.Equal(t, 30*time.Second, wait)
		time.Sleep(wait)
		keys, _ = next()
		require.Equal(t, []string{keyOf(2), keyOf(3), keyOf(4), "delayed"}, keys)
	})
}

// Tokens and versions rise also over what was forgotten, and when the clock is set back.
func TestTokensRiseOverWhatWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		old := begin(t, f, "a")[0]
		settle(t, f, reconcile.Settlement{Verb: reconcile.VerbForget, Key: "a"})
		require.NoError(t, f.db.Close())
		f.open(t)
		require.Greater(t, begin(t, f, "a")[0].Token, old.Token)
		errs, err := f.Settle(t.Context(), params, []reconcile.Settlement{with(reconcile.VerbConfirm, old)})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], reconcile.ErrStale)

		versions := map[uint64]bool{}
		for range 3 {
			reported(t, f.Checks(), reconcile.Raised, report(reconcile.ReportRaise, "s"))
			found, err := f.Checks().List(t.Context(), reconcile.FindingQuery{Kind: "k", Subject: "s", N: 1})
			require.NoError(t, err)
			versions[found[0].Version] = true
			reported(t, f.Checks(), reconcile.Applied, report(reconcile.ReportForget, "s"))
		}
		require.Len(t, versions, 3)
	})
}

// The file survives being closed, also in the middle of a sweep.
func TestSweepGoesOnAfterARestart(t *testing.T) { synctest.Test(t, sweepGoesOn) }

func sweepGoesOn(t *testing.T) {
	f := openPath(t, filepath.Join(t.TempDir(), "reconcile.db"))
	const n = 1200
	ended(t, f, n)
	time.Sleep(params.Retention)
	removed := 0
	for round := 0; removed < n; round++ {
		require.Less(t, round, 2*n/400)
		got, err := f.Sweep(t.Context(), 400)
		require.NoError(t, err)
		removed += got
		require.Equal(t, 400, got)
		require.NoError(t, f.db.View(f.Verify))
		require.NoError(t, f.db.Close())
		f.open(t)
	}
	require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketName).ForEachBucket(func(name []byte) error {
			require.Zero(t, tx.Bucket(bucketName).Bucket(name).Stats().KeyN, "rows in %s", name)
			return nil
		})
	}))
}

// ended makes operations that are Confirmed.
func ended(t testing.TB, f *file, n int) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyOf(i)
	}
	settle(t, f, all(reconcile.VerbConfirm, begin(t, f, keys...))...)
}

// One call of Sweep costs n, however much has expired and however much has not. The
// observations of a message go together.
func TestSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		const n = 1000
		ended(t, f, n)
		before := lastTx(t, f)
		removed, err := f.Sweep(t.Context(), n)
		require.NoError(t, err)
		require.Zero(t, removed)
		require.Equal(t, before, lastTx(t, f), "what has not expired is not looked at")

		time.Sleep(params.Retention)
		removed, err = f.Sweep(t.Context(), 300)
		require.NoError(t, err)
		require.Equal(t, 300, removed)
		require.Equal(t, before+2, lastTx(t, f), "250 things in a commit")
		removed, err = f.Sweep(t.Context(), 2*n)
		require.NoError(t, err)
		require.Equal(t, n-300, removed)

		for i := range 3 {
			var os []reconcile.Observation
			for j := range 100 {
				os = append(os, said(fmt.Sprint(i, "-", j), fmt.Sprint("m", i), ""))
			}
			appended(t, f.Timeline(), os...)
		}
		time.Sleep(params.Retention)
		for _, want := range []int{200, 100, 0} {
			removed, err = f.Sweep(t.Context(), 150)
			require.NoError(t, err)
			require.Equal(t, want, removed)
			require.NoError(t, f.db.View(f.Verify))
		}
	})
}

func TestSweepIsRefusedOrInterrupted(t *testing.T) {
	f := open(t)
	_, err := f.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Sweep(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}
