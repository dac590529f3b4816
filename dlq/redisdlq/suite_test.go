package redisdlq_test

import (
	"flag"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/internal/testenv"
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

func newStore(t testing.TB, client redis.UniversalClient) *redisdlq.Store {
	return newWith(t, client, redisdlq.Options{Prefix: testenv.Prefix(t)})
}

func newWith(t testing.TB, client redis.UniversalClient, opts redisdlq.Options) *redisdlq.Store {
	store, err := redisdlq.New(client, &opts)
	require.NoError(t, err)
	return store
}

// opened is a store that knows how it was made.
type opened struct {
	*redisdlq.Store
	client redis.UniversalClient
	opts   redisdlq.Options
}

// reopen is another store on the same data, as in another process; the server goes
// on.
func reopen(t *testing.T, was dlq.Store) dlq.Store {
	o := was.(*opened)
	return &opened{newWith(t, o.client, o.opts), o.client, o.opts}
}

func config(client redis.UniversalClient) dlqtest.Config {
	return dlqtest.Config{
		New: func(t *testing.T) dlq.Store {
			opts := redisdlq.Options{Prefix: testenv.Prefix(t)}
			return &opened{newWith(t, client, opts), client, opts}
		},
		Reopen: reopen,
	}
}

// The suite on miniredis, in bubbles: its clock is theirs.
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
	dlqtest.Run(t, dlqtest.Config{
		New: func(t *testing.T) dlq.Store {
			server := miniredis.NewMiniRedis()
			client := newPipeClient(server)
			t.Cleanup(func() {
				require.NoError(t, client.Close())
				server.Close()
			})
			opts := redisdlq.Options{Partitions: 2} // it takes long to start a script
			return &opened{newWith(t, client, opts), client, opts}
		},
		Reopen: reopen,
		Bubble: true,
		Once:   once,
		Steps:  300,
		Many:   60, // TestRedis has many
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	dlqtest.Run(t, config(newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})))
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
	c := config(client)
	c.Once = once
	dlqtest.Run(t, c)
}
