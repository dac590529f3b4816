package redisdlq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 60, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 5, 30)
	killedServer(t, 100*kills, kills)
}

// killedServer kills a server that flushes every write before it answers, while letters
// are put, worked, fail, are decided by a person, and are worked again. Then every
// letter that was answered as added is resolved, those of a key in order, and none again
// whose end was acknowledged; each has had the failures that were acknowledged, and each
// decision is one entry.
func killedServer(t *testing.T, each, kills int) {
	const keys, workers = 4, 3
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, MaxRetries: -1}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Duration(kills)*5*time.Second)
	defer cancel()
	c := &chaos{t: t, ctx: ctx, store: s, resolved: map[string]bool{}, working: make([]int, keys), all: keys * each}
	var all sync.WaitGroup
	for k := range keys {
		all.Go(func() { c.put(k, each) })
	}
	for range workers {
		all.Go(c.work)
	}
	all.Go(c.review)
	for n := range kills {
		for c.progress() < c.all*n/(kills+1)+1 && ctx.Err() == nil { // until there is something to lose
			time.Sleep(time.Millisecond)
		}
		server.Kill()
		server.Start()
	}
	all.Wait()
	require.NoError(t, ctx.Err(), "%d of %d have ended; the last error: %v", len(c.resolved), c.all, c.last)
	require.Empty(t, c.faults)
	require.Equal(t, dlq.Totals{Stream: "s", Resolved: c.all}, totals(t, s)["s"])
	groups, err := s.Groups(t.Context(), "s", "", 10)
	require.NoError(t, err)
	require.Empty(t, groups)
	failed := 0
	for _, r := range list(t, s, dlq.Query{Stream: "s", N: 500}) {
		if n := r.Log.Total(); n != 1 && n != 2 {
			t.Errorf("a letter has had %d failures", n)
		} else {
			failed += n - 1
		}
	}
	require.Equal(t, c.all/10, failed)
	entries, q := 0, dlq.AuditQuery{Stream: "s", N: 500}
	for {
		page, next, err := s.Audit(t.Context(), q)
		require.NoError(t, err)
		entries += len(page)
		if q.After = next; next == 0 {
			break
		}
	}
	require.Equal(t, c.all/10, entries)
	require.GreaterOrEqual(t, c.lost, 1, "no call was without an answer")
	t.Logf("%d letters, %d calls without an answer", c.all, c.lost)
}

// A chaos is what clients know of a server that is killed again and again.
type chaos struct {
	t     *testing.T
	ctx   context.Context
	store dlq.Store
	all   int

	mu       sync.Mutex
	resolved map[string]bool // acknowledged
	working  []int           // of each key, which letter was handed out last
	faults   []string
	last     error
	lost     int
}

// again says whether a call has to be sent again.
func (c *chaos) again(err error) bool {
	if err == nil || c.ctx.Err() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = err
	c.lost++
	return true
}

func (c *chaos) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *chaos) progress() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.resolved)
}

func (c *chaos) finished() bool { return c.progress() == c.all || c.ctx.Err() != nil }

func (c *chaos) put(key, n int) {
	for from := 0; from < n; from += 10 {
		var batch []dlq.Put
		for i := from; i < from+10; i++ {
			batch = append(batch, letter("s", fmt.Sprintf("%d-%06d", key, i), fmt.Sprint("key", key)))
		}
		answers, err := c.store.Put(c.ctx, params, batch)
		for c.again(err) {
			answers, err = c.store.Put(c.ctx, params, batch)
		}
		for _, a := range answers {
			if a != dlq.Added {
				c.fault("a letter was answered %v", a)
			}
		}
	}
}

// work resolves letters; every tenth goes to a person when it is tried first.
func (c *chaos) work() {
	for !c.finished() {
		a := ask("s", 2)
		a.Lease = 2 * time.Second
		claimed, err := c.store.Claim(c.ctx, a)
		for c.again(err) {
			claimed, err = c.store.Claim(c.ctx, a)
		}
		for _, k := range claimed.Claims {
			kind := dlq.KindResolve
			var key, n int
			_, _ = fmt.Sscanf(k.Record.ID, "%d-%d", &key, &n)
			if n%10 == 5 && k.Record.Log.Total() == 1 {
				kind = dlq.KindReview
			}
			c.mu.Lock()
			if c.resolved[k.Record.ID] {
				c.faults = append(c.faults, k.Record.ID+" was handed out again")
			}
			if was := c.working[key]; n != was && n != was+1 {
				c.faults = append(c.faults, fmt.Sprintf("%s was handed out behind %d", k.Record.ID, was))
			}
			c.working[key] = n
			c.mu.Unlock()
			batch := []dlq.Settlement{settlement(kind, k)}
			errs, err := c.store.Settle(c.ctx, params, batch)
			for c.again(err) {
				errs, err = c.store.Settle(c.ctx, params, batch)
			}
			if err == nil && errs == nil && kind == dlq.KindResolve {
				c.mu.Lock()
				c.resolved[k.Record.ID] = true
				c.mu.Unlock()
			} else if err == nil && errs != nil {
				c.stale(k)
			}
		}
	}
}

// stale looks what became of a letter whose worker lost it: another may have it now.
func (c *chaos) stale(k dlq.Claim) {
	q := dlq.Query{Stream: "s", ID: k.Record.ID, N: 1}
	p, err := c.store.List(c.ctx, q)
	for c.again(err) {
		p, err = c.store.List(c.ctx, q)
	}
	if err == nil && len(p.Records) == 0 {
		c.fault("%s is gone", k.Record.ID)
	}
}

// review approves all that is before a person.
func (c *chaos) review() {
	for !c.finished() {
		p, err := c.store.List(c.ctx, dlq.Query{Stream: "s", State: dlq.StateReview, N: 10, Heads: true})
		if c.again(err) || len(p.Records) == 0 {
			time.Sleep(time.Millisecond) // nobody tells it when there is something
			continue
		}
		for _, r := range p.Records {
			batch := []dlq.Change{changeOf(dlq.ChangeApprove, r)}
			errs, err := c.store.Change(c.ctx, params, batch)
			for c.again(err) {
				errs, err = c.store.Change(c.ctx, params, batch)
			}
			if errs != nil {
				c.fault("an approval was answered %v", errs[0])
			}
		}
	}
}

// A server that starts from an older dump has gone back: what was put since is new when
// it is put again, what was done since is worked again, under a token above all earlier
// ones, and owners of the time that was lost change nothing. No number is used again.
func TestOlderDump(t *testing.T) {
	t.Parallel()
	server := testenv.RedisOwn(t)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	put(t, s, letter("s", "kept", "k"))
	require.NoError(t, client.Save(t.Context()).Err())
	lost := letter("s", "lost", "k")
	put(t, s, lost)
	lostRecord := record(t, s, "s", "lost")
	held := claim(t, s, ask("s", 1))[0]
	settle(t, s, settlement(dlq.KindResolve, held))
	server.Kill()
	server.Start()

	errs, err := s.Settle(t.Context(), params, []dlq.Settlement{settlement(dlq.KindResolve, held), settlement(dlq.KindRelease, held)})
	require.NoError(t, err)
	require.Equal(t, []error{dlq.ErrStale, dlq.ErrStale}, errs)
	put(t, s, lost)
	require.Greater(t, record(t, s, "s", "lost").Seq, lostRecord.Seq)
	errs, err = s.Change(t.Context(), params, []dlq.Change{changeOf(dlq.ChangeDiscard, lostRecord)})
	require.NoError(t, err)
	require.Equal(t, []error{dlq.ErrNotFound}, errs, "a decision about the letter that was lost is about no other")
	again := claim(t, s, ask("s", 1))[0]
	require.Equal(t, "kept", again.Record.ID)
	require.Greater(t, again.Token, held.Token)
}
