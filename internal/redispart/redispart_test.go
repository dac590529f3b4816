package redispart

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
)

func newPartitions(t *testing.T, client redis.UniversalClient, n int) *Partitions {
	t.Helper()
	p, err := New(client, testenv.Prefix(t), "room", n, 1)
	require.NoError(t, err)
	return p
}

func newClient(t *testing.T, addrs ...string) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestNames(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	p, err := New(client, "", "dedup", 0, 1)
	require.NoError(t, err)
	require.Equal(t, 16, p.Len())
	require.Equal(t, "{pawl:dedup:00}", p.Tag(0))
	require.Equal(t, "{pawl:dedup:0f}", p.Tag(15))
	require.Equal(t, "pawl:dedup:layout", p.marker)

	p, err = New(client, "my", "order", 256, 1)
	require.NoError(t, err)
	require.Equal(t, "{my:order:ff}", p.Tag(255))
}

// Where an ID lies is stored: if this test has to change, every ID in every Redis
// becomes new.
func TestOfIsStable(t *testing.T) {
	p, err := New(newClient(t, "127.0.0.1:1"), "", "dedup", 16, 1)
	require.NoError(t, err)
	got := make(map[string]int)
	for _, id := range []string{"a", "b", "wamid.HBgL", "whatsapp:1:42", "Grüße"} {
		got[id] = p.Of(id)
	}
	require.Equal(t, map[string]int{"a": 0, "b": 9, "wamid.HBgL": 4, "whatsapp:1:42": 12, "Grüße": 9}, got)
}

func TestOfSpreads(t *testing.T) {
	p, err := New(newClient(t, "127.0.0.1:1"), "", "dedup", 16, 1)
	require.NoError(t, err)
	for name, id := range map[string]func(i int) string{
		"numbers": func(i int) string { return fmt.Sprint(i) },
		"padded":  func(i int) string { return fmt.Sprintf("whatsapp:15550001:%012d", i) },
		"by 16":   func(i int) string { return fmt.Sprintf("%x", 16*i) },
	} {
		sizes := make([]int, 16)
		for i := range 16000 {
			sizes[p.Of(id(i))]++
		}
		for k, n := range sizes {
			require.InDelta(t, 1000, n, 200, "%s, partition %d", name, k)
		}
	}
}

func TestSplitKeepsTheOrder(t *testing.T) {
	p := newPartitions(t, newClient(t, "127.0.0.1:1"), 5)
	id := func(i int) string { return fmt.Sprint(i % 40) } // every ID stands in the batch more than once
	of, places := p.Split(100, id)
	require.Len(t, of, 100)
	require.Len(t, places, 5)
	seen := 0
	for k, items := range places {
		for n, i := range items {
			require.Equal(t, k, of[i])
			require.Equal(t, k, p.Of(id(i)))
			require.True(t, n == 0 || items[n-1] < i, "in the order of the batch")
			seen++
		}
	}
	require.Equal(t, 100, seen)
}

var echo = NewScript(`
	if ARGV[1] == 'fail' then return redis.error_reply('ERR as asked') end
	redis.call('INCR', KEYS[1])
	if ARGV[1] == 'string' then return 'alone' end
	return {KEYS[1], 7, ARGV[1]}`)

func TestRun(t *testing.T) {
	for name, addrs := range servers(t) {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, addrs...)
			p := newPartitions(t, client, 16)
			call := func(k int, arg string) Call { return Call{Keys: []string{p.Tag(k) + "n"}, Args: []any{arg}} }
			var calls []Call
			for k := range p.Len() {
				calls = append(calls, call(k, "x"))
			}
			calls[3].Args[0] = "fail"
			calls[4].Args[0] = "string"

			for round := range 3 { // the script is not known, known, and forgotten
				if round == 2 {
					forgetScripts(t, client)
				}
				require.NoError(t, p.Run(t.Context(), echo, calls))
				for k, c := range calls {
					switch k {
					case 3:
						require.ErrorContains(t, c.Err, "as asked")
					case 4:
						require.Equal(t, []string{"alone"}, c.Reply)
					default:
						require.NoError(t, c.Err)
						require.Equal(t, []string{p.Tag(k) + "n", "7", "x"}, c.Reply)
					}
				}
			}
			n, err := client.Get(t.Context(), p.Tag(0)+"n").Int()
			require.NoError(t, err)
			require.Equal(t, 3, n, "each call runs once")

			require.ErrorContains(t, p.Run(t.Context(), echo, []Call{call(0, "fail"), call(1, "fail")}), "as asked")
			require.NoError(t, p.Run(t.Context(), echo, nil))
		})
	}
}

func TestRunAfterTheEnd(t *testing.T) {
	p := newPartitions(t, newClient(t, miniredis.RunT(t).Addr()), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Run(ctx, echo, []Call{{Keys: []string{p.Tag(0)}, Args: []any{"x"}}}), context.Canceled)
}

func TestOneServer(t *testing.T) {
	for name, addrs := range servers(t) {
		p := newPartitions(t, newClient(t, addrs...), 16)
		require.Equal(t, name == "Redis", p.OneServer(t.Context()), name)
		require.Equal(t, name == "Redis", p.OneServer(t.Context()), name)
	}
	// A plain client of a node of a cluster: the server knows better.
	p := newPartitions(t, newClient(t, testenv.RedisCluster(t)[0]), 16)
	require.False(t, p.OneServer(t.Context()))
	// No answer is no answer, and is not remembered.
	server := miniredis.RunT(t)
	p = newPartitions(t, newClient(t, server.Addr()), 16)
	server.Close()
	require.False(t, p.OneServer(t.Context()))
	require.Equal(t, unasked, p.servers.Load())
}

func TestRisks(t *testing.T) {
	risks := func(settings map[string]string) string {
		return strings.Join(append(memoryRisks(settings), diskRisks(settings)...), "\n")
	}
	require.Empty(t, risks(nil), "what was not answered is not a risk; it is reported as unchecked")
	require.Contains(t, risks(map[string]string{"maxmemory": "1", "maxmemory-policy": "allkeys-lru"}), "allkeys-lru")
	require.Contains(t, risks(map[string]string{"maxmemory-policy": "allkeys-lru"}), "allkeys-lru", "the limit is not known")
	require.Empty(t, risks(map[string]string{"maxmemory": "0", "maxmemory-policy": "allkeys-lru"}))
	require.Empty(t, risks(map[string]string{"maxmemory": "1", "maxmemory-policy": "noeviction"}))
	require.Contains(t, risks(map[string]string{"appendonly": "no", "appendfsync": "always"}), "appendonly is no")
	require.Contains(t, risks(map[string]string{"appendonly": "yes", "appendfsync": "no"}), "appendfsync is no")
	require.Empty(t, risks(map[string]string{"appendonly": "yes", "appendfsync": "always"}))

	replicas := func(info, settings map[string]string) string { return strings.Join(replicaRisks(info, settings), "\n") }
	require.Empty(t, replicas(map[string]string{"role": "master", "connected_slaves": "0"}, nil))
	require.Contains(t, replicas(map[string]string{"role": "slave"}, nil), "is a replica")
	require.Contains(t, replicas(map[string]string{"role": "master", "connected_slaves": "2"}, map[string]string{"min-replicas-to-write": "0"}), "without a bound")
	require.Contains(t, replicas(map[string]string{"role": "master", "connected_slaves": "2"}, map[string]string{"min-replicas-to-write": "1"}), "max-lag")
}

func servers(t *testing.T) map[string][]string {
	return map[string][]string{
		"Miniredis": {miniredis.RunT(t).Addr()},
		"Redis":     {testenv.RedisOwn(t).Addr()}, // its scripts are flushed
		"Cluster":   testenv.RedisCluster(t),
	}
}

func forgetScripts(t *testing.T, client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, m *redis.Client) error { return m.ScriptFlush(ctx).Err() }))
		return
	}
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
}
