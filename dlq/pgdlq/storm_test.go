package pgdlq_test

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

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/internal/testenv"
)

// verify compares what is kept about letters with the letters: counts, groups, and who
// is the first of each lane.
func verify(t *testing.T, store *pgdlq.Store, pool *pgxpool.Pool, schema string) {
	t.Helper()
	ctx := context.Background()
	none := func(what, sql string) {
		t.Helper()
		var n int
		require.NoError(t, pool.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (%s) AS x", fmt.Sprintf(sql, schema))).Scan(&n))
		require.Zero(t, n, what)
	}
	none("lanes without one first letter", `SELECT stream, lane FROM %[1]s.dlq_letters WHERE state <= 2 GROUP BY 1, 2 HAVING count(*) FILTER (WHERE rank = 0) <> 1`)
	none("a first letter that is not the first", `SELECT stream, lane FROM %[1]s.dlq_letters WHERE state <= 2 GROUP BY 1, 2
		HAVING min(seq) <> min(seq) FILTER (WHERE rank = 0)`)
	none("letters of the wrong rank", `SELECT seq FROM %[1]s.dlq_letters WHERE state <= 2 AND rank NOT IN (0, seq)`)
	none("letters that are due and are not first and waiting, or the other way round",
		`SELECT seq FROM %[1]s.dlq_letters WHERE (due IS NOT NULL) <> (state = 1 AND rank = 0)`)
	none("letters that have not ended, or the other way round", `SELECT seq FROM %[1]s.dlq_letters WHERE (state <= 2) <> (ended = 0) OR (expires IS NULL) <> (state <= 2)`)
	none("lanes that have begun another letter than their first", `SELECT k.lane FROM %[1]s.dlq_lanes AS k LEFT JOIN %[1]s.dlq_letters AS t
		ON t.stream = k.stream AND t.lane = k.lane AND t.rank = 0 AND t.state = 1 WHERE k.begun IS NOT NULL AND k.begun IS DISTINCT FROM t.seq`)

	for range 2 { // before and after what is left was folded
		all, err := store.Totals(ctx, "", 100)
		require.NoError(t, err)
		want := map[string]dlq.Totals{}
		rows, err := pool.Query(ctx, `SELECT stream, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3),
			count(*) FILTER (WHERE state = 4), count(*) FILTER (WHERE state = 5) FROM `+schema+`.dlq_letters GROUP BY 1`)
		require.NoError(t, err)
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w dlq.Totals, err error) {
			err = row.Scan(&w.Stream, &w.Waiting, &w.Review, &w.Resolved, &w.Discarded, &w.Rejected)
			want[w.Stream] = w
			return w, err
		})
		require.NoError(t, err)
		got := map[string]dlq.Totals{}
		for _, g := range all {
			g.Oldest = 0
			got[g.Stream] = g
		}
		require.Equal(t, want, got)
		for stream := range want {
			var groups []string
			rows, err := pool.Query(ctx, `SELECT fingerprint || ' ' || count(*) FILTER (WHERE state = 1) || ' ' || count(*) FILTER (WHERE state = 2)
				FROM `+schema+`.dlq_letters WHERE stream = $1 AND state <= 2 AND fingerprint <> '' GROUP BY fingerprint ORDER BY fingerprint`, stream)
			require.NoError(t, err)
			groups, err = pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			var kept []string
			for after := ""; ; {
				page, err := store.Groups(ctx, stream, after, 3)
				require.NoError(t, err)
				for _, g := range page {
					kept = append(kept, fmt.Sprint(g.Fingerprint, " ", g.Waiting, " ", g.Review))
					after = g.Fingerprint
				}
				if len(page) < 3 {
					break
				}
			}
			require.ElementsMatch(t, groups, kept)
			_, err = pool.Exec(ctx, "SELECT "+schema+".dlq_fold($1)", stream)
			require.NoError(t, err)
		}
	}
}

// Many callers do everything at once, also in transactions that are rolled back. What is
// kept about letters agrees with them afterwards, and what is unresolved can be worked.
func TestStorm(t *testing.T) {
	t.Parallel()
	storm(t, 2*time.Second)
}

func TestLongStorm(t *testing.T) {
	storm(t, time.Duration(testenv.LongCount(t, 6, 120))*time.Second)
}

func storm(t *testing.T, lasts time.Duration) {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 16 })
	_, err := store.SaveJob(t.Context(), params, dlq.Job{Stream: orders, ID: "j", Nonce: nonce()})
	require.NoError(t, err)
	brief := dlq.Params{Retention: 200 * time.Millisecond, Audit: 200 * time.Millisecond, Capacity: 1000}
	until := time.Now().Add(lasts)
	var all sync.WaitGroup
	do := func(s dlq.Store, rnd *rand.Rand) error {
		ctx := context.Background()
		switch rnd.IntN(10) {
		case 0, 1, 2, 3:
			batch := make([]dlq.Put, 1+rnd.IntN(6))
			for i := range batch {
				n := rnd.IntN(120)
				batch[i] = letter(fmt.Sprint("l", n), []string{"", "k1", "k2", "k3", "k4"}[n%5])
				batch[i].Failure = failure(fmt.Sprintf("%02x", rnd.IntN(5)))
				batch[i].IfBlocked = rnd.IntN(4) == 0
			}
			_, err := s.Put(ctx, brief, batch)
			return err
		case 4, 5, 6:
			a := newAsk(time.Duration(rnd.IntN(100)) * time.Millisecond)
			a.N = 1 + rnd.IntN(10)
			c, err := store.Claim(ctx, a)
			if err != nil {
				return err
			}
			kinds := []dlq.Kind{dlq.KindResolve, dlq.KindResolve, dlq.KindRetry, dlq.KindReview, dlq.KindRelease, dlq.KindExtend}
			pure := rnd.IntN(2) == 0
			var batch []dlq.Settlement
			for _, k := range c.Claims {
				kind := kinds[rnd.IntN(len(kinds))]
				if pure {
					kind = dlq.KindResolve
				}
				x := settlement(kind, k)
				x.Lease, x.Delay = time.Millisecond, time.Duration(rnd.IntN(10))*time.Millisecond
				batch = append(batch, x)
			}
			errs, err := s.Settle(ctx, brief, batch)
			for _, e := range errs {
				if e != nil && !errors.Is(e, dlq.ErrStale) && !errors.Is(e, pgdlq.ErrBusy) {
					return e
				}
			}
			return err
		case 7, 8:
			p, err := s.List(ctx, dlq.Query{Stream: orders, N: 40, State: dlq.State(rnd.IntN(3)), Heads: true})
			if err != nil || len(p.Records) == 0 {
				return err
			}
			pure := rnd.IntN(2) == 0
			var batch []dlq.Change
			for range 1 + rnd.IntN(5) {
				c := change(dlq.ChangeKind(1+rnd.IntN(7)), p.Records[rnd.IntN(len(p.Records))])
				if pure {
					c.Kind = dlq.ChangeApprove
				}
				c.Body, c.Verb = []byte("edited"), "reveal"
				if rnd.IntN(2) == 0 {
					c.Job = "j"
				}
				batch = append(batch, c)
			}
			_, err = s.Change(ctx, brief, batch)
			return err
		}
		_, err := store.Sweep(ctx, 50)
		return err
	}
	for n := range 12 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed.One(), uint64(n)))
			for time.Now().Before(until) {
				if n%4 > 0 {
					if err := do(store, rnd); err != nil && !errors.Is(err, pgdlq.ErrBusy) {
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
				if err = do(store.Tx(tx), rnd); err == nil && rnd.IntN(3) > 0 {
					assert.NoError(t, tx.Commit(context.Background()))
				}
				_ = tx.Rollback(context.Background())
			}
		})
	}
	all.Wait()
	verify(t, store, pool, schema)

	require.Eventually(t, func() bool {
		p, err := store.List(t.Context(), dlq.Query{Stream: orders, State: dlq.StateReview, N: 1000})
		require.NoError(t, err)
		var batch []dlq.Change
		for _, r := range p.Records {
			batch = append(batch, change(dlq.ChangeApprove, r))
		}
		_, err = store.Change(t.Context(), params, batch)
		require.NoError(t, err)
		for _, k := range claim(t, store, time.Minute) {
			settle(t, store, settlement(dlq.KindResolve, k))
		}
		left := totals(t, store)
		return left.Waiting+left.Review == 0
	}, time.Minute, time.Millisecond)
	verify(t, store, pool, schema)
}
