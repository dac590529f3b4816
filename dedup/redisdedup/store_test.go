package redisdedup_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

var params = dedup.Params{Scope: "test", Lease: time.Minute, Retention: time.Hour}

func TestNewRefuses(t *testing.T) {
	var noClient *redis.Client
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for name, make := range map[string]func() (*redisdedup.Store, error){
		"nil client":          func() (*redisdedup.Store, error) { return redisdedup.New(nil, nil) },
		"typed nil client":    func() (*redisdedup.Store, error) { return redisdedup.New(noClient, nil) },
		"brace in prefix":     func() (*redisdedup.Store, error) { return newWith(client, "a}b", 0) },
		"long prefix":         func() (*redisdedup.Store, error) { return newWith(client, strings.Repeat("a", 65), 0) },
		"negative partitions": func() (*redisdedup.Store, error) { return newWith(client, "", -1) },
		"too many partitions": func() (*redisdedup.Store, error) { return newWith(client, "", 257) },
	} {
		t.Run(name, func(t *testing.T) {
			store, err := make()
			require.ErrorContains(t, err, "redisdedup: new: ")
			require.Nil(t, store)
		})
	}
}

func newWith(client redis.UniversalClient, prefix string, partitions int) (*redisdedup.Store, error) {
	return redisdedup.New(client, &redisdedup.Options{Prefix: prefix, Partitions: partitions})
}

func TestNewDoesNoIO(t *testing.T) {
	var dialled atomic.Int32
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		dialled.Add(1)
		return nil, errors.New("no network here")
	}})
	defer client.Close()
	_, err := redisdedup.New(client, nil)
	require.NoError(t, err)
	require.Zero(t, dialled.Load())
}

func TestEmptyBatches(t *testing.T) {
	store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})) // nobody is asked
	claims, err := store.Claim(t.Context(), params, nil)
	require.NoError(t, err)
	require.Empty(t, claims)
	errs, err := store.Settle(t.Context(), params, nil)
	require.NoError(t, err)
	require.Empty(t, errs)
}

// A server that is not there, a closed client and an ended context are errors of
// the whole call, and say which they are.
func TestNoAnswer(t *testing.T) {
	server := miniredis.RunT(t)
	closed := redis.NewClient(&redis.Options{Addr: server.Addr()})
	require.NoError(t, closed.Close())
	away := newClient(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1})
	running := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()

	for name, c := range map[string]struct {
		client redis.UniversalClient
		ctx    context.Context
		want   error
	}{
		"closed client":     {closed, t.Context(), redis.ErrClosed},
		"no server":         {away, t.Context(), nil},
		"cancelled context": {running, cancelled, context.Canceled},
		"ended deadline":    {running, late, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, c.client)
			claims, claimErr := store.Claim(c.ctx, params, asks("secret-1", "secret-2"))
			require.Nil(t, claims)
			errs, settleErr := store.Settle(c.ctx, params, []dedup.Settlement{{Kind: dedup.KindForget, ID: "secret-1"}})
			require.Nil(t, errs)
			_, heldErr := store.Held(c.ctx, "test", "", 10)
			checkErr := store.Check(c.ctx)
			for _, err := range []error{claimErr, settleErr, heldErr, checkErr} {
				require.ErrorContains(t, err, "redisdedup: ")
				require.NotContains(t, err.Error(), "secret")
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
		})
	}
}

// What lies under an ID and is not a record is an error for that ID alone, is
// never read as new and is not overwritten.
func TestForeignRow(t *testing.T) {
	for name, put := range map[string]func(c redis.UniversalClient, key string) error{
		"a string": func(c redis.UniversalClient, key string) error {
			return c.Set(t.Context(), key, "hello", 0).Err()
		},
		"a later layout": func(c redis.UniversalClient, key string) error {
			return c.Set(t.Context(), key, "2"+newRow("c")[1:], 0).Err()
		},
		"an unknown state": func(c redis.UniversalClient, key string) error {
			return c.Set(t.Context(), key, newRow("q"), 0).Err()
		},
		"a token beyond 53 bits": func(c redis.UniversalClient, key string) error {
			return c.Set(t.Context(), key, strings.Replace(newRow("r"), "1700000000000000", "9007199254740992", 1), 0).Err()
		},
		"a hash": func(c redis.UniversalClient, key string) error {
			return c.HSet(t.Context(), key, "a", 1).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, client redis.UniversalClient) {
				prefix := testenv.Prefix(t)
				store, err := newWith(client, prefix, 1)
				require.NoError(t, err)
				key := "{" + prefix + ":dedup:00}:test:b"
				require.NoError(t, put(client, key))
				before := client.Dump(t.Context(), key).Val()

				claims, err := store.Claim(t.Context(), params, asks("a", "b", "c"))
				require.NoError(t, err)
				require.Equal(t, dedup.Acquired, claims[0].State)
				require.ErrorContains(t, claims[1].Err, "not a record")
				require.Equal(t, dedup.Acquired, claims[2].State)

				errs, err := store.Settle(t.Context(), params, []dedup.Settlement{
					claims[0].Complete(nil), {Kind: dedup.KindComplete, ID: "b", Token: 1}, claims[2].Release()})
				require.NoError(t, err)
				require.NoError(t, errs[0])
				require.ErrorContains(t, errs[1], "not a record")
				require.NotErrorIs(t, errs[1], dedup.ErrStale)
				require.NoError(t, errs[2])
				require.Equal(t, before, client.Dump(t.Context(), key).Val())

				_, err = store.Claim(t.Context(), params, asks("b"))
				require.ErrorContains(t, err, "not a record", "an error, since no ask has an answer")

				errs, err = store.Settle(t.Context(), params, []dedup.Settlement{{Kind: dedup.KindForget, ID: "b"}})
				require.NoError(t, err)
				require.Nil(t, errs)
				require.Zero(t, client.Exists(t.Context(), key).Val())
			})
		})
	}
}

func newRow(state string) string {
	return "1" + state + "1700000000000000" + strings.Repeat("n", 16) + "0 60000000 1"
}

// A partition without an answer does not spoil those that have one.
func TestOnePartitionFails(t *testing.T) {
	server := miniredis.RunT(t) // says nothing of its kind, so each partition has a call of its own
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	prefix := testenv.Prefix(t)
	store, err := newWith(client, prefix, 2)
	require.NoError(t, err)
	broken := errors.New("this node is gone")
	client.AddHook(failing{"{" + prefix + ":dedup:01}", broken})

	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprint("secret-", i))
	}
	claims, err := store.Claim(t.Context(), params, asks(ids...))
	require.NoError(t, err)
	var answered, lost []dedup.Claim
	for i, c := range claims {
		require.Equal(t, ids[i], c.ID)
		if c.Err == nil {
			require.Equal(t, dedup.Acquired, c.State)
			answered = append(answered, c)
		} else {
			require.ErrorIs(t, c.Err, broken)
			require.NotContains(t, c.Err.Error(), "secret")
			require.Zero(t, c.State)
			lost = append(lost, c)
		}
	}
	require.NotEmpty(t, answered)
	require.NotEmpty(t, lost)

	errs, err := store.Settle(t.Context(), params, []dedup.Settlement{answered[0].Complete(nil), lost[0].Complete(nil)})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], broken)

	claims, err = store.Claim(t.Context(), params, asks(lost[0].ID))
	require.ErrorIs(t, err, broken)
	require.Nil(t, claims)
	_, err = store.Held(t.Context(), "test", "", 10)
	require.ErrorIs(t, err, broken, "a list with holes would look complete")
}

// failing is a hook that fails every command with a key of one tag.
type failing struct {
	tag string
	err error
}

func (failing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		var failed error
		for _, cmd := range cmds {
			if strings.Contains(fmt.Sprint(firstKey(cmd)), f.tag) {
				cmd.SetErr(f.err)
				failed = f.err
			} else {
				rest = append(rest, cmd)
			}
		}
		if len(rest) > 0 {
			if err := next(ctx, rest); err != nil {
				return err
			}
		}
		return failed
	}
}

// failAfter is a hook that lets some pipelines of scripts pass and fails the
// others.
type failAfter struct {
	left int
	err  error
}

func (*failAfter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*failAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *failAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") {
			return next(ctx, cmds) // the greeting of a connection
		}
		if f.left--; f.left >= 0 {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(f.err)
		}
		return f.err
	}
}

func firstKey(cmd redis.Cmder) any {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return args[1]
	}
	return *args[3].(*string)
}

// More asks than fit into a pipeline are answered in order, also one ID that
// stands in the batch from beginning to end.
func TestLargeBatch(t *testing.T) {
	eachServer(t, func(t *testing.T, client redis.UniversalClient) {
		store := newStore(t, client)
		var ids []string
		for i := range 1100 {
			ids = append(ids, fmt.Sprint(i), "again")
		}
		claims, err := store.Claim(t.Context(), params, asks(ids...))
		require.NoError(t, err)
		require.Len(t, claims, 2200)
		var settlements []dedup.Settlement
		for i, c := range claims {
			require.NoError(t, c.Err)
			require.Equal(t, ids[i], c.ID)
			if c.ID == "again" && i > 1 {
				require.Equal(t, dedup.InFlight, c.State)
				continue
			}
			require.Equal(t, dedup.Acquired, c.State)
			settlements = append(settlements, c.Complete([]byte(c.ID)))
		}
		errs, err := store.Settle(t.Context(), params, settlements)
		require.NoError(t, err)
		require.Nil(t, errs)
	})
}

// When a server goes away in the middle of a large batch, what was answered
// before stands, and what was not carries the error.
func TestServerGoesInLargeBatch(t *testing.T) {
	server := miniredis.RunT(t)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, MaxRetries: -1})
	client.AddHook(&failAfter{left: 2, err: errors.New("gone")}) // the script's digest, then its text
	store, err := newWith(client, testenv.Prefix(t), 1)
	require.NoError(t, err)
	var ids []string
	for i := range 2500 {
		ids = append(ids, fmt.Sprint(i))
	}
	claims, err := store.Claim(t.Context(), params, asks(ids...))
	require.NoError(t, err)
	for i, c := range claims {
		if i < 1024 {
			require.NoError(t, c.Err)
			require.Equal(t, dedup.Acquired, c.State)
		} else {
			require.ErrorContains(t, c.Err, "gone")
			require.Zero(t, c.State)
		}
	}
}

// The server's clock is set back by more than the lease, and the lease renewed:
// the row stays readable and its owner can complete it.
func TestClockSetBackUnderALease(t *testing.T) {
	for _, lapse := range []dedup.Lapse{dedup.Rerun, dedup.Hold} {
		t.Run(lapse.String(), func(t *testing.T) {
			server := miniredis.RunT(t)
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			server.SetTime(at)
			s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}))
			p := dedup.Params{Scope: "clock", Lease: 30 * time.Second, Retention: time.Hour, OnLapse: lapse}
			claims, err := s.Claim(t.Context(), p, []dedup.Ask{{Request: dedup.Request{ID: "x"}, Nonce: [16]byte{1}}})
			require.NoError(t, err)
			server.SetTime(at.Add(-time.Minute))
			for _, settlement := range []dedup.Settlement{claims[0].Extend(p.Lease), claims[0].Complete([]byte("r"))} {
				errs, err := s.Settle(t.Context(), p, []dedup.Settlement{settlement})
				require.NoError(t, err)
				require.Nil(t, errs, settlement.Kind)
			}
			claims, err = s.Claim(t.Context(), p, []dedup.Ask{{Request: dedup.Request{ID: "x"}, Nonce: [16]byte{2}}})
			require.NoError(t, err)
			require.Equal(t, dedup.Done, claims[0].State)
		})
	}
}

// A server without memory refuses new IDs, and says that it is full.
func TestFullServer(t *testing.T) {
	server := testenv.RedisOwn(t, "--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
	g, err := dedup.New(newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})), nil)
	require.NoError(t, err)
	for i := range 100_000 {
		if _, err = g.Claim(t.Context(), dedup.Request{ID: fmt.Sprint("oom", i)}); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, dedup.ErrFull)
}
