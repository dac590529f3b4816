package pginbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

// front is where new processes begin to look.
func (d *desk) front() (floor int64) {
	d.Helper()
	err := d.pool.QueryRow(d.Context(), "SELECT coalesce((SELECT floor FROM "+d.schema+".inbox_fronts WHERE stream = 'default'), 0)").Scan(&floor)
	require.NoError(d, err)
	return floor
}

// last is the number that was given out last.
func (d *desk) last() (seq int64) {
	d.Helper()
	require.NoError(d, d.pool.QueryRow(d.Context(), "SELECT last_value FROM "+d.schema+".inbox_seq").Scan(&seq))
	return seq
}

func (d *desk) another() *pginbox.Store {
	store, err := pginbox.New(d.pool, &pginbox.Options{Schema: d.schema})
	require.NoError(d, err)
	return store
}

// pass accepts 300 events and works them in a store, claim by claim.
func (d *desk) pass(store *pginbox.Store, name string) {
	d.Helper()
	var events []inbox.Event
	for i := range 300 {
		events = append(events, event(fmt.Sprint(name, i), fmt.Sprint(name, i)))
	}
	_, err := d.box.Accept(d.Context(), events...)
	require.NoError(d, err)
	for found := 0; found < 300; {
		claimed, err := store.Claim(d.Context(), newAsk(time.Hour))
		require.NoError(d, err)
		require.NotEmpty(d, claimed.Claims, "%d of 300 were found", found)
		var done []inbox.Settlement
		for _, c := range claimed.Claims {
			found += len(c.Records)
			done = append(done, settlement(inbox.KindDone, c, c.Records[0].ID), settlement(inbox.KindRelease, c, ""))
		}
		errs, err := store.Settle(d.Context(), params, done)
		require.NoError(d, err)
		require.Nil(d, errs)
	}
	for range 5 { // and says so
		_, err := store.Claim(d.Context(), newAsk(time.Hour))
		require.NoError(d, err)
	}
}

// A store that opens the inbox does not read all that was worked before. What is
// pending behind the front is counted and listed all the same.
func TestFrontGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.accept("held", "held", "behind")
	claimed, err := d.store.Claim(t.Context(), newAsk(time.Hour))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
	retried := claimed.Claims[0]
	for i := range 3 {
		d.pass(d.store, fmt.Sprint(i, "-"))
	}
	require.Eventually(t, func() bool {
		d.pass(d.store, fmt.Sprint("more-", d.last(), "-"))
		return d.front() > 3
	}, time.Minute, time.Millisecond)

	pending := func(want ...string) {
		t.Helper()
		totals, err := d.another().Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(want), totals.Pending)
		if len(want) > 0 {
			require.Positive(t, totals.Oldest)
		}
		records, err := d.another().List(t.Context(), inbox.Query{State: inbox.StatePending, N: 10})
		require.NoError(t, err)
		var ids []string
		for _, r := range records {
			ids = append(ids, r.ID)
		}
		require.Equal(t, want, ids)
	}
	pending("p/held", "p/behind")
	errs, err := d.store.Settle(t.Context(), params, []inbox.Settlement{
		{Kind: inbox.KindRetry, Stream: retried.Stream, Key: "held", Token: retried.Token, ID: "p/held", Error: "no"}})
	require.NoError(t, err)
	require.Nil(t, errs)
	pending("p/held", "p/behind")
	claimed, err = d.another().Claim(t.Context(), newAsk(time.Hour))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
	require.Len(t, claimed.Claims[0].Records, 2)
	c := claimed.Claims[0]
	errs, err = d.store.Settle(t.Context(), params, []inbox.Settlement{
		settlement(inbox.KindDone, c, "p/held"), settlement(inbox.KindBegin, c, "p/behind"),
		settlement(inbox.KindDone, c, "p/behind"), settlement(inbox.KindRelease, c, "")})
	require.NoError(t, err)
	require.Nil(t, errs)
	pending()
}

// Where a store's floor has passed what is committed late, the front has not.
func TestFrontWaitsForTransactions(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.store.Hasty()
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = d.box.With(d.store.Tx(tx)).Accept(t.Context(), event("late", "late"))
	require.NoError(t, err)
	open := d.last()
	require.Eventually(t, func() bool {
		d.pass(d.store, fmt.Sprint(d.last(), "-"))
		return d.store.Floor(inbox.DefaultStream) > open
	}, time.Minute, time.Millisecond, "the floor passes it")
	d.pass(d.store, "after")
	require.LessOrEqual(t, d.front(), open)
	require.NoError(t, tx.Commit(t.Context()))
	claimed, err := d.another().Claim(t.Context(), newAsk(time.Hour))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
	require.Equal(t, "p/late", claimed.Claims[0].Records[0].ID)
}

// A crash can undo what a store has seen of claims, so what it made of that does not
// count. A server that has crashed has nothing in what is unlogged.
func TestFrontStaysAfterACrash(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.store.NeverRescan()
	goesOn := func(store *pginbox.Store, from int64) {
		t.Helper()
		require.Eventually(t, func() bool { // transactions of other tests hold it up
			d.pass(store, fmt.Sprint(d.last(), "-"))
			return d.front() > from
		}, time.Minute, time.Millisecond)
	}
	goesOn(d.store, 0)
	before := d.front()
	_, err := d.pool.Exec(t.Context(), "TRUNCATE "+d.schema+".inbox_runs")
	require.NoError(t, err)
	d.pass(d.store, "c")
	d.pass(d.store, "d")
	require.Equal(t, before, d.front())
	goesOn(d.another(), before) // which begins at the front after it
}

// A front that lies above what is pending, whyever, goes back when the record is swept
// over.
func TestSweepFindsWhatTheFrontPassed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.accept("k", "passed")
	_, err := d.pool.Exec(t.Context(), "INSERT INTO "+d.schema+".inbox_fronts (stream, floor) VALUES ('default', 1000)")
	require.NoError(t, err)
	claimed, err := d.another().Claim(t.Context(), newAsk(time.Hour))
	require.NoError(t, err)
	require.Empty(t, claimed.Claims)
	_, err = d.store.Sweep(t.Context(), 100)
	require.NoError(t, err)
	claimed, err = d.another().Claim(t.Context(), newAsk(time.Hour))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
}

// The tables of an earlier version, which kept what is done in its record, are refused.
func TestEarlierTablesAreRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.pool.Exec(t.Context(), "UPDATE "+d.schema+".pawl_versions SET version = 7 WHERE component = 'inbox'")
	require.NoError(t, err)
	_, err = d.pool.Exec(t.Context(), "DROP FUNCTION "+d.schema+".inbox_change_done")
	require.NoError(t, err)
	_, err = d.pool.Exec(t.Context(), "DROP TABLE "+d.schema+".inbox_done")
	require.NoError(t, err)
	require.ErrorIs(t, d.store.Check(t.Context()), pginbox.ErrNotMigrated)
	require.ErrorContains(t, d.store.Migrate(t.Context()), "inbox_done")
	require.ErrorIs(t, d.store.Check(t.Context()), pginbox.ErrNotMigrated)
}
