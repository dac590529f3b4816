package redisreconcile_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// A message with more observations than are read at once, and an Own with very many
// messages, are read all the same; of more than MaxHistory the first are.
func TestLongHistories(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	s := store.Timeline()
	var os []reconcile.Observation
	for _, event := range names("e", 2500) {
		os = append(os, said(event, "m", ""))
	}
	os[7].Own = "own"
	appendAll(t, s, reconcile.Appended, os...)
	var others []reconcile.Observation
	for i, event := range names("f", 1500) {
		others = append(others, said(event, fmt.Sprint("other", i), "own"))
	}
	appendAll(t, s, reconcile.Appended, others...)
	require.Equal(t, names("e", 2500), eventsOf(read(t, s, reconcile.Ref{Message: "m"})))
	h := read(t, s, reconcile.Ref{Own: "own"})
	require.Equal(t, slices.Concat(names("e", 2500), names("f", 1500)), eventsOf(h))
	require.False(t, h.More)

	var more []reconcile.Observation
	for i, event := range names("g", 6500) {
		more = append(more, said(event, fmt.Sprint("other", i%1000), ""))
	}
	appendAll(t, s, reconcile.Appended, more...)
	h = read(t, s, reconcile.Ref{Own: "own"})
	require.True(t, h.More)
	require.Len(t, h.Observations, reconcile.MaxHistory)
	require.Equal(t, slices.Concat(names("e", 2500), names("f", 1500)), eventsOf(h)[:4000])
	require.Equal(t, "g05999", h.Observations[reconcile.MaxHistory-1].Event)
}

// Who dies while it erases a message by any of its names, and then does it again, leaves
// nothing of it.
func TestKilledInForget(t *testing.T) {
	t.Parallel()
	addr := testenv.Redis(t)
	living := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	for _, ref := range []reconcile.Ref{{Event: "e00000"}, {Message: "m"}, {Own: "own"}} {
		torn := false
		for scripts := 0; ; scripts++ {
			opts := redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 1}
			store := newWith(t, living, opts)
			var os []reconcile.Observation
			for i, event := range names("e", 600) {
				os = append(os, said(event, "m", []string{"own", "", "other"}[i%3]), said("own"+event, "", "own"))
			}
			os = append(os, said("another", "m2", "own"))
			appendAll(t, store.Timeline(), reconcile.Appended, os...)
			appendAll(t, store.Timeline(), reconcile.Appended, said("stays", "m3", "others"))
			client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
			client.(interface{ AddHook(redis.Hook) }).AddHook(&mortal{left: scripts})
			n, err := newWith(t, client, opts).Timeline().Forget(t.Context(), seen, ref)
			rest, again := store.Timeline().Forget(t.Context(), seen, ref)
			require.NoError(t, again)
			want := 1200
			if ref.Own != "" {
				want = 1201
			}
			torn = torn || n > 0 && n < want
			require.Equal(t, want, n+rest)
			require.Empty(t, read(t, store.Timeline(), ref))
			require.Empty(t, read(t, store.Timeline(), reconcile.Ref{Message: "m"}))
			require.Equal(t, []string{"stays"}, eventsOf(read(t, store.Timeline(), reconcile.Ref{Own: "others"})))
			appendAll(t, store.Timeline(), reconcile.Appended, os[0])
			if err == nil {
				break
			}
			require.ErrorIs(t, err, errDead)
		}
		require.True(t, torn, "none was erased in part")
	}
}

// A subject with many observations is forgotten in several sweeps, none of which looks at
// more than it was asked to; one that goes on meanwhile keeps what is left of it.
func TestLongHistoriesAreForgotten(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	s := store.Timeline()
	p := seen
	p.Retention, p.Most = time.Millisecond, 1000
	var os []reconcile.Observation
	for _, event := range names("e", 1000) {
		os = append(os, said(event, "m", "own"))
	}
	_, err := s.Append(t.Context(), p, os)
	require.NoError(t, err)
	removed := 0
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 300)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 300)
		removed += n
		return n > 0
	}, time.Minute, time.Millisecond)
	p.Retention = time.Hour
	answers, err := s.Append(t.Context(), p, []reconcile.Observation{said("new", "m", "")})
	require.NoError(t, err)
	require.Equal(t, reconcile.Appended, answers[0], "there is room again")
	require.Zero(t, sweepAll(t, store))
	h := read(t, s, reconcile.Ref{Own: "own"})
	require.Len(t, h.Observations, 1001-removed)
	require.Equal(t, "new", h.Observations[1000-removed].Event)
}
