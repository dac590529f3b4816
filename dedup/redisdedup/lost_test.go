package redisdedup_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

const (
	waitLong = 10 * time.Second
	waitTick = 5 * time.Millisecond
)

func splitAddr(t *testing.T, addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

// Every script is worked and its reply lost once: the client sends it again, and
// the second answer is the first one.
func TestLostReplies(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}}))
	lose := func(step func()) {
		t.Helper()
		before := proxy.Dropped()
		proxy.DropRepliesTo("evalsha", 1)
		step()
		require.Equal(t, before+1, proxy.Dropped())
	}
	claim := func(p dedup.Params, id string) (c dedup.Claim) {
		t.Helper()
		lose(func() {
			claims, err := store.Claim(t.Context(), p, asks(id))
			require.NoError(t, err)
			c = claims[0]
		})
		return c
	}
	settle := func(s dedup.Settlement) {
		t.Helper()
		lose(func() {
			errs, err := store.Settle(t.Context(), params, []dedup.Settlement{s})
			require.NoError(t, err)
			require.Nil(t, errs)
		})
	}
	claim(params, "warm the script cache")
	settle(dedup.Settlement{Kind: dedup.KindForget, ID: "warm the script cache"})

	for _, policy := range []dedup.Lapse{dedup.Rerun, dedup.Hold} {
		p := params
		p.OnLapse = policy
		id := policy.String()
		c := claim(p, id)
		require.Equal(t, dedup.Acquired, c.State, "the owner is not its own rival")
		require.Equal(t, 1, c.Attempt)
		settle(c.Extend(time.Hour))
		settle(c.Release())
		c = claim(p, id)
		require.Equal(t, dedup.Acquired, c.State)
		require.Equal(t, 2, c.Attempt)
		settle(c.Hold())
		settle(c.Complete([]byte("result")))
		c = claim(p, id)
		require.Equal(t, dedup.Done, c.State)
		require.Equal(t, "result", string(c.Result))
	}
	p := params
	p.Complete = true
	require.Equal(t, dedup.Acquired, claim(p, "first seen").State)
	require.Equal(t, dedup.Done, claim(p, "first seen").State)
}

// Without a retry of the client the fate of a claim whose reply was lost is known
// by asking again with its nonce.
func TestLostReplyWithoutRetry(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: -1}))
	_, err := store.Claim(t.Context(), params, asks("warm the script cache"))
	require.NoError(t, err)

	ask := asks("a", "b", "c")
	proxy.DropRepliesTo("evalsha", 1)
	claims, err := store.Claim(t.Context(), params, ask)
	require.ErrorContains(t, err, "redisdedup: claim: ")
	require.Nil(t, claims)
	rivals, err := store.Claim(t.Context(), params, asks("a", "b", "c"))
	require.NoError(t, err)
	claims, err = store.Claim(t.Context(), params, ask)
	require.NoError(t, err)
	for i := range claims {
		require.Equal(t, dedup.InFlight, rivals[i].State)
		require.Equal(t, dedup.Acquired, claims[i].State)
	}

	proxy.DropRepliesTo("evalsha", 1)
	s := []dedup.Settlement{claims[0].Complete(nil), claims[1].Release(), claims[2].Hold()}
	_, err = store.Settle(t.Context(), params, s)
	require.ErrorContains(t, err, "redisdedup: settle: ")
	errs, err := store.Settle(t.Context(), params, s)
	require.NoError(t, err)
	require.Nil(t, errs)
}

// While connections are cut and the script cache is flushed, again and again,
// every ID is granted once.
func TestGrantedOnceInTurmoil(t *testing.T) {
	server := testenv.RedisOwn(t) // its script cache is flushed
	proxy := testenv.NewProxy(t, server.Addr())
	opts := &redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: 10, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 10 * time.Millisecond}
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()

	const workers, rounds, size = 4, 60, 20
	prefix := testenv.Prefix(t)
	granted := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range workers {
		store, err := newWith(newClient(t, opts), prefix, 0)
		require.NoError(t, err)
		all.Go(func() {
			for r := range rounds {
				var ids []string
				for i := range size {
					ids = append(ids, fmt.Sprintf("%d-%d", r, i))
				}
				ask := asks(ids...)
				for range 50 { // until all are answered: the client gives up at times
					claims, err := store.Claim(context.Background(), params, ask)
					if err != nil {
						continue
					}
					mu.Lock()
					for _, c := range claims {
						if c.State == dedup.Acquired {
							granted[c.ID]++
						}
					}
					mu.Unlock()
					break
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for cuts := 0; ; cuts++ {
		select {
		case <-done:
			require.Len(t, granted, rounds*size)
			for id, n := range granted {
				require.Equal(t, 1, n, id)
			}
			require.Positive(t, cuts)
			return
		case <-time.After(waitTick):
			proxy.Cut()
			require.NoError(t, admin.ScriptFlush(context.Background()).Err())
		}
	}
}

// A server that writes every command to disk before it answers keeps all claims
// when it is killed.
func TestKilledServerKeepsClaims(t *testing.T) {
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}))
	hold := params
	hold.OnLapse = dedup.Hold
	ask := asks("claimed", "done", "released", "held")
	claims, err := store.Claim(t.Context(), hold, ask)
	require.NoError(t, err)
	errs, err := store.Settle(t.Context(), hold, []dedup.Settlement{
		claims[1].Complete([]byte("result")), claims[2].Release(), claims[3].Hold()})
	require.NoError(t, err)
	require.Nil(t, errs)

	server.Kill()
	_, err = store.Claim(t.Context(), hold, asks("claimed"))
	require.ErrorContains(t, err, "redisdedup: claim: ")
	server.Start()

	again, err := store.Claim(t.Context(), hold, asks("claimed", "done", "released", "held"))
	require.NoError(t, err)
	require.Equal(t, dedup.InFlight, again[0].State)
	require.Equal(t, dedup.Done, again[1].State)
	require.Equal(t, "result", string(again[1].Result))
	require.Equal(t, dedup.Acquired, again[2].State)
	require.Equal(t, 2, again[2].Attempt)
	require.Greater(t, again[2].Token, claims[2].Token)
	require.Equal(t, dedup.Unknown, again[3].State)
	held, err := store.Held(t.Context(), "test", "", 10)
	require.NoError(t, err)
	require.Len(t, held, 1)
	errs, err = store.Settle(t.Context(), hold, []dedup.Settlement{claims[0].Complete(nil), held[0].Complete(nil)})
	require.NoError(t, err)
	require.Nil(t, errs, "the owner of before the crash is still the owner")
}
