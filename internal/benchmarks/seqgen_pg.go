package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
)

func seqgenPGComparisons() []Comparison {
	return []Comparison{{
		Name: "postgres-seqgen/single/g=64",
		What: "64 goroutines take numbers of one key, each committed before it is handed out, on a server with its default settings. " +
			"The peer is UPDATE ... RETURNING of one row, by 64 goroutines and by one.",
		Metrics: []Metric{{Name: "numbers/s", Bar: Bar{Ratio: 10}}},
		Open:    seqgenPGCases,
	}}
}

func seqgenPGCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	url, err := env.Postgres()
	if err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, env, url, workers)
	if err != nil {
		return nil, err
	}
	store, err := pgseqgen.New(pool, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	generator, err := seqgen.New(store, &seqgen.Options{Scope: "benchmark"})
	if err != nil {
		return nil, err
	}
	for _, q := range []string{
		"CREATE TABLE counters (key text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 50)",
		"INSERT INTO counters VALUES ('lane', 0)",
	} {
		if _, err := pool.Exec(ctx, q); err != nil {
			return nil, err
		}
	}
	return []Case{
		{Name: "Generator.Next, single, 64 goroutines", Role: Pawl, Run: afterCheckpoint(pool, workers, nextNumber(generator))},
		{Name: "UPDATE ... RETURNING, 64 goroutines", Role: Peer, Run: afterCheckpoint(pool, workers, updateReturning(pool))},
		{Name: "UPDATE ... RETURNING, 1 goroutine", Role: Peer, Run: afterCheckpoint(pool, 1, updateReturning(pool))},
	}, nil
}

// afterCheckpoint warms a case up, so that every connection is open and prepared,
// and measures it.
func afterCheckpoint(pool *pgxpool.Pool, workers int, newStep func(int) step) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if _, err := fan(ctx, workers, warmUp(d), newStep); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
			return nil, err
		}
		rate, err := fan(ctx, workers, d, newStep)
		return []float64{rate}, err
	}
}

func nextNumber(g *seqgen.Generator) func(int) step {
	return func(int) step {
		var last uint64
		return func(ctx context.Context) (int, error) {
			at, err := g.Next(ctx, "lane")
			if err == nil && at.Number <= last {
				err = fmt.Errorf("number %d after %d", at.Number, last)
			}
			last = at.Number
			return 1, err
		}
	}
}

func updateReturning(pool *pgxpool.Pool) func(int) step {
	return func(int) step {
		var last int64
		return func(ctx context.Context) (int, error) {
			var n int64
			err := pool.QueryRow(ctx, "UPDATE counters SET value = value + 1 WHERE key = 'lane' RETURNING value").Scan(&n)
			if err == nil && n <= last {
				err = fmt.Errorf("number %d after %d", n, last)
			}
			last = n
			return 1, err
		}
	}
}
