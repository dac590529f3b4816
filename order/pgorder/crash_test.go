package pgorder_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/retry"
)

func TestKilledServerUnderLoad(t *testing.T) { killedServer(t, 400, 2) }

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 4, 10)
	killedServer(t, 500*uint64(kills), kills)
}

// killedServer pushes messages to eight keys, and delivers them in transactions,
// while the server is killed again and again: each effect is there once and in
// order, and every answered message is delivered.
func killedServer(t *testing.T, messages uint64, kills int) {
	const keys = 8
	server := testenv.PostgresOwn(t)
	pool := connect(t, server.URL())
	store, err := pgorder.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	buf, err := order.New(store, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint)")
	require.NoError(t, err)
	d := &desk{t, store, buf, pool, "effects"}

	ctx, stop := context.WithCancel(t.Context())
	var pushers, workers sync.WaitGroup
	var pushed, unanswered atomic.Int64
	for k := range keys {
		pushers.Go(func() {
			for n := uint64(1); n <= messages && ctx.Err() == nil; {
				_, err := buf.Push(ctx, order.Message{Key: fmt.Sprint("key-", k), Position: order.Position{Epoch: 1, Number: n}, Payload: []byte("x")})
				if err != nil { // whether it was stored is not known: again
					unanswered.Add(1)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				pushed.Add(1)
				n++
			}
		})
	}
	for range 2 { // as two processes
		workers.Go(func() {
			assert.NoError(t, buf.RunTx(ctx, store.InTx(d.write), &order.RunOptions{
				Backoff: retry.Constant(time.Millisecond), Lease: time.Second, MaxAttempts: 1000, Poll: 20 * time.Millisecond}))
		})
	}
	for n := range kills {
		target := int64(messages) * keys * int64(n+1) / int64(kills+1)
		require.Eventually(t, func() bool { return pushed.Load() >= target }, time.Minute, time.Millisecond)
		server.Kill()
		server.Start()
	}
	pushers.Wait()
	assert.Eventually(t, func() bool {
		totals, err := buf.Totals(ctx)
		return err == nil && totals.Buffered == 0
	}, time.Minute, 20*time.Millisecond)
	stop()
	workers.Wait()
	for k := range keys {
		key := fmt.Sprint("key-", k)
		require.Equal(t, upTo(int64(messages)), d.effects(key))
		account, err := store.Account(t.Context(), "default", key)
		require.NoError(t, err)
		require.Equal(t, messages, account.Ledgers[0].Delivered)
		require.Equal(t, messages, account.Arrivals.Accepted)
	}
	t.Logf("%d messages, %d pushes without an answer", pushed.Load(), unanswered.Load())
}
