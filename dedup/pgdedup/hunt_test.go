package pgdedup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/internal/seed"
)

// TestNoDeadlocks lets many goroutines claim, settle, forget and sweep
// overlapping random batches, some within transactions. A deadlock would end one
// of them with 40P01. Owners are counted: no ID has two at once.
func TestNoDeadlocks(t *testing.T) {
	const workers, rounds, ids = 8, 40, 60
	store, pool, _ := newStore(t, func(c *pgxpool.Config) { c.MaxConns = workers })
	p := dedup.Params{Scope: "hunt", Lease: time.Hour, Retention: time.Millisecond}
	var owners [ids]atomic.Int32
	from := seed.One()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(seed.Repeat(from))
		}
	})

	work := func(r *rand.Rand, s dedup.Store, committed bool) error {
		batch := make([]dedup.Ask, 1+r.IntN(30))
		numbers := make([]int, len(batch))
		for i := range batch {
			numbers[i] = r.IntN(ids)
			batch[i] = ask(fmt.Sprintf("id-%d", numbers[i]))
		}
		claims, err := s.Claim(t.Context(), p, batch)
		if err != nil {
			return err
		}
		var settlements []dedup.Settlement
		for i, c := range claims {
			if c.Err != nil {
				return c.Err
			}
			if c.State != dedup.Acquired {
				continue
			}
			if n := owners[numbers[i]].Add(1); n != 1 {
				return fmt.Errorf("%d owners of %s", n, c.ID)
			}
			owners[numbers[i]].Add(-1) // before the settlement lets the next one in
			switch r.IntN(3) {
			case 0:
				settlements = append(settlements, c.Complete(nil))
			case 1:
				settlements = append(settlements, c.Release())
			case 2:
				settlements = append(settlements, dedup.Settlement{Kind: dedup.KindForget, ID: c.ID})
			}
		}
		r.Shuffle(len(settlements), func(i, j int) { settlements[i], settlements[j] = settlements[j], settlements[i] })
		for committed && len(settlements) > 0 {
			errs, err := s.Settle(t.Context(), p, settlements)
			if err != nil {
				return err
			}
			var busy []dedup.Settlement
			for i, err := range errs {
				if errors.Is(err, pgdedup.ErrBusy) {
					busy = append(busy, settlements[i])
				} else if err != nil {
					return err
				}
			}
			settlements = busy
		}
		return nil
	}

	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(from, uint64(w)))
			for range rounds {
				var err error
				switch r.IntN(5) {
				case 0:
					err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return work(r, store.Tx(tx), true) })
				case 1:
					err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						return errors.Join(errRollback, work(r, store.Tx(tx), false))
					})
					if err != nil && err.Error() == errRollback.Error() {
						err = nil
					}
				case 2:
					_, err = store.Sweep(t.Context(), 100)
				default:
					err = work(r, store, true)
				}
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestPlansNeverReadTheWholeTable makes the server plan the steps while the
// table is empty and known to be empty, which is when a scan looks cheapest, and
// then fills it.
func TestPlansNeverReadTheWholeTable(t *testing.T) {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, err := pool.Exec(t.Context(), "ANALYZE "+schema+".dedup")
	require.NoError(t, err)
	p := dedup.Params{Scope: "plans", Lease: time.Hour, Retention: time.Millisecond, OnLapse: dedup.Hold}
	for i := range 20 {
		all := asks(fmt.Sprintf("plan-%d", i), 200)
		claims, err := store.Claim(t.Context(), p, all)
		require.NoError(t, err)
		_, err = store.Claim(t.Context(), p, all)
		require.NoError(t, err)
		settlements := make([]dedup.Settlement, len(claims))
		for i, c := range claims {
			settlements[i] = c.Complete(nil)
			if i%10 == 0 {
				settlements[i] = dedup.Settlement{Kind: dedup.KindForget, ID: c.ID}
			}
		}
		_, err = store.Settle(t.Context(), p, settlements)
		require.NoError(t, err)
		_, err = store.Held(t.Context(), p.Scope, "", 10)
		require.NoError(t, err)
	}
	_, err = pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(t, err)
	var rows, inserted int
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT seq_tup_read, n_tup_ins FROM pg_stat_all_tables WHERE relid = '"+schema+".dedup'::regclass").
		Scan(&rows, &inserted))
	require.GreaterOrEqual(t, inserted, 4000, "the statistics have arrived")
	assert.Zero(t, rows, "rows read by scans")
}
