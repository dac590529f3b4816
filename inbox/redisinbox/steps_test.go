package redisinbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// A mortal is a client that dies: it sends this many more scripts, also in the
// middle of a pipeline, and then nothing.
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

// A death is a step that a process does not live through.
type death struct {
	open       func() redis.UniversalClient
	partitions int
	before     func(living *redisinbox.Store, round string) // prepares what the step is about
	step       func(dying *redisinbox.Store, round string) error
	after      func(living *redisinbox.Store, round string, stepped bool) // what others find and do
}

// run runs the step in processes that die after no script, after one, and so on,
// until one lives to its end. Each round is about something else.
func (d death) run(t *testing.T) {
	prefix := testenv.Prefix(t)
	open := func(n int) *redisinbox.Store {
		client := d.open()
		client.(interface{ AddHook(redis.Hook) }).AddHook(&mortal{left: n})
		return newWith(t, client, redisinbox.Options{Prefix: prefix, Partitions: d.partitions})
	}
	living := open(1 << 30)
	for n := range 200 {
		round := fmt.Sprint("round", n)
		if d.before != nil {
			d.before(living, round)
		}
		err := d.step(open(n), round)
		d.after(living, round, err == nil)
		if err == nil {
			require.Greater(t, n, 1, "the step has no middle in which a process could die")
			return
		}
		require.ErrorIs(t, err, errDead)
	}
	t.Fatal("the step never came to its end")
}

// A process that dies anywhere in an acceptance leaves what the next delivery
// completes: every event is worked, and worked once, whatever key it comes with.
func TestKilledAccept(t *testing.T) {
	t.Parallel()
	addr := testenv.Redis(t)
	open := func() redis.UniversalClient { return newClient(t, &redis.UniversalOptions{Addrs: []string{addr}}) }
	body := func(round, key, payload string) (list []inbox.Arrival) {
		for i := range 6 { // in several partitions
			a := arrival(fmt.Sprint(round, "-", i), fmt.Sprint(round, key, i), payload)
			a.Streams = []string{"one", "two"}
			list = append(list, a)
		}
		return list
	}
	for name, again := range map[string]struct{ key, payload string }{
		"the same":                {"key", "payload"},
		"another key":             {"other", "payload"},
		"another payload":         {"key", "other"},
		"another key and payload": {"other", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			stored := map[string]bool{}
			death{
				open: open,
				step: func(s *redisinbox.Store, round string) error {
					_, err := s.Accept(t.Context(), params, body(round, "key", "payload"))
					return err
				},
				after: func(s *redisinbox.Store, round string, stepped bool) {
					second := body(round, again.key, again.payload)
					for i := range second { // what the dead process has stored
						rs, err := s.List(t.Context(), inbox.Query{ID: second[i].ID, N: 10})
						require.NoError(t, err)
						require.Contains(t, []int{0, 2}, len(rs), "both streams or none")
						stored[second[i].ID] = len(rs) > 0
						require.True(t, !stepped || len(rs) > 0)
					}
					answers, err := s.Accept(t.Context(), params, second)
					require.NoError(t, err)
					for i, a := range second {
						want := inbox.Accepted
						if stored[a.ID] && again.payload == "payload" {
							want = inbox.Duplicate
						} else if stored[a.ID] {
							want = inbox.Conflict
						}
						require.Equal(t, want, answers[i])
					}
					answers, err = s.Accept(t.Context(), params, body(round, "third", again.payload))
					require.NoError(t, err)
					for i, a := range second {
						want := inbox.Duplicate
						if stored[a.ID] && again.payload != "payload" {
							want = inbox.Conflict
						}
						require.Equal(t, want, answers[i])
					}
					for _, stream := range []string{"one", "two"} {
						require.Len(t, workAll(t, s, stream), 6)
					}
				},
			}.run(t)
		})
	}
}

// A process that dies anywhere in an erasure leaves an ID that is known as before, or
// new to the next delivery; and another call erases it.
func TestKilledForget(t *testing.T) {
	t.Parallel()
	addr := testenv.Redis(t)
	forget := func(s *redisinbox.Store, id string) error {
		errs, err := s.Change(t.Context(), params, []inbox.Change{{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/" + id, Actor: "a", Reason: "r"}})
		require.Nil(t, errs)
		return err
	}
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again ", again), func(t *testing.T) {
			death{
				open:       func() redis.UniversalClient { return newClient(t, &redis.UniversalOptions{Addrs: []string{addr}}) },
				partitions: 3,
				before: func(s *redisinbox.Store, round string) {
					require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival(round, "before"+round, "payload")))
				},
				step: forget,
				after: func(s *redisinbox.Store, round string, stepped bool) {
					if again {
						require.NoError(t, forget(s, round))
					}
					rs, err := s.List(t.Context(), inbox.Query{ID: "p/" + round, N: 10})
					require.NoError(t, err)
					want := inbox.Accepted
					if len(rs) > 0 { // it died too early
						require.False(t, again || stepped)
						want = inbox.Conflict
					}
					require.Equal(t, []inbox.Answer{want}, accept(t, s, arrival(round, "after"+round, "other payload")))
					if want == inbox.Accepted { // with the old key it is found, too
						require.Equal(t, []inbox.Answer{inbox.Duplicate}, accept(t, s, arrival(round, "before"+round, "other payload")))
					}
					require.Equal(t, []string{"p/" + round}, workAll(t, s, inbox.DefaultStream))
				},
			}.run(t)
		})
	}
}

// A process that dies anywhere in a sweep leaves nothing that the next sweeps do not
// remove, rows of IDs whose events were never stored among it.
func TestKilledSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		open := func() redis.UniversalClient {
			client := newPipeClient(server)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return client
		}
		var prefix string
		sweepAll := func(s *redisinbox.Store) {
			for range 4 { // what one makes old, the next removes
				_, err := s.Sweep(t.Context(), 1000)
				require.NoError(t, err)
				time.Sleep(11 * time.Minute)
			}
		}
		death{
			open:       open,
			partitions: 3,
			before: func(s *redisinbox.Store, round string) {
				prefix = strings.SplitN(s.Tag(0), ":inbox", 2)[0][1:]
				var list []inbox.Arrival
				for i := range 4 {
					list = append(list, arrival(fmt.Sprint(round, i), fmt.Sprint(round, "key", i), "payload"))
				}
				list = append(list, arrival(round+"0", "k", "other payload")) // a conflict
				accept(t, s, list...)
				require.Len(t, workAll(t, s, inbox.DefaultStream), 4)

				client := open() // of a process that dies in the middle of an acceptance
				client.(interface{ AddHook(redis.Hook) }).AddHook(&mortal{left: 1})
				dying := newWith(t, client, redisinbox.Options{Prefix: prefix, Partitions: 3})
				_, err := dying.Accept(t.Context(), params, []inbox.Arrival{arrival(round+"lost0", "k", "x"), arrival(round+"lost1", "k", "x")})
				require.ErrorIs(t, err, errDead)
				require.True(t, slices.ContainsFunc(leftovers(t, server), func(row string) bool {
					return strings.Contains(row, " ip/"+round+"lost")
				}), "it has written a row")
				time.Sleep(3 * time.Hour)
			},
			step: func(s *redisinbox.Store, _ string) error {
				for range 2 {
					if _, err := s.Sweep(t.Context(), 1000); err != nil {
						return err
					}
					time.Sleep(11 * time.Minute)
				}
				return nil
			},
			after: func(s *redisinbox.Store, round string, _ bool) {
				sweepAll(s)
				require.Empty(t, leftovers(t, server), "after %s", round)
				require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival(round+"0", "another", "payload")))
				require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival(round+"lost0", "another", "payload")))
				require.Len(t, workAll(t, s, inbox.DefaultStream), 2)
				time.Sleep(2 * time.Hour)
				sweepAll(s)
				require.Empty(t, leftovers(t, server), "after %s", round)
			},
		}.run(t)
	})
}

// leftovers are the rows and members in a miniredis, but for counters that are zero
// and the number of the last record.
func leftovers(t *testing.T, server *miniredis.Miniredis) (left []string) {
	t.Helper()
	for _, key := range server.Keys() {
		rows, err := server.HKeys(key)
		if err != nil { // it is no hash
			rows, err = server.ZMembers(key)
		}
		require.NoError(t, err)
		for _, row := range rows {
			if row != "x" && (row[0] != 'c' || server.HGet(key, row) != "0") {
				left = append(left, key+" "+row)
			}
		}
	}
	return left
}

// A process that was paused between the two steps of an acceptance, and goes on when
// the event was meanwhile stored under another key, or erased, changes nothing that
// it should not.
func TestPausedAccept(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, s *redisinbox.Store){
		"nothing": func(*testing.T, *redisinbox.Store) {},
		"stored with another key": func(t *testing.T, s *redisinbox.Store) {
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "two", "payload")))
		},
		"stored and erased": func(t *testing.T, s *redisinbox.Store) {
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "two", "payload")))
			change(t, s, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/a"})
		},
		"stored, erased, and stored with a third": func(t *testing.T, s *redisinbox.Store) {
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "two", "payload")))
			change(t, s, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/a"})
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "three", "payload")))
		},
		"stored with the same key and erased": func(t *testing.T, s *redisinbox.Store) {
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "one", "payload")))
			change(t, s, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/a"})
		},
		"taken for abandoned, and stored with another key": func(t *testing.T, s *redisinbox.Store) {
			time.Sleep(11 * time.Minute)
			for range 2 {
				_, err := s.Sweep(t.Context(), 100)
				require.NoError(t, err)
			}
			require.Equal(t, []inbox.Answer{inbox.Accepted}, accept(t, s, arrival("a", "two", "payload")))
		},
	} {
		inBubble(t, name, func(t *testing.T, open func() redis.UniversalClient) {
			others := newWith(t, open(), redisinbox.Options{})
			accept(t, others, arrival("warm", "warm", "x")) // the script cache
			change(t, others, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/warm"})

			client := open()
			pipelines := 0
			client.(interface{ AddHook(redis.Hook) }).AddHook(before{func() {
				if pipelines++; pipelines == 2 {
					meanwhile(t, others)
				}
			}})
			accept(t, newWith(t, client, redisinbox.Options{}), arrival("a", "one", "payload"))
			require.GreaterOrEqual(t, pipelines, 2)
			for _, key := range []string{"two", "three", "four", "one"} {
				require.Equal(t, []inbox.Answer{inbox.Duplicate}, accept(t, others, arrival("a", key, "payload")))
				require.Equal(t, []inbox.Answer{inbox.Conflict}, accept(t, others, arrival("a", key, "other")))
			}
			totals, err := others.Totals(t.Context())
			require.NoError(t, err)
			require.Equal(t, [2]int{1, 1}, [2]int{totals.Pending, totals.Conflicts})
			require.Len(t, workAll(t, others, inbox.DefaultStream), 1)
		})
	}
}

// inBubble runs a test in a bubble, with a miniredis of its own.
func inBubble(t *testing.T, name string, test func(t *testing.T, open func() redis.UniversalClient)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := miniredis.NewMiniRedis()
			t.Cleanup(server.Close)
			test(t, func() redis.UniversalClient {
				client := newPipeClient(server)
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				return client
			})
		})
	})
}

// before calls a function before each pipeline.
type before struct{ call func() }

func (b before) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b before) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.call()
		return next(ctx, cmds)
	}
}

// Of many processes that accept one ID at once, each with a key of its own, one
// stores it, and all others are told that it is known.
func TestRivals(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string][]string{"Redis": {testenv.Redis(t)}, "Redis Cluster": testenv.RedisCluster(t)} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: addrs}))
			for round := range 20 {
				const rivals = 8
				id := fmt.Sprint("round", round)
				answers := make([]inbox.Answer, rivals)
				var all sync.WaitGroup
				for i := range rivals {
					all.Go(func() {
						for range 20 { // until it has an answer
							got, err := store.Accept(context.Background(), params, []inbox.Arrival{arrival(id, fmt.Sprint("key", i), fmt.Sprint("payload", i%2))})
							if err == nil {
								answers[i] = got[0]
								return
							}
						}
					})
				}
				all.Wait()
				n := map[inbox.Answer]int{}
				for _, a := range answers {
					n[a]++
				}
				require.Equal(t, map[inbox.Answer]int{inbox.Accepted: 1, inbox.Duplicate: rivals/2 - 1, inbox.Conflict: rivals / 2}, n)
				rs, err := store.List(t.Context(), inbox.Query{ID: "p/" + id, N: 10})
				require.NoError(t, err)
				require.Len(t, rs, 2)
			}
			require.Len(t, workAll(t, store, inbox.DefaultStream), 20)
		})
	}
}

// What was erased leaves nothing but its void nonce, for some minutes, and a key whose
// owner died after its last record leaves nothing at all.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		client := newPipeClient(server)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		s := newWith(t, client, redisinbox.Options{Partitions: 3})
		sweep := func() {
			_, err := s.Sweep(t.Context(), 1000)
			require.NoError(t, err)
		}
		accept(t, s, arrival("a", "k", "x"), arrival("b", "l", "x"))
		a := ask(10)
		a.Lease = time.Minute
		claimed, err := s.Claim(t.Context(), a)
		require.NoError(t, err)
		for _, c := range claimed.Claims {
			settle(t, s, settlement(inbox.KindDone, c, c.Records[0].ID)) // and it dies
		}
		change(t, s, inbox.Change{Kind: inbox.ChangeForget, Nonce: randomNonce(), ID: "p/a"})
		left := 0
		for _, row := range leftovers(t, server) {
			if _, row, _ = strings.Cut(row, " "); strings.HasSuffix(row, "p/a") || strings.Contains(row, "wamid.a") {
				require.Equal(t, "f", row[:1], row)
				left++
			}
		}
		require.Equal(t, 2, left, "the void nonce, and when it was made void")
		time.Sleep(2 * time.Hour)
		sweep()
		time.Sleep(11 * time.Minute)
		sweep()
		require.Empty(t, leftovers(t, server))
	})
}
