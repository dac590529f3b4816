package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// shaperComparisons measure one decision of a rate limit: in memory beside the
// limiter that the shaper is built on, and in Redis beside redis_rate.
func shaperComparisons() []Comparison {
	var all []Comparison
	for _, admit := range []bool{true, false} {
		for _, workers := range []int{1, 2} {
			all = append(all, shaperComparison(admit, workers))
		}
	}
	for _, workers := range []int{1, 16, 64} {
		all = append(all, Comparison{
			Name: fmt.Sprintf("shaper-redis/g=%d", workers),
			What: fmt.Sprintf("%d goroutines ask for one token of one line at a time, which is there, on one server. "+
				"The peer is redis_rate's Allow.", workers),
			Metrics: []Metric{{Name: "decisions/s", Bar: Bar{Ratio: 0.9}}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return sharedCases(ctx, env, workers) },
		})
	}
	return all
}

func shaperComparison(admit bool, workers int) Comparison {
	name, perSecond := "refuse", 1e-6
	if admit {
		name, perSecond = "admit", 1e9
	}
	const none = 0.01 // what happens once in a run counts for less
	return Comparison{
		Name: fmt.Sprintf("shaper/%s/g=%d", name, workers),
		What: fmt.Sprintf("%d goroutines ask one line for one token at a time; the answer is always to %s.", workers, name),
		Metrics: []Metric{
			{Name: "ns/call", Lower: true, Bar: Bar{Ratio: 1.5}},
			{Name: "allocs/call", Lower: true, Bar: Bar{Value: none}},
		},
		Open: func(context.Context, *Env) ([]Case, error) {
			allow, err := openPawlShaper(perSecond)
			if err != nil {
				return nil, err
			}
			limiter := rate.NewLimiter(rate.Limit(perSecond), int(max(perSecond, 1)))
			if !admit {
				allow()
				limiter.Allow()
			}
			run := func(allow func() bool) func(context.Context, time.Duration) ([]float64, error) {
				return func(ctx context.Context, d time.Duration) ([]float64, error) {
					return measureShaper(ctx, workers, d, allow, admit)
				}
			}
			return []Case{
				{Name: "pawl", Role: Pawl, Run: run(allow)},
				{Name: "x/time/rate", Role: Peer, Run: run(limiter.Allow)},
			}, nil
		},
	}
}

// measureShaper returns the nanoseconds and the allocations of one call; with two
// goroutines, the time that passes for each call of both.
func measureShaper(ctx context.Context, workers int, d time.Duration, allow func() bool, want bool) ([]float64, error) {
	const batch = 1000 // calls between two looks at the clock
	counts := make([]int, workers)
	errs := make([]error, workers)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			calls := 0
			for time.Since(start) < d && ctx.Err() == nil {
				for range batch {
					if allow() != want {
						errs[i] = fmt.Errorf("the answer was not %v", want)
						return
					}
				}
				calls += batch
			}
			counts[i] = calls
		})
	}
	all.Wait()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	calls := 0
	for i := range workers {
		if errs[i] != nil {
			return nil, errs[i]
		}
		calls += counts[i]
	}
	if calls == 0 {
		return nil, context.Cause(ctx)
	}
	return []float64{float64(took.Nanoseconds()) / float64(calls), float64(after.Mallocs-before.Mallocs) / float64(calls)}, nil
}

// sharedRate is more than a server decides on.
const sharedRate = 1_000_000

func sharedCases(ctx context.Context, env *Env, workers int) ([]Case, error) {
	addr, err := env.Redis()
	if err != nil {
		return nil, err
	}
	client, err := openRedis(ctx, env, []string{addr}, 0)
	if err != nil {
		return nil, err
	}
	allow, err := openPawlShared(client)
	if err != nil {
		return nil, err
	}
	limiter := redisrate.NewLimiter(client.(*redis.Client))
	limit := redisrate.Limit{Rate: sharedRate, Burst: sharedRate, Period: time.Second}
	return []Case{
		{Name: "pawl", Role: Pawl, Run: onEmptyRedis(client, workers, func(int) step {
			return func(ctx context.Context) (int, error) { return 1, allow(ctx) }
		})},
		{Name: "redis_rate", Role: Peer, Run: onEmptyRedis(client, workers, func(int) step {
			return func(ctx context.Context) (int, error) {
				r, err := limiter.Allow(ctx, "line", limit)
				if err == nil && r.Allowed != 1 {
					err = errRefused
				}
				return 1, err
			}
		})},
	}, nil
}
