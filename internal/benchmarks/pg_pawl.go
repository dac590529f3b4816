package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
)

func migratePG(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := pgdedup.New(pool, nil)
	if err != nil {
		return err
	}
	return store.Migrate(ctx)
}

func openPawlPG(pool *pgxpool.Pool) (*dedup.Guard, error) {
	store, err := pgdedup.New(pool, nil)
	if err != nil {
		return nil, err
	}
	return dedup.New(store, &dedup.Options{Scope: "benchmark"})
}
