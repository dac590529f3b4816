package redisseqgen_test

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
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/redisseqgen"
	"github.com/pawl-go/pawl/seqgen/seqgentest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // they wait for the server, not for the processor
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
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	var mu sync.Mutex
	run(t, newClient(t, server.Addr()), func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		server.SetTime(now)
	}, 60, once) // it takes long to start a script
}

func TestRedis(t *testing.T) {
	t.Parallel()
	run(t, newClient(t, testenv.Redis(t)), nil, 0, false)
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
	client := newClient(t, testenv.RedisCluster(t)...)
	require.IsType(t, &redis.ClusterClient{}, client)
	run(t, client, nil, 0, once)
}

func run(t *testing.T, client redis.UniversalClient, sleep func(time.Duration), steps int, once bool) {
	prefix := testenv.Prefix(t)
	open := func() *redisseqgen.Store {
		store, err := redisseqgen.New(client, &redisseqgen.Options{Prefix: prefix})
		require.NoError(t, err)
		return store
	}
	seqgentest.Run(t, seqgentest.Config{
		New:    func(*testing.T) seqgen.Store { return open() },
		Reopen: func(*testing.T, seqgen.Store) seqgen.Store { return open() },
		Sleep:  sleep,
		Once:   once,
		Steps:  steps,
	})
}

func newClient(t testing.TB, addrs ...string) redis.UniversalClient {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
