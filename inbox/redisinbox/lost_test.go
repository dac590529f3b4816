package redisinbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/redisinbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// Every script is worked and its reply lost once: the client sends it again, and
// what it then hears is what it would have heard, but for an acceptance, which finds
// its own records.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}}))
	lose := func(step func()) {
		t.Helper()
		before := proxy.Dropped()
		proxy.DropRepliesTo("evalsha", 1)
		step()
		require.Equal(t, before+1, proxy.Dropped())
	}
	accept(t, store, arrival("warm", "warm", "x")) // the script cache
	workAll(t, store, inbox.DefaultStream)
	change(t, store, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/warm"})
	_, err := store.Sweep(t.Context(), 100)
	require.NoError(t, err)

	lose(func() { // the reply of the first of two steps
		require.Equal(t, []inbox.Answer{inbox.Accepted, inbox.Accepted}, accept(t, store, arrival("a", "k", "1"), arrival("b", "k", "2")))
	})
	lose(func() {
		require.Equal(t, []inbox.Answer{inbox.Duplicate, inbox.Conflict}, accept(t, store, arrival("a", "k", "1"), arrival("b", "k", "other")))
	})
	ask := ask(10)
	var c inbox.Claim
	lose(func() {
		claimed, err := store.Claim(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, claimed.Claims, 1)
		c = claimed.Claims[0]
	})
	require.Len(t, c.Records, 2)
	require.Equal(t, [2]int{1, 0}, [2]int{c.Records[0].Attempts, c.Records[1].Attempts}, "the second copy of the claim began nothing")
	lose(func() { settle(t, store, settlement(inbox.KindDone, c, "p/a")) })
	lose(func() { settle(t, store, settlement(inbox.KindBegin, c, "p/b")) })
	lose(func() {
		settle(t, store, settlement(inbox.KindUnknown, c, "p/b"), settlement(inbox.KindRelease, c, ""))
	})
	lose(func() {
		change(t, store, inbox.Change{Kind: inbox.ChangeReplay, Nonce: randomNonce(), ID: "p/b", Actor: "me", Reason: "it did not happen"})
	})
	rs, err := store.List(t.Context(), inbox.Query{ID: "p/b", N: 10})
	require.NoError(t, err)
	require.Equal(t, [2]inbox.State{inbox.StateConflict, inbox.StatePending}, [2]inbox.State{rs[0].State, rs[1].State})
	require.Len(t, rs[1].Actions, 1)
	lose(func() { change(t, store, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/b"}) })
	lose(func() {
		_, err := store.Sweep(t.Context(), 100)
		require.NoError(t, err)
	})
	totals, err := store.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: 1}, totals)
}

// The reply of the second step of an acceptance is lost: its copy finds the records
// of the first, and stores none.
func TestLostReplyOfAccept(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}})
	store := newStore(t, client)
	accept(t, store, arrival("warm", "warm", "x"))
	pipelines := 0
	client.(interface{ AddHook(redis.Hook) }).AddHook(before{func() {
		if pipelines++; pipelines == 2 {
			proxy.DropRepliesTo("evalsha", 1)
		}
	}})
	require.Equal(t, []inbox.Answer{inbox.Duplicate}, accept(t, store, arrival("a", "k", "1")))
	require.Equal(t, 1, proxy.Dropped())
	require.Equal(t, []string{"p/a", "p/warm"}, sorted(workAll(t, store, inbox.DefaultStream)))
}

// The same ID is found whatever key it comes with, also where that is in another
// partition.
func TestOtherKeyOfTheSameID(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string][]string{"Redis": {testenv.Redis(t)}, "Redis Cluster": testenv.RedisCluster(t)} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: addrs}))
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, store, arrival("a", "first", "1")))
			for i := range 40 {
				key := fmt.Sprint("key", i)
				require.Equal(t, []inbox.Answer{inbox.Duplicate, inbox.Conflict}, accept(t, store, arrival("a", key, "1"), arrival("a", key, "2")))
			}
			totals, err := store.Totals(t.Context())
			require.NoError(t, err)
			require.Equal(t, [2]int{1, 1}, [2]int{totals.Pending, totals.Conflicts})
		})
	}
}

// Numbers rise in the order of a batch, and from one call to the next, across
// partitions; records of one key have them in the order of the key's queue also when
// several processes accept.
func TestSeqAcrossPartitions(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string][]string{"Redis": {testenv.Redis(t)}, "Redis Cluster": testenv.RedisCluster(t)} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: addrs})
			opts := redisinbox.Options{Prefix: testenv.Prefix(t)}
			store, other := newWith(t, client, opts), newWith(t, client, opts)
			var want []string
			for n := range 20 {
				var batch []inbox.Arrival
				for i := range 1 + n*n {
					id := fmt.Sprintf("%02d-%03d", n, i)
					batch = append(batch, arrival(id, fmt.Sprint("key", i%7), "x"))
					want = append(want, "p/"+id)
				}
				accept(t, store, batch...)
			}
			var got []string
			for after := uint64(0); ; {
				page, err := store.List(t.Context(), inbox.Query{State: inbox.StatePending, After: after, N: 100})
				require.NoError(t, err)
				for _, r := range page {
					got = append(got, r.ID)
				}
				if len(page) < 100 {
					break
				}
				after = page[99].Seq
			}
			require.Equal(t, want, got)

			for i := range 20 { // the clocks of two processes are one
				accept(t, []*redisinbox.Store{store, other}[i%2], arrival(fmt.Sprint("turn", i), "shared", "x"))
			}
			claimed, err := store.Claim(t.Context(), ask(100))
			require.NoError(t, err)
			for _, c := range claimed.Claims {
				for i, r := range c.Records {
					if c.Key == "shared" {
						require.Equal(t, fmt.Sprint("p/turn", i), r.ID)
					}
					require.True(t, i == 0 || r.Seq > c.Records[i-1].Seq)
				}
			}
		})
	}
}

// An event that was forgotten and comes again needs a new row of its ID; it keeps its
// place in the batch all the same.
func TestSeqOfForgotten(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	p := inbox.Params{Retention: time.Millisecond, Keep: time.Millisecond}
	var old, batch []inbox.Arrival
	var want []string
	for i := range 60 {
		a := arrival(fmt.Sprint("event", i), fmt.Sprint("key", i%9), "x")
		batch, want = append(batch, a), append(want, a.ID)
		if i%3 == 0 {
			a.Streams, a.Raw = nil, true
			old = append(old, a)
		}
	}
	_, err := store.Accept(t.Context(), p, old)
	require.NoError(t, err)
	removed := 0
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		removed += n
		return removed == len(old)
	}, time.Minute, time.Millisecond)
	for i, a := range accept(t, store, batch...) {
		require.Equal(t, inbox.Accepted, a, i)
	}
	rs, err := store.List(t.Context(), inbox.Query{State: inbox.StatePending, N: 1000})
	require.NoError(t, err)
	var got []string
	for _, r := range rs {
		got = append(got, r.ID)
	}
	require.Equal(t, want, got)
}

// Records that one call replays, in several partitions, come behind all others, and in
// the order of the call, also when they are replayed by a process that has seen
// nothing of the store before.
func TestSeqOfReplays(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	opts := redisinbox.Options{Prefix: testenv.Prefix(t)}
	store := newWith(t, client, opts)
	var batch []inbox.Arrival
	for i := range 100 {
		batch = append(batch, arrival(fmt.Sprint("event", i), fmt.Sprint("key", i), "x"))
	}
	accept(t, store, batch...)
	require.Len(t, workAll(t, store, inbox.DefaultStream), 100)
	accept(t, store, arrival("waiting", "waiting", "x"))
	want := []string{"p/waiting"}
	var changes []inbox.Change
	for i := range 100 {
		id := batch[(i*37)%100].ID
		want = append(want, id)
		changes = append(changes, inbox.Change{Kind: inbox.ChangeReplay, Nonce: randomNonce(), ID: id, Actor: "a", Reason: "r"})
	}
	change(t, newWith(t, client, opts), changes...)
	rs, err := store.List(t.Context(), inbox.Query{State: inbox.StatePending, N: 1000})
	require.NoError(t, err)
	var got []string
	for _, r := range rs {
		got = append(got, r.ID)
	}
	require.Equal(t, want, got)
}

// A batch that is larger than one round trip, in events and in bytes, is stored in
// several, and in order.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	var many, large []inbox.Arrival
	for i := range 1100 {
		many = append(many, arrival(fmt.Sprintf("many%04d", i), "many", "x"))
	}
	for i := range 6 {
		large = append(large, arrival(fmt.Sprint("large", i), "large", strings.Repeat("x", 3<<20)))
	}
	for i, a := range append(accept(t, store, many...), accept(t, store, large...)...) {
		require.Equal(t, inbox.Accepted, a, i)
	}
	a := ask(10)
	a.Events, a.Bytes = 2000, 64<<20
	claimed, err := store.Claim(t.Context(), a)
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 2)
	require.Len(t, claimed.Claims[0].Records, 1100)
	require.Len(t, claimed.Claims[1].Records, 6)
	var ends []inbox.Settlement
	for _, c := range claimed.Claims {
		for i, r := range c.Records {
			require.Equal(t, append(many, large...)[i+1100*(len(c.Key)-4)].ID, r.ID)
			ends = append(ends, settlement(inbox.KindBegin, c, r.ID), settlement(inbox.KindDone, c, r.ID))
		}
	}
	settle(t, store, ends...)
	totals, err := store.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: 1106}, totals)
}

// What lies under a key and is not its row is an error for that item alone, and is
// not overwritten.
func TestForeignRow(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"Redis": testenv.Redis(t), "miniredis": miniredis.RunT(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
			store := newWith(t, client, redisinbox.Options{Prefix: testenv.Prefix(t), Partitions: 1})
			h := store.Tag(0) + ":h"
			foreign := func(field string) {
				require.NoError(t, client.HSet(t.Context(), h, field, "2 of another version").Err())
			}
			refused := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, "not of this version")
				require.ErrorContains(t, err, "redisinbox: ")
				require.NotContains(t, err.Error(), "secret")
			}
			for _, field := range []string{"ip/secret", "ep/secret", "kdefault\x00secret"} {
				foreign(field)
				_, err := store.Accept(t.Context(), params, []inbox.Arrival{arrival("secret", "secret", "x")})
				refused(err)
				require.Equal(t, "2 of another version", client.HGet(t.Context(), h, field).Val())
				require.NoError(t, client.HDel(t.Context(), h, field).Err())
			}
			totals, err := store.Totals(t.Context())
			require.NoError(t, err)
			require.Zero(t, totals)
			accept(t, store, arrival("secret", "secret", "x"), arrival("good", "good", "x"))
			claimed, err := store.Claim(t.Context(), ask(10))
			require.NoError(t, err)
			require.Len(t, claimed.Claims, 2)
			foreign("kdefault\x00secret")
			foreign("ep/secret")
			var ends []inbox.Settlement
			for _, key := range []string{"secret", "good"} {
				for _, c := range claimed.Claims {
					if c.Key == key {
						ends = append(ends, settlement(inbox.KindDone, c, "p/"+key))
					}
				}
			}
			errs, err := store.Settle(t.Context(), params, ends)
			require.NoError(t, err)
			refused(errs[0])
			require.NoError(t, errs[1])
			errs, err = store.Change(t.Context(), params, []inbox.Change{{Kind: inbox.ChangeForget, ID: "p/secret"}, {Kind: inbox.ChangeForget, ID: "p/good"}})
			require.NoError(t, err)
			refused(errs[0])
			require.NoError(t, errs[1])
			_, err = store.List(t.Context(), inbox.Query{ID: "p/secret", N: 1})
			refused(err)
		})
	}
}

func TestNew(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	_, err := redisinbox.New(nil, nil)
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = redisinbox.New((*redis.Client)(nil), nil)
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = redisinbox.New(client, &redisinbox.Options{Partitions: 257})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = redisinbox.New(client, &redisinbox.Options{Prefix: "a{b}"})
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = redisinbox.New(client, nil)
	require.NoError(t, err)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store := newWith(t, client, redisinbox.Options{})
	require.ErrorIs(t, store.Check(t.Context()), inbox.ErrAtRisk, "it keeps nothing on disk")
	other := newWith(t, client, redisinbox.Options{Partitions: 2})
	require.ErrorIs(t, other.Check(t.Context()), redisinbox.ErrLayout)
	durable := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always").Addr()
	require.NoError(t, newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{durable}})).Check(t.Context()))
	silent := newClient(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}})
	require.ErrorIs(t, newStore(t, silent).Check(t.Context()), inbox.ErrUnchecked)
}

// A server that does not answer, or a context that has ended, is an error of every
// step.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
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
			_, acceptErr := store.Accept(c.ctx, params, []inbox.Arrival{arrival("secret", "secret", "secret")})
			_, claimErr := store.Claim(c.ctx, ask(1))
			_, settleErr := store.Settle(c.ctx, params, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: "secret", Key: "secret", Token: 1}})
			_, changeErr := store.Change(c.ctx, params, []inbox.Change{{Kind: inbox.ChangeForget, ID: "p/secret"}})
			_, listErr := store.List(c.ctx, inbox.Query{ID: "p/secret", N: 1})
			_, totalsErr := store.Totals(c.ctx)
			_, sweepErr := store.Sweep(c.ctx, 10)
			for _, err := range []error{acceptErr, claimErr, settleErr, changeErr, listErr, totalsErr, sweepErr, store.Check(c.ctx)} {
				require.ErrorContains(t, err, "redisinbox: ")
				require.NotContains(t, err.Error(), "secret")
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
		})
	}
}

// A server whose memory is full refuses arrivals, and stores nothing of them; what is
// there can be worked, and swept, and then there is room again.
func TestFullServer(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction").Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store := newWith(t, client, redisinbox.Options{})
	p := inbox.Params{Retention: time.Millisecond, Keep: time.Millisecond}
	stored := 0
	var err error
	for ; err == nil && stored < 10_000; stored++ {
		_, err = store.Accept(t.Context(), p, []inbox.Arrival{arrival(fmt.Sprint("event", stored), fmt.Sprint("key", stored%50), strings.Repeat("x", 16<<10))})
	}
	require.ErrorContains(t, err, "OOM")
	refused := fmt.Sprint("p/event", stored-1)
	rs, err := store.List(t.Context(), inbox.Query{ID: refused, N: 1})
	require.NoError(t, err)
	require.Empty(t, rs)

	worked := 0
	a := ask(100)
	a.Bytes = 1 << 30
	claimed, err := store.Claim(t.Context(), a)
	require.NoError(t, err)
	for _, c := range claimed.Claims {
		var batch []inbox.Settlement
		for i, r := range c.Records {
			if i > 0 {
				batch = append(batch, settlement(inbox.KindBegin, c, r.ID))
			}
			batch = append(batch, settlement(inbox.KindDone, c, r.ID))
			worked++
		}
		errs, err := store.Settle(t.Context(), p, append(batch, settlement(inbox.KindRelease, c, "")))
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	require.Equal(t, stored-1, worked)
	removed := 0
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		removed += n
		return removed == worked
	}, time.Minute, time.Millisecond)
	require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, store, arrival(refused[2:], "k", "x")))
}
