package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// retryComparisons measure a call that is tried again without a wait: what the
// machinery costs, not the pause.
func retryComparisons() []Comparison {
	return []Comparison{
		retryComparison("retry/success", 0, 1, "succeeds at once"),
		retryComparison("retry/two-failures", 2, 0.3, "fails twice and then succeeds"),
	}
}

// retryComparison holds Pawl to a ratio of the best peer and to one allocation for
// each failure.
func retryComparison(name string, failures int, ratio float64, what string) Comparison {
	// A bar of zero would mean that there is none; an allocation that happens once
	// in the whole run counts for less than this.
	const none = 0.01
	return Comparison{
		Name: name,
		What: "One goroutine calls a function that " + what + ", with at most 5 attempts and no delay. Policies are made once " +
			"where the library allows it. allocs/call is the average of all calls.",
		Metrics: []Metric{
			{Name: "ns/call", Lower: true, Bar: Bar{Ratio: ratio}},
			{Name: "allocs/call", Lower: true, Bar: Bar{Value: float64(failures) + none}},
		},
		Open: func(context.Context, *Env) ([]Case, error) {
			return retryCases(failures)
		},
	}
}

// A retryer calls fn until it succeeds, with at most 5 attempts and no delay.
type retryer func(ctx context.Context, fn func(context.Context) error) error

var errFlaky = errors.New("it does not work at present")

func retryCases(failures int) ([]Case, error) {
	pawl, err := openPawlRetry()
	if err != nil {
		return nil, err
	}
	var cases []Case
	add := func(name string, role Role, do retryer) {
		cases = append(cases, Case{Name: name, Role: role, Run: func(ctx context.Context, d time.Duration) ([]float64, error) {
			return measureRetry(ctx, d, failures, do)
		}})
	}
	add("pawl", Pawl, pawl)
	for _, p := range retryPeers() {
		add(p.name, Peer, p.do)
	}
	return cases, nil
}

// measureRetry returns the nanoseconds and the allocations of one call.
func measureRetry(ctx context.Context, d time.Duration, failures int, do retryer) ([]float64, error) {
	const batch = 1000 // calls between two looks at the clock
	attempts := 0
	flaky := func(context.Context) error {
		if attempts++; attempts%(failures+1) != 0 {
			return errFlaky
		}
		return nil
	}
	run := func() error {
		for range batch {
			if err := do(ctx, flaky); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(); err != nil { // to warm up
		return nil, err
	}
	attempts = 0
	calls := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for time.Since(start) < d {
		if err := run(); err != nil {
			return nil, err
		}
		calls += batch
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if want := calls * (failures + 1); attempts != want {
		return nil, fmt.Errorf("%d attempts for %d calls, want %d", attempts, calls, want)
	}
	return []float64{
		float64(took.Nanoseconds()) / float64(calls),
		float64(after.Mallocs-before.Mallocs) / float64(calls),
	}, nil
}
