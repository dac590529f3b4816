package redisreconcile_test

import (
	"flag"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // they wait for leases, not for the processor
	os.Exit(m.Run())
}

func newClient(t testing.TB, opts *redis.UniversalOptions) redis.UniversalClient {
	opts.DisableIdentity = true // no pipeline that a hook would take for one of the store's
	client := redis.NewUniversalClient(opts)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newStore(t testing.TB, client redis.UniversalClient) *redisreconcile.Store {
	return newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t)})
}

func newWith(t testing.TB, client redis.UniversalClient, opts redisreconcile.Options) *redisreconcile.Store {
	store, err := redisreconcile.New(client, &opts)
	require.NoError(t, err)
	return store
}

// suites runs the three suites, on stores that open makes.
func suites(t *testing.T, bubble, once bool, steps int, open func(t *testing.T) *redisreconcile.Store) {
	t.Run("Ledger", func(t *testing.T) {
		reconciletest.Run(t, reconciletest.Config{Bubble: bubble, Once: once, Steps: steps, New: func(t *testing.T) reconcile.Store { return open(t) }})
	})
	t.Run("Timeline", func(t *testing.T) {
		reconciletest.RunTimeline(t, reconciletest.TimelineConfig{Bubble: bubble, Once: once,
			New: func(t *testing.T) reconcile.TimelineStore { return open(t).Timeline() }})
	})
	t.Run("Checks", func(t *testing.T) {
		reconciletest.RunChecks(t, reconciletest.CheckConfig{Bubble: bubble, Once: once,
			New: func(t *testing.T) reconcile.CheckStore { return open(t).Checks() }})
	})
}

// The suites on miniredis, in bubbles: its clock is theirs.
func TestMiniredis(t *testing.T) {
	t.Parallel()
	onMiniredis(t, true)
}

// Every step sent twice as well, which TestRedis does on the server itself.
func TestLongMiniredis(t *testing.T) {
	testenv.LongFull(t)
	onMiniredis(t, false)
}

func onMiniredis(t *testing.T, once bool) {
	suites(t, true, once, 40, func(t *testing.T) *redisreconcile.Store { // it compiles a script with each call
		server := miniredis.NewMiniRedis()
		client := newPipeClient(server)
		t.Cleanup(func() {
			require.NoError(t, client.Close())
			server.Close()
		})
		return newWith(t, client, redisreconcile.Options{Partitions: 2})
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	suites(t, false, false, 0, func(t *testing.T) *redisreconcile.Store { return newStore(t, client) })
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
	suites(t, false, once, 0, func(t *testing.T) *redisreconcile.Store { return newStore(t, client) })
}
