package redisorder_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/redisorder"
)

var params = order.Params{Scope: "test", Start: 1, Window: 1024, MaxBuffered: 1000, MaxAhead: 1000, Late: true, KeepBody: time.Hour, KeepGaps: time.Hour}

func ask(n byte) order.Ask {
	return order.Ask{Nonce: [16]byte{n}, Keys: 10, Messages: 64, Bytes: 1 << 20, Lease: time.Hour}
}

func push(t *testing.T, s order.Store, arrivals ...order.Arrival) []order.Answer {
	t.Helper()
	answers, err := s.Push(t.Context(), params, arrivals)
	require.NoError(t, err)
	return answers
}

func settle(t *testing.T, s order.Store, settlements ...order.Settlement) {
	t.Helper()
	errs, err := s.Settle(t.Context(), params, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

// Every script is worked and its reply lost once: the client sends it again, and
// what it then hears is what it would have heard.
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
	push(t, store, arrival("warm", 1, 1, "warm", "x")) // the script cache
	_, err := store.Claim(t.Context(), params, ask(255))
	require.NoError(t, err)
	settle(t, store, order.Settlement{Kind: order.KindForget, Key: "warm"})

	lose(func() {
		answers := push(t, store, arrival("k", 1, 2, "", "two"), arrival("k", 1, 1, "", "one"))
		require.Equal(t, order.Duplicate, answers[0].State, "stored by the first copy")
	})
	a := arrival("k", 0, 0, "op", "three")
	a.Assign = true
	lose(func() { // the row of the ID is written twice
		answers := push(t, store, a)
		require.Equal(t, order.Answer{State: order.Buffered, Key: "k", Position: order.Position{Epoch: 1, Number: 3}}, answers[0])
	})
	require.Equal(t, order.Answer{State: order.Duplicate, Key: "k", Position: order.Position{Epoch: 1, Number: 3}}, push(t, store, a)[0])

	var c order.Claim
	lose(func() {
		claimed, err := store.Claim(t.Context(), params, ask(1))
		require.NoError(t, err)
		require.Len(t, claimed.Claims, 1)
		c = claimed.Claims[0]
	})
	require.Len(t, c.Run, 3)
	for _, m := range c.Run {
		require.Equal(t, 1, m.Attempt, "the second copy of the claim began nothing")
	}
	lose(func() {
		settle(t, store, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c.Token, Epoch: 1, To: 3})
	})
	lose(func() {
		settle(t, store, order.Settlement{Kind: order.KindRetry, Key: "k", Token: c.Token, Epoch: 1, From: 3, Error: "no"})
	})
	account, err := store.Account(t.Context(), "test", "k")
	require.NoError(t, err)
	require.Equal(t, uint64(3), account.Ledgers[0].Cursor)
	require.False(t, account.Claimed)
}

// Of many processes that assign one ID, each to a key of its own, one stores the
// message, and all others are told where it is.
func TestAssignedOnce(t *testing.T) {
	for name, addrs := range map[string][]string{"Redis": {testenv.Redis(t)}, "Redis Cluster": testenv.RedisCluster(t)} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: addrs})
			store := newStore(t, client)
			for round := range 20 {
				id := fmt.Sprint("op", round)
				const rivals = 8
				answers := make([]order.Answer, rivals)
				var all sync.WaitGroup
				for i := range rivals {
					all.Go(func() {
						a := arrival(fmt.Sprint("key", i), 0, 0, id, "x")
						a.Assign = true
						for range 20 { // until it has an answer
							got, err := store.Push(context.Background(), params, []order.Arrival{a})
							if err == nil {
								answers[i] = got[0]
								return
							}
						}
					})
				}
				all.Wait()
				stored := 0
				for _, a := range answers {
					require.NotZero(t, a.State)
					require.Equal(t, answers[0].Key, a.Key)
					require.Equal(t, answers[0].Position, a.Position)
					if a.State == order.Buffered {
						stored++
					}
				}
				require.Equal(t, 1, stored)
			}
		})
	}
}

// A process that dies between the row of an ID and the message leaves a row that
// leads nowhere. It does not stand in the way.
func TestRowOfAnIDWithoutMessage(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	prefix := testenv.Prefix(t)
	store, err := redisorder.New(client, &redisorder.Options{Prefix: prefix, Partitions: 1})
	require.NoError(t, err)
	h := "{" + prefix + ":order:00}:test:h"
	require.NoError(t, client.HSet(t.Context(), h, "iop", "0123456789abcdefdead").Err())

	found, err := store.Find(t.Context(), params, []order.Place{{ID: "op"}})
	require.NoError(t, err)
	require.Equal(t, order.StateUnknown, found[0].State)
	a := arrival("alive", 0, 0, "op", "x")
	a.Assign = true
	require.Equal(t, order.Buffered, push(t, store, a)[0].State)
	require.Equal(t, order.Duplicate, push(t, store, a)[0].State)
	found, err = store.Find(t.Context(), params, []order.Place{{ID: "op"}})
	require.NoError(t, err)
	require.Equal(t, "alive", found[0].Key)
	require.Equal(t, order.StateBuffered, found[0].State)

	// The push of the dead one, should it still be on its way, is turned away: its
	// nonce is void.
	require.True(t, client.HExists(t.Context(), h, "f0123456789abcdefop").Val())
}

// An ID whose message is not stored leaves nothing behind where IDs are looked up.
func TestNothingIsKeptOfRefusedIDs(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	prefix := testenv.Prefix(t)
	store, err := redisorder.New(client, &redisorder.Options{Prefix: prefix, Partitions: 1})
	require.NoError(t, err)
	h := "{" + prefix + ":order:00}:test:h"
	answers := push(t, store, arrival("k", 1, 1, "kept", "x"), arrival("k", 1, 5000, "far", "x"), arrival("k", 1, 1, "twin", "y"))
	require.Equal(t, order.TooFar, answers[1].State)
	require.Equal(t, order.Conflict, answers[2].State)
	require.True(t, client.HExists(t.Context(), h, "ikept").Val())
	require.False(t, client.HExists(t.Context(), h, "ifar").Val())
	require.False(t, client.HExists(t.Context(), h, "itwin").Val())
	a := arrival("k", 0, 0, "far", "x")
	a.Assign = true
	require.Equal(t, order.Buffered, push(t, store, a)[0].State, "the ID is free")
}

// What lies under a key and is not its row is an error for that key alone, and is
// not overwritten.
func TestForeignRow(t *testing.T) {
	for name, addr := range map[string]string{"Redis": testenv.Redis(t), "miniredis": miniredis.RunT(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
			prefix := testenv.Prefix(t)
			store, err := redisorder.New(client, &redisorder.Options{Prefix: prefix, Partitions: 1})
			require.NoError(t, err)
			h := "{" + prefix + ":order:00}:test:h"
			require.NoError(t, client.HSet(t.Context(), h, "hsecret", "2 of another version").Err())
			answers := push(t, store, arrival("secret", 1, 1, "", "x"), arrival("good", 1, 1, "", "x"))
			require.ErrorContains(t, answers[0].Err, "not of this version")
			require.NotContains(t, answers[0].Err.Error(), "secret")
			require.Equal(t, order.Buffered, answers[1].State)
			errs, err := store.Settle(t.Context(), params, []order.Settlement{
				{Kind: order.KindResume, Key: "secret", Epoch: 1, From: 1}, {Kind: order.KindResume, Key: "good", Epoch: 1, From: 1}})
			require.NoError(t, err)
			require.ErrorContains(t, errs[0], "not of this version")
			require.NoError(t, errs[1])
			_, err = store.Account(t.Context(), "test", "secret")
			require.ErrorContains(t, err, "redisorder: account: ")
			require.Equal(t, "2 of another version", client.HGet(t.Context(), h, "hsecret").Val())
		})
	}
}

func TestNew(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	_, err := redisorder.New(nil, nil)
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = redisorder.New((*redis.Client)(nil), nil)
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = redisorder.New(client, &redisorder.Options{Partitions: 257})
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = redisorder.New(client, &redisorder.Options{Prefix: "a{b}"})
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = redisorder.New(client, nil)
	require.NoError(t, err)
}

func TestCheck(t *testing.T) {
	addr := testenv.RedisOwn(t).Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store, err := redisorder.New(client, nil)
	require.NoError(t, err)
	require.ErrorIs(t, store.Check(t.Context()), order.ErrAtRisk, "it keeps nothing on disk")
	other, err := redisorder.New(client, &redisorder.Options{Partitions: 2})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), redisorder.ErrLayout)
	require.ErrorIs(t, newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}})).Check(t.Context()), order.ErrUnchecked)
}

// A server that does not answer, or a context that has ended, is an error of every
// step.
func TestNoAnswer(t *testing.T) {
	away := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1})
	running := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		client redis.UniversalClient
		ctx    context.Context
		want   error
	}{"no server": {away, t.Context(), nil}, "cancelled context": {running, cancelled, context.Canceled}} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, c.client)
			_, pushErr := store.Push(c.ctx, params, []order.Arrival{arrival("secret", 1, 1, "", "x")})
			_, idErr := store.Push(c.ctx, params, []order.Arrival{arrival("secret", 1, 1, "secret", "x")})
			_, claimErr := store.Claim(c.ctx, params, ask(1))
			_, settleErr := store.Settle(c.ctx, params, []order.Settlement{{Kind: order.KindForget, Key: "secret"}})
			_, accountErr := store.Account(c.ctx, "test", "secret")
			_, findErr := store.Find(c.ctx, params, []order.Place{{ID: "secret"}})
			_, gapsErr := store.Gaps(c.ctx, "test", order.Query{N: 1})
			_, parkedErr := store.Parked(c.ctx, "test", order.Query{N: 1})
			_, totalsErr := store.Totals(c.ctx, "test")
			_, sweepErr := store.Sweep(c.ctx, params, 10)
			for _, err := range []error{pushErr, idErr, claimErr, settleErr, accountErr, findErr, gapsErr, parkedErr, totalsErr, sweepErr, store.Check(c.ctx)} {
				require.ErrorContains(t, err, "redisorder: ")
				require.NotContains(t, err.Error(), "secret")
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
		})
	}
}

// A key that was erased and comes back has no owner, under whatever token, until it
// is claimed.
func TestNoTokenBeforeTheFirstClaim(t *testing.T) {
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	push(t, store, arrival("k", 1, 1, "", "one"))
	before := claim(t, store, 1)["k"].Token
	settle(t, store, order.Settlement{Kind: order.KindForget, Key: "k"})
	push(t, store, arrival("k", 1, 1, "", "one"))
	for token := before - 1; token <= before+2; token++ {
		for _, s := range []order.Settlement{
			{Kind: order.KindDeliver, Key: "k", Token: token, Epoch: 1, To: 1},
			{Kind: order.KindRelease, Key: "k", Token: token, Epoch: 1},
		} {
			errs, err := store.Settle(t.Context(), params, []order.Settlement{s})
			require.NoError(t, err)
			require.Equal(t, []error{order.ErrStale}, errs)
		}
	}
	require.Greater(t, claim(t, store, 2)["k"].Token, before)
}
