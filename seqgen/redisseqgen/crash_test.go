package redisseqgen_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/redisseqgen"
)

var params = seqgen.Params{Scope: "test", Retention: time.Hour}

func newStore(t testing.TB, client redis.UniversalClient) *redisseqgen.Store {
	store, err := redisseqgen.New(client, &redisseqgen.Options{Prefix: testenv.Prefix(t)})
	require.NoError(t, err)
	return store
}

func single(key string, n int) seqgen.Ask {
	a := seqgen.Ask{Key: key, Mode: seqgen.Single, N: n}
	for i := range a.Nonce {
		a.Nonce[i] = byte(rand.IntN(256))
	}
	return a
}

func reserve(t *testing.T, s seqgen.Store, a seqgen.Ask) seqgen.Grant {
	t.Helper()
	grants, err := s.Reserve(t.Context(), params, []seqgen.Ask{a})
	require.NoError(t, err)
	return grants[0]
}

// Every script is worked and its reply lost once: the client sends it again, and
// the second answer is the first one.
func TestLostReplies(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	s := newStore(t, newClient(t, proxy.Addr()))
	reserve(t, s, single("warm", 1)) // the script cache
	_, err := s.Settle(t.Context(), params, []seqgen.Change{{Kind: seqgen.KindAbandon, Key: "warm"}})
	require.NoError(t, err)
	lose := func() {
		t.Helper()
		proxy.DropRepliesTo("evalsha", 1)
	}
	lose()
	require.Equal(t, seqgen.Grant{Epoch: 1, Lo: 1, Hi: 5}, reserve(t, s, single("k", 5)))
	lose()
	bump := seqgen.Change{Kind: seqgen.KindBump, Key: "k", Nonce: [16]byte{1}}
	outcomes, err := s.Settle(t.Context(), params, []seqgen.Change{bump})
	require.NoError(t, err)
	require.Equal(t, uint64(2), outcomes[0].Epoch)
	open := seqgen.Ask{Key: "k", Mode: seqgen.Block, N: 10, Nonce: [16]byte{2}, Open: true}
	lose()
	g := reserve(t, s, open)
	require.Equal(t, [3]uint64{2, 1, 10}, [3]uint64{g.Epoch, g.Lo, g.Hi})
	lose()
	outcomes, err = s.Settle(t.Context(), params, []seqgen.Change{{Kind: seqgen.KindReturn, Key: "k", Epoch: 2, Token: g.Token, Lo: 4, Reason: seqgen.Returned}})
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err)
	require.Equal(t, 4, proxy.Dropped())
	states, err := s.Look(t.Context(), "test", []string{"k"})
	require.NoError(t, err)
	require.Equal(t, seqgen.State{Key: "k", Epoch: 2, Last: 3, Mode: seqgen.Block, Token: g.Token, Used: 3}, states[0])
}

// A server that flushes every write before it answers is killed under load: no
// number is handed out twice. One can be left out: an ask that is repeated after
// more than seqgen.LogSize others is taken for a new one.
func TestKilledServerUnderLoad(t *testing.T) {
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, server.Addr()))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const workers, each, kills = 8, 400, 3
	var mu sync.Mutex
	times := make(map[uint64]int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				a := single("k", 1)
				for ctx.Err() == nil { // the same ask until it is answered
					grants, err := s.Reserve(ctx, params, []seqgen.Ask{a})
					if err == nil && grants[0].Err == nil {
						mu.Lock()
						times[grants[0].Lo]++
						mu.Unlock()
						break
					}
				}
			}
		})
	}
	for range kills {
		time.Sleep(200 * time.Millisecond) // under load
		server.Kill()
		server.Start()
	}
	all.Wait()
	require.NoError(t, ctx.Err())
	require.Len(t, times, workers*each)
	for n, count := range times {
		require.Equal(t, 1, count, "number %d", n)
		require.LessOrEqual(t, n, uint64(workers*each+kills*workers))
	}
}

// A server that starts from an older dump has gone back. Who has seen higher numbers
// is told so; who has not would be given them again.
func TestOlderDump(t *testing.T) {
	server := testenv.RedisOwn(t)
	client := newClient(t, server.Addr())
	s := newStore(t, client)
	require.Equal(t, uint64(10), reserve(t, s, single("k", 10)).Hi)
	require.NoError(t, client.Save(t.Context()).Err())
	require.Equal(t, uint64(20), reserve(t, s, single("k", 10)).Hi)
	server.Kill()
	server.Start()

	a := single("k", 1)
	a.Seen = seqgen.Position{Epoch: 1, Number: 20}
	g := reserve(t, s, a)
	require.ErrorIs(t, g.Err, seqgen.ErrRolledBack)
	require.Equal(t, seqgen.Position{Epoch: 1, Number: 10}, g.Stored)
	require.Equal(t, uint64(11), reserve(t, s, single("k", 1)).Lo, "without having seen them nobody knows")
}

// What lies under a key and is not its row is an error for that key alone, and is
// not overwritten.
func TestForeignRow(t *testing.T) {
	client := newClient(t, testenv.Redis(t))
	prefix := testenv.Prefix(t)
	s, err := redisseqgen.New(client, &redisseqgen.Options{Prefix: prefix, Partitions: 1})
	require.NoError(t, err)
	h := "{" + prefix + ":seqgen:00}:h"
	require.NoError(t, client.HSet(t.Context(), h, "test:secret", "2 of another version").Err())
	grants, err := s.Reserve(t.Context(), params, []seqgen.Ask{single("secret", 1), single("good", 1)})
	require.NoError(t, err)
	require.ErrorContains(t, grants[0].Err, "not a row of this version")
	require.NotContains(t, grants[0].Err.Error(), "secret")
	require.Equal(t, uint64(1), grants[1].Lo)
	states, err := s.Look(t.Context(), "test", []string{"secret", "good"})
	require.NoError(t, err)
	require.Error(t, states[0].Err)
	require.Equal(t, uint64(1), states[1].Last)
	require.Equal(t, "2 of another version", client.HGet(t.Context(), h, "test:secret").Val())
}

func TestFullServer(t *testing.T) {
	server := testenv.RedisOwn(t, "--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
	s := newStore(t, newClient(t, server.Addr()))
	var err error
	for range 10_000 {
		asks := make([]seqgen.Ask, 100)
		for i := range asks {
			asks[i] = single(fmt.Sprint("key", rand.Uint64()), 1)
		}
		if _, err = s.Reserve(t.Context(), params, asks); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, seqgen.ErrFull)
}

func TestNewAndCheck(t *testing.T) {
	_, err := redisseqgen.New(nil, nil)
	require.ErrorIs(t, err, seqgen.ErrInvalid)
	client := newClient(t, testenv.RedisOwn(t).Addr())
	_, err = redisseqgen.New(client, &redisseqgen.Options{Partitions: 257})
	require.ErrorIs(t, err, seqgen.ErrInvalid)
	s, err := redisseqgen.New(client, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), seqgen.ErrAtRisk, "it keeps nothing on disk")
	other, err := redisseqgen.New(client, &redisseqgen.Options{Partitions: 2})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), redisseqgen.ErrLayout)
	require.ErrorIs(t, newStore(t, newClient(t, miniredis.RunT(t).Addr())).Check(t.Context()), seqgen.ErrUnchecked)
	_, err = s.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, seqgen.ErrInvalid)
}
