package pgorder_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
	"github.com/pawl-go/pawl/retry"
)

func TestKilledServerWithLazyFlush(t *testing.T) { killedLazyServer(t, 300, 4) }

// The worst moment: the server dies and is back between two transactions of a
// run, so the worker notices nothing. The second must not commit, since the cursor
// has gone back behind the first.
func TestServerBackBetweenTwoTransactions(t *testing.T) {
	server := testenv.PostgresOwn(t, "wal_writer_delay=10s", "wal_writer_flush_after=1GB")
	var armed atomic.Bool
	pool := connect(t, server.URL(), func(c *pgxpool.Config) {
		c.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) {
			if ctx.Value(delivering{}) == nil || !armed.CompareAndSwap(true, false) {
				return true, nil
			}
			server.Kill()
			server.Start()
			return false, nil // as if an idle connection was found to be dead
		}
	})
	store, err := pgorder.New(pool, &pgorder.Options{LazyFlush: true})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	buf, err := order.New(store, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint)")
	require.NoError(t, err)
	d := &desk{t, store, buf, pool, "effects"}
	d.push("a", 1, 10)
	others := connect(t, server.URL())
	other, err := pgorder.New(others, nil) // which asks how far it is
	require.NoError(t, err)

	var handled []uint64 // by one worker
	deliver := store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		handled = append(handled, m.Position.Number)
		if len(handled) == 3 {
			armed.Store(true)
		}
		return d.write(ctx, tx, m)
	})
	handler := func(ctx context.Context, run *order.TxRun) (int, error) {
		return deliver(context.WithValue(ctx, delivering{}, true), run)
	}
	lapsed := false
	d.run(handler, &order.RunOptions{PerTx: 1, Concurrency: 1, Backoff: quick.Backoff, Lease: time.Minute, Poll: 20 * time.Millisecond}, func() bool {
		if buf.Stats().Stale == 1 && !lapsed {
			_, err := others.Exec(t.Context(), "UPDATE pawl.order_keys SET lease_until = 0, next_at = 0")
			lapsed = err == nil
		}
		account, err := other.Account(t.Context(), "default", "a")
		return err == nil && account.Ledgers[0].Delivered == 10
	})
	assert.Equal(t, upTo(10), d.effects("a"))
	assert.Equal(t, []uint64{1, 2, 3, 4, 1}, handled[:5], "the fourth noticed that those before it are gone")
	assert.EqualValues(t, 1, buf.Stats().Stale)
}

// delivering marks the context of a handler.
type delivering struct{}

// What a transaction's commit waits for is known when its deferred triggers run.
func TestLazyFlushIsForDeliveriesOnly(t *testing.T) {
	_, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 3 })
	store, err := pgorder.New(pool, &pgorder.Options{Schema: schema, LazyFlush: true})
	require.NoError(t, err)
	buf, err := order.New(store, nil)
	require.NoError(t, err)
	d := &desk{t, store, buf, pool, schema + ".effects"}
	_, err = pool.Exec(t.Context(), `CREATE TABLE `+d.table+` (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint);
		CREATE TABLE `+schema+`.commits (what text, number bigint, mode text);
		CREATE FUNCTION `+schema+`.note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO `+schema+`.commits VALUES (TG_TABLE_NAME, (to_jsonb(NEW)->>'number')::bigint, current_setting('synchronous_commit'));
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER a AFTER INSERT ON `+d.table+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+schema+`.note();
		CREATE CONSTRAINT TRIGGER a AFTER INSERT ON `+schema+`.order_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+schema+`.note();
		CREATE CONSTRAINT TRIGGER a AFTER INSERT OR UPDATE ON `+schema+`.order_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+schema+`.note();`,
		pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	d.push("a", 1, 20)
	d.run(store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		if _, err := buf.Push(ctx, order.Message{Key: "b", Position: m.Position}); m.Key == "a" && err != nil {
			return err
		}
		return d.write(ctx, tx, m)
	}), &order.RunOptions{PerTx: 2, Batch: 10, Backoff: quick.Backoff}, func() bool {
		totals, err := buf.Totals(t.Context())
		return err == nil && totals.Buffered == 0
	})
	count := func(what, mode string) (n int) {
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+schema+".commits WHERE what = $1 AND mode = $2", what, mode).Scan(&n)
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 40, count("order_messages", "on"), "every push waits for the disk")
	assert.Zero(t, count("order_messages", "off"))
	assert.Zero(t, count("order_keys", "off"), "and so does every claim and every end of a run")
	assert.Positive(t, count("effects", "off"))
	assert.Positive(t, count("effects", "on"), "the last transaction of a run")
	assert.Equal(t, 40, count("effects", "on")+count("effects", "off"))
}

func TestLongKilledServerWithLazyFlush(t *testing.T) {
	kills := testenv.LongCount(t, 10, 20)
	require.Positive(t, killedLazyServer(t, 100*uint64(kills), kills), "no kill took a thing back: the test shows nothing")
}

// killedLazyServer kills a server again and again that flushes by itself almost
// never, so that a kill can take back transactions that were answered: the effects
// and the cursor go back together, and no push is lost. It returns how many
// deliveries were taken back.
func killedLazyServer(t *testing.T, messages uint64, kills int) (taken int64) {
	const keys = 8
	server := testenv.PostgresOwn(t, "wal_writer_delay=10s", "wal_writer_flush_after=1GB")
	pool := connect(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = keys + 4 })
	store, err := pgorder.New(pool, &pgorder.Options{LazyFlush: true})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	buf, err := order.New(store, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint)")
	require.NoError(t, err)
	d := &desk{t, store, buf, pool, "effects"}

	ctx, stop := context.WithCancel(t.Context())
	var pushers, workers sync.WaitGroup
	var handled, undone atomic.Int64
	var pushed, begun [keys]atomic.Uint64 // the highest number of a key
	for k := range keys {
		pushers.Go(func() { // few at a time, and in between long enough for a kill to come before the next flush
			for n := uint64(1); n <= messages && ctx.Err() == nil; {
				var batch []order.Message
				for i := n; i <= min(n+19, messages); i++ {
					batch = append(batch, order.Message{Key: fmt.Sprint("key-", k), Position: order.Position{Epoch: 1, Number: i}, Payload: []byte{byte(k)}})
				}
				answers, err := buf.Push(ctx, batch...)
				for _, a := range answers {
					if err == nil {
						err = a.Err
					}
				}
				if err != nil { // whether it was stored is not known: again
					time.Sleep(10 * time.Millisecond)
					continue
				}
				n += uint64(len(batch))
				pushed[k].Store(n - 1)
			}
		})
	}
	handler := store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		handled.Add(1)
		k := m.Payload[0]
		if n := m.Position.Number; n < begun[k].Load() { // a later one was begun, so this one was committed
			undone.Add(1)
		} else {
			begun[k].Store(n)
		}
		return d.write(ctx, tx, m)
	})
	for range 2 { // as two processes
		workers.Go(func() {
			assert.NoError(t, buf.RunTx(ctx, handler, &order.RunOptions{PerTx: 1, Concurrency: keys,
				Backoff: retry.Constant(time.Millisecond), Lease: time.Second, MaxAttempts: 1000, Poll: 20 * time.Millisecond}))
		})
	}
	for n := range kills {
		target := int64(messages) * keys * int64(n+1) / int64(kills+1)
		require.Eventually(t, func() bool { return handled.Load() >= target }, time.Minute, time.Millisecond)
		server.Kill()
		var answered [keys]uint64
		for k := range keys {
			answered[k] = pushed[k].Load()
		}
		server.Start()
		for k, n := range answered {
			account, err := store.Account(t.Context(), "default", fmt.Sprint("key-", k))
			require.NoError(t, err)
			require.GreaterOrEqual(t, account.Arrivals.Accepted, n, "an answered push is there")
		}
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
	t.Logf("%d messages handled %d times, of which %d were committed before and undone by a kill", messages*keys, handled.Load(), undone.Load())
	return undone.Load()
}
