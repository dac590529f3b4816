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

// A server whose memory is full answers new operations with ErrFull, and stores nothing of
// them; what is there can be looked at, settled, decided, erased and swept, and then there is
// room again.
func TestFullServer(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction").Addr()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{addr}}))
	var stored []reconcile.Entry
	for _, e := range start(t, store, "due", "due too") {
		settle(t, store, with(reconcile.VerbDoubt, e))
	}
	report(t, store.Checks(), reconcile.Raised, reportOf(reconcile.ReportRaise, "a"))
	payload := make([]byte, 16<<10)
	for len(stored) < 10_000 {
		a := ask(fmt.Sprint("k", len(stored)))
		a.Payload = payload
		answer := begin(t, store, a)[0]
		if answer.Err != nil {
			require.ErrorIs(t, answer.Err, reconcile.ErrFull)
			break
		}
		stored = append(stored, answer.Entry)
	}
	require.Less(t, len(stored), 10_000)
	require.Empty(t, list(t, store, reconcile.Query{Key: fmt.Sprint("k", len(stored))}))
	require.Equal(t, reconcile.Counts{Account: "acct", Started: len(stored), Unknown: 2}, counts(t, store)["acct"])
	_, err := store.Timeline().Append(t.Context(), seen, []reconcile.Observation{said("e", "m", "")})
	require.ErrorContains(t, err, "OOM")
	require.Empty(t, read(t, store.Timeline(), reconcile.Ref{Message: "m"}))

	looked := claim(t, store, 10)
	require.Len(t, looked, 2)
	settle(t, store, with(reconcile.VerbSend, looked[0]), with(reconcile.VerbExtend, looked[0]), with(reconcile.VerbAsk, looked[1]))
	settleWith(t, store, brief, receipt("k1", reconcile.Failed), resolve(stored[2], reconcile.Confirmed, false))
	for _, e := range stored[10:50] {
		settleWith(t, store, brief, with(reconcile.VerbConfirm, e))
	}
	settle(t, store, reconcile.Settlement{Verb: reconcile.VerbForget, Key: "k3"})
	report(t, store.Checks(), reconcile.Applied, reportOf(reconcile.ReportResolve, "a"))
	removed := 0
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		removed += n
		return removed == 42
	}, time.Minute, time.Millisecond)
	start(t, store, "new")
	consistent(t, store)
}

// What has ended, was erased, or has expired leaves nothing behind but the highest token.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	store := newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 1})
	// every state, and every way into and out of it
	for i, v := range []reconcile.Verb{reconcile.VerbAccept, reconcile.VerbDoubt, reconcile.VerbDefer, reconcile.VerbAsk, reconcile.VerbConfirm, reconcile.VerbFail} {
		for j, end := range []string{"receipt", "other receipt", "resolve", "forget", "claim"} {
			e := start(t, store, fmt.Sprint(v, end))[0]
			s := with(v, e)
			s.Again = j%2 == 0
			settleWith(t, store, brief, s)
			if end == "claim" && i < 3 {
				look := claim(t, store, 1)[0]
				settleWith(t, store, brief, with(reconcile.VerbSend, look), with(reconcile.VerbFail, look))
			}
			last := reconcile.Settlement{Verb: reconcile.VerbForget, Key: e.Key}
			switch end {
			case "receipt":
				last = receipt(e.Key, reconcile.Confirmed)
			case "other receipt":
				last = receipt(e.Key, reconcile.Failed)
			case "resolve":
				last = resolve(e, reconcile.Failed, false)
			}
			_, err := store.Settle(t.Context(), brief, []reconcile.Settlement{last})
			require.NoError(t, err)
		}
	}
	later := ask("later")
	later.Later = true
	begin(t, store, later)
	settleWith(t, store, brief, receipt("later", reconcile.Failed))
	for _, e := range list(t, store, reconcile.Query{Review: true}) {
		settleWith(t, store, brief, resolve(e, reconcile.Confirmed, false))
	}
	for _, e := range list(t, store, reconcile.Query{Open: true}) {
		settleWith(t, store, brief, receipt(e.Key, reconcile.Failed))
	}
	p := seen
	p.Retention, p.Most = time.Millisecond, 2
	_, err := store.Timeline().Append(t.Context(), p, []reconcile.Observation{said("1", "m", "own"), said("2", "m", ""), said("3", "m", ""), said("4", "", "own")})
	require.NoError(t, err)
	q := checking
	q.Retention, q.Keep = time.Millisecond, 20*time.Hour+time.Hour
	var reports []reconcile.Report
	for i, v := range []reconcile.ReportVerb{reconcile.ReportSuspect, reconcile.ReportClear, reconcile.ReportRaise, reconcile.ReportAcknowledge, reconcile.ReportClear,
		reconcile.ReportRaise, reconcile.ReportResolve, reconcile.ReportSuspect, reconcile.ReportForget} {
		reports = append(reports, reportOf(v, []string{"a", "a", "b", "b", "b", "c", "c", "d", "d"}[i]))
	}
	_, err = store.Checks().Report(t.Context(), q, reports)
	require.NoError(t, err)
	require.NoError(t, store.Checks().Tally(t.Context(), q, []reconcile.Cell{{Series: "s", Start: longAgo, Writer: someWriter, N: 1}}), "it is too old to be kept")
	q.Keep = time.Since(yesterday) + 100*time.Millisecond
	require.NoError(t, store.Checks().Tally(t.Context(), q, []reconcile.Cell{{Series: "s", Start: yesterday, Writer: someWriter, N: 1}}))

	require.Eventually(t, func() bool {
		_, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		left := client.ZCard(t.Context(), store.Tag(0)+":z").Val() + client.ZCard(t.Context(), store.Tag(0)+":tz").Val() + client.ZCard(t.Context(), store.Tag(0)+":cz").Val()
		return left == 0
	}, time.Minute, 5*time.Millisecond, "what is left")
	require.Equal(t, []string{"x"}, client.HKeys(t.Context(), store.Tag(0)+":h").Val())
	require.Empty(t, client.HKeys(t.Context(), store.Tag(0)+":th").Val())
	require.Empty(t, client.HKeys(t.Context(), store.Tag(0)+":ch").Val())
}

// More than one script looks at is begun, listed, counted, claimed and swept all the same, in
// order, and no more than was asked for is swept.
func TestManyOperations(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"Redis":   newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}),
		"Cluster": newClient(t, &redis.UniversalOptions{Addrs: testenv.RedisCluster(t)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manyOperations(t, newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 2}))
		})
	}
}

func manyOperations(t *testing.T, store *redisreconcile.Store) {
	const number = 2600
	var asks []reconcile.Ask
	for i, key := range names("k", number) {
		a := ask(key)
		a.Account = fmt.Sprintf("%04d", i/2)
		asks = append(asks, a)
	}
	var doubts []reconcile.Settlement
	for i, a := range begin(t, store, asks...) {
		require.Equal(t, asks[i].Key, a.Entry.Key)
		require.Equal(t, asks[i].Payload, a.Entry.Payload)
		doubts = append(doubts, with(reconcile.VerbDoubt, a.Entry))
	}
	doubts[700].Token++
	errs, err := store.Settle(t.Context(), params, doubts)
	require.NoError(t, err)
	for i, err := range errs {
		require.Equal(t, i == 700, err != nil, i)
	}
	all := names("k", number)
	require.Equal(t, all, keysOf(list(t, store, reconcile.Query{})))
	require.Equal(t, []string{all[700]}, keysOf(list(t, store, reconcile.Query{State: reconcile.Started})))
	require.Equal(t, all[2:4], keysOf(list(t, store, reconcile.Query{Account: "0001"})))
	require.Equal(t, []string{all[2599]}, keysOf(list(t, store, reconcile.Query{Account: "1299", Open: true, After: all[2598]})), "far behind in the list that is looked through")
	page, err := store.Counts(t.Context(), "send", "0001", false, 1200)
	require.NoError(t, err)
	require.Len(t, page, 1200)
	require.Equal(t, "0002", page[0].Account)
	require.Len(t, counts(t, store), number/2)
	consistent(t, store)

	var taken []reconcile.Entry
	for {
		es, next, err := store.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: randomNonce(), N: 5000})
		require.NoError(t, err)
		if len(es) == 0 {
			break
		}
		if len(es) == 512 {
			require.Equal(t, time.Microsecond, next, "there may be more at once")
		}
		require.True(t, slices.IsSortedFunc(es, func(a, b reconcile.Entry) int { return a.Due.Compare(b.Due) }))
		taken = append(taken, es...)
	}
	require.ElementsMatch(t, slices.Concat(all[:700], all[701:]), keysOf(taken))
	var ends []reconcile.Settlement
	for _, e := range taken {
		ends = append(ends, with(reconcile.VerbConfirm, e))
	}
	settleWith(t, store, brief, ends...)
	require.Eventually(t, func() bool { return len(list(t, store, reconcile.Query{})) == 1 }, time.Minute, time.Millisecond)
	removed, err := store.Sweep(t.Context(), 700)
	require.NoError(t, err)
	require.Equal(t, 700, removed)
	require.Equal(t, number-1-700, sweepAll(t, store))
	require.Len(t, counts(t, store), 1)
}

// Pages and claims of large payloads end early, and the rest comes with the next.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"Redis":   newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}),
		"Cluster": newClient(t, &redis.UniversalOptions{Addrs: testenv.RedisCluster(t)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newWith(t, client, redisreconcile.Options{Prefix: testenv.Prefix(t), Partitions: 2})
			var asks []reconcile.Ask
			for _, key := range names("k", 8) {
				a := ask(key)
				a.Payload = make([]byte, 3<<20)
				asks = append(asks, a)
			}
			for _, a := range begin(t, store, asks...) {
				settle(t, store, with(reconcile.VerbDoubt, a.Entry))
			}
			page, err := store.List(t.Context(), reconcile.Query{Kind: "send", N: 100})
			require.NoError(t, err)
			require.Less(t, len(page), 8)
			require.Equal(t, names("k", 8), keysOf(list(t, store, reconcile.Query{})))
			var taken []string
			for round := 0; len(taken) < 8; round++ {
				require.Less(t, round, 8)
				es, next, err := store.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: randomNonce(), N: 100})
				require.NoError(t, err)
				require.NotEmpty(t, es)
				if taken = append(taken, keysOf(es)...); len(taken) < 8 {
					require.Equal(t, time.Microsecond, next, "there are more at once")
				}
			}
			require.ElementsMatch(t, names("k", 8), taken)
		})
	}
}

// Findings and counts in numbers that need several pages.
func TestManyFindings(t *testing.T) {
	t.Parallel()
	const number = 1100
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	s := store.Checks()
	var raise, more []reconcile.Report
	for _, subject := range names("s", number) {
		raise, more = append(raise, reportOf(reconcile.ReportRaise, subject)), append(more, reportOf(reconcile.ReportSuspect, subject))
		more[len(more)-1].Check = subject // as many checks
	}
	raise[number-1].Account = "far behind"
	report(t, s, reconcile.Raised, raise...)
	report(t, s, reconcile.Doubtful, more...)
	require.Len(t, findings(t, s, reconcile.FindingQuery{}), 2*number)
	require.Len(t, findings(t, s, reconcile.FindingQuery{Check: "stuck", Unresolved: true}), number)
	require.Len(t, findings(t, s, reconcile.FindingQuery{Account: "far behind"}), 1)
	after := findings(t, s, reconcile.FindingQuery{Check: "stuck", After: reconcile.FindingKey{Check: "stuck", Subject: "s01097"}})
	require.Len(t, after, 2)
	require.Empty(t, findings(t, s, reconcile.FindingQuery{Check: "stuck", Subject: "s00001", After: reconcile.FindingKey{Check: "stuck", Subject: "s00001"}}))
	require.Len(t, findings(t, s, reconcile.FindingQuery{Check: "stuck", Subject: "s00001", After: reconcile.FindingKey{Check: "a"}}), 1)
	require.Empty(t, findings(t, s, reconcile.FindingQuery{Check: "stuck", Subject: "s0000"}), "no beginning of a subject is one")
	open, err := s.Open(t.Context(), checking.Kind)
	require.NoError(t, err)
	require.Len(t, open, number+1)
	for taken := 0; taken < number; {
		claimed, err := s.Claim(t.Context(), checking, "stuck", 2000, time.Hour)
		require.NoError(t, err)
		require.NotEmpty(t, claimed)
		require.Equal(t, raise[taken].Subject, claimed[0].Subject)
		taken += len(claimed)
	}

	var cells []reconcile.Cell
	starts := []time.Time{yesterday, yesterday.Add(time.Hour), yesterday.Add(2 * time.Hour)}
	for i, series := range names("v", number) {
		for j, start := range starts[:2] {
			cells = append(cells, reconcile.Cell{Series: series, Start: start, Writer: [16]byte{byte(i % 2)}, N: int64(i + j + 1)})
		}
	}
	cells = append(cells, reconcile.Cell{Series: "v00000", Start: starts[0], Writer: [16]byte{9}, N: 1 << 61}, reconcile.Cell{Series: "v00000", Start: starts[0], Writer: [16]byte{9}, N: 9})
	require.NoError(t, s.Tally(t.Context(), checking, cells))
	volumes, err := s.Volumes(t.Context(), checking, "", 5000, starts)
	require.NoError(t, err)
	require.Len(t, volumes, number)
	for i, v := range volumes {
		want := []int64{int64(i + 1), int64(i + 2), 0}
		if i == 0 {
			want[0] += 1 << 61
		}
		require.Equal(t, want, v.N)
		require.True(t, v.Since.Equal(yesterday))
	}
}
