package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
)

// openPawlRedis has the partitions that redisdedup takes by itself.
func openPawlRedis(client redis.UniversalClient) (*dedup.Guard, error) {
	store, err := redisdedup.New(client, nil)
	if err != nil {
		return nil, err
	}
	return dedup.New(store, &dedup.Options{Scope: "benchmark"})
}
