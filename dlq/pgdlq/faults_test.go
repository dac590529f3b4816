package pgdlq_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// behindProxy returns a store whose connections pass a proxy, each request with its
// SQL in it.
func behindProxy(t *testing.T) (*pgdlq.Store, *testenv.Proxy) {
	_, _, schema := newStore(t)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	pool := connect(t, proxy.URL(), unprepared)
	store, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema})
	require.NoError(t, err)
	return store, proxy
}

// The answer to a step is lost: sent again, it is answered as the first time, and has
// happened once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	store, proxy := behindProxy(t)
	ctx := t.Context()
	twice := func(step string, send func() error) {
		t.Helper()
		proxy.DropRepliesTo(step, 1)
		require.Error(t, send(), step)
		require.NoError(t, send(), step)
	}

	letters := []dlq.Put{letter("a", "k"), letter("b", "k"), letter("c", "")}
	twice("dlq_put", func() error {
		answers, err := store.Put(ctx, params, letters)
		if err == nil {
			require.Equal(t, []dlq.Answer{dlq.Added, dlq.Added, dlq.Added}, answers)
		}
		return err
	})
	require.Equal(t, 3, totals(t, store).Waiting)

	var claims []dlq.Claim
	ask := newAsk(time.Minute)
	twice("dlq_claim", func() error {
		c, err := store.Claim(ctx, ask)
		claims = c.Claims
		return err
	})
	require.Len(t, claims, 2)
	require.Equal(t, 1, claims[0].Record.Tries)

	for _, s := range []dlq.Settlement{settlement(dlq.KindReview, claims[0]), settlement(dlq.KindResolve, claims[1])} {
		twice("dlq_settle", func() error {
			errs, err := store.Settle(ctx, params, []dlq.Settlement{s})
			require.Nil(t, errs)
			return err
		})
	}
	job := dlq.Job{Stream: orders, ID: "j", Nonce: nonce()}
	twice("dlq_save_job", func() error {
		j, err := store.SaveJob(ctx, params, job)
		if err == nil {
			require.EqualValues(t, 1, j.Version)
		}
		return err
	})
	c := change(dlq.ChangeApprove, claims[0].Record)
	c.Job = "j"
	twice("dlq_change", func() error {
		errs, err := store.Change(ctx, params, []dlq.Change{c})
		require.Nil(t, errs)
		return err
	})
	alarm := dlq.Alarm{Nonce: nonce(), Stream: orders, Fingerprint: "aa", Window: time.Hour}
	twice("dlq_alert", func() error {
		first, err := store.Alert(ctx, []dlq.Alarm{alarm})
		if err == nil {
			require.Equal(t, []bool{true}, first)
		}
		return err
	})
	require.Equal(t, 6+1, proxy.Dropped())

	require.Equal(t, dlq.Totals{Stream: orders, Waiting: 2, Resolved: 1}, totals(t, store))
	entries, _, err := store.Audit(ctx, dlq.AuditQuery{Stream: orders, N: 10})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	jobs, err := store.Jobs(ctx, orders, "", 10)
	require.NoError(t, err)
	require.Equal(t, 1, jobs[0].Released)
	p, err := store.List(ctx, dlq.Query{Stream: orders, ID: "a", N: 1})
	require.NoError(t, err)
	require.Equal(t, 2, p.Records[0].Log.Total())
}

// A commit whose answer was lost is not guessed at: the settlement that was in it is
// found to be applied.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	store, proxy := behindProxy(t)
	put(t, store, letter("a", "k"))
	c := claim(t, store, time.Minute)
	require.Len(t, c, 1)
	s := settlement(dlq.KindResolve, c[0])
	tx, err := connect(t, proxy.URL(), unprepared).Begin(t.Context())
	require.NoError(t, err)
	settle(t, store.Tx(tx), s)
	proxy.DropRepliesTo("commit", 1)
	require.Error(t, tx.Commit(t.Context()))
	settle(t, store, s)
	require.Equal(t, dlq.Totals{Stream: orders, Resolved: 1}, totals(t, store))
}

func unprepared(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }
