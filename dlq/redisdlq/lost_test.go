package redisdlq_test

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

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// Every script is worked and its reply lost once: the client sends it again, and what it
// then hears is what it would have heard.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Redis(t))
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}}))
	steps := func(lose func(step func())) {
		t.Helper()
		a, b := letter("s", "a", "k"), letter("s", "b", "k")
		lose(func() { require.Equal(t, []dlq.Answer{dlq.Added, dlq.Added}, putAll(t, store, a, b)) })
		lose(func() { require.Equal(t, []dlq.Answer{dlq.Duplicate}, putAll(t, store, letter("s", "a", "k"))) })
		require.Equal(t, 2, record(t, store, "s", "a").Log.Total())
		var c []dlq.Claim
		take := func() {
			lose(func() { c = claim(t, store, ask("s", 10)) })
			require.Len(t, c, 1)
			require.Equal(t, 1, c[0].Record.Tries, "the second copy of the claim began nothing")
		}
		take()
		lose(func() { settle(t, store, settlement(dlq.KindExtend, c[0])) })
		lose(func() { settle(t, store, settlement(dlq.KindRelease, c[0])) })
		take()
		lose(func() { settle(t, store, settlement(dlq.KindReview, c[0])) })
		require.Equal(t, 3, record(t, store, "s", "a").Log.Total())
		job := dlq.Job{Stream: "s", ID: "j", Nonce: randomNonce(), Data: []byte("plan")}
		lose(func() {
			saved, err := store.SaveJob(t.Context(), params, job)
			require.NoError(t, err)
			require.Equal(t, uint64(1), saved.Version)
		})
		approve := changeOf(dlq.ChangeApprove, c[0].Record)
		approve.Job = "j"
		lose(func() { change(t, store, changeOf(dlq.ChangeEdit, c[0].Record), approve) })
		take()
		lose(func() { settle(t, store, settlement(dlq.KindRetry, c[0])) })
		lose(func() { change(t, store, changeOf(dlq.ChangeSkip, c[0].Record)) })
		take()
		lose(func() { settle(t, store, settlement(dlq.KindResolve, c[0])) })
		lose(func() {
			first, err := store.Alert(t.Context(), []dlq.Alarm{{Nonce: randomNonce(), Stream: "s", Fingerprint: "abc", Window: time.Hour}})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, first)
		})
		lose(func() {
			jobs, err := store.Jobs(t.Context(), "s", "", 10)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			require.Equal(t, [4]int{1, 0, 1, 0}, [4]int{jobs[0].Released, jobs[0].Passed, jobs[0].Failed, jobs[0].Moved})
		})
		lose(func() {
			entries, _, err := store.Audit(t.Context(), dlq.AuditQuery{Stream: "s", N: 10})
			require.NoError(t, err)
			require.Len(t, entries, 3)
		})
		for _, r := range list(t, store, dlq.Query{Stream: "s", N: 10}) {
			lose(func() { change(t, store, changeOf(dlq.ChangeForget, r)) })
		}
		lose(func() {
			_, err := store.Sweep(t.Context(), 100)
			require.NoError(t, err)
		})
		require.Empty(t, totals(t, store))
	}
	steps(func(step func()) { step() }) // the script cache; what is left is the audit, the job and the alarm

	store = newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}}))
	steps(func(step func()) {
		t.Helper()
		before := proxy.Dropped()
		proxy.DropRepliesTo("evalsha", 1)
		step()
		require.Equal(t, before+1, proxy.Dropped())
	})
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
// it. Whoever sends the batch again stores the rest, and nothing twice.
func TestKilledInABatch(t *testing.T) {
	t.Parallel()
	client := func() redis.UniversalClient {
		return newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	}
	put(t, newStore(t, client()), letter("warm", "a", "k")) // the script cache
	const streams, each = 30, 2
	torn := false
	for scripts := 0; ; scripts++ {
		opts := redisdlq.Options{Prefix: testenv.Prefix(t)}
		living, dying := newWith(t, client(), opts), client()
		dying.(interface{ AddHook(redis.Hook) }).AddHook(&mortal{left: scripts})
		letters := many(streams, each)
		_, err := newWith(t, dying, opts).Put(t.Context(), params, letters)
		stored := len(totals(t, living))
		torn = torn || stored > 0 && stored < streams
		put(t, living, letters...)
		all := totals(t, living)
		require.Len(t, all, streams)
		for name, one := range all {
			require.Equal(t, dlq.Totals{Stream: name, Waiting: each}, one)
		}
		for _, r := range list(t, living, dlq.Query{Stream: "stream0", N: 10}) {
			require.Equal(t, 1, r.Log.Total())
		}
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDead)
	}
	require.True(t, torn, "no batch was stored in part")
}

// A batch that is larger than one round trip, in items and in bytes, is stored and
// changed in several, and in order.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}}))
	var letters []dlq.Put
	for i := range 1300 {
		letters = append(letters, letter("s", fmt.Sprintf("letter%04d", i), fmt.Sprint("key", i)))
	}
	for i := range 6 {
		l := letter("s", fmt.Sprint("large", i), "large")
		l.Body = make([]byte, 3<<20)
		letters = append(letters, l)
	}
	put(t, store, letters...)
	all := list(t, store, dlq.Query{Stream: "s", N: 5000})
	require.Len(t, all, len(letters))
	for i, r := range all {
		require.Equal(t, letters[i].ID, r.ID)
	}
	p, err := store.List(t.Context(), dlq.Query{Stream: "s", Key: "large", N: 100})
	require.NoError(t, err)
	require.Len(t, p.Records, 3, "a page ends when it has 8 MiB")
	require.Equal(t, p.Records[2].Seq, p.Next)

	c, err := store.Claim(t.Context(), ask("s", 2000))
	require.NoError(t, err)
	require.Len(t, c.Claims, 512)
	require.Positive(t, c.Next)
	require.LessOrEqual(t, c.Next, time.Millisecond, "there are more at once")
	claims := c.Claims
	for len(c.Claims) > 0 {
		c, err = store.Claim(t.Context(), ask("s", 2000))
		require.NoError(t, err)
		claims = append(claims, c.Claims...)
	}
	require.Len(t, claims, 1301)
	var ends []dlq.Settlement
	for i, k := range claims {
		require.Equal(t, letters[i].ID, k.Record.ID)
		ends = append(ends, settlement(dlq.KindResolve, k))
	}
	ends[700].Token++
	errs, err := store.Settle(t.Context(), params, ends)
	require.NoError(t, err)
	for i, err := range errs {
		if i == 700 {
			require.ErrorIs(t, err, dlq.ErrStale)
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, dlq.Totals{Stream: "s", Waiting: 6, Resolved: 1300}, totals(t, store)["s"])
}

// What lies under a key and is not its row is an error for that item alone, and is not
// overwritten.
func TestForeignRow(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"Redis": testenv.Redis(t), "miniredis": miniredis.RunT(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
			store := newWith(t, client, redisdlq.Options{Prefix: testenv.Prefix(t), Partitions: 1})
			h := store.Tag(0) + ":h"
			was := map[string]string{}
			foreign := func(field string) {
				was[field] = client.HGet(t.Context(), h, field).Val()
				require.NoError(t, client.HSet(t.Context(), h, field, "2 of another version").Err())
			}
			own := func(field string) {
				require.Equal(t, "2 of another version", client.HGet(t.Context(), h, field).Val())
				require.NoError(t, client.HDel(t.Context(), h, field).Err())
				if was[field] != "" {
					require.NoError(t, client.HSet(t.Context(), h, field, was[field]).Err())
				}
			}
			refused := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, "not of this version")
				require.ErrorContains(t, err, "redisdlq: ")
				require.NotContains(t, err.Error(), "secret")
			}
			dump := func() string { return fmt.Sprint(client.HGetAll(t.Context(), h).Val()) }
			for _, field := range []string{"ks\x00ksecret", "us\x00abc"} {
				foreign(field)
				_, err := store.Put(t.Context(), params, []dlq.Put{letter("s", "secret", "secret")})
				refused(err)
				own(field)
			}
			require.Empty(t, totals(t, store))
			put(t, store, letter("s", "secret", "secret"), letter("s", "good", "good"))
			secret := record(t, store, "s", "secret")
			row := func(letter string) string { return fmt.Sprintf("%ss\x00%016d", letter, secret.Seq) }

			foreign(row("s")) // a letter that cannot be read stops no other
			claims := claim(t, store, ask("s", 1))
			require.Len(t, claims, 1)
			require.Equal(t, "good", claims[0].Record.ID)
			_, err := store.List(t.Context(), dlq.Query{Stream: "s", N: 10})
			refused(err)
			_, err = store.Put(t.Context(), params, []dlq.Put{letter("s", "secret", "secret")})
			refused(err)
			_, err = store.Totals(t.Context(), "", 10)
			refused(err)
			own(row("s"))
			claims = append(claims, claim(t, store, ask("s", 10))...)
			require.Len(t, claims, 2)

			for _, field := range []string{row("s"), "ks\x00ksecret", row("g"), "us\x00abc"} {
				foreign(field)
				before := dump()
				other := settlement(dlq.KindRetry, claims[1])
				other.Failure.Fingerprint = "def"
				bad := []dlq.Settlement{settlement(dlq.KindRetry, claims[1]), other}
				if field != row("g") { // an end does not look at the log, and no change does
					bad = append(bad, settlement(dlq.KindResolve, claims[1]))
				}
				errs, err := store.Settle(t.Context(), params, bad)
				require.NoError(t, err)
				for _, err := range errs {
					refused(err)
				}
				if field != row("g") {
					errs, err = store.Change(t.Context(), params, []dlq.Change{changeOf(dlq.ChangeDiscard, secret)})
					require.NoError(t, err)
					refused(errs[0])
				}
				require.Equal(t, before, dump(), field)
				errs, err = store.Settle(t.Context(), params, []dlq.Settlement{settlement(dlq.KindRetry, claims[1]), settlement(dlq.KindExtend, claims[0])})
				require.NoError(t, err)
				refused(errs[0])
				require.NoError(t, errs[1])
				own(field)
			}
			require.Equal(t, secret.Log, record(t, store, "s", "secret").Log)
			settle(t, store, settlement(dlq.KindRetry, claims[1]))

			foreign("js\x00job")
			_, err = store.SaveJob(t.Context(), params, dlq.Job{Stream: "s", ID: "job", Nonce: randomNonce()})
			refused(err)
			own("js\x00job")
			foreign("as\x00abc")
			_, err = store.Alert(t.Context(), []dlq.Alarm{{Nonce: randomNonce(), Stream: "s", Fingerprint: "abc", Window: time.Hour}})
			refused(err)
			own("as\x00abc")
			foreign("us\x00abc")
			_, err = store.Groups(t.Context(), "s", "", 10)
			refused(err)
		})
	}
}

func TestNew(t *testing.T) {
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	_, err := redisdlq.New(nil, nil)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = redisdlq.New((*redis.Client)(nil), nil)
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = redisdlq.New(client, &redisdlq.Options{Partitions: 257})
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = redisdlq.New(client, &redisdlq.Options{Prefix: "a{b}"})
	require.ErrorIs(t, err, dlq.ErrInvalid)
	_, err = redisdlq.New(client, nil)
	require.NoError(t, err)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addr := testenv.RedisOwn(t).Addr()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{addr}})
	store := newWith(t, client, redisdlq.Options{})
	require.ErrorIs(t, store.Check(t.Context()), dlq.ErrAtRisk, "it keeps nothing on disk")
	other := newWith(t, client, redisdlq.Options{Partitions: 2})
	require.ErrorIs(t, other.Check(t.Context()), redisdlq.ErrLayout)
	require.NotErrorIs(t, store.Check(t.Context()), redisdlq.ErrLayout)
	require.NoError(t, client.Set(t.Context(), "pawl:dlq:layout", "pawl dlq layout 2, 16 partitions", 0).Err())
	require.ErrorIs(t, store.Check(t.Context()), redisdlq.ErrLayout)
	durable := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always").Addr()
	require.NoError(t, newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{durable}})).Check(t.Context()))
	silent := newClient(t, &redis.UniversalOptions{Addrs: []string{miniredis.RunT(t).Addr()}})
	require.ErrorIs(t, newStore(t, silent).Check(t.Context()), dlq.ErrUnchecked)
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
			note(s.Put(c.ctx, params, []dlq.Put{letter("s", "secret", "secret")}))
			note(s.Claim(c.ctx, ask("s", 1)))
			note(s.Settle(c.ctx, params, []dlq.Settlement{{Kind: dlq.KindRelease, Stream: "s", Lane: "ksecret", Token: 1}}))
			note(s.Change(c.ctx, params, []dlq.Change{{Kind: dlq.ChangeForget, Stream: "s", ID: "secret", Seq: 1}}))
			note(s.SaveJob(c.ctx, params, dlq.Job{Stream: "s", ID: "secret"}))
			note(s.Alert(c.ctx, []dlq.Alarm{{Stream: "s", Fingerprint: "abc", Window: time.Hour}}))
			note(s.List(c.ctx, dlq.Query{Stream: "s", ID: "secret", N: 1}))
			note(s.Groups(c.ctx, "s", "", 1))
			note(s.Jobs(c.ctx, "s", "", 1))
			note(s.Totals(c.ctx, "", 1))
			note(s.Sweep(c.ctx, 10))
			note(nil, s.Check(c.ctx))
			_, _, err := s.Audit(c.ctx, dlq.AuditQuery{Stream: "s", ID: "secret", N: 1})
			for _, err := range append(errs, err) {
				require.ErrorContains(t, err, "redisdlq: ")
				require.NotContains(t, err.Error(), "secret")
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
		})
	}
}
