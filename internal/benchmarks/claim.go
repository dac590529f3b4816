package main

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/dedup"
)

// claimOne is Guard.Claim of new IDs, one in a call.
func claimOne(guard *dedup.Guard, ids workerIDs) func(worker int) step {
	return func(int) step {
		next := ids()
		return func(ctx context.Context) (int, error) {
			c, err := guard.Claim(ctx, dedup.Request{ID: next()})
			if err == nil && c.State != dedup.Acquired {
				err = fmt.Errorf("%w: %s", errNotNew, c.State)
			}
			return 1, err
		}
	}
}

// claimBatch is Guard.ClaimBatch of new random IDs, size in a call.
func claimBatch(guard *dedup.Guard, size int) func(worker int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			requests := make([]dedup.Request, size)
			for i := range requests {
				requests[i].ID = next()
			}
			claims, err := guard.ClaimBatch(ctx, requests)
			if err != nil {
				return 0, err
			}
			for _, c := range claims {
				if c.Err != nil {
					return 0, c.Err
				}
				if c.State != dedup.Acquired {
					return 0, fmt.Errorf("%w: %s", errNotNew, c.State)
				}
			}
			return size, nil
		}
	}
}
