package rediswatchdog_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/rediswatchdog"
	"github.com/pawl-go/pawl/internal/testenv"
)

const interval = 50 * time.Millisecond

func join(name string) watchdog.Beat {
	return watchdog.Beat{Name: name, Nonce: [16]byte{1}, Join: true, Seq: 1, Interval: interval, State: watchdog.Flowing, Position: 1, Pending: 1, Busy: true}
}

func beat(t *testing.T, s watchdog.Store, b watchdog.Beat) watchdog.Ack {
	t.Helper()
	acks, err := s.Beat(t.Context(), watchdog.Params{Scope: watchdog.DefaultScope, Most: 10}, []watchdog.Beat{b})
	require.NoError(t, err)
	require.Len(t, acks, 1)
	return acks[0]
}

func act(t *testing.T, s watchdog.Store, a watchdog.Action) watchdog.Outcome {
	t.Helper()
	outcomes, err := s.Act(t.Context(), watchdog.DefaultScope, []watchdog.Action{a})
	require.NoError(t, err)
	require.Len(t, outcomes, 1)
	return outcomes[0]
}

func look(t *testing.T, s watchdog.Store) watchdog.Record {
	t.Helper()
	page, err := s.List(t.Context(), watchdog.DefaultScope, "", 10)
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	return page.Records[0].Record
}

// Every script is worked and its reply lost once: the client sends it again, and the
// second answer is the first one.
func TestLostReplies(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	s := newStore(t, newClient(t, proxy.Addr()))
	_ = beat(t, s, watchdog.Beat{Name: "warm", Interval: interval}) // the script cache
	act(t, s, watchdog.Action{Kind: watchdog.KindForget, Name: "warm"})
	lose := func() { t.Helper(); proxy.DropRepliesTo("evalsha", 1) }

	lose()
	ack := beat(t, s, join("w"))
	require.NoError(t, ack.Err)
	lose()
	next := join("w")
	next.Join, next.Seq = false, 2
	require.Equal(t, ack, beat(t, s, next))
	lose()
	o := act(t, s, watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{7}, Wait: time.Hour, Most: 1})
	require.NoError(t, o.Err)
	require.Equal(t, 1, o.Attempt)
	lose()
	require.NoError(t, act(t, s, watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Microsecond}).Err)
	require.Equal(t, 1, look(t, s).Attempts, "each step took effect once")
	lose()
	o = act(t, s, watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{8}, Wait: time.Hour, Most: 1})
	require.ErrorIs(t, o.Err, watchdog.ErrGivenUp)
	require.True(t, o.First, "who gave up is told so")
	lose()
	require.NoError(t, act(t, s, watchdog.Action{Kind: watchdog.KindForget, Name: "w", Token: ack.Token}).Err)
	require.Equal(t, 6, proxy.Dropped())
}

// While the server is away nobody is called stuck, and not at once when it is back.
func TestServerAway(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	s := newStore(t, redisClient(t, proxy.Addr()))
	w, err := watchdog.New(s, &watchdog.Options{Restart: func(context.Context, watchdog.Incident) error {
		t.Error("restarted")
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, beat(t, s, join("w")).Err)
	_, err = w.Round(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Healthy())
	proxy.Refuse()
	proxy.Cut()
	for began := time.Now(); time.Since(began) < 6*interval; {
		_, err = w.Round(t.Context())
		require.ErrorIs(t, err, watchdog.ErrUnavailable)
		require.ErrorIs(t, w.Healthy(), watchdog.ErrUnhealthy)
	}
	proxy.Heal()
	workers, err := w.Round(t.Context())
	require.NoError(t, err)
	require.Equal(t, watchdog.Undecided, workers[0].Verdict)
	require.Equal(t, watchdog.Unknown, workers[0].State)
}

// redisClient is one that does not try for long.
func redisClient(t *testing.T, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// A server that was emptied has forgotten everybody: a worker joins again with its
// next heartbeat, and its token rises.
func TestFlushedServer(t *testing.T) {
	server := testenv.RedisOwn(t)
	client := newClient(t, server.Addr())
	s := newStore(t, client)
	beaten := make(chan struct{})
	failed := make(chan error, 100)
	r, err := watchdog.NewReporter(s, &watchdog.ReporterOptions{Name: "w", Interval: interval, Hooks: &watchdog.ReporterHooks{
		Beaten: func(time.Duration) {
			select {
			case beaten <- struct{}{}:
			case <-t.Context().Done():
			}
		},
		Failed: func(err error) { failed <- err },
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-beaten
	token := r.Token()
	require.NoError(t, client.FlushAll(t.Context()).Err())
	<-beaten // perhaps one that was under way
	<-beaten
	require.Equal(t, r.Token(), look(t, s).Token)
	require.Greater(t, r.Token(), token)
	require.Empty(t, failed)
	stop()
	go func() {
		for range beaten {
		}
	}()
	require.NoError(t, <-ended)
	close(beaten)
	require.True(t, look(t, s).Left)
}

// What a killed server wrote down is there when it comes back: attempts, and the marks.
func TestKilledServer(t *testing.T) {
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, server.Addr()))
	ack := beat(t, s, join("w"))
	o := act(t, s, watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{7}, Wait: time.Hour, Most: 1})
	require.NoError(t, o.Err)
	before := look(t, s)
	server.Kill()
	server.Start()
	require.Equal(t, before, look(t, s))
	require.Equal(t, o, act(t, s, watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{7}, Wait: time.Hour, Most: 1}))
}

// A row that is none of this version is an error, not a healthy worker, and forgetting
// it helps.
func TestForeignRow(t *testing.T) {
	server := miniredis.RunT(t)
	client := newClient(t, server.Addr())
	s, err := rediswatchdog.New(client, &rediswatchdog.Options{Partitions: 1})
	require.NoError(t, err)
	require.NoError(t, beat(t, s, join("w")).Err)
	for _, row := range []string{"", "2 something", "1 2 3", "1 x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 - - - - 1 "} {
		server.HSet("{pawl:watchdog:00}:h", watchdog.DefaultScope+"\x00w", row)
		_, err = s.List(t.Context(), watchdog.DefaultScope, "", 10)
		require.ErrorContains(t, err, "not a row of this version")
		require.ErrorContains(t, beat(t, s, join("w")).Err, "not a row of this version")
		require.ErrorContains(t, act(t, s, watchdog.Action{Kind: watchdog.KindResume, Name: "w"}).Err, "not a row of this version")
		got, err := client.HGet(t.Context(), "{pawl:watchdog:00}:h", watchdog.DefaultScope+"\x00w").Result()
		require.NoError(t, err)
		require.Equal(t, row, got, "nothing was changed")
	}
	require.NoError(t, act(t, s, watchdog.Action{Kind: watchdog.KindForget, Name: "w"}).Err)
	require.NoError(t, beat(t, s, join("w")).Err)
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []rediswatchdog.Options{{Prefix: "a{b"}, {Partitions: -1}, {Partitions: 257}} {
		_, err := rediswatchdog.New(newClient(t, "127.0.0.1:1"), &o)
		require.ErrorIs(t, err, watchdog.ErrInvalid, "%+v", o)
	}
	_, err := rediswatchdog.New(nil, nil)
	require.ErrorIs(t, err, watchdog.ErrInvalid)
}

func TestCheck(t *testing.T) {
	client := newClient(t, testenv.RedisOwn(t).Addr())
	s, err := rediswatchdog.New(client, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), watchdog.ErrAtRisk, "a server without an append-only file")
	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "yes").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "appendfsync", "always").Err())
	require.NoError(t, s.Check(t.Context()))
	other, err := rediswatchdog.New(client, &rediswatchdog.Options{Partitions: 4})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), rediswatchdog.ErrLayout)
}

// After the server's clock has gone back a wait begins again; it is not as much longer.
func TestClockGoesBack(t *testing.T) {
	server := miniredis.RunT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	set := func(d time.Duration) { now = now.Add(d); server.SetTime(now) }
	set(0)
	s := newStore(t, newClient(t, server.Addr()))
	ack := beat(t, s, join("w"))
	take := func(nonce byte) error {
		return act(t, s, watchdog.Action{Kind: watchdog.KindTake, Name: "w", Token: ack.Token, Nonce: [16]byte{nonce}, Wait: time.Minute, Most: 5}).Err
	}
	require.NoError(t, take(1))
	claim := look(t, s).Claim
	set(-8 * time.Hour)
	require.ErrorIs(t, take(2), watchdog.ErrBusy)
	require.Equal(t, now.Add(time.Minute), look(t, s).NextAt)
	set(time.Minute - time.Microsecond)
	require.ErrorIs(t, take(3), watchdog.ErrBusy)
	set(time.Microsecond)
	require.NoError(t, take(4))
	require.Equal(t, claim+1, look(t, s).Claim, "tokens rise all the same")

	set(-8 * time.Hour)
	next := join("w")
	next.Seq = 2
	require.NoError(t, beat(t, s, next).Err)
	require.Zero(t, look(t, s).Stalled)
	require.Equal(t, now, look(t, s).BeatAt)
}
