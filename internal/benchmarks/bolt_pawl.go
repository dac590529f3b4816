package main

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/boltdedup"
)

// boltRecord is the size of what boltdedup stores for a claim that is not
// completed: nonce, token, lease, retention and attempt.
const boltRecord = 38

func openPawlBolt(db *bbolt.DB) (*dedup.Guard, error) {
	store, err := boltdedup.New(db, nil)
	if err != nil {
		return nil, err
	}
	return dedup.New(store, &dedup.Options{Scope: "benchmark"})
}

// fillPawlBolt puts n IDs in the file that are done: what a file that has been
// in use remembers.
func fillPawlBolt(ctx context.Context, db *bbolt.DB, next func() string, n int) error {
	guard, err := openPawlBolt(db)
	if err != nil {
		return err
	}
	for ; n > 0; n -= min(n, 1000) {
		first, err := guard.FirstSeen(ctx, batchOf(min(n, 1000), next)...)
		if err != nil {
			return err
		}
		if slices.Contains(first, false) {
			return errNotNew
		}
	}
	return nil
}

// claimOnBolt is Guard.Claim, one ID in a call.
func claimOnBolt(source func() func() string) func(*bbolt.DB) (func(int) step, error) {
	return func(db *bbolt.DB) (func(int) step, error) {
		guard, err := openPawlBolt(db)
		return func(int) step {
			next := source()
			return func(ctx context.Context) (int, error) {
				c, err := guard.Claim(ctx, dedup.Request{ID: next()})
				if err == nil && c.State != dedup.Acquired {
					err = fmt.Errorf("%w: %s", errNotNew, c.State)
				}
				return 1, err
			}
		}, err
	}
}
