package pgreconcile_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/pgreconcile"
)

// Where a child finds the server and the schema it works on until it is killed.
const (
	crashURL    = "PGRECONCILE_CRASH_URL"
	crashSchema = "PGRECONCILE_CRASH_SCHEMA"
)

var crashOptions = reconcile.Options{Kind: params.Kind, Lease: time.Second, Quiet: time.Millisecond, SettleTime: time.Millisecond}

// work runs the compensation queue: each operation inserts a row and confirms itself in one
// transaction. after is called before the commit.
func work(ctx context.Context, store *pgreconcile.Store, schema string, after func() error) error {
	ledger, err := reconcile.New(store, &crashOptions)
	if err != nil {
		return err
	}
	return ledger.Run(ctx, inTx(ledger, store, schema, after), pgreconcile.NotConfirmed, &reconcile.RunOptions{Poll: 20 * time.Millisecond})
}

// workUntilKilled takes a while in each transaction, so that the process dies in one.
func workUntilKilled(url, schema string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	store, err := pgreconcile.New(pool, &pgreconcile.Options{Schema: schema})
	if err != nil {
		return err
	}
	return work(ctx, store, schema, func() error { time.Sleep(5 * time.Millisecond); return nil })
}

// A worker process is killed again and again. What it had in its hands is looked for after
// the lease, and each operation has its effect once.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	killedWorker(t, 60, 3)
}

func TestLongKilledWorker(t *testing.T) {
	kills := testenv.LongCount(t, 6, 40)
	killedWorker(t, 20*kills, kills)
}

func killedWorker(t *testing.T, operations, kills int) {
	store, pool, schema := newStore(t)
	createEffects(t, pool, schema)
	ledger, err := reconcile.New(store, &crashOptions)
	require.NoError(t, err)
	for i := range operations {
		require.NoError(t, ledger.Record(t.Context(), reconcile.Op{Key: fmt.Sprintf("%05d", i), Account: "acct"}))
	}
	for n := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashURL+"="+testenv.Postgres(t), crashSchema+"="+schema)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		before, _ := effects(t, pool, schema)
		require.NoError(t, cmd.Start())
		assert.Eventually(t, func() bool {
			now, _ := effects(t, pool, schema)
			return now > before+operations/(kills+1)/2
		}, time.Minute, time.Millisecond, "kill %d: nothing is worked any more", n)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Empty(t, stderr.String())
	}
	finish(t, store, pool, schema, operations)
}

// finish works what is left, and checks that everything happened once.
func finish(t *testing.T, store *pgreconcile.Store, pool *pgxpool.Pool, schema string, operations int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, store, schema, func() error { return nil }) }()
	assert.Eventually(t, func() bool { return counts(t, store).Confirmed == operations }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	n, of := effects(t, pool, schema)
	require.Equal(t, operations, n)
	require.Equal(t, operations, of)
	verify(t, store, pool, schema)
}

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 200, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 3, 10)
	killedServer(t, 200*kills, kills)
}

// killedServer records operations, appends observations and works, while the server is
// killed again and again: what was answered is there, each effect is there once, and the
// counts are right.
func killedServer(t *testing.T, operations, kills int) {
	server := testenv.PostgresOwn(t)
	store, pool, schema := newStoreOn(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 20 })
	createEffects(t, pool, schema)
	ledger, err := reconcile.New(store, &crashOptions)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var front, back sync.WaitGroup
	var done, unanswered atomic.Int64
	const callers = 4
	for c := range callers {
		front.Go(func() {
			for n := 0; n < operations/callers && ctx.Err() == nil; {
				key := fmt.Sprintf("%d-%05d", c, n)
				err := ledger.Record(ctx, reconcile.Op{Key: key, Account: "acct"})
				if err == nil {
					_, err = store.Timeline().Append(ctx, lines, []reconcile.Observation{said("e"+key, "m"+key, "")})
				}
				if err != nil {
					unanswered.Add(1)
					continue
				}
				n++
				done.Add(1)
			}
		})
	}
	back.Go(func() {
		for ctx.Err() == nil {
			assert.NoError(t, work(ctx, store, schema, func() error { return nil }))
		}
	})
	for n := range kills {
		target := int64(operations) * int64(n+1) / int64(kills+1)
		require.Eventually(t, func() bool { return done.Load() >= target }, time.Minute, time.Millisecond)
		server.Kill()
		server.Start()
	}
	front.Wait()
	assert.Eventually(t, func() bool {
		all, err := store.Counts(ctx, params.Kind, "", true, 1)
		return err == nil && len(all) == 1 && all[0].Confirmed == operations
	}, time.Minute, 20*time.Millisecond)
	stop()
	back.Wait()
	finish(t, store, pool, schema, operations)
	for c := range callers {
		for n := range operations / callers {
			key := fmt.Sprintf("%d-%05d", c, n)
			require.Equal(t, []string{"e" + key}, events(t, store.Timeline(), reconcile.Ref{Message: "m" + key}))
		}
	}
	t.Logf("%d operations, %d calls without an answer", done.Load(), unanswered.Load())
}
