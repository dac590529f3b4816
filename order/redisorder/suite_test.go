package redisorder_test

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/ordertest"
	"github.com/pawl-go/pawl/order/redisorder"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // they wait for leases, not for the processor
	os.Exit(m.Run())
}

func newClient(t testing.TB, opts *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(opts)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newStore(t testing.TB, client redis.UniversalClient) *redisorder.Store {
	store, err := redisorder.New(client, &redisorder.Options{Prefix: testenv.Prefix(t)})
	require.NoError(t, err)
	return store
}

// opened is a store that knows how it was made.
type opened struct {
	*redisorder.Store
	opts redisorder.Options
}

// config runs the suite on a server. A store that is opened again is another one on
// the same data, as in another process; the server goes on.
func config(client redis.UniversalClient, partitions int) ordertest.Config {
	open := func(t *testing.T, opts redisorder.Options) order.Store {
		store, err := redisorder.New(client, &opts)
		require.NoError(t, err)
		return &opened{store, opts}
	}
	return ordertest.Config{
		New: func(t *testing.T) order.Store {
			return open(t, redisorder.Options{Prefix: testenv.Prefix(t), Partitions: partitions})
		},
		Reopen: func(t *testing.T, was order.Store) order.Store { return open(t, was.(*opened).opts) },
	}
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
	c := config(client, 2) // it takes long to start a script
	c.Sleep, c.Steps, c.Many, c.Once = clock.Sleep, 60, 200, once
	ordertest.Run(t, c)
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	ordertest.Run(t, config(client, 0))
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
	c := config(client, 0)
	c.Once = once
	ordertest.Run(t, c)
}

// miniClock moves the clock of a miniredis.
type miniClock struct {
	server *miniredis.Miniredis
	mu     sync.Mutex
	now    time.Time
}

func (c *miniClock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.server.SetTime(c.now)
}
