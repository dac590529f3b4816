package pgreconcile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// behindProxy returns a store whose connections pass a proxy, each request with its
// SQL in it.
func behindProxy(t *testing.T) (*pgreconcile.Store, *testenv.Proxy) {
	_, _, schema := newStore(t)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	pool := connect(t, proxy.URL(), unprepared)
	store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema})
	require.NoError(t, err)
	return store, proxy
}

// The answer to a step is lost: sent again, it is answered as the first time, and has
// happened once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	store, proxy := behindProxy(t)
	ctx := t.Context()
	steps := 0
	twice := func(step string, send func() error) {
		t.Helper()
		steps++
		proxy.DropRepliesTo(step, 1)
		require.Error(t, send(), step)
		require.NoError(t, send(), step)
	}

	asks := []reconcile.Ask{ask("a", "acct"), ask("b", "acct"), ask("c", "acct")}
	asks[2].Later = true
	var answers []reconcile.Answer
	twice("reconcile_begin", func() (err error) {
		answers, err = store.Begin(ctx, params, asks)
		return err
	})
	for i, want := range []reconcile.Grant{reconcile.Send, reconcile.Send, reconcile.AsIs} {
		require.Equal(t, want, answers[i].Grant)
		require.NotZero(t, answers[i].Entry.Token)
		require.Equal(t, []byte("body of "+asks[i].Key), answers[i].Entry.Payload)
	}
	require.Equal(t, reconcile.Counts{Account: "acct", Started: 2, Failed: 1, Waiting: 1}, counts(t, store))

	settled := func(all ...reconcile.Settlement) {
		t.Helper()
		twice("reconcile_settle", func() error {
			errs, err := store.Settle(ctx, params, all)
			require.Nil(t, errs)
			return err
		})
	}
	settled(with(reconcile.VerbDoubt, answers[0].Entry), with(reconcile.VerbConfirm, answers[1].Entry))
	var looks []reconcile.Entry
	claim := reconcile.ClaimAsk{Nonce: nonce(), N: 5}
	twice("reconcile_claim", func() (err error) {
		looks, _, err = store.Claim(ctx, params, claim)
		return err
	})
	require.Equal(t, []string{"c", "a"}, keys(looks))
	settled(with(reconcile.VerbSend, looks[0]))
	settled(with(reconcile.VerbAsk, looks[1]))
	settled(reconcile.Settlement{Verb: reconcile.VerbResolve, Key: "a", Token: looks[1].Token, Nonce: nonce(), State: reconcile.Failed, By: "ann", Again: true})
	settled(reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: "c", Nonce: nonce(), State: reconcile.Confirmed, By: "receipt"})
	require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: 2, Failed: 1, Waiting: 1}, counts(t, store))
	c := list(t, store, reconcile.Query{Key: "c"})[0]
	require.Equal(t, 1, c.Attempts)
	require.Len(t, c.Log, 3, "recorded, sent, confirmed")
	settled(reconcile.Settlement{Verb: reconcile.VerbForget, Key: "b"})
	require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: 1, Failed: 1, Waiting: 1}, counts(t, store))

	os := []reconcile.Observation{said("1", "m", "o"), said("2", "m", "")}
	var became []reconcile.Appending
	twice("reconcile_append", func() (err error) {
		became, err = store.Timeline().Append(ctx, lines, os)
		return err
	})
	require.Equal(t, []reconcile.Appending{reconcile.Repeated, reconcile.Repeated}, became)
	require.Equal(t, []string{"1", "2"}, events(t, store.Timeline(), reconcile.Ref{Own: "o"}))

	reports := []reconcile.Report{raise("x"), raise("y")}
	var outcomes []reconcile.Outcome
	twice("reconcile_report", func() (err error) {
		outcomes, err = store.Checks().Report(ctx, finds, reports)
		return err
	})
	require.Equal(t, []reconcile.Outcome{reconcile.Raised, reconcile.Raised}, outcomes)
	hour := time.Now().Truncate(time.Hour)
	cell := reconcile.Cell{Series: "s", Start: hour, Writer: nonce(), N: 3}
	twice("reconcile_count(", func() error { return store.Checks().Tally(ctx, finds, []reconcile.Cell{cell}) })
	volumes, err := store.Checks().Volumes(ctx, finds, "", 5, []time.Time{hour})
	require.NoError(t, err)
	require.Equal(t, []int64{3}, volumes[0].N)
	require.Equal(t, steps, proxy.Dropped())
}

// A commit whose answer was lost is not guessed at: the settlement that was in it is
// found to be applied.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	store, proxy := behindProxy(t)
	s := with(reconcile.VerbConfirm, start(t, store, "a"))
	tx, err := connect(t, proxy.URL(), unprepared).Begin(t.Context())
	require.NoError(t, err)
	settle(t, store.Tx(tx), s)
	proxy.DropRepliesTo("commit", 1)
	require.Error(t, tx.Commit(t.Context()))
	settle(t, store, s)
	require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: 1}, counts(t, store))
}
