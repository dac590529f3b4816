package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisTTL is how long a key is kept on both sides: longer than a run.
const redisTTL = time.Minute

func redisComparisons() []Comparison {
	batch := func(name, where string, bar Bar, cluster bool) Comparison {
		return Comparison{
			Name:    name,
			What:    "16 goroutines claim new IDs of 36 bytes, 100 in a call, on " + where + " that starts empty. The peer is pipelined SET NX EX.",
			Metrics: []Metric{{Name: "IDs/s", Bar: bar}},
			Open:    func(ctx context.Context, env *Env) ([]Case, error) { return redisBatchCases(ctx, env, cluster) },
		}
	}
	return []Comparison{
		batch("redis/batch=100/g=16", "one server", Bar{Ratio: 0.7, Aim: 0.9}, false),
		batch("redis-cluster/batch=100/g=16", "a cluster of three", Bar{Ratio: 0.5}, true),
		{
			Name:    "redis/single/g=64",
			What:    "64 goroutines claim new IDs of 36 bytes, one in a call, on one server that starts empty. The peer is one SET NX EX at a time.",
			Metrics: []Metric{{Name: "IDs/s", Bar: Bar{Ratio: 2.5}}},
			Open:    redisSingleCases,
		},
	}
}

func redisBatchCases(ctx context.Context, env *Env, cluster bool) ([]Case, error) {
	const workers, size = 16, 100
	addrs, err := startRedis(env, cluster)
	if err != nil {
		return nil, err
	}
	client, err := openRedis(ctx, env, addrs, 0)
	if err != nil {
		return nil, err
	}
	guard, err := openPawlRedis(client)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Guard.ClaimBatch", Role: Pawl, Run: onEmptyRedis(client, workers, claimBatch(guard, size))},
		{Name: "SET NX EX, pipelined", Role: Peer, Run: onEmptyRedis(client, workers, func(int) step {
			next := randomIDs()
			return func(ctx context.Context) (int, error) { return size, setNXPipelined(ctx, client, batchOf(size, next)) }
		})},
	}, nil
}

func redisSingleCases(ctx context.Context, env *Env) ([]Case, error) {
	const workers = 64
	addrs, err := startRedis(env, false)
	if err != nil {
		return nil, err
	}
	client, err := openRedis(ctx, env, addrs, 0)
	if err != nil {
		return nil, err
	}
	wide, err := openRedis(ctx, env, addrs, workers)
	if err != nil {
		return nil, err
	}
	guard, err := openPawlRedis(client)
	if err != nil {
		return nil, err
	}
	return []Case{
		{Name: "Guard.Claim", Role: Pawl, Run: onEmptyRedis(client, workers, claimOne(guard, randomIDs))},
		{Name: "SET NX EX, one by one", Role: Peer, Run: onEmptyRedis(client, workers, setNX(client))},
		{Name: "SET NX EX, one by one, 64 connections", Role: Peer, Run: onEmptyRedis(wide, workers, setNX(wide))},
	}, nil
}

func setNX(client redis.UniversalClient) func(int) step {
	return func(int) step {
		next := randomIDs()
		return func(ctx context.Context) (int, error) {
			isNew, err := client.SetNX(ctx, next(), 1, redisTTL).Result()
			if err == nil && !isNew {
				err = errNotNew
			}
			return 1, err
		}
	}
}

func setNXPipelined(ctx context.Context, client redis.UniversalClient, ids []string) error {
	answers := make([]*redis.BoolCmd, len(ids))
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			answers[i] = p.SetNX(ctx, id, 1, redisTTL)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, a := range answers {
		if !a.Val() {
			return errNotNew
		}
	}
	return nil
}

// startRedis starts a server, or three, and returns the addresses.
func startRedis(env *Env, cluster bool) ([]string, error) {
	if cluster {
		return env.RedisCluster()
	}
	addr, err := env.Redis()
	return []string{addr}, err
}

// openRedis returns a client that all goroutines share. Zero connections means
// as many as go-redis takes by itself.
func openRedis(ctx context.Context, env *Env, addrs []string, connections int) (redis.UniversalClient, error) {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: len(addrs) > 1, PoolSize: connections})
	env.Cleanup(client.Close)
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its version: %w", err)
	}
	env.Note("Redis %s, nothing on disk", info["Server"]["redis_version"])
	return client, nil
}

// onEmptyRedis makes a case that empties the server, warms the connections up
// for a moment, empties it again and then measures.
func onEmptyRedis(client redis.UniversalClient, workers int, newStep func(worker int) step) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		if _, err := fan(ctx, workers, warmUp(d), newStep); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		if err := emptyRedis(ctx, client); err != nil {
			return nil, fmt.Errorf("empty the server: %w", err)
		}
		rate, err := fan(ctx, workers, d, newStep)
		return []float64{rate}, err
	}
}

func emptyRedis(ctx context.Context, client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error { return m.FlushDB(ctx).Err() })
	}
	return client.FlushDB(ctx).Err()
}

// warmUp is how long connections are opened and statements prepared before a
// measurement begins.
func warmUp(d time.Duration) time.Duration { return min(d, max(d/10, 100*time.Millisecond)) }
