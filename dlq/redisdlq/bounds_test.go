package redisdlq_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// A server whose memory is full answers letters with Full, and stores nothing of them;
// what is there can be worked, decided and swept, and then there is room again.
func TestFullServer(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction").Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store := newWith(t, client, redisdlq.Options{})
	p := dlq.Params{Retention: time.Millisecond, Audit: time.Millisecond, Capacity: 100_000}
	stored, answer := 0, dlq.Added
	body := []byte(strings.Repeat("x", 16<<10))
	for ; answer == dlq.Added && stored < 10_000; stored++ {
		l := letter("s", fmt.Sprint("letter", stored), fmt.Sprint("key", stored))
		l.Body = body
		answer = putAll(t, store, l)[0]
	}
	stored--
	require.Equal(t, dlq.Full, answer)
	require.Len(t, list(t, store, dlq.Query{Stream: "s", N: 10_000, Heads: true}), stored)
	require.Equal(t, dlq.Totals{Stream: "s", Waiting: stored}, totals(t, store)["s"])
	_, err := store.Put(t.Context(), p, []dlq.Put{letter("s", "letter0", "k")})
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, 1, record(t, store, "s", "letter0").Log.Total())

	claims := claim(t, store, ask("s", 10))
	require.Len(t, claims, 10)
	for i, k := range claims {
		s := settlement([]dlq.Kind{dlq.KindRetry, dlq.KindReview, dlq.KindResolve, dlq.KindExtend, dlq.KindRelease}[i%5], k)
		errs, err := store.Settle(t.Context(), p, []dlq.Settlement{s})
		require.NoError(t, err)
		require.Nil(t, errs, s.Kind)
	}
	ended := 2
	for _, r := range list(t, store, dlq.Query{Stream: "s", State: dlq.StateWaiting, N: 10, Heads: true})[:10] {
		_, err := store.Change(t.Context(), p, []dlq.Change{changeOf(dlq.ChangeDiscard, r)})
		require.NoError(t, err)
		ended++
	}
	removed := 0
	require.Eventually(t, func() bool {
		n, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		removed += n
		return removed == ended+10 // and the entries
	}, time.Minute, time.Millisecond)
	put(t, store, letter("s", "new", "k"))
}

// What was put and decided, and has expired, leaves nothing behind but the number of
// its stream.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	store := newWith(t, client, redisdlq.Options{Prefix: testenv.Prefix(t), Partitions: 1})
	p := dlq.Params{Retention: time.Millisecond, Audit: time.Millisecond, Capacity: 1000}
	_, err := store.SaveJob(t.Context(), p, dlq.Job{Stream: "s", ID: "j", Nonce: randomNonce()})
	require.NoError(t, err)
	for i := range 12 {
		put(t, store, letter("s", fmt.Sprint("letter", i), []string{"", "k"}[i%2]))
	}
	all := list(t, store, dlq.Query{Stream: "s", N: 100})
	var changes []dlq.Change
	for i, k := range []dlq.ChangeKind{dlq.ChangeEdit, dlq.ChangeSkip, dlq.ChangeApprove, dlq.ChangeNote, dlq.ChangeSkip, dlq.ChangeApprove} {
		changes = append(changes, changeOf(k, all[i]))
	}
	changes[2].Job, changes[5].Job = "j", "j"
	_, err = store.Change(t.Context(), p, changes)
	require.NoError(t, err)
	_, err = store.Alert(t.Context(), []dlq.Alarm{{Nonce: randomNonce(), Stream: "s", Fingerprint: "abc", Window: time.Millisecond}})
	require.NoError(t, err)
	for range 8 { // failures with several fingerprints, and a log with folds
		for _, k := range claim(t, store, ask("s", 3)) {
			s := settlement(dlq.KindRetry, k)
			s.Failure.Fingerprint = fmt.Sprintf("%02x", k.Token%5)
			_, err = store.Settle(t.Context(), p, []dlq.Settlement{s})
			require.NoError(t, err)
		}
	}
	for i, r := range list(t, store, dlq.Query{Stream: "s", N: 100}) {
		kinds := []dlq.ChangeKind{dlq.ChangeDiscard, dlq.ChangeReject, dlq.ChangeForget}
		_, err = store.Change(t.Context(), p, []dlq.Change{changeOf(kinds[i%3], r)})
		require.NoError(t, err)
	}
	_, err = store.SaveJob(t.Context(), p, dlq.Job{Stream: "s", ID: "j", Nonce: randomNonce(), Version: 1, Ended: true})
	require.NoError(t, err)
	a := ask("s", 10)
	a.Lease = time.Millisecond
	put(t, store, letter("s", "lapsed", "lapsed"))
	require.Len(t, claim(t, store, a), 1)
	var claims []dlq.Claim
	require.Eventually(t, func() bool { // by another, when the lease has lapsed
		a.Nonce = randomNonce()
		claims = claim(t, store, a)
		return len(claims) == 1
	}, time.Minute, time.Millisecond)
	_, err = store.Change(t.Context(), p, []dlq.Change{changeOf(dlq.ChangeDiscard, claims[0].Record)})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		_, err := store.Sweep(t.Context(), 1000)
		require.NoError(t, err)
		return client.ZCard(t.Context(), store.Tag(0)+":z").Val() == 0
	}, time.Minute, time.Millisecond, "what is left: %v", client.ZRange(t.Context(), store.Tag(0)+":z", 0, -1).Val())
	require.Equal(t, []string{"xs"}, client.HKeys(t.Context(), store.Tag(0)+":h").Val())
}

// More than one script looks at is swept, listed and counted all the same, and no more
// than was asked for is swept.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const number = 1300
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	p := dlq.Params{Retention: time.Millisecond, Audit: time.Hour, Capacity: 1_000_000}
	var letters []dlq.Put
	for i := range number {
		l := letter("s", fmt.Sprint("letter", i), fmt.Sprint("key", i))
		l.Failure.Fingerprint = fmt.Sprintf("%04x", i)
		letters = append(letters, l)
	}
	put(t, store, letters...)
	var changes []dlq.Change
	for i, r := range list(t, store, dlq.Query{Stream: "s", N: number, Heads: true}) {
		c := changeOf(dlq.ChangeNote, r)
		c.Job = []string{"", "j"}[i%2]
		changes = append(changes, c, changeOf(dlq.ChangeDiscard, r))
	}
	for i := range changes { // the last two notes are about one letter, and only one is the job's
		if i%2 == 0 {
			changes[i].ID, changes[i].Seq = changes[0].ID, changes[0].Seq
		}
	}
	groups, err := store.Groups(t.Context(), "s", "", 5000)
	require.NoError(t, err)
	require.Len(t, groups, number)
	groups, err = store.Groups(t.Context(), "s", "0100", 1100)
	require.NoError(t, err)
	require.Len(t, groups, number-257)
	require.Equal(t, "0101", groups[0].Fingerprint)
	_, err = store.Change(t.Context(), p, changes)
	require.NoError(t, err)

	// A page that has looked at enough goes on, though it has found nothing.
	p1, err := store.List(t.Context(), dlq.Query{Stream: "s", State: dlq.StateDiscarded, Fingerprint: "0001", Key: "none", N: 10})
	require.NoError(t, err)
	require.Empty(t, p1)
	p1, err = store.List(t.Context(), dlq.Query{Stream: "s", State: dlq.StateDiscarded, Until: time.UnixMicro(1), N: 10})
	require.NoError(t, err)
	require.Empty(t, p1.Records)
	require.NotZero(t, p1.Next)
	entries, next, err := store.Audit(t.Context(), dlq.AuditQuery{Stream: "s", ID: changes[0].ID, Job: "none", N: 10})
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NotZero(t, next)
	found := 0
	for q := (dlq.AuditQuery{Stream: "s", ID: changes[0].ID, Job: "j", N: 100}); ; q.After = next {
		entries, next, err = store.Audit(t.Context(), q)
		require.NoError(t, err)
		if found += len(entries); next == 0 {
			break
		}
	}
	require.Equal(t, number/2, found)

	removed, err := store.Sweep(t.Context(), 700) // letters and their lanes
	require.NoError(t, err)
	require.True(t, removed > 0 && removed < 700, removed)
	rest, err := store.Sweep(t.Context(), 10*number)
	require.NoError(t, err)
	require.Equal(t, number, removed+rest)
	require.Empty(t, totals(t, store))

	for _, after := range []uint64{math.MaxUint64, 9_999_999_999_999_999, 1 << 60} { // behind all there can be
		p1, err = store.List(t.Context(), dlq.Query{Stream: "s", After: after, N: 10})
		require.NoError(t, err)
		require.Empty(t, p1)
		entries, next, err = store.Audit(t.Context(), dlq.AuditQuery{Stream: "s", After: after, N: 10})
		require.NoError(t, err)
		require.Empty(t, entries)
		require.Zero(t, next)
	}
}

// Times that no server's clock shows select all, or nothing.
func TestListOfAbsurdTimes(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	put(t, store, letter("s", "a", "k"))
	early, late := time.Date(-300_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for q, want := range map[dlq.Query]int{
		{From: early}: 1, {Until: late}: 1, {From: early, Until: late}: 1, {From: late}: 0, {Until: early}: 0,
		{From: time.Now().Add(-time.Hour)}: 1, {Until: time.Now().Add(time.Hour)}: 1, {From: time.Now().Add(time.Hour)}: 0,
	} {
		q.Stream, q.N = "s", 10
		require.Len(t, list(t, store, q), want, "%+v", q)
	}
	r := record(t, store, "s", "a")
	for _, nanos := range []time.Duration{0, 1, 999} { // times that are kept are to the microsecond
		require.Len(t, list(t, store, dlq.Query{Stream: "s", From: r.Put.Add(nanos), N: 1}), map[bool]int{true: 1}[nanos == 0])
		require.Len(t, list(t, store, dlq.Query{Stream: "s", Until: r.Put.Add(nanos), N: 1}), map[bool]int{false: 1}[nanos == 0])
	}
}

// A letter is found by the job that released it last.
func TestFoundByTheLastJob(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	put(t, store, letter("s", "a", "k"))
	for _, id := range []string{"first", "second", "second"} {
		_, err := store.SaveJob(t.Context(), params, dlq.Job{Stream: "s", ID: id, Nonce: randomNonce()})
		if err != nil {
			require.ErrorIs(t, err, dlq.ErrChanged) // it is there
		}
		c := changeOf(dlq.ChangeApprove, record(t, store, "s", "a"))
		c.Job = id
		change(t, store, c)
		require.Len(t, list(t, store, dlq.Query{Stream: "s", Job: id, N: 10}), 1)
	}
	require.Empty(t, list(t, store, dlq.Query{Stream: "s", Job: "first", N: 10}))
}
