package main

import (
	"context"
	"time"

	avastv4 "github.com/avast/retry-go/v4"
	avastv5 "github.com/avast/retry-go/v5"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	sethvargo "github.com/sethvargo/go-retry"
)

type retryPeer struct {
	name string
	do   retryer
}

// retryPeers are the libraries that a Go program takes for this, each as its own
// documentation uses it for many calls: what can be made once is made once.
func retryPeers() []retryPeer {
	return []retryPeer{
		{"backoff v5", func(ctx context.Context, fn func(context.Context) error) error {
			_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, fn(ctx) },
				backoff.WithBackOff(&backoff.ZeroBackOff{}), backoff.WithMaxTries(5))
			return err
		}},
		{"retry-go v4", func(ctx context.Context, fn func(context.Context) error) error {
			return avastv4.Do(func() error { return fn(ctx) }, avastv4.Attempts(5), avastv4.Context(ctx),
				avastv4.DelayType(avastv4.FixedDelay), avastv4.Delay(0))
		}},
		{"retry-go v5", avastReused()},
		{"go-retry", func(ctx context.Context, fn func(context.Context) error) error {
			return sethvargo.Do(ctx, sethvargo.WithMaxRetries(4, noDelay), func(ctx context.Context) error {
				return sethvargo.RetryableError(fn(ctx))
			})
		}},
		{"failsafe-go", failsafeReused()},
	}
}

// noDelay is a go-retry backoff of zero; its own Constant refuses that.
var noDelay = sethvargo.BackoffFunc(func() (time.Duration, bool) { return 0, false })

// avastReused has no context of a call: its retrier is made with one, and making a
// retrier for each call costs more.
func avastReused() retryer {
	retrier := avastv5.New(avastv5.Attempts(5), avastv5.DelayType(avastv5.FixedDelay), avastv5.Delay(0))
	return func(ctx context.Context, fn func(context.Context) error) error {
		return retrier.Do(func() error { return fn(ctx) })
	}
}

func failsafeReused() retryer {
	executor := failsafe.With(retrypolicy.NewBuilder[any]().WithMaxAttempts(5).Build())
	return func(ctx context.Context, fn func(context.Context) error) error {
		return executor.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error { return fn(e.Context()) })
	}
}
