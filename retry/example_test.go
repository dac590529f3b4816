package retry_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// A call of another system, which fails twice. One policy and one budget serve all
// calls of that system.
func Example() {
	budget, err := retry.NewBudget(nil)
	if err != nil {
		panic(err)
	}
	policy, err := retry.New(&retry.Options{
		MaxAttempts: 4,
		Backoff:     retry.Exponential(time.Millisecond, 10*time.Millisecond, retry.FullJitter),
		Budget:      budget,
	})
	if err != nil {
		panic(err)
	}
	err = retry.Do(context.Background(), policy, func(ctx context.Context) error {
		n := retry.AttemptFrom(ctx)
		fmt.Println("attempt", n)
		if n < 3 {
			return errors.New("connection lost")
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// <nil>
}

// Why a call ended, and what to do then.
func ExampleDo() {
	send := func(code int, retryAfter string) error {
		return retry.Do(context.Background(), nil, func(context.Context) error {
			// In a program: retry.Status(resp.StatusCode, resp.Header)
			return retry.Status(code, map[string][]string{"Retry-After": {retryAfter}})
		})
	}
	for _, err := range []error{send(403, ""), send(429, "3600")} {
		failed, ok := errors.AsType[*retry.Error](err)
		switch {
		case !ok: // nil, or ErrInvalid
			fmt.Println(err)
		case failed.Reason == retry.StopPermanent:
			fmt.Println("for a person:", err)
		default:
			fmt.Println("again in", failed.Next.Truncate(time.Hour), "or later:", failed.Reason)
		}
	}
	// Output:
	// for a person: retry: the failure is permanent; tried once: HTTP status 403
	// again in 1h0m0s or later: the server asks for too long a wait
}

func ExampleDoValue() {
	balance, err := retry.DoValue(context.Background(), nil, func(context.Context) (int, error) {
		return 42, nil
	})
	fmt.Println(balance, err)
	// Output: 42 <nil>
}

// A rule of one's own for one provider, and the default for the rest.
func ExampleOptions_classify() {
	errRateHit := errors.New("provider says 130429")
	policy, _ := retry.New(&retry.Options{
		MaxAttempts: 2,
		Throttled:   retry.Constant(time.Millisecond),
		Classify: func(err error) retry.Class {
			if errors.Is(err, errRateHit) {
				return retry.ClassThrottled
			}
			return retry.Classify(err)
		},
		Hooks: &retry.Hooks{Retrying: func(_ context.Context, a retry.Attempt) {
			fmt.Println(a.Number, a.Class, a.Wait)
		}},
	})
	err := retry.Do(context.Background(), policy, func(context.Context) error { return errRateHit })
	fmt.Println(errors.Is(err, errRateHit))
	// Output:
	// 1 throttled 1ms
	// true
}

// Two layers that both retry make three calls and then two, not nine.
func ExampleWithAttempt() {
	policy, _ := retry.New(&retry.Options{MaxAttempts: 3, Backoff: retry.Constant(0)})
	calls := 0
	_ = retry.Do(context.Background(), policy, func(ctx context.Context) error {
		return retry.Do(ctx, policy, func(context.Context) error {
			calls++
			return errors.New("down")
		})
	})
	fmt.Println(calls)

	// A server that got the number of the attempt in a header passes it on.
	ctx := retry.WithAttempt(context.Background(), 2)
	err := retry.Do(ctx, policy, func(context.Context) error { return errors.New("down") })
	fmt.Println(err)
	// Output:
	// 5
	// retry: left to the caller that is retrying; tried once: down
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, time.November, 30, 11, 0, 0, 0, time.UTC)
	for _, value := range []string{"120", "Mon, 30 Nov 2026 11:05:00 GMT", "-5"} {
		fmt.Println(retry.ParseRetryAfter(value, now))
	}
	// Output:
	// 2m0s <nil>
	// 5m0s <nil>
	// 0s retry: invalid argument: Retry-After of 2 bytes, neither seconds nor an HTTP date
}

func ExampleGradient() {
	for n := 1; n <= 7; n++ {
		fmt.Print(retry.Gradient().Delay(n, 0), " ")
	}
	// Output: 1s 2s 4s 8s 16s 30s 30s
}

func ExampleFibonacci() {
	b := retry.Fibonacci(5*time.Minute, 10*time.Minute)
	for n := 1; n <= 4; n++ {
		fmt.Print(b.Delay(n, 0), " ")
	}
	// Output: 5m0s 10m0s 15m0s 25m0s
}

// A schedule that survives a restart: the jitter comes from the ID of what is
// tried again, so any process computes the same times.
func ExampleBackoff_Delay() {
	b := retry.Exponential(time.Minute, time.Hour, retry.FullJitter)
	seed := fnv.New64a()
	seed.Write([]byte("order 7"))
	for n := 1; n <= 3; n++ {
		before, after := b.Delay(n, seed.Sum64()), b.Delay(n, seed.Sum64())
		fmt.Println(before == after, before <= time.Minute<<(n-1))
	}
	// Output:
	// true true
	// true true
	// true true
}
