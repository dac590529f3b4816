package redisdedup_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
	"github.com/pawl-go/pawl/dedup/redisdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // they wait for leases, not for the processor
	os.Exit(m.Run())
}

// The suite on miniredis, whose clock stands still until a test moves it.
func TestMiniredis(t *testing.T) { onMiniredis(t, true) }

// Every step sent twice as well, which TestRedis does on the server itself.
func TestLongMiniredis(t *testing.T) {
	testenv.LongFull(t)
	onMiniredis(t, false)
}

func onMiniredis(t *testing.T, once bool) {
	server := miniredis.RunT(t)
	clock := &miniClock{server: server, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	clock.Sleep(0)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	deduptest.Run(t, deduptest.Config{
		New: func(t *testing.T) dedup.Store {
			store, err := newWith(client, testenv.Prefix(t), 2) // miniredis takes long to start a script
			require.NoError(t, err)
			return store
		},
		Sleep: clock.Sleep,
		Once:  once,
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	deduptest.Run(t, deduptest.Config{New: func(t *testing.T) dedup.Store { return newStore(t, client) }})
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	onCluster(t, true)
}

func TestLongRedisCluster(t *testing.T) {
	testenv.LongFull(t)
	onCluster(t, false)
}

func onCluster(t *testing.T, once bool) {
	client := newClient(t, &redis.UniversalOptions{Addrs: testenv.RedisCluster(t)})
	require.IsType(t, &redis.ClusterClient{}, client)
	deduptest.Run(t, deduptest.Config{Once: once, New: func(t *testing.T) dedup.Store { return newStore(t, client) }})
}

// miniClock moves both clocks of a miniredis: that of TIME, and that of expiry.
type miniClock struct {
	server *miniredis.Miniredis
	now    time.Time
}

func (c *miniClock) Sleep(d time.Duration) {
	c.now = c.now.Add(d)
	c.server.SetTime(c.now)
	c.server.FastForward(d)
}

func newClient(t testing.TB, opts *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(opts)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newStore(t testing.TB, client redis.UniversalClient) *redisdedup.Store {
	store, err := redisdedup.New(client, &redisdedup.Options{Prefix: testenv.Prefix(t)})
	require.NoError(t, err)
	return store
}

func BenchmarkStore(b *testing.B) {
	client := newClient(b, &redis.UniversalOptions{Addrs: []string{testenv.RedisOwn(b).Addr()}})
	deduptest.Bench(b, func(b *testing.B) dedup.Store { return newStore(b, client) })
}
