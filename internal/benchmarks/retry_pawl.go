package main

import (
	"context"

	"github.com/pawl-go/pawl/retry"
)

// openPawlRetry is retry.Do with the bounds that every policy has, the default
// classes among them.
func openPawlRetry() (retryer, error) {
	policy, err := retry.New(&retry.Options{MaxAttempts: 5, Backoff: retry.Constant(0), Throttled: retry.Constant(0)})
	return func(ctx context.Context, fn func(context.Context) error) error {
		return retry.Do(ctx, policy, fn)
	}, err
}
