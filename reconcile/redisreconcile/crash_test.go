package redisreconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 80, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 5, 30)
	killedServer(t, 150*kills, kills)
}

// killedServer kills a server that flushes every write before it answers, while operations
// are begun, sent, doubted, looked for, and confirmed. Then every one is confirmed; the
// remote, which keeps no keys, has had each once; the counts are what the operations are; and
// of each the two statuses are there that were appended.
func killedServer(t *testing.T, each, kills int) {
	const callers, workers = 4, 2
	server := testenv.RedisOwn(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, MaxRetries: -1}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Duration(kills)*5*time.Second)
	defer cancel()
	c := &chaos{ctx: ctx, store: s, all: callers * each, sent: map[string]int{}, confirmed: map[string]bool{}}
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() { c.call(n, each) })
	}
	for range workers {
		all.Go(c.queue)
	}
	for n := range kills {
		for c.progress() < c.all*n/(kills+1)+1 && ctx.Err() == nil { // until there is something to lose
			time.Sleep(time.Millisecond)
		}
		server.Kill()
		server.Start()
	}
	all.Wait()
	require.NoError(t, ctx.Err(), "%d of %d have ended; the last error: %v", c.progress(), c.all, c.last)
	require.Empty(t, c.faults)
	require.Len(t, c.sent, c.all)
	for key, n := range c.sent {
		require.Equal(t, 1, n, key)
	}
	got := counts(t, s)["acct"]
	require.Equal(t, c.all, got.Confirmed)
	require.Equal(t, c.all, got.Started+got.Accepted+got.Confirmed+got.Failed+got.Unknown)
	consistent(t, s)
	for key := range c.sent {
		require.Len(t, read(t, s.Timeline(), reconcile.Ref{Message: key}).Observations, 2, key)
	}
	require.GreaterOrEqual(t, c.lost, 1, "no call was without an answer")
	t.Logf("%d operations, %d calls without an answer", c.all, c.lost)
}

// A chaos is what clients know of a server that is killed again and again.
type chaos struct {
	ctx   context.Context
	store *redisreconcile.Store
	all   int

	mu        sync.Mutex
	sent      map[string]int
	confirmed map[string]bool
	faults    []string
	last      error
	lost      int
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
	return len(c.confirmed)
}

func (c *chaos) finished() bool { return c.progress() == c.all || c.ctx.Err() != nil }

// call begins operations, ten at a time, sends them, and has heard no answer of every third.
func (c *chaos) call(n, each int) {
	for from := 0; from < each; from += 10 {
		var asks []reconcile.Ask
		for i := from; i < min(from+10, each); i++ {
			asks = append(asks, ask(fmt.Sprintf("%d-%05d", n, i)))
		}
		answers, err := c.store.Begin(c.ctx, params, asks)
		for c.again(err) {
			answers, err = c.store.Begin(c.ctx, params, asks)
		}
		for i, a := range answers {
			if a.Grant != reconcile.Send || a.Entry.Attempts != 1 {
				c.fault("a new operation was answered %v, attempt %d", a.Grant, a.Entry.Attempts)
				continue
			}
			c.send(a.Entry.Key, "sent")
			if i%3 == 0 {
				c.settle(with(reconcile.VerbDoubt, a.Entry))
			} else {
				c.settle(with(reconcile.VerbConfirm, a.Entry))
			}
		}
	}
}

// queue looks for what is due. The remote has had it.
func (c *chaos) queue() {
	p := params
	p.Lease = 2 * time.Second
	for !c.finished() {
		a := reconcile.ClaimAsk{Nonce: randomNonce(), N: 5}
		entries, _, err := c.store.Claim(c.ctx, p, a)
		for c.again(err) {
			entries, _, err = c.store.Claim(c.ctx, p, a)
		}
		for _, e := range entries {
			if e.Attempts != 1 || e.Result != nil {
				c.fault("%s was handed out as %+v", e.Key, e)
			}
			c.settle(with(reconcile.VerbConfirm, e))
		}
	}
}

// send is the remote: it takes everything, and says so.
func (c *chaos) send(key, status string) {
	c.mu.Lock()
	c.sent[key]++
	c.mu.Unlock()
	o := said(key+status, key, "")
	os := []reconcile.Observation{o, said(key+"delivered", key, "")}
	answers, err := c.store.Timeline().Append(c.ctx, seen, os)
	for c.again(err) {
		answers, err = c.store.Timeline().Append(c.ctx, seen, os)
	}
	for _, a := range answers {
		if a != reconcile.Appended && a != reconcile.Repeated {
			c.fault("an observation was answered %v", a)
		}
	}
}

func (c *chaos) settle(s reconcile.Settlement) {
	batch := []reconcile.Settlement{s}
	errs, err := c.store.Settle(c.ctx, params, batch)
	for c.again(err) {
		errs, err = c.store.Settle(c.ctx, params, batch)
	}
	if err != nil {
		return
	}
	if errs != nil {
		if !errors.Is(errs[0], reconcile.ErrStale) { // its lease lapsed while the server was away: another has it
			c.fault("%v of %s: %v", s.Verb, s.Key, errs[0])
		}
		return
	}
	if s.Verb == reconcile.VerbConfirm {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.confirmed[s.Key] = true
	}
}

// A server that starts from an older dump has gone back: what was begun since is new when
// it is begun again, what ended since is open again, under a token above all earlier
// ones, and owners of the time that was lost change nothing.
func TestOlderDump(t *testing.T) {
	t.Parallel()
	server := testenv.RedisOwn(t)
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	s := newStore(t, client)
	settle(t, s, with(reconcile.VerbDoubt, start(t, s, "kept")[0]))
	require.NoError(t, client.Save(t.Context()).Err())
	held := claim(t, s, 1)[0]
	settle(t, s, with(reconcile.VerbConfirm, held))
	lost := start(t, s, "lost")[0]
	server.Kill()
	server.Start()

	errs, err := s.Settle(t.Context(), params, []reconcile.Settlement{with(reconcile.VerbConfirm, held), with(reconcile.VerbConfirm, lost)})
	require.NoError(t, err)
	require.Equal(t, []error{reconcile.ErrStale, reconcile.ErrStale}, errs)
	again := claim(t, s, 10)
	require.Equal(t, []string{"kept"}, keysOf(again))
	require.Greater(t, again[0].Token, held.Token)
	require.Greater(t, start(t, s, "lost")[0].Token, lost.Token)
}
