package pgreconcile_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile"
)

// Batches that are larger than a call carries are answered in order.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t)
	const n = 2_500
	asks := make([]reconcile.Ask, n)
	for i := range asks {
		asks[i] = ask(fmt.Sprintf("%04d", (i*7919)%n), fmt.Sprint("acct", i%5))
	}
	entries := begin(t, store, asks...)
	batch := make([]reconcile.Settlement, n)
	for i, e := range entries {
		batch[i] = with(reconcile.VerbConfirm, e)
	}
	batch[1234].Token++
	errs, err := store.Settle(t.Context(), params, batch)
	require.NoError(t, err)
	for i, err := range errs {
		if i == 1234 {
			require.ErrorIs(t, err, reconcile.ErrStale)
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, []string{asks[1234].Key}, keys(list(t, store, reconcile.Query{Open: true})))

	os := make([]reconcile.Observation, 5_000)
	for i := range os {
		os[i] = said(fmt.Sprint(i%4_999), fmt.Sprint("m", (i%4_999)/4), "")
	}
	answers, err := store.Timeline().Append(t.Context(), lines, os)
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, i == 4_999, a == reconcile.Repeated, i)
	}
	require.Equal(t, []string{"4", "5", "6", "7"}, events(t, store.Timeline(), reconcile.Ref{Message: "m1"}))

	some := finds
	some.Most = 2_500
	reports := make([]reconcile.Report, 2_501)
	for i := range reports {
		reports[i] = raise(fmt.Sprint(i))
	}
	outcomes, err := store.Checks().Report(t.Context(), some, reports)
	require.NoError(t, err)
	for i, o := range outcomes {
		require.Equal(t, i == 2_500, o == reconcile.TooMany, i)
	}
	verify(t, store, pool, schema)
}

// A page ends early when payloads and results are large, and the next one goes on.
func TestPagesOfLargeOperations(t *testing.T) {
	t.Parallel()
	store, _, _ := newStore(t)
	payload := bytes.Repeat([]byte("x"), 3<<20)
	for i := range 5 {
		a := ask(fmt.Sprint(i), "acct")
		a.Payload = payload
		begin(t, store, a)
	}
	for _, q := range []reconcile.Query{{}, {Open: true}, {Account: "acct"}} {
		var pages []int
		for {
			page := list(t, store, q)
			if len(page) == 0 {
				break
			}
			pages = append(pages, len(page))
			require.Equal(t, payload, page[0].Payload)
			q.After = page[len(page)-1].Key
		}
		require.Equal(t, []int{3, 2}, pages, "until 8 MiB are exceeded")
	}
}

// A history has a bound of its own.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	store, _, _ := newStore(t)
	os := make([]reconcile.Observation, reconcile.MaxHistory+1)
	for i := range os {
		os[i] = said(fmt.Sprintf("%05d", i), fmt.Sprint("m", i/5), "o")
	}
	_, err := store.Timeline().Append(t.Context(), lines, os[:reconcile.MaxHistory])
	require.NoError(t, err)
	h, err := store.Timeline().Read(t.Context(), lines, reconcile.Ref{Own: "o"})
	require.NoError(t, err)
	require.Len(t, h.Observations, reconcile.MaxHistory)
	require.False(t, h.More)
	_, err = store.Timeline().Append(t.Context(), lines, os[reconcile.MaxHistory:])
	require.NoError(t, err)
	h, err = store.Timeline().Read(t.Context(), lines, reconcile.Ref{Own: "o"})
	require.NoError(t, err)
	require.Len(t, h.Observations, reconcile.MaxHistory)
	require.True(t, h.More)
	require.Equal(t, "00000", h.Observations[0].Event)
}

// What a step reads does not depend on how many operations there are, also where the
// connection planned it while the tables were empty.
func TestStepsReadLittle(t *testing.T) {
	t.Parallel()
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	ctx := context.Background()
	var open []reconcile.Entry
	everything := func(i int) map[string]func() {
		key := func(n int) string { return fmt.Sprintf("%d-%d", i, n) }
		asks := []reconcile.Ask{ask(key(1), "acct"), ask(key(2), "acct"), ask(key(3), "acct")}
		var entries []reconcile.Entry
		os := []reconcile.Observation{said(key(1), key(1), key(9)), said(key(2), key(2), key(9)), said(key(3), key(2), "")}
		return map[string]func(){
			"1 begin": func() { entries = begin(t, store, asks...) },
			"2 begin again": func() {
				_, err := store.Begin(ctx, params, []reconcile.Ask{ask(key(1), "acct")})
				require.NoError(t, err)
			},
			"3 settle": func() {
				settle(t, store, with(reconcile.VerbConfirm, entries[0]), with(reconcile.VerbDoubt, entries[1]))
			},
			"4 claim": func() {
				looks, _, err := store.Claim(ctx, params, reconcile.ClaimAsk{Nonce: nonce(), N: 5})
				require.NoError(t, err)
				require.Equal(t, []string{key(2)}, keys(looks))
				settle(t, store, with(reconcile.VerbConfirm, looks[0]))
			},
			"5 receipt": func() {
				settle(t, store, reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: key(3), Nonce: nonce(), State: reconcile.Confirmed})
			},
			"6 list and count": func() {
				require.Len(t, list(t, store, reconcile.Query{Key: key(1)}), 1)
				require.Equal(t, keys(open), keys(list(t, store, reconcile.Query{Open: true, Account: "few"})))
				require.Empty(t, list(t, store, reconcile.Query{Review: true}))
				require.Len(t, list(t, store, reconcile.Query{N: 1}), 1)
				_, err := store.Counts(ctx, params.Kind, "", true, 10)
				require.NoError(t, err)
			},
			"7 append": func() {
				_, err := store.Timeline().Append(ctx, lines, os)
				require.NoError(t, err)
				_, err = store.Timeline().Append(ctx, lines, os[:1])
				require.NoError(t, err)
			},
			"8 history": func() {
				require.Len(t, events(t, store.Timeline(), reconcile.Ref{Event: key(3)}), 2)
				require.Len(t, events(t, store.Timeline(), reconcile.Ref{Own: key(9)}), 3)
			},
			"9 report": func() {
				r := raise(key(1))
				_, err := store.Checks().Report(ctx, finds, []reconcile.Report{r})
				require.NoError(t, err)
				r.Verb, r.Nonce = reconcile.ReportClear, nonce()
				_, err = store.Checks().Report(ctx, finds, []reconcile.Report{r})
				require.NoError(t, err)
			},
		}
	}
	steps := []string{"1 begin", "2 begin again", "3 settle", "4 claim", "5 receipt", "6 list and count", "7 append", "8 history", "9 report"}
	for range 8 { // every statement has its plan for good
		all := everything(int(time.Now().UnixNano()))
		for _, step := range steps {
			all[step]()
		}
	}
	const many = 3_000
	asks := make([]reconcile.Ask, many)
	os := make([]reconcile.Observation, many)
	for i := range asks {
		asks[i] = ask(fmt.Sprint("k", i), fmt.Sprint("acct", i%7))
		os[i] = said(fmt.Sprint("e", i), fmt.Sprint("m", i/2), fmt.Sprint("o", i/4))
	}
	var batch []reconcile.Settlement
	for i, e := range begin(t, store, asks...) {
		if i%2 == 0 {
			batch = append(batch, with(reconcile.VerbConfirm, e))
		}
	}
	settle(t, store, batch...)
	_, err := store.Timeline().Append(ctx, lines, os)
	require.NoError(t, err)
	open = begin(t, store, ask("z", "few"))
	_, err = pool.Exec(ctx, "SELECT "+schema+".reconcile_fold($1)", params.Kind)
	require.NoError(t, err)

	read := func() (n int) {
		// The server tells what it has counted when the connection is idle for a while.
		require.NoError(t, pool.QueryRow(ctx, "SELECT pg_stat_force_next_flush() IS NULL").Scan(new(bool)))
		require.NoError(t, pool.QueryRow(ctx, `SELECT coalesce(sum(idx_tup_read), 0)::integer FROM pg_stat_user_indexes WHERE schemaname = $1
			AND indexrelname LIKE 'reconcile%'`, schema).Scan(&n))
		return n
	}
	all := everything(int(time.Now().UnixNano()))
	for _, step := range steps {
		before := read()
		all[step]()
		got := read() - before
		require.Less(t, got, 200, step)
	}
}
