package redisinbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/redisinbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// slow takes its time after the first pipeline.
type slow struct{ pause *time.Duration }

func (s slow) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		time.Sleep(*s.pause)
		*s.pause = 0
		return err
	}
}

// An acceptance that was paused for long between its steps gives up: a sweep may have
// taken its row for abandoned.
func TestAcceptGivesUpAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		client := newPipeClient(server)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		pause := 6 * time.Minute
		client.AddHook(slow{&pause})
		s := newWith(t, client, redisinbox.Options{Partitions: 2})
		_, err := s.Accept(t.Context(), params, []inbox.Arrival{arrival("secret", "k", "x")})
		require.ErrorContains(t, err, "too much time has passed")
		require.NotContains(t, err.Error(), "secret")
		totals, err := s.Totals(t.Context())
		require.NoError(t, err)
		require.Zero(t, totals)
		pause = 4 * time.Minute
		require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("secret", "k", "x")))
	})
}

// An acceptance whose row is made void again and again ends with an error, and with
// nothing stored.
func TestAcceptEndsAmongRivals(t *testing.T) {
	t.Parallel()
	addr := testenv.Redis(t)
	opts := redisinbox.Options{Prefix: testenv.Prefix(t)}
	others := newWith(t, newClient(t, &redis.UniversalOptions{Addrs: []string{addr}}), opts)
	accept(t, others, arrival("warm", "warm", "x")) // the script cache
	change(t, others, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/warm"})
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	n := 0
	client.(interface{ AddHook(redis.Hook) }).AddHook(before{func() {
		if n++; n%2 == 0 { // before every second step
			accept(t, others, arrival("secret", "other", "x"))
			change(t, others, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/secret"})
		}
	}})
	_, err := newWith(t, client, opts).Accept(t.Context(), params, []inbox.Arrival{arrival("secret", "k", "x")})
	require.ErrorContains(t, err, "under other ordering keys")
	require.NotContains(t, err.Error(), "secret")
	totals, err := others.Totals(t.Context())
	require.NoError(t, err)
	require.Zero(t, totals)
	require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, others, arrival("secret", "k", "x")))
}

// More records than one script looks at are swept and listed all the same, and no
// more than were asked for.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 1300
	store := newWith(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}), redisinbox.Options{Prefix: testenv.Prefix(t), Partitions: 1})
	p := inbox.Params{Retention: time.Millisecond, Keep: time.Millisecond}
	var bodies, outside []inbox.Arrival
	for i := range many {
		a := arrival(fmt.Sprint("body", i), "k", "x")
		a.Streams, a.Raw = nil, true
		bodies = append(bodies, a)
		b := arrival(fmt.Sprint("outside", i), "k", "x")
		b.Streams, b.Raw, b.Form = nil, true, inbox.FormOutside
		outside = append(outside, b)
	}
	for _, batch := range [][]inbox.Arrival{bodies, outside} {
		_, err := store.Accept(t.Context(), p, batch)
		require.NoError(t, err)
	}
	var found []inbox.Record
	require.Eventually(t, func() bool { // when the last millisecond has passed
		var err error
		found, err = store.List(t.Context(), inbox.Query{Outside: true, N: 2 * many})
		require.NoError(t, err)
		return len(found) == many
	}, time.Minute, time.Millisecond)
	for i, r := range found {
		require.Equal(t, outside[i].ID, r.ID)
	}
	removed, err := store.Sweep(t.Context(), 700)
	require.NoError(t, err)
	require.Equal(t, 700, removed)
	removed, err = store.Sweep(t.Context(), 10*many)
	require.NoError(t, err)
	require.Equal(t, many-700, removed)
	totals, err := store.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Quarantined: many}, totals)
}

// Of a batch of changes that is larger than one round trip, each has its answer.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	var batch []inbox.Arrival
	var changes []inbox.Change
	for i := range 700 {
		a := arrival(fmt.Sprint("event", i), fmt.Sprint("key", i), "x")
		if i%2 == 0 {
			batch = append(batch, a)
		}
		changes = append(changes, inbox.Change{Kind: inbox.ChangeRedact, Nonce: randomNonce(), ID: a.ID, Actor: "a", Reason: "r"})
	}
	accept(t, store, batch...)
	require.Len(t, workAll(t, store, inbox.DefaultStream), 350)
	errs, err := store.Change(t.Context(), params, changes)
	require.NoError(t, err)
	for i := range changes {
		if i%2 == 0 {
			require.NoError(t, errs[i])
		} else {
			require.ErrorIs(t, errs[i], inbox.ErrNotFound)
		}
	}
}
