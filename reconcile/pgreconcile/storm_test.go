package pgreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// verify compares what is kept about operations and messages with them.
func verify(t *testing.T, store *pgreconcile.Store, pool *pgxpool.Pool, schema string) {
	t.Helper()
	ctx := context.Background()
	none := func(what, sql string) {
		t.Helper()
		var n int
		require.NoError(t, pool.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (%s) AS x", fmt.Sprintf(sql, schema))).Scan(&n))
		require.Zero(t, n, what)
	}
	none("due, and nobody may claim it", `SELECT key FROM %[1]s.reconcile_ops WHERE due IS NOT NULL AND (review <> '' OR state = 3 OR state = 4 AND NOT again)`)
	none("open, and neither due nor in review", `SELECT key FROM %[1]s.reconcile_ops WHERE due IS NULL AND review = '' AND state NOT IN (3, 4)`)
	none("ended, and never forgotten", `SELECT key FROM %[1]s.reconcile_ops WHERE state IN (3, 4) AND NOT again AND expires IS NULL AND review = ''`)
	none("a log that does not add up", `SELECT key FROM %[1]s.reconcile_ops WHERE cardinality(log) NOT BETWEEN 1 AND 32 OR dropped > 0 AND cardinality(log) < 32`)
	none("too many observations", `SELECT subject FROM %[1]s.reconcile_observations GROUP BY kind, subject HAVING count(*) > 8`)

	for range 2 { // before and after what is left was folded
		rows, err := pool.Query(ctx, `SELECT account, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3),
			count(*) FILTER (WHERE state = 4), count(*) FILTER (WHERE state = 5), count(*) FILTER (WHERE review <> ''), count(*) FILTER (WHERE attempts > 1),
			count(*) FILTER (WHERE attempts > 1 AND state = 3), count(*) FILTER (WHERE state = 4 AND due IS NOT NULL), bool_or(state NOT IN (3, 4) OR review <> '' OR due IS NOT NULL)
			FROM `+schema+`.reconcile_ops WHERE kind = $1 GROUP BY 1 ORDER BY 1`, params.Kind)
		require.NoError(t, err)
		open := map[string]bool{}
		want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c reconcile.Counts, err error) {
			var isOpen bool
			err = row.Scan(&c.Account, &c.Started, &c.Accepted, &c.Confirmed, &c.Failed, &c.Unknown, &c.Review, &c.Resent, &c.ResentConfirmed, &c.Waiting, &isOpen)
			open[c.Account] = isOpen
			return c, err
		})
		require.NoError(t, err)
		var got []reconcile.Counts
		for first := true; first || len(got)%2 == 0; first = false {
			after := ""
			if !first {
				after = got[len(got)-1].Account
			}
			page, err := store.Counts(ctx, params.Kind, after, first, 2)
			require.NoError(t, err)
			for _, c := range page {
				require.Equal(t, open[c.Account], c.Oldest > 0, c.Account)
				c.Oldest = 0
				got = append(got, c)
			}
			if len(page) < 2 {
				break
			}
		}
		require.Equal(t, want, got)
		_, err = pool.Exec(ctx, "SELECT "+schema+".reconcile_fold($1)", params.Kind)
		require.NoError(t, err)
	}
}

// Many callers do everything at once, also in transactions that are rolled back. What is
// kept about operations agrees with them afterwards, and what is open can be worked.
func TestStorm(t *testing.T) {
	t.Parallel()
	storm(t, 2*time.Second)
}

func TestLongStorm(t *testing.T) {
	storm(t, time.Duration(testenv.LongCount(t, 10, 90))*time.Second)
}

func storm(t *testing.T, lasts time.Duration) {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 16 })
	until := time.Now().Add(lasts)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			s := &stormer{store: store, rnd: rand.New(rand.NewPCG(uint64(n), uint64(time.Now().UnixNano())))}
			for time.Now().Before(until) {
				if n%4 > 0 {
					if err := s.do(store, store.Timeline()); err != nil && !errors.Is(err, pgreconcile.ErrBusy) {
						assert.NoError(t, err)
						return
					}
					continue
				}
				tx, err := pool.Begin(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				// A deadlock with another caller is the end of this transaction, and no more.
				if err = s.do(store.Tx(tx), store.Timeline().Tx(tx)); err == nil && s.rnd.IntN(3) > 0 {
					assert.NoError(t, tx.Commit(context.Background()))
				}
				_ = tx.Rollback(context.Background())
			}
		})
	}
	all.Wait()
	verify(t, store, pool, schema)

	for _, e := range list(t, store, reconcile.Query{Open: true}) { // whatever it is, a person can end it
		r := reconcile.Settlement{Verb: reconcile.VerbResolve, Key: e.Key, Token: e.Token, Nonce: nonce(), State: reconcile.Confirmed, By: "ann"}
		if e.State.Ended() && e.Review == "" {
			r = reconcile.Settlement{Verb: reconcile.VerbReceipt, Key: e.Key, Nonce: nonce(), State: reconcile.Failed}
		}
		settle(t, store, r)
	}
	require.Empty(t, list(t, store, reconcile.Query{Open: true}))
	verify(t, store, pool, schema)
}

type stormer struct {
	store *pgreconcile.Store
	rnd   *rand.Rand
	held  []reconcile.Entry
}

func (s *stormer) do(to reconcile.Store, timeline reconcile.TimelineStore) error {
	ctx := context.Background()
	p := params
	p.Lease = time.Duration(s.rnd.IntN(50)) * time.Millisecond
	p.Retention = time.Duration(s.rnd.IntN(200)) * time.Millisecond
	switch s.rnd.IntN(10) {
	case 0, 1, 2:
		asks := make([]reconcile.Ask, 1+s.rnd.IntN(6))
		for i := range asks {
			n := s.rnd.IntN(80)
			asks[i] = ask(fmt.Sprint("k", n), fmt.Sprint("acct", n%3))
			asks[i].Later = s.rnd.IntN(4) == 0
		}
		answers, err := to.Begin(ctx, p, asks)
		for _, a := range answers {
			if a.Err != nil {
				return a.Err
			}
			if a.Grant == reconcile.Send || a.Grant == reconcile.Look {
				s.held = append(s.held, a.Entry)
			}
		}
		return err
	case 3:
		entries, _, err := s.store.Claim(ctx, p, reconcile.ClaimAsk{Nonce: nonce(), N: 1 + s.rnd.IntN(5)})
		s.held = append(s.held, entries...)
		return err
	case 4, 5, 6, 7:
		var batch []reconcile.Settlement
		for _, e := range s.held {
			x := with(reconcile.Verb(1+s.rnd.IntN(int(reconcile.VerbForget))), e)
			x.Nonce, x.State = nonce(), []reconcile.State{reconcile.Confirmed, reconcile.Failed}[s.rnd.IntN(2)]
			x.Again, x.Looked, x.Delay = s.rnd.IntN(2) == 0, s.rnd.IntN(2) == 0, time.Duration(s.rnd.IntN(20))*time.Millisecond
			x.Again = x.Again && x.State == reconcile.Failed
			batch = append(batch, x)
		}
		s.held = nil
		errs, err := to.Settle(ctx, p, batch)
		for _, e := range errs {
			if errors.Is(e, pgreconcile.ErrBusy) {
				return e
			}
		}
		return err
	case 8:
		var os []reconcile.Observation
		for range 1 + s.rnd.IntN(8) {
			os = append(os, said(fmt.Sprint("e", s.rnd.IntN(100)), fmt.Sprint("m", s.rnd.IntN(6)), fmt.Sprint("o", s.rnd.IntN(3))))
		}
		_, err := timeline.Append(ctx, lines, os)
		return err
	}
	_, err := s.store.Sweep(ctx, 40)
	return err
}
