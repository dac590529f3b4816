package redisreconcile_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// Workers that claim at the same time, on a cluster in two steps, take each operation once.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"Redis":   newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}),
		"Cluster": newClient(t, &redis.UniversalOptions{Addrs: testenv.RedisCluster(t)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, client)
			var doubts []reconcile.Settlement
			for _, e := range start(t, store, names("k", 300)...) {
				doubts = append(doubts, with(reconcile.VerbDoubt, e))
			}
			settle(t, store, doubts...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			var taken []string
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for ctx.Err() == nil {
						es, _, err := store.Claim(ctx, params, reconcile.ClaimAsk{Nonce: randomNonce(), N: 7})
						mu.Lock()
						if err != nil {
							t.Error(err)
						}
						taken = append(taken, keysOf(es)...)
						done := len(taken) >= 300
						mu.Unlock()
						if done || err != nil {
							return
						}
					}
				})
			}
			all.Wait()
			require.ElementsMatch(t, names("k", 300), taken)
		})
	}
}

// A claim that was answered in part is answered with that part when it is sent again.
func TestClaimOfADeadNode(t *testing.T) {
	t.Parallel()
	addrs := testenv.RedisCluster(t)
	opts := redisreconcile.Options{Prefix: testenv.Prefix(t)}
	living := newWith(t, newClient(t, &redis.UniversalOptions{Addrs: addrs}), opts)
	require.Empty(t, claim(t, living, 1)) // the script caches
	for _, e := range start(t, living, names("k", 40)...) {
		settle(t, living, with(reconcile.VerbDoubt, e))
	}
	client := newClient(t, &redis.UniversalOptions{Addrs: addrs})
	hook := &mortal{left: 16 + 3} // it asks 16 partitions, and takes from three
	client.(interface{ AddHook(redis.Hook) }).AddHook(hook)
	a := reconcile.ClaimAsk{Nonce: randomNonce(), N: 40}
	_, _, err := newWith(t, client, opts).Claim(t.Context(), params, a)
	require.ErrorIs(t, err, errDead)
	first, _, err := living.Claim(t.Context(), params, a)
	require.NoError(t, err)
	require.NotEmpty(t, first)
	require.Less(t, len(first), 40)
	require.ElementsMatch(t, names("k", 40), append(keysOf(first), keysOf(claim(t, living, 100))...))
}
