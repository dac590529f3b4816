package pgorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
)

// behindProxy returns a desk whose connections pass a proxy, each request with
// its SQL in it.
func behindProxy(t *testing.T) (*desk, *testenv.Proxy) {
	d := newDesk(t, nil)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	pool := connect(t, proxy.URL(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	schema := d.table[:len(d.table)-len(".effects")]
	store, err := pgorder.New(pool, &pgorder.Options{Schema: schema})
	require.NoError(t, err)
	d.store = store
	d.buf, err = order.New(store, nil)
	require.NoError(t, err)
	return d, proxy
}

// The answer to a step is lost: sent again, it is answered as the first time.
func TestLostReplies(t *testing.T) {
	d, proxy := behindProxy(t)
	lose := func(step string) { proxy.DropRepliesTo(step, 1) }

	lose("order_push")
	batch := []order.Arrival{arrival("a", 1), arrival("a", 2), arrival("a", 4)}
	_, err := d.store.Push(t.Context(), params, batch)
	require.Error(t, err)
	answers, err := d.store.Push(t.Context(), params, batch)
	require.NoError(t, err)
	for _, a := range answers {
		require.Equal(t, order.Duplicate, a.State)
	}

	lose("order_claim")
	_, err = d.store.Claim(t.Context(), params, ask(1))
	require.Error(t, err)
	claimed, err := d.store.Claim(t.Context(), params, ask(1))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1)
	c := claimed.Claims[0]
	require.Len(t, c.Run, 2)
	require.Equal(t, 1, c.Run[0].Attempt)

	for _, s := range []order.Settlement{
		{Kind: order.KindDeliver, Key: "a", Token: c.Token, Epoch: 1, From: 1, To: 3},
		{Kind: order.KindSkip, Key: "a", Token: c.Token, Epoch: 1, To: 4, Reason: order.ReasonTimeout},
		{Kind: order.KindRelease, Key: "a", Token: c.Token, Epoch: 1},
		{Kind: order.KindForget, Key: "a"},
	} {
		lose("order_settle")
		_, err = d.store.Settle(t.Context(), params, []order.Settlement{s})
		require.Error(t, err, s.Kind)
		errs, err := d.store.Settle(t.Context(), params, []order.Settlement{s})
		require.NoError(t, err)
		require.Nil(t, errs, s.Kind)
	}
	require.Equal(t, 6, proxy.Dropped())
}

// The answer to a commit is lost: whether it happened is asked, and each effect is
// there once.
func TestInTxLostCommits(t *testing.T) {
	d, proxy := behindProxy(t)
	d.push("a", 1, 100)
	calls := 0
	d.run(d.store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		if calls++; calls%20 == 0 {
			proxy.DropRepliesTo("order_deliver", 1)
		}
		return d.write(ctx, tx, m)
	}), &order.RunOptions{PerTx: 7, Backoff: quick.Backoff}, d.delivered("a", 100))
	assert.Equal(t, upTo(100), d.effects("a"))
	assert.Positive(t, proxy.Dropped())
}

// A worker that slept through its lease changes nothing when it wakes up.
func TestInTxOfAPausedOwner(t *testing.T) {
	d := newDesk(t, nil)
	d.push("a", 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paused, resume := make(chan struct{}), make(chan struct{})
	first := true
	slow := make(chan error, 1)
	workers, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		slow <- d.buf.RunTx(workers, d.store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
			if err := d.write(context.WithoutCancel(ctx), tx, m); err != nil || !first {
				return err
			}
			first = false
			// Another owner takes the key away, as if the lease had lapsed.
			_, err := d.pool.Exec(ctx, "UPDATE "+d.table[:len(d.table)-len("effects")]+"order_keys SET token = token + 1")
			close(paused)
			<-resume
			return err
		}), &order.RunOptions{Lease: time.Hour, Backoff: quick.Backoff})
	}()
	<-paused
	close(resume)
	require.Eventually(t, func() bool { return d.buf.Stats().Stale > 0 }, time.Minute, time.Millisecond)
	assert.Empty(t, d.effects("a"), "what it wrote is rolled back")
	stop()
	require.NoError(t, <-slow)
}
