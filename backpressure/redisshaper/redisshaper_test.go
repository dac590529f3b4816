package redisshaper_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/backpressure/redisshaper"
	"github.com/pawl-go/pawl/internal/testenv"
)

func newClient(t testing.TB, addrs ...string) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func newStore(t testing.TB, client redis.UniversalClient, prefix string) *redisshaper.Store {
	t.Helper()
	store, err := redisshaper.New(client, &redisshaper.Options{Prefix: prefix, Name: "gateway"})
	require.NoError(t, err)
	return store
}

// A clocked store is on a miniredis whose clock stands still until it is moved.
type clocked struct {
	*redisshaper.Store
	t      *testing.T
	server *miniredis.Miniredis
	now    time.Time
	lines  []backpressure.LineOptions
}

func newClocked(t *testing.T, lines ...backpressure.LineOptions) *clocked {
	server := miniredis.RunT(t)
	c := &clocked{t: t, server: server, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lines: lines}
	c.Store = newStore(t, newClient(t, server.Addr()), testenv.Prefix(t))
	c.move(0)
	return c
}

func (c *clocked) move(d time.Duration) {
	c.now = c.now.Add(d)
	c.server.SetTime(c.now)
	c.server.FastForward(max(d, 0))
}

func (c *clocked) ask(line, cost int) backpressure.Answer {
	c.t.Helper()
	answers, err := c.Take(c.t.Context(), c.lines, []backpressure.Ask{{Line: line, Cost: cost}})
	require.NoError(c.t, err)
	return answers[0]
}

func (c *clocked) drain(line int) (n int) {
	for c.ask(line, 1).Admit {
		n++
	}
	return n
}

func TestTake(t *testing.T) {
	c := newClocked(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 20})
	require.Equal(t, 20, c.drain(0))
	a := c.ask(0, 5)
	require.False(t, a.Admit)
	require.InDelta(t, 500*time.Millisecond, a.RetryAfter, float64(10*time.Microsecond))
	c.move(a.RetryAfter)
	require.True(t, c.ask(0, 5).Admit)
	require.False(t, c.ask(0, 1).Admit)
	c.move(time.Hour)
	require.Equal(t, 20, c.drain(0))
	require.NotEmpty(t, c.server.Keys())
	c.move(time.Minute)
	require.Empty(t, c.server.Keys(), "a full bucket needs no key")
}

func TestTakeInOrderWhollyOrNot(t *testing.T) {
	c := newClocked(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 10})
	answers, err := c.Take(t.Context(), c.lines, []backpressure.Ask{{Cost: 6}, {Cost: 6}, {Cost: 4}, {Cost: 1}})
	require.NoError(t, err)
	var admitted []bool
	for _, a := range answers {
		admitted = append(admitted, a.Admit)
	}
	require.Equal(t, []bool{true, false, true, false}, admitted)
}

// The lines of a call are those that it names, whatever the call before had.
func TestLinesOfEachCall(t *testing.T) {
	c := newClocked(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 10})
	require.Equal(t, 10, c.drain(0))
	c.lines = []backpressure.LineOptions{{Name: "im", Rate: 100, Burst: 10}}
	c.move(100 * time.Millisecond)
	require.Equal(t, 10, c.drain(0), "at the new rate")
	c.lines[0].Rate = 10 // in place
	c.move(100 * time.Millisecond)
	require.Equal(t, 1, c.drain(0))
	c.lines = append(c.lines, backpressure.LineOptions{Name: "sms", Rate: 1, Burst: 3})
	require.Equal(t, 3, c.drain(1))
	require.Zero(t, c.drain(0))
}

// Names and lines that would be one key if they were only joined have one each.
func TestNamesDoNotRunTogether(t *testing.T) {
	client, prefix := newClient(t, miniredis.RunT(t).Addr()), testenv.Prefix(t)
	for name, line := range map[string]string{"a": "b:c", "a:b": "c"} {
		store, err := redisshaper.New(client, &redisshaper.Options{Prefix: prefix, Name: name, Partitions: 1})
		require.NoError(t, err)
		for _, want := range []bool{true, false} {
			answers, err := store.Take(t.Context(), []backpressure.LineOptions{{Name: line, Rate: 0.001, Burst: 1}}, []backpressure.Ask{{Cost: 1}})
			require.NoError(t, err)
			require.Equal(t, want, answers[0].Admit, "%s, %s", name, line)
		}
	}
}

// What is no row of this layout is replaced, and begins with the layout's version.
func TestForeignRows(t *testing.T) {
	c := newClocked(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 5})
	require.Equal(t, 5, c.drain(0))
	key := c.server.Keys()[0]
	for _, foreign := range []string{"", "nonsense", "1 0 0 1767225600000000 0", "3 0 0 1767225600 0 0 0"} {
		require.NoError(t, c.server.Set(key, foreign))
		require.Equal(t, 5, c.drain(0), "%q", foreign)
		row, err := c.server.Get(key)
		require.NoError(t, err)
		require.Regexp(t, "^2 ", row)
	}
}

// A server whose clock goes back makes no tokens of that, and withholds none for
// long.
func TestServerClockJumps(t *testing.T) {
	c := newClocked(t, backpressure.LineOptions{Name: "im", Rate: 10, Burst: 10})
	c.drain(0)
	for range 10 {
		c.move(-time.Hour)
		require.Zero(t, c.drain(0))
	}
	c.move(100 * time.Millisecond)
	require.Equal(t, 1, c.drain(0))
}

func TestFloorAndBorrowing(t *testing.T) {
	c := newClocked(t,
		backpressure.LineOptions{Name: "pay", Rate: 50, Burst: 10, Importance: 1},
		backpressure.LineOptions{Name: "notify", Rate: 100, Burst: 20, Floor: 25},
	)
	const pay, notify = 0, 1
	var paid, notified int
	const seconds = 5
	for range seconds * 50 {
		paid += c.drain(pay)
		notified += c.drain(notify)
		c.move(20 * time.Millisecond)
	}
	require.InDelta(t, 125*seconds, paid, 0.05*125*seconds)
	require.InDelta(t, 25*seconds, notified, 0.05*25*seconds+20)
	require.LessOrEqual(t, paid+notified, 150*seconds+30)
	require.Equal(t, backpressure.Answer{Admit: true, Borrowed: true}, func() backpressure.Answer {
		c.move(time.Second)
		require.True(t, c.ask(pay, 10).Admit)
		return c.ask(pay, 10)
	}())
}

// For a second after an important line was short, a lesser one leaves it half of its
// bucket.
func TestHalfIsKept(t *testing.T) {
	c := newClocked(t,
		backpressure.LineOptions{Name: "pay", Rate: 1, Burst: 1, Importance: 1},
		backpressure.LineOptions{Name: "notify", Rate: 10, Burst: 10},
	)
	require.Equal(t, 11, c.drain(0))
	c.move(500 * time.Millisecond)
	require.Zero(t, c.drain(1))
	c.move(300 * time.Millisecond)
	require.Equal(t, 3, c.drain(1))
	c.move(300 * time.Millisecond)
	require.Equal(t, 8, c.drain(1))
}

// On random lines, all together never get more than there is.
func TestNeverMoreThanAllTokens(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 3))
		var lines []backpressure.LineOptions
		var rates, bursts float64
		for i, name := range []string{"a", "b", "c"} {
			l := backpressure.LineOptions{Name: name, Rate: 1 + r.Float64()*50, Importance: 2 - i}
			l.Burst = 2 + r.IntN(int(3*l.Rate))
			l.Floor = l.Rate * float64(r.IntN(3)) / 2
			rates, bursts = rates+l.Rate, bursts+float64(l.Burst)
			lines = append(lines, l)
		}
		c := newClocked(t, lines...)
		start, admitted := c.now, 0
		for range 500 {
			line := r.IntN(3)
			cost := 1 + r.IntN(min(3, lines[line].Burst))
			if c.ask(line, cost).Admit {
				admitted += cost
			}
			c.move(time.Duration(r.IntN(10)) * time.Millisecond)
		}
		require.LessOrEqual(t, float64(admitted), bursts+rates*c.now.Sub(start).Seconds()+1)
		require.GreaterOrEqual(t, float64(admitted), 0.5*rates*c.now.Sub(start).Seconds())
	}
}

func newShared(t testing.TB, store backpressure.SharedStore, rate float64) *backpressure.SharedLine {
	t.Helper()
	s, err := backpressure.NewShared(store, &backpressure.SharedOptions{
		Lines: []backpressure.LineOptions{{Name: "im", Rate: rate, Burst: int(rate)}}, Processes: 4, Timeout: 5 * time.Second,
	})
	require.NoError(t, err)
	l, err := s.Line("im")
	require.NoError(t, err)
	return l
}

// Four processes with clients of their own share one rate. Nine tenths of the load
// lie on one of them, and the rate of all together is exact to 5 %.
func TestGlobalRate(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string][]string{"one server": {testenv.Redis(t)}, "cluster": testenv.RedisCluster(t)} {
		t.Run(name, func(t *testing.T) {
			const rate, length = 60.0, 3 * time.Second // a busy machine asks for more, too
			prefix := testenv.Prefix(t)
			var admitted, asked [4]atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var lines [4]*backpressure.SharedLine
			for p := range lines {
				client := newClient(t, addrs...)
				require.NoError(t, client.Ping(ctx).Err())
				lines[p] = newShared(t, newStore(t, client, prefix), rate)
			}
			start := time.Now()
			var wg sync.WaitGroup
			for p, l := range lines {
				callers := 27
				if p > 0 {
					callers = 1 // a thirtieth each
				}
				for range callers {
					wg.Go(func() {
						for ctx.Err() == nil {
							asked[p].Add(1)
							v := l.Allow(ctx, 1)
							if v.Admit {
								admitted[p].Add(1)
							}
							select {
							case <-time.After(5 * time.Millisecond):
							case <-ctx.Done():
							}
						}
					})
				}
			}
			select {
			case <-time.After(length):
			case <-t.Context().Done():
			}
			cancel()
			wg.Wait()
			took := time.Since(start).Seconds()
			var total, calls int64
			for p := range admitted {
				total += admitted[p].Load()
				calls += asked[p].Load()
			}
			t.Logf("%d asked (%d %% of them the first), %d admitted in %.2f s", calls, 100*asked[0].Load()/calls, total, took)
			require.Greater(t, float64(calls), 1.2*(rate*took+rate), "otherwise it is not the rate that bounds them")
			require.InDelta(t, rate*took+rate, float64(total), 0.05*rate*took)
			require.Greater(t, asked[0].Load(), calls*85/100)
		})
	}
}

// While Redis is away, each process has its share; afterwards they share again.
func TestRedisDown(t *testing.T) {
	server := testenv.RedisOwn(t)
	s, err := backpressure.NewShared(newStore(t, newClient(t, server.Addr()), testenv.Prefix(t)), &backpressure.SharedOptions{
		Lines: []backpressure.LineOptions{{Name: "im", Rate: 100, Burst: 100}}, Processes: 10, Timeout: 2 * time.Second,
	})
	require.NoError(t, err)
	l, err := s.Line("im")
	require.NoError(t, err)
	require.True(t, l.Allow(t.Context(), 50).Admit)
	server.Kill()
	n := 0
	for range 200 {
		if l.Allow(t.Context(), 1).Admit {
			n++
		}
	}
	require.GreaterOrEqual(t, n, 10)
	require.Less(t, n, 40)
	require.True(t, s.Stats().IsDown)
	server.Start()
	require.Eventually(t, func() bool { l.Allow(t.Context(), 1); return !s.Stats().IsDown }, time.Minute, 10*time.Millisecond)
}

// A server that hangs is given up after the timeout, whatever the client's own are.
func TestRedisHangs(t *testing.T) {
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	s, err := backpressure.NewShared(newStore(t, newClient(t, proxy.Addr()), testenv.Prefix(t)), &backpressure.SharedOptions{
		Lines: []backpressure.LineOptions{{Name: "im", Rate: 100}}, OnDown: backpressure.Closed, Timeout: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	l, err := s.Line("im")
	require.NoError(t, err)
	proxy.DropRepliesTo("evalsha", 1)
	start := time.Now()
	v := l.Allow(t.Context(), 1)
	require.Equal(t, backpressure.StoreDown, v.Reason)
	require.Less(t, time.Since(start), 2*time.Second)
}

func TestCheckAndNew(t *testing.T) {
	client := newClient(t, testenv.Redis(t))
	prefix := testenv.Prefix(t)
	require.NoError(t, newStore(t, client, prefix).Check(t.Context()))
	other, err := redisshaper.New(client, &redisshaper.Options{Prefix: prefix, Partitions: 2})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), redisshaper.ErrLayout)

	_, err = redisshaper.New(nil, nil)
	require.ErrorIs(t, err, backpressure.ErrInvalid)
	_, err = redisshaper.New(client, &redisshaper.Options{Partitions: -1})
	require.ErrorIs(t, err, backpressure.ErrInvalid)
	_, err = redisshaper.New(client, &redisshaper.Options{Name: string(make([]byte, 129))})
	require.ErrorIs(t, err, backpressure.ErrInvalid)
}
