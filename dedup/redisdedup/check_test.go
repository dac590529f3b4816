package redisdedup_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestCheckComparesTheLayout(t *testing.T) {
	eachServer(t, func(t *testing.T, client redis.UniversalClient) {
		prefix := testenv.Prefix(t)
		sixteen, err := newWith(client, prefix, 0)
		require.NoError(t, err)
		eight, err := newWith(client, prefix, 8)
		require.NoError(t, err)
		require.NotErrorIs(t, sixteen.Check(t.Context()), redisdedup.ErrLayout)
		require.NotErrorIs(t, sixteen.Check(t.Context()), redisdedup.ErrLayout)
		err = eight.Check(t.Context())
		require.ErrorIs(t, err, redisdedup.ErrLayout)
		require.ErrorContains(t, err, "16 partitions")
		require.ErrorContains(t, err, "8 partitions")
	})
}

func TestCheckReportsWhatCanBeLost(t *testing.T) {
	for name, c := range map[string]struct {
		settings []string
		reasons  []string
	}{
		"as durable as it can be": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, nil},
		"no file":                 {nil, []string{"appendonly is no"}},
		"once a second":           {[]string{"--appendonly", "yes", "--appendfsync", "everysec"}, []string{"appendfsync is everysec"}},
		"eviction": {[]string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"},
			[]string{"maxmemory-policy is volatile-ttl"}},
		"eviction without a limit": {[]string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "allkeys-lru"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.RedisOwn(t, c.settings...).Addr()}}))
			err := store.Check(t.Context())
			if c.reasons == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, dedup.ErrAtRisk)
			require.NotErrorIs(t, err, dedup.ErrUnchecked)
			for _, reason := range c.reasons {
				require.ErrorContains(t, err, reason)
			}
		})
	}
}

// A master with a replica acknowledges writes that the replica does not have yet.
func TestCheckReportsReplicas(t *testing.T) {
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	master := testenv.RedisOwn(t, durable...)
	replica := testenv.RedisOwn(t, durable...)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{master.Addr()}})
	follower := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer follower.Close()
	host, port := splitAddr(t, master.Addr())
	require.NoError(t, follower.ReplicaOf(t.Context(), host, port).Err())
	require.Eventually(t, func() bool {
		return client.InfoMap(t.Context(), "replication").Val()["Replication"]["connected_slaves"] == "1"
	}, waitLong, waitTick)

	err := newStore(t, client).Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "min-replicas-to-write is 0")
	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	require.Eventually(t, func() bool { // until then the master refuses to write
		return client.InfoMap(t.Context(), "replication").Val()["Replication"]["min_slaves_good_slaves"] == "1"
	}, waitLong, waitTick)
	err = newStore(t, client).Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrAtRisk)
	require.ErrorContains(t, err, "min-replicas-max-lag")
}

// A server that does not tell its settings is never taken for one that is well.
func TestCheckSaysWhatItCouldNotCheck(t *testing.T) {
	server := testenv.RedisOwn(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config", "-info").Err())
	for name, opts := range map[string]*redis.UniversalOptions{
		"miniredis":  {Addrs: []string{miniredis.RunT(t).Addr()}},
		"restricted": {Addrs: []string{server.Addr()}, Username: "app", Password: "pw"},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, newClient(t, opts))
			err := store.Check(t.Context())
			require.ErrorIs(t, err, dedup.ErrUnchecked)
			require.NotErrorIs(t, err, dedup.ErrAtRisk)
			claims, err := store.Claim(t.Context(), params, asks("a", "b", "c"))
			require.NoError(t, err)
			require.Equal(t, dedup.Acquired, claims[2].State)
		})
	}
}
