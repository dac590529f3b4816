package redisorder_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
)

func claim(t *testing.T, s order.Store, nonce byte) map[string]order.Claim {
	t.Helper()
	claimed, err := s.Claim(t.Context(), params, ask(nonce))
	require.NoError(t, err)
	claims := make(map[string]order.Claim)
	for _, c := range claimed.Claims {
		claims[c.Key] = c
	}
	return claims
}

// A worker gives a message up in one call: it parks it, and drops it.
func TestParkAndDropInOneBatch(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	push(t, store, arrival("k", 1, 1, "", "one"), arrival("k", 1, 2, "two", "two"), arrival("k", 1, 3, "", "three"), arrival("last", 1, 1, "", "one"))
	claims := claim(t, store, 1)
	require.Len(t, claims["k"].Run, 3)
	require.Len(t, claims["last"].Run, 1)
	giveUp := func(key string, n uint64) []order.Settlement {
		return []order.Settlement{
			{Kind: order.KindPark, Key: key, Token: claims[key].Token, Epoch: 1, From: n, Error: "no"},
			{Kind: order.KindDrop, Key: key, Epoch: 1, From: n, Actor: "lane", Note: "given up", Resolution: order.ResolutionIgnore},
		}
	}
	steps := append([]order.Settlement{{Kind: order.KindDeliver, Key: "k", Token: claims["k"].Token, Epoch: 1, To: 2}}, giveUp("k", 2)...)
	steps = append(steps, giveUp("last", 1)...)
	for range 2 { // also when it is sent again
		settle(t, store, steps...)
		for key, want := range map[string]order.Ledger{
			"k":    {Epoch: 1, Base: 1, Cursor: 3, Head: 4, Delivered: 1, Skipped: 1, Buffered: 1},
			"last": {Epoch: 1, Base: 1, Cursor: 2, Head: 2, Skipped: 1},
		} {
			account, err := store.Account(t.Context(), params.Scope, key)
			require.NoError(t, err)
			require.Equal(t, []order.Ledger{want}, account.Ledgers)
			require.False(t, account.Claimed)
			require.False(t, account.Parked)
		}
		totals, err := store.Totals(t.Context(), params.Scope)
		require.NoError(t, err)
		totals.Oldest = 0
		require.Equal(t, order.Totals{Keys: 2, Buffered: 1}, totals)
		gaps, err := store.Gaps(t.Context(), params.Scope, order.Query{N: 10})
		require.NoError(t, err)
		require.Len(t, gaps, 2)
		for _, g := range gaps {
			require.Equal(t, order.ReasonDropped, g.Reason)
			require.Equal(t, "lane", g.Actor)
			require.Equal(t, order.ResolutionIgnore, g.Resolution)
		}
	}
	next := claim(t, store, 2)
	require.Len(t, next, 1)
	require.Len(t, next["k"].Run, 1)
	require.Equal(t, order.Position{Epoch: 1, Number: 3}, next["k"].Run[0].Position)

	push(t, store, arrival("k", 1, 2, "", "two, late"))
	late := claim(t, store, 2)["k"].Late // the claim sent again has it
	require.Len(t, late, 1)
	settle(t, store,
		order.Settlement{Kind: order.KindLatePark, Key: "k", Token: next["k"].Token, Epoch: 1, From: 2, Error: "no"},
		order.Settlement{Kind: order.KindDrop, Key: "k", Epoch: 1, From: 2})
	account, err := store.Account(t.Context(), params.Scope, "k")
	require.NoError(t, err)
	require.Zero(t, account.LateWaiting)
	require.True(t, account.Claimed)
}

// Arrivals of a batch are sorted where their order does not matter. Which gap it is
// that is left of the one at the cursor depends on it.
func TestBatchShortensTheGapInItsOrder(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	for nonce, tc := range []struct {
		key     string
		numbers []uint64
		same    bool // the gap that is left is the one before
	}{
		{"shorter, then closed", []uint64{5, 1}, true},
		{"closed, then shorter", []uint64{1, 5}, false},
		{"both, and one between", []uint64{7, 5, 1, 6}, true},
		{"closed, with one behind", []uint64{11, 1, 5}, false},
	} {
		p := params
		p.Scope = tc.key[:1] + string(rune('0'+nonce))
		send := func(numbers ...uint64) {
			var batch []order.Arrival
			for _, n := range numbers {
				batch = append(batch, arrival(tc.key, 1, n, "", "x"))
			}
			answers, err := store.Push(t.Context(), p, batch)
			require.NoError(t, err)
			for _, a := range answers {
				require.Equal(t, order.Buffered, a.State)
			}
		}
		take := func(nonce byte) order.Claim {
			claimed, err := store.Claim(t.Context(), p, ask(nonce))
			require.NoError(t, err)
			require.Len(t, claimed.Claims, 1)
			return claimed.Claims[0]
		}
		apply := func(s order.Settlement) {
			errs, err := store.Settle(t.Context(), p, []order.Settlement{s})
			require.NoError(t, err)
			require.Nil(t, errs)
		}
		send(9)
		c := take(1)
		require.NotNil(t, c.Gap)
		apply(order.Settlement{Kind: order.KindWait, Key: tc.key, Token: c.Token, Epoch: 1, From: 1, Delay: time.Hour, Alerted: true, Asked: 2})
		send(tc.numbers...)
		c = take(2)
		require.Len(t, c.Run, 1)
		apply(order.Settlement{Kind: order.KindDeliver, Key: tc.key, Token: c.Token, Epoch: 1, To: 2})
		gaps, err := store.Gaps(t.Context(), p.Scope, order.Query{N: 10})
		require.NoError(t, err)
		require.Len(t, gaps, 1)
		require.Equal(t, uint64(2), gaps[0].From)
		require.Equal(t, uint64(5), gaps[0].To)
		require.Equal(t, tc.same, gaps[0].Alerted, tc.key)
	}
}
