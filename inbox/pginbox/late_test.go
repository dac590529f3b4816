package pginbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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
		}, 10*time.Second, time.Millisecond)
	}
}
