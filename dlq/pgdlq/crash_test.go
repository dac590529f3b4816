package pgdlq_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// Where a child finds the server and the schema it works on until it is killed.
const (
	crashURL    = "PGDLQ_CRASH_URL"
	crashSchema = "PGDLQ_CRASH_SCHEMA"
)

const crashLease = time.Second

// workOnce claims letters and works each in a transaction with its effect. after is
// called before the commit.
func workOnce(ctx context.Context, store *pgdlq.Store, pool *pgxpool.Pool, schema string, after func()) error {
	a := newAsk(crashLease)
	a.N = 4
	c, err := store.Claim(ctx, a)
	if err != nil {
		return err
	}
	for _, k := range c.Claims {
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO "+schema+".effects (key, letter) VALUES ($1, $2)", k.Record.Key, k.Record.ID); err != nil {
				return err
			}
			errs, err := store.Tx(tx).Settle(ctx, params, []dlq.Settlement{settlement(dlq.KindResolve, k)})
			after()
			return errors.Join(append(errs, err)...)
		})
		if err != nil && !errors.Is(err, dlq.ErrStale) && !errors.Is(err, pgdlq.ErrBusy) {
			return err
		}
	}
	return nil
}

// workUntilKilled takes a while in each transaction, so that the process dies in one.
func workUntilKilled(url, schema string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	store, err := pgdlq.New(pool, &pgdlq.Options{Schema: schema})
	for err == nil {
		err = workOnce(ctx, store, pool, schema, func() { time.Sleep(5 * time.Millisecond) })
	}
	return err
}

func createEffects(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+schema+".effects (id bigint GENERATED ALWAYS AS IDENTITY, key text, letter text)")
	require.NoError(t, err)
}

// effects are the letters of a key, or of all, that have had an effect, in order.
func effects(t *testing.T, pool *pgxpool.Pool, schema, key string) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), "SELECT letter FROM "+schema+".effects WHERE $1 IN ('', key) ORDER BY id", key)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return ids
}

// A worker process is killed again and again. Its letters are tried again after the
// lease, in order, and each has its effect once.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	killedWorker(t, 80, 3)
}

func TestLongKilledWorker(t *testing.T) {
	kills := testenv.LongCount(t, 5, 40)
	killedWorker(t, 40*kills, kills)
}

func killedWorker(t *testing.T, letters, kills int) {
	store, pool, schema := newStore(t)
	createEffects(t, pool, schema)
	want := map[string][]string{}
	for i := range letters {
		l := letter(fmt.Sprintf("%05d", i), fmt.Sprint("key-", i%7))
		put(t, store, l)
		want[l.Key] = append(want[l.Key], l.ID)
	}
	for n := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashURL+"="+testenv.Postgres(t), crashSchema+"="+schema)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		before := len(effects(t, pool, schema, ""))
		assert.Eventually(t, func() bool { return len(effects(t, pool, schema, "")) > before+letters/(kills+1)/2 }, 30*time.Second,
			time.Millisecond, "kill %d: the letters of the last worker are not tried again", n)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Empty(t, stderr.String())
	}
	require.Eventually(t, func() bool {
		require.NoError(t, workOnce(t.Context(), store, pool, schema, func() {}))
		return totals(t, store).Resolved == letters
	}, time.Minute, time.Millisecond)
	for key, ids := range want {
		require.Equal(t, ids, effects(t, pool, schema, key))
	}
	verify(t, store, pool, schema)
}

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 60, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 2, 10)
	killedServer(t, 100*kills, kills)
}

// killedServer puts letters of eight keys and works them in transactions, while the
// server is killed again and again: every answered letter is there, each effect is there
// once and in order, and the counts are right.
func killedServer(t *testing.T, letters, kills int) {
	const keys = 8
	server := testenv.PostgresOwn(t)
	store, pool, schema := newStoreOn(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 20 })
	createEffects(t, pool, schema)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var front, back sync.WaitGroup
	var added, unanswered atomic.Int64
	for k := range keys {
		front.Go(func() {
			for n := 0; n < letters && ctx.Err() == nil; {
				// The same nonce: a letter that was stored, and even resolved, is not stored again.
				l := letter(fmt.Sprintf("%d-%05d", k, n), fmt.Sprint("key-", k))
				for ctx.Err() == nil {
					answers, err := store.Put(ctx, params, []dlq.Put{l})
					if err == nil {
						assert.Equal(t, []dlq.Answer{dlq.Added}, answers)
						added.Add(1)
						n++
						break
					}
					unanswered.Add(1)
				}
			}
		})
	}
	for range 2 {
		back.Go(func() {
			for ctx.Err() == nil {
				if workOnce(ctx, store, pool, schema, func() {}) != nil {
					unanswered.Add(1)
				}
			}
		})
	}
	for n := range kills {
		target := int64(letters) * keys * int64(n+1) / int64(kills+1)
		require.Eventually(t, func() bool { return added.Load() >= target }, time.Minute, time.Millisecond)
		server.Kill()
		server.Start()
	}
	front.Wait()
	assert.Eventually(t, func() bool {
		all, err := store.Totals(ctx, "", 1)
		return err == nil && len(all) == 1 && all[0].Resolved == keys*letters
	}, time.Minute, 20*time.Millisecond)
	stop()
	back.Wait()
	for k := range keys {
		var want []string
		for n := range letters {
			want = append(want, fmt.Sprintf("%d-%05d", k, n))
		}
		require.Equal(t, want, effects(t, pool, schema, fmt.Sprint("key-", k)))
	}
	verify(t, store, pool, schema)
	t.Logf("%d letters, %d calls without an answer", added.Load(), unanswered.Load())
}
