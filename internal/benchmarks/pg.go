package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func pgComparisons() []Comparison {
	return []Comparison{
		{
			Name: "postgres/batch=1000/g=16",
			What: "16 goroutines claim new random IDs of 36 bytes, 1000 in a call, on a server with its default settings and an empty table. " +
				"The peer is one INSERT ... SELECT FROM unnest ... ON CONFLICT DO NOTHING RETURNING into the same table.",
			Metrics: []Metric{{Name: "IDs/s", Bar: Bar{Ratio: 0.65, Aim: 0.8}}},
			Open:    pgBatchCases,
		},
		{
			Name: "postgres/single/g=64",
			What: "64 goroutines claim new random IDs of 36 bytes, one in a call, on a server with its default settings and an empty table. " +
				"The peer is one INSERT of one row into the same table, committed by itself.",
			Metrics: []Metric{{Name: "IDs/s", Bar: Bar{Ratio: 4}}},
			Open:    pgSingleCases,
		},
	}
}

// The peers insert into pgdedup's own table, and rows of the size that a first
// claim has.
const (
	pgTable   = "pawl.dedup"
	pgColumns = "(layout, state, attempt, token, since, lease_until, expires_at, hold, nonce, scope, id)"
	pgValues  = `1, 1, 1, 1700000000000000, 1700000000000000, 1700000000000000, 1700000000000000, false,
		'\x00112233445566778899aabbccddeeff'::bytea, 'benchmark', `

	pgInsertMany = "INSERT INTO " + pgTable + pgColumns + " SELECT " + pgValues + "n.id" +
		" FROM unnest($1::text[]) AS n(id) ON CONFLICT DO NOTHING RETURNING id"
	pgInsertOne = "INSERT INTO " + pgTable + pgColumns + " VALUES (" + pgValues + "$1) ON CONFLICT DO NOTHING"
)

func pgBatchCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 16
	wide, usual, err := openPG(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	guard, err := openPawlPG(wide)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Guard.ClaimBatch", Role: Pawl, Run: onEmptyTable(wide, workers, claimBatch(guard, 1000))},
		{Name: "unnest, ON CONFLICT DO NOTHING", Role: Peer, Run: onEmptyTable(wide, workers, insertMany(wide))},
		{Name: "unnest, pgxpool's usual size", Role: Peer, Run: onEmptyTable(usual, workers, insertMany(usual))},
	}, nil
}

func pgSingleCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	wide, usual, err := openPG(ctx, env, workers)
	if err != nil {
		return nil, err
	}
	guard, err := openPawlPG(wide)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Guard.Claim", Role: Pawl, Run: onEmptyTable(wide, workers, claimOne(guard, randomIDs))},
		{Name: "INSERT of one row", Role: Peer, Run: onEmptyTable(wide, workers, insertOne(wide))},
		{Name: "INSERT of one row, pgxpool's usual size", Role: Peer, Run: onEmptyTable(usual, workers, insertOne(usual))},
	}, nil
}

func insertMany(pool *pgxpool.Pool) func(int) step {
	const size = 1000
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			rows, err := pool.Query(ctx, pgInsertMany, batchOf(size, next))
			if err != nil {
				return 0, err
			}
			isNew, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err == nil && len(isNew) != size {
				err = errNotNew
			}
			return size, err
		}
	}
}

func insertOne(pool *pgxpool.Pool) func(int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			tag, err := pool.Exec(ctx, pgInsertOne, next())
			if err == nil && tag.RowsAffected() != 1 {
				err = errNotNew
			}
			return 1, err
		}
	}
}

// openPG starts a server, makes the table and returns two pools: one with a
// connection for every worker, which Pawl uses too, and one of the size that
// pgxpool chooses. A peer is measured with both, and the better one counts.
func openPG(ctx context.Context, env *Env, workers int32) (wide, usual *pgxpool.Pool, err error) {
	url, err := env.Postgres()
	if err != nil {
		return nil, nil, err
	}
	if wide, err = openPool(ctx, env, url, workers); err != nil {
		return nil, nil, err
	}
	if usual, err = openPool(ctx, env, url, 0); err != nil {
		return nil, nil, err
	}
	if err := migratePG(ctx, wide); err != nil {
		return nil, nil, fmt.Errorf("make the table: %w", err)
	}
	var version, fsync, commit string
	err = wide.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&version, &fsync, &commit)
	env.Note("PostgreSQL %s, fsync %s, synchronous_commit %s", version, fsync, commit)
	return wide, usual, err
}

func openPool(ctx context.Context, env *Env, url string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if connections > 0 {
		config.MaxConns = connections
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		env.Cleanup(func() error { pool.Close(); return nil })
	}
	return pool, err
}

// onEmptyTable makes a case that opens and prepares every connection for a
// moment, then empties the table and writes a checkpoint, so that each
// measurement begins with the same server, and then measures.
func onEmptyTable(pool *pgxpool.Pool, workers int, newStep func(worker int) step) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if _, err := fan(ctx, workers, warmUp(d), newStep); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		for _, q := range []string{"TRUNCATE " + pgTable, "CHECKPOINT"} {
			if _, err := pool.Exec(ctx, q); err != nil {
				return nil, fmt.Errorf("%s: %w", q, err)
			}
		}
		rate, err := fan(ctx, workers, d, newStep)
		return []float64{rate}, err
	}
}
