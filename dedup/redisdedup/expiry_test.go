package redisdedup_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

// What never expires has no time to live, what may be forgotten has one, and the
// index holds what is held and nothing else.
func TestExpiryIsNative(t *testing.T) {
	eachServer(t, func(t *testing.T, client redis.UniversalClient) {
		prefix := testenv.Prefix(t)
		store, err := newWith(client, prefix, 1)
		require.NoError(t, err)
		ctx := t.Context()
		ttl := func() time.Duration { return client.PTTL(ctx, "{"+prefix+":dedup:00}:test:id").Val() }
		near := func(want time.Duration) {
			t.Helper()
			require.LessOrEqual(t, ttl(), want)
			require.Greater(t, ttl(), want-time.Minute)
		}
		indexed := func() int64 { return client.ZCard(ctx, "{"+prefix+":dedup:00}!test").Val() }
		claim := func(p dedup.Params) dedup.Claim {
			t.Helper()
			claims, err := store.Claim(ctx, p, asks("id"))
			require.NoError(t, err)
			require.Equal(t, dedup.Acquired, claims[0].State)
			return claims[0]
		}
		settle := func(s dedup.Settlement) {
			t.Helper()
			errs, err := store.Settle(ctx, params, []dedup.Settlement{s})
			require.NoError(t, err)
			require.Nil(t, errs)
		}
		hold := params
		hold.OnLapse = dedup.Hold
		long := params
		long.Lease = 3 * time.Hour

		c := claim(params)
		near(time.Hour)
		settle(c.Extend(2 * time.Hour))
		near(2 * time.Hour) // the lease is longer than the retention
		settle(c.Release())
		near(time.Hour)
		c = claim(long)
		near(3 * time.Hour)
		settle(c.Complete([]byte("result")))
		near(time.Hour)
		settle(dedup.Settlement{Kind: dedup.KindRetain, ID: "id", Retention: 2 * time.Hour})
		near(2 * time.Hour)
		settle(dedup.Settlement{Kind: dedup.KindRetain, ID: "id", Retention: time.Minute})
		near(2 * time.Hour) // it shortens nothing
		settle(c.Complete([]byte("result")))
		near(2 * time.Hour) // neither does a repeated completion
		settle(dedup.Settlement{Kind: dedup.KindRetain, ID: "id", Retention: dedup.MaxDuration})
		near(dedup.MaxDuration)
		require.Zero(t, indexed())
		settle(dedup.Settlement{Kind: dedup.KindForget, ID: "id"})
		settle(dedup.Settlement{Kind: dedup.KindRetain, ID: "id", Retention: time.Hour})
		require.Zero(t, client.Exists(ctx, "{"+prefix+":dedup:00}:test:id").Val())

		c = claim(hold)
		require.EqualValues(t, -1, ttl())
		require.EqualValues(t, 1, indexed())
		settle(dedup.Settlement{Kind: dedup.KindRetain, ID: "id", Retention: time.Hour})
		require.EqualValues(t, -1, ttl())
		settle(c.Extend(time.Hour))
		require.EqualValues(t, -1, ttl())
		settle(c.Release())
		near(time.Hour)
		require.Zero(t, indexed())

		c = claim(hold) // an attempt that is not the first
		require.EqualValues(t, -1, ttl())
		settle(c.Hold())
		require.EqualValues(t, -1, ttl())
		require.EqualValues(t, 1, indexed())
		settle(c.Complete(nil))
		near(time.Hour)
		require.Zero(t, indexed())
		settle(dedup.Settlement{Kind: dedup.KindForget, ID: "id"})

		c = claim(params)
		settle(c.Hold()) // a hold of a claim under Rerun
		require.EqualValues(t, -1, ttl())
		require.EqualValues(t, 1, indexed())
		settle(dedup.Settlement{Kind: dedup.KindForget, ID: "id"})
		require.Zero(t, indexed())
	})
}

// A row that was deleted behind the store's back leaves the index when it is met.
func TestHeldForgetsWhatIsGone(t *testing.T) {
	eachServer(t, func(t *testing.T, client redis.UniversalClient) {
		prefix := testenv.Prefix(t)
		store, err := newWith(client, prefix, 1)
		require.NoError(t, err)
		hold := params
		hold.OnLapse = dedup.Hold
		claims, err := store.Claim(t.Context(), hold, asks("a", "b", "c"))
		require.NoError(t, err)
		for _, c := range claims[:2] {
			_, err = store.Settle(t.Context(), hold, []dedup.Settlement{c.Hold()})
			require.NoError(t, err)
		}
		require.NoError(t, client.Del(t.Context(), "{"+prefix+":dedup:00}:test:a").Err())

		held, err := store.Held(t.Context(), "test", "", 10)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.Equal(t, "b", held[0].ID)
		require.EqualValues(t, 2, client.ZCard(t.Context(), "{"+prefix+":dedup:00}!test").Val(), "b, and c whose lease is running")
	})
}

func asks(ids ...string) []dedup.Ask {
	all := make([]dedup.Ask, len(ids))
	for i, id := range ids {
		n := nonces.Add(1)
		all[i] = dedup.Ask{Request: dedup.Request{ID: id}, Nonce: [16]byte{byte(n), byte(n >> 8), byte(n >> 16)}}
	}
	return all
}

var nonces atomic.Uint32

// eachServer runs a test on miniredis, a real server and a real cluster.
func eachServer(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("Miniredis", func(t *testing.T) {
		test(t, newClient(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}}))
	})
	t.Run("Redis", func(t *testing.T) {
		test(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	})
	t.Run("Cluster", func(t *testing.T) {
		test(t, newClient(t, &redis.UniversalOptions{Addrs: testenv.RedisCluster(t)}))
	})
}
