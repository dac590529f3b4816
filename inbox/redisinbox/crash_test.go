package redisinbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 500, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	testenv.Long(t)
	killedServer(t, 5000, 10)
}

// killedServer kills a server that flushes every write before it answers, while
// events are accepted and worked. Then every event that was accepted was worked, those
// of a key in order, and none again whose end was acknowledged.
func killedServer(t *testing.T, events, kills int) {
	const keys, workers = 4, 3
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()

	var mu sync.Mutex
	ended := map[string]bool{} // acknowledged
	handed := make([]int, keys)
	var faults []string
	var last error // what was answered last, for a test that hangs
	note := func(err error) bool {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			last = err
		}
		return err != nil
	}
	var all sync.WaitGroup
	for k := range keys {
		all.Go(func() {
			for n := 0; n < events && ctx.Err() == nil; n += 10 {
				var batch []inbox.Arrival
				for i := n; i < n+10; i++ {
					batch = append(batch, arrival(fmt.Sprintf("%d-%06d", k, i), fmt.Sprint("key", k), "payload"))
				}
				answers, err := s.Accept(ctx, params, batch)
				for note(err) && ctx.Err() == nil { // the provider sends it again
					answers, err = s.Accept(ctx, params, batch)
				}
				for _, a := range answers {
					if a != inbox.Accepted && a != inbox.Duplicate {
						mu.Lock()
						faults = append(faults, fmt.Sprint("an event was answered ", a))
						mu.Unlock()
					}
				}
			}
		})
	}
	finished := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ended) == keys*events
	}
	for range workers {
		all.Go(func() {
			for !finished() && ctx.Err() == nil {
				a := ask(2)
				a.Events, a.Lease = 20, 2*time.Second
				claimed, err := s.Claim(ctx, a)
				for note(err) && ctx.Err() == nil { // the same ask, sent again
					claimed, err = s.Claim(ctx, a)
				}
				for _, c := range claimed.Claims {
					var steps []inbox.Settlement
					mu.Lock()
					for i, r := range c.Records {
						var k, n int
						_, _ = fmt.Sscanf(r.ID, "p/%d-%d", &k, &n)
						if ended[r.ID] {
							faults = append(faults, r.ID+" was handed out again")
						}
						if n > handed[k] || i > 0 && n != handed[k] {
							faults = append(faults, fmt.Sprintf("%s was handed out before %d", r.ID, handed[k]))
						}
						handed[k] = n + 1
						steps = append(steps, settlement(inbox.KindBegin, c, r.ID), settlement(inbox.KindDone, c, r.ID))
					}
					mu.Unlock()
					steps = append(steps, settlement(inbox.KindRelease, c, ""))
					errs, err := s.Settle(ctx, params, steps)
					again := false
					for note(err) && ctx.Err() == nil {
						errs, err = s.Settle(ctx, params, steps)
						again = true
					}
					note(errors.Join(errs...))
					mu.Lock()
					for i, r := range c.Records { // of a batch sent again, what was begun has ended
						if err == nil && (errs == nil || errs[2*i+1] == nil) {
							ended[r.ID] = true
						} else if err == nil && !again && !errors.Is(errs[2*i+1], inbox.ErrStale) {
							faults = append(faults, fmt.Sprint(r.ID, ": ", errs[2*i+1]))
						}
					}
					mu.Unlock()
				}
			}
		})
	}
	for range kills {
		time.Sleep(300 * time.Millisecond) // under load
		server.Kill()
		server.Start()
	}
	all.Wait()
	require.NoError(t, ctx.Err(), "%d have ended; the last error: %v", len(ended), last)
	require.Empty(t, faults)
	totals, err := s.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, inbox.Totals{Done: keys * events}, totals)
}

// A server that starts from an older dump has gone back: what was accepted since is
// new when it is delivered again, what was done since is worked again, under a token
// above all earlier ones, and owners of the time that was lost change nothing.
func TestOlderDump(t *testing.T) {
	t.Parallel()
	server := testenv.RedisOwn(t)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	accept(t, s, arrival("kept", "k", "x"))
	require.NoError(t, client.Save(t.Context()).Err())
	accept(t, s, arrival("lost", "k", "x"))
	claimed, err := s.Claim(t.Context(), ask(1))
	require.NoError(t, err)
	lost := claimed.Claims[0]
	settle(t, s, settlement(inbox.KindDone, lost, "p/kept"), settlement(inbox.KindBegin, lost, "p/lost"))
	server.Kill()
	server.Start()

	errs, err := s.Settle(t.Context(), params, []inbox.Settlement{settlement(inbox.KindDone, lost, "p/lost"), settlement(inbox.KindRelease, lost, "")})
	require.NoError(t, err)
	require.Equal(t, []error{inbox.ErrStale, inbox.ErrStale}, errs)
	require.Equal(t, []inbox.Answer{inbox.Duplicate, inbox.Accepted}, accept(t, s, arrival("kept", "k", "x"), arrival("lost", "k", "x")))
	claimed, err = s.Claim(t.Context(), ask(1))
	require.NoError(t, err)
	require.Greater(t, claimed.Claims[0].Token, lost.Token)
	require.Len(t, claimed.Claims[0].Records, 2)
}
