package pginbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
)

// Transactions that accept and stay open hold up nobody, and no claim goes past
// their numbers: not while nothing else is committed, nor while others are that
// began after them.
func TestNoClaimGoesPastAnOpenTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.store.NeverRescan()
	claim := func() (ids []string) {
		claimed, err := d.store.Claim(t.Context(), newAsk(time.Hour))
		require.NoError(t, err)
		for _, c := range claimed.Claims {
			for _, r := range c.Records {
				ids = append(ids, r.ID)
			}
		}
		return ids
	}
	claim()
	var commits []func()
	for i := range 3 {
		tx, err := d.pool.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(context.Background())
		e := event(fmt.Sprint("key-", i), fmt.Sprint("open-", i))
		_, err = d.box.With(d.store.Tx(tx)).Accept(t.Context(), e)
		require.NoError(t, err)
		commits = append(commits, func() { require.NoError(t, tx.Commit(t.Context())) })
	}
	for range 5 {
		require.Empty(t, claim())
	}
	d.accept("other", "other")
	require.Equal(t, []string{"p/other"}, claim())
	for range 5 {
		require.Empty(t, claim())
	}
	for _, i := range []int{1, 0, 2} {
		commits[i]()
		require.Equal(t, []string{fmt.Sprint("p/open-", i)}, claim(), "a claim went past what was not committed")
		for range 5 {
			require.Empty(t, claim())
		}
	}
	for range 5 { // and go on when it has ended
		require.Eventually(t, func() bool {
			claim()
			return d.store.Floor(inbox.DefaultStream) > 4
		}, time.Minute, time.Millisecond)
	}
}

// A record that is committed late, behind a key that is busy with a later one, is
// found when the key is released, although claims have gone past it.
func TestLateBehindABusyKey(t *testing.T) { // not parallel: other transactions hold floors up
	d := newDesk(t)
	d.store.NeverRescan()
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = d.box.With(d.store.Tx(tx)).Accept(t.Context(), event("k", "late"))
	require.NoError(t, err)
	late := d.last()
	d.accept("k", "first")
	c := d.claimOne("p/first")
	require.NoError(t, tx.Commit(t.Context()))
	require.Eventually(t, func() bool {
		d.pass(d.store, fmt.Sprint(d.last(), "-"))
		return d.store.Floor(inbox.DefaultStream) > late
	}, time.Minute, time.Millisecond)
	errs, err := d.store.Settle(t.Context(), params, []inbox.Settlement{settlement(inbox.KindDone, c, "p/first"), settlement(inbox.KindRelease, c, "")})
	require.NoError(t, err)
	require.Nil(t, errs)
	d.claimOne("p/late")
}

// A claim does not go past a record behind a key whose release is under way, and has
// not seen the record.
func TestNoClaimGoesPastARelease(t *testing.T) { // not parallel: other transactions hold floors up
	d := newDesk(t)
	d.store.NeverRescan()
	d.accept("k", "first")
	c := d.claimOne("p/first")
	begin := func() pgx.Tx {
		tx, err := d.pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	accepting, releasing := begin(), begin()
	_, err := d.box.With(d.store.Tx(accepting)).Accept(t.Context(), event("k", "late"))
	require.NoError(t, err)
	d.pass(d.store, "marks-") // which is older than the release
	errs, err := d.store.Tx(releasing).Settle(t.Context(), params, []inbox.Settlement{
		settlement(inbox.KindDone, c, "p/first"), settlement(inbox.KindRelease, c, "")})
	require.NoError(t, err)
	require.Nil(t, errs)
	require.NoError(t, accepting.Commit(t.Context()))
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		d.pass(d.store, fmt.Sprint(d.last(), "-"))
	}
	require.NoError(t, releasing.Commit(t.Context()))
	d.claimOne("p/late")
}

// claimOne claims the only record there is to claim.
func (d *desk) claimOne(id string) inbox.Claim {
	d.Helper()
	claimed, err := d.store.Claim(d.Context(), newAsk(time.Hour))
	require.NoError(d, err)
	require.Len(d, claimed.Claims, 1)
	require.Len(d, claimed.Claims[0].Records, 1)
	require.Equal(d, id, claimed.Claims[0].Records[0].ID)
	return claimed.Claims[0]
}
