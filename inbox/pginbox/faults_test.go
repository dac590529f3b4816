package pginbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// behindProxy returns a desk whose connections pass a proxy, each request with
// its SQL in it.
func behindProxy(t *testing.T) (*desk, *testenv.Proxy) {
	_, _, schema := newStore(t)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	pool := connect(t, proxy.URL(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	store, err := pginbox.New(pool, &pginbox.Options{Schema: schema})
	require.NoError(t, err)
	return deskOn(t, store, pool, schema), proxy
}

// The answer to a step is lost: sent again, it is answered as the first time.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	d, proxy := behindProxy(t)
	lose := func(step string) { proxy.DropRepliesTo(step, 1) }

	lose("inbox_accept")
	batch := []inbox.Arrival{arrival("a", "1"), arrival("a", "2")}
	_, err := d.store.Accept(t.Context(), params, batch)
	require.Error(t, err)
	answers, err := d.store.Accept(t.Context(), params, batch)
	require.NoError(t, err)
	require.Equal(t, []inbox.Answer{inbox.Duplicate, inbox.Duplicate}, answers)

	lose("inbox_claim")
	ask := newAsk(time.Minute)
	_, err = d.store.Claim(t.Context(), ask)
	require.Error(t, err)
	claimed, err := d.store.Claim(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
	c := claimed.Claims[0]
	require.Len(t, c.Records, 2)
	require.Equal(t, 1, c.Records[0].Attempts)

	for _, s := range []inbox.Settlement{
		settlement(inbox.KindDone, c, "p/1"), settlement(inbox.KindBegin, c, "p/2"),
		{Kind: inbox.KindRetry, Stream: c.Stream, Key: c.Key, Token: c.Token, ID: "p/2", Error: "no"},
	} {
		lose("inbox_settle")
		_, err = d.store.Settle(t.Context(), params, []inbox.Settlement{s})
		require.Error(t, err, s.Kind)
		errs, err := d.store.Settle(t.Context(), params, []inbox.Settlement{s})
		require.NoError(t, err)
		require.Nil(t, errs, s.Kind)
	}

	lose("inbox_change")
	change := []inbox.Change{{Kind: inbox.ChangeReplay, ID: "p/1", Nonce: [16]byte{1}, Actor: "ann", Reason: "why"}}
	_, err = d.store.Change(t.Context(), params, change)
	require.Error(t, err)
	errs, err := d.store.Change(t.Context(), params, change)
	require.NoError(t, err)
	require.Nil(t, errs)
	records, err := d.store.List(t.Context(), inbox.Query{ID: "p/1", N: 10})
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Len(t, records[0].Actions, 1)
	require.Equal(t, 6, proxy.Dropped())
}

// The answers to commits are lost while a box works: each effect is there once.
func TestInTxLostCommits(t *testing.T) {
	t.Parallel()
	d, proxy := behindProxy(t)
	var want []string
	for i := range 60 {
		id := string(rune('a'+i/26)) + string(rune('a'+i%26))
		d.accept("k", id)
		want = append(want, "p/"+id)
	}
	calls := 0
	d.work(d.store.InTx(d.box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		if calls++; calls%10 == 0 {
			proxy.DropRepliesTo("commit", 1)
		}
		return inbox.OutcomeOf(d.write(ctx, tx, r))
	}))
	require.Equal(t, want, d.effects("k"))
	require.Positive(t, proxy.Dropped())
}
