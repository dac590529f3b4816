package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
)

func orderPGComparisons() []Comparison {
	what := "Messages of 16 keys are delivered in transactions, each with the handler's insert of one row, on a server with its default " +
		"settings. The peer has a goroutine for each key, which locks the key's cursor, inserts, moves the cursor and commits, " +
		"and does not read a message at all. "
	return []Comparison{
		{
			Name:    "postgres-order/tx=1",
			What:    what + "Pawl commits after every message.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 1.5}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return orderPGCases(ctx, env, 1, 16*400) },
		},
		{
			Name:    "postgres-order/tx=64",
			What:    what + "Pawl puts up to 64 messages into one transaction, with a savepoint each.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 4}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return orderPGCases(ctx, env, 64, 16*1500) },
		},
	}
}

const orderKeys = 16

func orderPGCases(ctx context.Context, env *Env, perTx, messages int) ([]Case, error) {
	url, err := env.Postgres()
	if err != nil {
		return nil, err
	}
	wide, err := openPool(ctx, env, url, orderKeys+4)
	if err != nil {
		return nil, err
	}
	usual, err := openPool(ctx, env, url, 0)
	if err != nil {
		return nil, err
	}
	store, err := pgorder.New(wide, nil)
	if err != nil {
		return nil, err
	}
	lazy, err := pgorder.New(wide, &pgorder.Options{LazyFlush: true})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	_, err = wide.Exec(ctx, "CREATE TABLE effects (key text, number bigint); CREATE TABLE cursors (key text PRIMARY KEY, next bigint) WITH (fillfactor = 50)",
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	deliver := func(store *pgorder.Store) func(context.Context, time.Duration) ([]float64, error) {
		return func(ctx context.Context, _ time.Duration) ([]float64, error) {
			// First every connection is opened and prepared.
			if _, err := deliverPG(ctx, wide, store, perTx, orderKeys*200); err != nil {
				return nil, err
			}
			return deliverPG(ctx, wide, store, perTx, messages)
		}
	}
	return []Case{
		{Name: "Buffer.RunTx", Role: Pawl, Run: deliver(store)},
		{Name: "Buffer.RunTx, LazyFlush", Role: Pawl, Run: deliver(lazy)},
		{Name: "lock, insert, move", Role: Peer, Run: plainLoop(wide)},
		{Name: "lock, insert, move; pgxpool's usual size", Role: Peer, Run: plainLoop(usual)},
	}, nil
}

// deliverPG pushes messages and measures how fast they are delivered.
func deliverPG(ctx context.Context, pool *pgxpool.Pool, store *pgorder.Store, perTx, messages int) ([]float64, error) {
	buf, err := order.New(store, &order.Options{Scope: "benchmark"})
	if err != nil {
		return nil, err
	}
	for k := range orderKeys {
		if err := buf.Forget(ctx, orderKey(k)); err != nil {
			return nil, err
		}
		var batch []order.Message
		for n := range messages / orderKeys {
			batch = append(batch, order.Message{Key: orderKey(k), Position: order.Position{Epoch: 1, Number: uint64(n + 1)}, Payload: make([]byte, 100)})
		}
		if _, err := buf.Push(ctx, batch...); err != nil {
			return nil, err
		}
	}
	for _, q := range []string{"TRUNCATE effects", "VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, q); err != nil {
			return nil, err
		}
	}
	var handled atomic.Int64
	all := make(chan struct{})
	handler := store.InTx(func(ctx context.Context, tx pgx.Tx, m order.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", m.Key, int64(m.Position.Number))
		if handled.Add(1) == int64(messages) {
			close(all)
		}
		return err
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	var worker sync.WaitGroup
	start := time.Now()
	worker.Go(func() {
		err = buf.RunTx(running, handler, &order.RunOptions{PerTx: perTx, Concurrency: orderKeys})
	})
	<-all
	stop()
	worker.Wait() // it waits for the last commits
	elapsed := time.Since(start)
	if err != nil {
		return nil, err
	}
	var written int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM effects").Scan(&written); err != nil {
		return nil, err
	}
	if written != messages {
		return nil, fmt.Errorf("%d effects of %d messages", written, messages)
	}
	return []float64{float64(messages) / elapsed.Seconds()}, nil
}

func orderKey(k int) string { return fmt.Sprintf("conversation-%02d", k) }

func plainLoop(pool *pgxpool.Pool) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if _, err := pool.Exec(ctx, "TRUNCATE effects, cursors"); err != nil {
			return nil, err
		}
		for k := range orderKeys {
			if _, err := pool.Exec(ctx, "INSERT INTO cursors VALUES ($1, 1)", orderKey(k)); err != nil {
				return nil, err
			}
		}
		return afterCheckpoint(pool, orderKeys, func(worker int) step {
			key := orderKey(worker)
			return func(ctx context.Context) (int, error) { return 1, deliverPlainly(ctx, pool, key) }
		})(ctx, d)
	}
}

func deliverPlainly(ctx context.Context, pool *pgxpool.Pool, key string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var next int64
		if err := tx.QueryRow(ctx, "SELECT next FROM cursors WHERE key = $1 FOR UPDATE", key).Scan(&next); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", key, next); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "UPDATE cursors SET next = next + 1 WHERE key = $1", key)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("no cursor")
		}
		return err
	})
}
