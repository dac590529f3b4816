package redisorder_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
)

func TestKilledServerUnderLoad(t *testing.T) { killedServer(t, 2000, 2) }

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 4, 10)
	killedServer(t, 2_000*kills, kills)
}

// killedServer kills a server that flushes every write before it answers, while
// messages are pushed in random order and delivered. Then every message was
// delivered, first in order, and only under a token that rises.
func killedServer(t *testing.T, numbers, kills int) {
	const keys, workers = 4, 3
	params := params
	params.MaxAhead = uint64(numbers) + 1 // those who push may be faster than those who deliver
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()

	var mu sync.Mutex
	var acknowledged [keys]uint64 // all below it were answered as delivered
	for i := range acknowledged {
		acknowledged[i] = 1
	}
	var faults []string
	var last struct{ push, claim, settle error } // what was answered last, for a test that hangs
	note := func(place *error, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			*place = err
		}
	}
	var done atomic.Int64
	var all sync.WaitGroup
	for k := range keys {
		all.Go(func() {
			order64 := make([]order.Arrival, 0, 64)
			for from := uint64(1); from <= uint64(numbers) && ctx.Err() == nil; from += 64 {
				order64 = order64[:0]
				for n := from; n < from+64 && n <= uint64(numbers); n++ {
					id := ""
					if n%3 == 0 {
						id = fmt.Sprint("id", k, "-", n)
					}
					order64 = append(order64, arrival(fmt.Sprint("key", k), 1, n, id, fmt.Sprint("payload", n)))
				}
				rand.Shuffle(len(order64), func(i, j int) { order64[i], order64[j] = order64[j], order64[i] })
				for rest := order64; len(rest) > 0 && ctx.Err() == nil; {
					answers, err := s.Push(ctx, params, rest)
					note(&last.push, err)
					if err != nil {
						continue
					}
					var again []order.Arrival
					for i, a := range answers {
						note(&last.push, a.Err)
						if a.Err != nil || a.State == order.Full {
							again = append(again, rest[i])
						} else if a.State != order.Buffered && a.State != order.Duplicate {
							mu.Lock()
							faults = append(faults, fmt.Sprintf("%v was answered %d", rest[i].Position, a.State))
							mu.Unlock()
						}
					}
					rest = again
				}
			}
		})
	}
	for range workers {
		all.Go(func() {
			a := order.Ask{Keys: 2, Messages: 50, Bytes: 1 << 20, Lease: 2 * time.Second}
			for int(done.Load()) < keys && ctx.Err() == nil {
				for i := range a.Nonce {
					a.Nonce[i] = byte(rand.IntN(256))
				}
				claimed, err := s.Claim(ctx, params, a)
				for err != nil && ctx.Err() == nil {
					note(&last.claim, err)
					claimed, err = s.Claim(ctx, params, a) // the same ask, sent again
				}
				for _, c := range claimed.Claims {
					var k int
					_, _ = fmt.Sscanf(c.Key, "key%d", &k)
					if len(c.Run) == 0 {
						continue
					}
					mu.Lock()
					if from := c.Run[0].Position.Number; from < acknowledged[k] {
						faults = append(faults, fmt.Sprintf("%s %d was delivered again", c.Key, from))
					}
					mu.Unlock()
					to := c.Run[len(c.Run)-1].Position.Number + 1
					steps := []order.Settlement{{Kind: order.KindDeliver, Key: c.Key, Token: c.Token, Epoch: 1, To: to},
						{Kind: order.KindRelease, Key: c.Key, Token: c.Token, Epoch: 1}}
					errs, err := s.Settle(ctx, params, steps)
					for err != nil && ctx.Err() == nil {
						note(&last.settle, err)
						errs, err = s.Settle(ctx, params, steps)
					}
					note(&last.settle, errors.Join(errs...))
					if errs == nil && err == nil {
						mu.Lock()
						if to > acknowledged[k] {
							acknowledged[k] = to
							if int(to) == numbers+1 {
								done.Add(1)
							}
						}
						mu.Unlock()
					}
				}
			}
		})
	}
	for range kills {
		time.Sleep(300 * time.Millisecond) // under load
		server.Kill()
		server.Start()
	}
	all.Wait()
	for k := range keys {
		if ctx.Err() != nil {
			account, err := s.Account(t.Context(), "test", fmt.Sprint("key", k))
			t.Logf("%+v %v", account, err)
		}
	}
	require.NoError(t, ctx.Err(), "the last errors: %+v", last)
	require.Empty(t, faults)
	for k := range keys {
		account, err := s.Account(t.Context(), "test", fmt.Sprint("key", k))
		require.NoError(t, err)
		l := account.Ledgers[0]
		require.Equal(t, uint64(numbers+1), l.Cursor)
		require.Equal(t, uint64(numbers), l.Delivered)
		require.Equal(t, uint64(numbers), account.Arrivals.Accepted)
		require.Equal(t, l.Head, l.Cursor)
	}
}

// A server that starts from an older dump has gone back: what was acknowledged since
// is handed over again, under a token above all earlier ones; what was pushed since
// is gone, and is a gap once a later message comes.
func TestOlderDump(t *testing.T) {
	server := testenv.RedisOwn(t)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	for n := range uint64(6) {
		push(t, s, arrival("k", 1, n+1, "", "x"))
	}
	three := ask(1)
	three.Messages = 3
	claimed, err := s.Claim(t.Context(), params, three)
	require.NoError(t, err)
	c := claimed.Claims[0]
	settle(t, s, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c.Token, Epoch: 1, To: 4},
		order.Settlement{Kind: order.KindRelease, Key: "k", Token: c.Token, Epoch: 1})
	require.NoError(t, client.Save(t.Context()).Err())

	claimed, err = s.Claim(t.Context(), params, ask(2))
	require.NoError(t, err)
	lost := claimed.Claims[0]
	settle(t, s, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: lost.Token, Epoch: 1, To: 7},
		order.Settlement{Kind: order.KindRelease, Key: "k", Token: lost.Token, Epoch: 1})
	push(t, s, arrival("k", 1, 7, "", "lost"))
	server.Kill()
	server.Start()

	errs, err := s.Settle(t.Context(), params, []order.Settlement{{Kind: order.KindDeliver, Key: "k", Token: lost.Token, Epoch: 1, To: 8}})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], order.ErrStale, "an owner of the time that was lost changes nothing")
	push(t, s, arrival("k", 1, 8, "", "x"))
	claimed, err = s.Claim(t.Context(), params, ask(3))
	require.NoError(t, err)
	c = claimed.Claims[0]
	require.Greater(t, c.Token, lost.Token)
	require.Len(t, c.Run, 3)
	require.Equal(t, uint64(4), c.Run[0].Position.Number)
	settle(t, s, order.Settlement{Kind: order.KindDeliver, Key: "k", Token: c.Token, Epoch: 1, To: 7},
		order.Settlement{Kind: order.KindRelease, Key: "k", Token: c.Token, Epoch: 1})
	gaps, err := s.Gaps(t.Context(), "test", order.Query{N: 10})
	require.NoError(t, err)
	require.Len(t, gaps, 1)
	require.Equal(t, [2]uint64{7, 8}, [2]uint64{gaps[0].From, gaps[0].To})
}
