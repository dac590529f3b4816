package redisreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

// Every script is worked and its reply lost once: the client sends it again, and what it
// then hears is what it would have heard.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}})
	plain := func(step func()) { step() }
	lossy := func(step func()) {
		t.Helper()
		before := proxy.Dropped()
		proxy.DropRepliesTo("evalsha", 1)
		step()
		require.Equal(t, before+1, proxy.Dropped())
	}
	for _, lose := range []func(func()){plain, lossy} { // at first for the script cache
		store := newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 1})
		loseLedger(t, store, lose)
		loseTimeline(t, store.Timeline(), lose)
		loseChecks(t, store.Checks(), lose)
		lose(func() {
			_, err := store.Sweep(t.Context(), 100)
			require.NoError(t, err)
		})
	}
}

func loseLedger(t *testing.T, s reconcile.Store, lose func(func())) {
	var es []reconcile.Entry
	lose(func() { es = start(t, s, "a", "b", "c", "d") })
	lose(func() { settle(t, s, with(reconcile.VerbExtend, es[0])) })
	later := ask("e")
	later.Later = true
	lose(func() { require.Equal(t, reconcile.AsIs, begin(t, s, later)[0].Grant) })
	again := with(reconcile.VerbFail, es[2])
	again.Again = true
	lose(func() {
		settle(t, s, with(reconcile.VerbAccept, es[0]), with(reconcile.VerbDoubt, es[1]), again, with(reconcile.VerbConfirm, es[3]))
	})
	lose(func() {
		a := begin(t, s, ask("c"))[0]
		require.Equal(t, reconcile.Send, a.Grant)
		require.Equal(t, 2, a.Entry.Attempts)
	})
	lose(func() { es = claim(t, s, 10) })
	require.ElementsMatch(t, []string{"a", "b", "e"}, keysOf(es))
	byKey := map[string]reconcile.Entry{}
	for _, e := range es {
		byKey[e.Key] = e
	}
	lose(func() { settle(t, s, with(reconcile.VerbSend, byKey["b"]), with(reconcile.VerbSend, byKey["e"])) })
	for _, e := range list(t, s, reconcile.Query{State: reconcile.Started}) {
		require.Equal(t, map[string]int{"b": 2, "c": 2, "e": 1}[e.Key], e.Attempts, e.Key)
	}
	lose(func() { settle(t, s, with(reconcile.VerbAsk, byKey["b"]), with(reconcile.VerbDefer, byKey["a"])) })
	lose(func() { settle(t, s, receipt("a", reconcile.Confirmed), resolve(byKey["b"], reconcile.Failed, true)) })
	lose(func() { // it contradicts, again and again
		errs, err := s.Settle(t.Context(), params, []reconcile.Settlement{receipt("d", reconcile.Failed)})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], reconcile.ErrEnded)
	})
	for _, e := range list(t, s, reconcile.Query{Key: "d"}) {
		require.Len(t, e.Log, 3)
	}
	lose(func() {
		require.Equal(t, reconcile.Counts{Account: "acct", Started: 2, Confirmed: 2, Failed: 1, Waiting: 1, Review: 1, Resent: 2}, counts(t, s)["acct"])
	})
	consistent(t, s)
	lose(func() { settle(t, s, reconcile.Settlement{Verb: reconcile.VerbForget, Key: "d"}) })
	require.Len(t, list(t, s, reconcile.Query{}), 4)
}

func loseTimeline(t *testing.T, s reconcile.TimelineStore, lose func(func())) {
	o := said("e1", "m", "own")
	answers, err := s.Append(t.Context(), seen, []reconcile.Observation{said("e0", "", "own")})
	require.NoError(t, err)
	require.Equal(t, []reconcile.Appending{reconcile.Appended}, answers)
	lose(func() {
		answers, err := s.Append(t.Context(), seen, []reconcile.Observation{o})
		require.NoError(t, err)
		require.NotEqual(t, reconcile.Differs, answers[0], "the client's second copy finds the first")
	})
	lose(func() { require.Equal(t, []string{"e0", "e1"}, eventsOf(read(t, s, reconcile.Ref{Message: "m"}))) })
}

func loseChecks(t *testing.T, s reconcile.CheckStore, lose func(func())) {
	lose(func() {
		report(t, s, reconcile.Raised, reportOf(reconcile.ReportRaise, "a"), reportOf(reconcile.ReportRaise, "b"))
	})
	lose(func() { report(t, s, reconcile.Counted, reportOf(reconcile.ReportRaise, "a")) })
	lose(func() { report(t, s, reconcile.Applied, reportOf(reconcile.ReportClear, "b")) })
	lose(func() {
		found := findings(t, s, reconcile.FindingQuery{})
		require.Len(t, found, 2)
		require.Equal(t, []int64{2, 1}, []int64{found[0].Count, found[1].Count})
		require.Len(t, found[1].Log, 2)
	})
	lose(func() {
		open, err := s.Open(t.Context(), checking.Kind)
		require.NoError(t, err)
		require.Len(t, open, 1)
		require.Equal(t, 1, open[0].Open)
	})
	cell := reconcile.Cell{Series: "s", Start: yesterday, Writer: someWriter, N: 7}
	lose(func() { require.NoError(t, s.Tally(t.Context(), checking, []reconcile.Cell{cell})) })
	lose(func() {
		v, err := s.Volumes(t.Context(), checking, "", 10, []time.Time{yesterday})
		require.NoError(t, err)
		require.Equal(t, []int64{7}, v[0].N)
	})
	claimed, err := s.Claim(t.Context(), checking, "stuck", 10, time.Hour)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}

// A mortal is a client that dies: it sends this many more scripts, also in the middle of
// a pipeline, and then nothing.
type mortal struct {
	mu   sync.Mutex
	left int
}

var errDead = errors.New("the process is dead")

func (m *mortal) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.mu.Lock()
		n := min(m.left, len(cmds))
		m.left -= n
		m.mu.Unlock()
		for _, c := range cmds[n:] {
			c.SetErr(errDead)
		}
		if n == 0 {
			return errDead
		}
		return next(ctx, cmds[:n])
	}
}

// A process that dies in the middle of a batch for several partitions has stored some of
// it. Whoever sends the batch again gets the answers of the first sending, and the rest is
// done.
func TestKilledInABatch(t *testing.T) {
	t.Parallel()
	client := func() redis.UniversalClient {
		return newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	}
	warm := newStore(t, client()) // the script cache
	settle(t, warm, with(reconcile.VerbConfirm, start(t, warm, "warm")[0]))
	torn := map[string]bool{}
	for scripts := 0; ; scripts++ {
		opts := redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 4}
		living, dying := newWith(t, client(), opts), client()
		dying.(interface{ AddHook(redis.Hook) }).AddHook(&mortal{left: scripts})
		mayDie := newWith(t, dying, opts)
		var asks []reconcile.Ask
		for _, key := range names("k", 20) {
			asks = append(asks, ask(key))
		}
		_, err := mayDie.Begin(t.Context(), params, asks)
		n := len(list(t, living, reconcile.Query{}))
		torn["begin"] = torn["begin"] || n > 0 && n < len(asks)
		var ends []reconcile.Settlement
		for _, a := range begin(t, living, asks...) {
			require.Equal(t, reconcile.Send, a.Grant)
			require.Equal(t, 1, a.Entry.Attempts)
			ends = append(ends, with(reconcile.VerbConfirm, a.Entry))
		}
		if err == nil {
			_, err = mayDie.Settle(t.Context(), params, ends)
			n = len(list(t, living, reconcile.Query{State: reconcile.Confirmed}))
			torn["settle"] = torn["settle"] || n > 0 && n < len(asks)
		}
		settle(t, living, ends...)
		for _, e := range list(t, living, reconcile.Query{}) {
			require.Len(t, e.Log, 2)
		}
		require.Equal(t, reconcile.Counts{Account: "acct", Confirmed: len(asks)}, counts(t, living)["acct"])
		consistent(t, living)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDead)
	}
	require.Equal(t, map[string]bool{"begin": true, "settle": true}, torn, "which batches were applied in part")
}

// What lies under a key and is not its row is an error for that item, and is not
// overwritten; others are not stopped by it.
func TestForeignRow(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"Redis": testenv.Redis(t), "miniredis": miniredis.RunT(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
			store := newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 1})
			f := foreigner{t: t, client: client, tag: store.Tag(0)}
			f.ledger(store)
			f.timeline(store.Timeline())
			f.checks(store.Checks())
		})
	}
}

type foreigner struct {
	t      *testing.T
	client redis.UniversalClient
	tag    string
}

// put puts a foreign row in the place of a row while step runs, and looks that nothing is
// changed, but what allowed says.
func (f *foreigner) put(key, field string, step func()) {
	f.t.Helper()
	was, err := f.client.HGet(f.t.Context(), f.tag+key, field).Result()
	require.True(f.t, err == nil || errors.Is(err, redis.Nil))
	require.NoError(f.t, f.client.HSet(f.t.Context(), f.tag+key, field, "2 of another version").Err())
	before := fmt.Sprint(f.client.HGetAll(f.t.Context(), f.tag+key).Val())
	step()
	require.Equal(f.t, before, fmt.Sprint(f.client.HGetAll(f.t.Context(), f.tag+key).Val()), "%q", field)
	require.NoError(f.t, f.client.HDel(f.t.Context(), f.tag+key, field).Err())
	if err == nil {
		require.NoError(f.t, f.client.HSet(f.t.Context(), f.tag+key, field, was).Err())
	}
}

func (f *foreigner) refused(err error) {
	f.t.Helper()
	require.ErrorContains(f.t, err, "not of this version")
	require.ErrorContains(f.t, err, "redisreconcile: ")
	require.NotContains(f.t, err.Error(), "secret")
}

func (f *foreigner) ledger(s *redisreconcile.Store) {
	t := f.t
	for _, field := range []string{"ssend\x00secret", "csend\x00acct", "x"} {
		f.put(":h", field, func() {
			_, err := s.Begin(t.Context(), params, []reconcile.Ask{ask("secret")})
			f.refused(err)
		})
	}
	require.Empty(t, list(t, s, reconcile.Query{}))
	es := start(t, s, "secret", "good")
	f.put(":h", "ssend\x00secret", func() {
		errs, err := s.Settle(t.Context(), params, []reconcile.Settlement{with(reconcile.VerbDoubt, es[0]), {Verb: reconcile.VerbForget, Key: "secret"}})
		require.NoError(t, err)
		f.refused(errs[0])
		f.refused(errs[1])
		_, err = s.List(t.Context(), reconcile.Query{Kind: "send", N: 10})
		f.refused(err)
	})
	f.put(":h", "csend\x00acct", func() {
		_, err := s.Counts(t.Context(), "send", "", true, 10)
		f.refused(err)
	})
	for _, field := range []string{"csend\x00acct", "lsend\x00secret"} {
		f.put(":h", field, func() {
			errs, err := s.Settle(t.Context(), params, []reconcile.Settlement{with(reconcile.VerbDoubt, es[0])})
			require.NoError(t, err)
			f.refused(errs[0])
		})
	}
	settle(t, s, with(reconcile.VerbDoubt, es[0]), with(reconcile.VerbDoubt, es[1]))
	was := f.client.HGet(t.Context(), f.tag+":h", "ssend\x00secret").Val()
	require.NoError(t, f.client.HSet(t.Context(), f.tag+":h", "ssend\x00secret", "2 of another version").Err())
	claimed := claim(t, s, 1) // one that cannot be read stops no other
	require.Equal(t, []string{"good"}, keysOf(claimed))
	require.NoError(t, f.client.HSet(t.Context(), f.tag+":h", "ssend\x00secret", was).Err())
	require.Equal(t, []string{"secret"}, keysOf(claim(t, s, 10)))
}

func (f *foreigner) timeline(s reconcile.TimelineStore) {
	t := f.t
	for _, field := range []string{"eprovider\x00secret", "sprovider\x00msecret"} {
		f.put(":th", field, func() {
			_, err := s.Append(t.Context(), seen, []reconcile.Observation{said("secret", "secret", "")})
			f.refused(err)
		})
	}
	appendAll(t, s, reconcile.Appended, said("secret", "secret", ""))
	f.put(":th", "eprovider\x00secret", func() {
		for _, ref := range []reconcile.Ref{{Event: "secret"}, {Message: "secret"}} {
			_, err := s.Read(t.Context(), seen, ref)
			f.refused(err)
		}
	})
}

func (f *foreigner) checks(s reconcile.CheckStore) {
	t := f.t
	for _, field := range []string{"fwatch\x00stuck\x00secret", "uwatch\x00stuck"} {
		f.put(":ch", field, func() {
			_, err := s.Report(t.Context(), checking, []reconcile.Report{reportOf(reconcile.ReportRaise, "secret")})
			f.refused(err)
		})
	}
	report(t, s, reconcile.Raised, reportOf(reconcile.ReportRaise, "secret"), reportOf(reconcile.ReportRaise, "good"))
	f.put(":ch", "lwatch\x00stuck\x00secret", func() {
		_, err := s.Report(t.Context(), checking, []reconcile.Report{reportOf(reconcile.ReportResolve, "secret")})
		f.refused(err)
	})
	f.put(":ch", "fwatch\x00stuck\x00secret", func() {
		_, err := s.List(t.Context(), reconcile.FindingQuery{Kind: checking.Kind, N: 10})
		f.refused(err)
	})
	f.put(":ch", "uwatch\x00stuck", func() {
		_, err := s.Open(t.Context(), checking.Kind)
		f.refused(err)
	})
	cell := reconcile.Cell{Series: "secret", Start: yesterday, Writer: someWriter, N: 1}
	require.NoError(t, s.Tally(t.Context(), checking, []reconcile.Cell{cell}))
	field := ""
	for name := range f.client.HGetAll(t.Context(), f.tag+":ch").Val() {
		if name[0] == 't' {
			field = name
		}
	}
	f.put(":ch", field, func() {
		f.refused(s.Tally(t.Context(), checking, []reconcile.Cell{cell}))
		_, err := s.Volumes(t.Context(), checking, "", 10, []time.Time{yesterday})
		f.refused(err)
	})
}

func TestNew(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	_, err := redisreconcile.New(nil, nil)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = redisreconcile.New((*redis.Client)(nil), nil)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = redisreconcile.New(client, &redisreconcile.Options{Partitions: 257})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	_, err = redisreconcile.New(client, &redisreconcile.Options{Prefix: "a{b}"})
	require.ErrorIs(t, err, reconcile.ErrInvalid)
	s, err := redisreconcile.New(client, nil)
	require.NoError(t, err)
	_, err = s.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, reconcile.ErrInvalid)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store := newWith(t, client, redisreconcile.Options{})
	require.ErrorIs(t, store.Check(t.Context()), reconcile.ErrAtRisk, "it keeps nothing on disk")
	other := newWith(t, client, redisreconcile.Options{Partitions: 2})
	require.ErrorIs(t, other.Check(t.Context()), redisreconcile.ErrLayout)
	require.NotErrorIs(t, store.Check(t.Context()), redisreconcile.ErrLayout)
	require.NoError(t, client.Set(t.Context(), "pawl:reconcile:layout", "pawl reconcile layout 2, 16 partitions", 0).Err())
	require.ErrorIs(t, store.Check(t.Context()), redisreconcile.ErrLayout)
	durable := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always").Addr()
	require.NoError(t, newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{durable}})).Check(t.Context()))
	silent := newClient(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}})
	require.ErrorIs(t, newStore(t, silent).Check(t.Context()), reconcile.ErrUnchecked)
}

// A server that does not answer, or a context that has ended, is an error of every step.
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
			s := newStore(t, c.client)
			var errs []error
			note := func(_ any, err error) { errs = append(errs, err) }
			note(s.Begin(c.ctx, params, []reconcile.Ask{ask("secret")}))
			note(s.Settle(c.ctx, params, []reconcile.Settlement{receipt("secret", reconcile.Confirmed)}))
			note(s.List(c.ctx, reconcile.Query{Kind: "send", N: 1}))
			note(s.List(c.ctx, reconcile.Query{Kind: "send", Key: "secret", N: 1}))
			note(s.Counts(c.ctx, "send", "", true, 1))
			note(s.Sweep(c.ctx, 10))
			note(nil, s.Check(c.ctx))
			note(s.Timeline().Append(c.ctx, seen, []reconcile.Observation{said("secret", "secret", "secret")}))
			note(s.Timeline().Read(c.ctx, seen, reconcile.Ref{Message: "secret"}))
			note(s.Timeline().Read(c.ctx, seen, reconcile.Ref{Event: "secret"}))
			note(s.Checks().Report(c.ctx, checking, []reconcile.Report{reportOf(reconcile.ReportRaise, "secret")}))
			note(s.Checks().Claim(c.ctx, checking, "stuck", 1, time.Hour))
			note(s.Checks().List(c.ctx, reconcile.FindingQuery{Kind: "watch", Subject: "secret", N: 1}))
			note(s.Checks().Open(c.ctx, "watch"))
			note(nil, s.Checks().Tally(c.ctx, checking, []reconcile.Cell{{Series: "secret", Start: yesterday, N: 1}}))
			note(s.Checks().Volumes(c.ctx, checking, "", 1, nil))
			_, _, err := s.Claim(c.ctx, params, reconcile.ClaimAsk{Nonce: randomNonce(), N: 1})
			for i, err := range append(errs, err) {
				require.ErrorContains(t, err, "redisreconcile: ", i)
				require.NotContains(t, err.Error(), "secret")
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
		})
	}
}
