package redisreconcile_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// A part of a step that Redis 7.0 keeps from the moment when it was killed, and applies
// at the start after the next, changes nothing when the step was sent again, wherever the
// part ends.
func TestTornAppendOnlyFile(t *testing.T) {
	t.Parallel()
	tornFile(t, 3)
}

func TestLongTornAppendOnlyFile(t *testing.T) { tornFile(t, testenv.LongCount(t, 6, 60)) }

func tornFile(t *testing.T, cuts int) {
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	require.NoError(t, client.ConfigSet(t.Context(), "auto-aof-rewrite-percentage", "0").Err())
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	size := func() int64 {
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		return info.Size()
	}
	restart := func() {
		server.Kill()
		server.Start()
		require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	}
	for _, step := range tornSteps {
		t.Run(step.name, func(t *testing.T) {
			for cut := 1; cut <= cuts; cut++ {
				s := newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 1})
				send, check := step.make(t, s)
				before := size()
				send(t)
				server.Kill()
				require.NoError(t, os.Truncate(files[0], before+(size()-before)*int64(cut)/int64(cuts+1)))
				restart()
				send(t) // the answer was lost, and so was the step
				for range 2 {
					check(t)
					restart()
				}
				check(t)
				if step.last != nil {
					step.last(t, s)
				}
			}
		})
	}
}

// tornSteps are steps that may be torn. Each has something to prepare, the step, and what
// holds after it, and in the end.
var tornSteps = []struct {
	name string
	make func(t *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T))
	last func(t *testing.T, s *redisreconcile.Store)
}{
	{"begin with a lease that lapses", func(_ *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		p := params
		p.Lease = time.Millisecond
		asks := []reconcile.Ask{ask("a"), ask("b"), ask("c")}
		return func(t *testing.T) {
			_, err := s.Begin(t.Context(), p, asks)
			require.NoError(t, err)
		}, func(t *testing.T) { consistent(t, s) }
	}, func(t *testing.T, s *redisreconcile.Store) {
		var taken []string
		for range 5 {
			taken = append(taken, keysOf(claim(t, s, 10))...)
		}
		require.ElementsMatch(t, []string{"a", "b", "c"}, taken)
	}},
	{"begin", func(_ *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		asks := []reconcile.Ask{ask("a"), ask("b"), ask("c")}
		return func(t *testing.T) {
				for _, a := range begin(t, s, asks...) {
					require.Equal(t, reconcile.Send, a.Grant)
				}
			}, func(t *testing.T) {
				require.Equal(t, reconcile.Counts{Account: "acct", Started: 3}, counts(t, s)["acct"])
				consistent(t, s)
				for _, e := range list(t, s, reconcile.Query{}) {
					require.Len(t, e.Log, 1)
					require.Equal(t, 1, e.Attempts)
				}
				require.Empty(t, claim(t, s, 10), "they are leased")
			}
	}, nil},
	{"settle", func(t *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		es := start(t, s, "a", "b", "c", "d", "e", "f")
		steps := []reconcile.Settlement{with(reconcile.VerbConfirm, es[0]), with(reconcile.VerbDoubt, es[1]), with(reconcile.VerbFail, es[2]),
			receipt("d", reconcile.Confirmed), resolve(es[4], reconcile.Failed, true), with(reconcile.VerbAsk, es[5])}
		want := reconcile.Counts{Account: "acct", Confirmed: 2, Failed: 2, Waiting: 1, Unknown: 2, Review: 1}
		return func(t *testing.T) { settle(t, s, steps...) }, func(t *testing.T) {
			require.Equal(t, want, counts(t, s)["acct"])
			consistent(t, s)
			for _, e := range list(t, s, reconcile.Query{}) {
				require.Len(t, e.Log, 2)
			}
		}
	}, nil},
	{"claim", func(t *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		for _, e := range start(t, s, "a", "b", "c") {
			settle(t, s, with(reconcile.VerbDoubt, e))
		}
		start(t, s, "leased")
		a := reconcile.ClaimAsk{Nonce: randomNonce(), N: 10}
		take := func(t *testing.T) {
			es, _, err := s.Claim(t.Context(), params, a)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b", "c"}, keysOf(es))
		}
		return take, func(t *testing.T) {
			take(t)
			require.Empty(t, claim(t, s, 10), "they are leased")
			consistent(t, s)
		}
	}, nil},
	{"timeline", func(t *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		appendAll(t, s.Timeline(), reconcile.Appended, said("e0", "m1", "own"))
		os := []reconcile.Observation{said("e1", "m1", ""), said("e2", "m2", "own"), said("e3", "", "own"), said("e4", "m2", "")}
		return func(t *testing.T) { appendAll(t, s.Timeline(), reconcile.Appended, os...) }, func(t *testing.T) {
			appendAll(t, s.Timeline(), reconcile.Repeated, os...)
			require.Equal(t, []string{"e0", "e1", "e2", "e3", "e4"}, eventsOf(read(t, s.Timeline(), reconcile.Ref{Own: "own"})))
			require.Equal(t, []string{"e2", "e3", "e4"}, eventsOf(read(t, s.Timeline(), reconcile.Ref{Event: "e4"})))
		}
	}, nil},
	{"findings", func(t *testing.T, s *redisreconcile.Store) (send, check func(t *testing.T)) {
		report(t, s.Checks(), reconcile.Raised, reportOf(reconcile.ReportRaise, "a"), reportOf(reconcile.ReportRaise, "b"))
		reports := []reconcile.Report{reportOf(reconcile.ReportRaise, "a"), reportOf(reconcile.ReportResolve, "b"), reportOf(reconcile.ReportRaise, "c"),
			reportOf(reconcile.ReportSuspect, "d")}
		cells := []reconcile.Cell{{Series: "s", Start: yesterday, Writer: someWriter, N: 3}}
		return func(t *testing.T) {
				outcomes, err := s.Checks().Report(t.Context(), checking, reports)
				require.NoError(t, err)
				require.Equal(t, []reconcile.Outcome{reconcile.Counted, reconcile.Applied, reconcile.Raised, reconcile.Doubtful}, outcomes)
				require.NoError(t, s.Checks().Tally(t.Context(), checking, cells))
			}, func(t *testing.T) {
				open, err := s.Checks().Open(t.Context(), checking.Kind)
				require.NoError(t, err)
				require.Len(t, open, 1)
				require.Equal(t, []int{1, 2, 0}, []int{open[0].Suspected, open[0].Open, open[0].Acknowledged})
				require.Equal(t, int64(2), findings(t, s.Checks(), reconcile.FindingQuery{Subject: "a"})[0].Count)
				require.Len(t, findings(t, s.Checks(), reconcile.FindingQuery{Unresolved: true}), 3)
				require.Len(t, findings(t, s.Checks(), reconcile.FindingQuery{}), 4)
				v, err := s.Checks().Volumes(t.Context(), checking, "", 10, []time.Time{yesterday})
				require.NoError(t, err)
				require.Equal(t, []int64{3}, v[0].N)
			}
	}, nil},
}
