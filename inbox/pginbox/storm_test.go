package pginbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	allAtOnce(t, 40)
}

func TestLongAllAtOnce(t *testing.T) {
	testenv.Long(t)
	allAtOnce(t, testenv.LongCount(t, 300, 2000))
}

// allAtOnce accepts in transactions of every length, some of which are rolled back,
// works in three stores as three processes would, replays, redacts and forgets, and
// sweeps with a retention of nearly nothing, all at once. Every event that was
// committed and not forgotten is worked; those of a key in order, and one at a time; and
// no step ends in a deadlock.
func allAtOnce(t *testing.T, each int) {
	const writers, keysOfEach = 4, 3
	_, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 24 })
	ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Duration(each)*100*time.Millisecond)
	defer stop()
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	open := func() (*pginbox.Store, *inbox.Box) {
		store, err := pginbox.New(pool, &pginbox.Options{Schema: schema})
		require.NoError(t, err)
		box, err := inbox.New(store, &inbox.Options{Retention: 50 * time.Millisecond, Keep: time.Second, Logger: logger})
		require.NoError(t, err)
		return store, box
	}
	noDeadlock := func(what string, err error) {
		if pgcall.HasCode(err, "40P01") {
			t.Errorf("%s: %v", what, err)
		}
	}

	var mu sync.Mutex
	worked := map[string]int{}       // by event
	forgotten := map[string]bool{}   // or it may be
	first := map[string][]string{}   // by key: events in the order of their first completion
	running := map[string]*tracked{} // by key
	handle := func(ctx context.Context, r inbox.Record) inbox.Outcome {
		mine := &tracked{ctx}
		mu.Lock()
		if other := running[r.Key]; other != nil && other.Err() == nil {
			t.Errorf("%s is worked while another event of %s is", r.ID, r.Key)
		}
		running[r.Key] = mine
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			if running[r.Key] == mine {
				delete(running, r.Key)
			}
		}()
		if rand.IntN(8) == 0 {
			return inbox.Retry(time.Duration(rand.IntN(3))*time.Millisecond, errors.New("not yet"))
		}
		mu.Lock()
		defer mu.Unlock()
		if worked[r.ID]++; worked[r.ID] == 1 {
			first[r.Key] = append(first[r.Key], r.ID)
		}
		if rand.IntN(4) == 0 {
			return inbox.Quarantine(errors.New("look at it"))
		}
		return inbox.Done()
	}
	var back, front, busy sync.WaitGroup
	working, finish := context.WithCancel(ctx)
	for range 3 {
		_, box := open()
		back.Go(func() {
			assert.NoError(t, box.Work(working, handle, &inbox.WorkOptions{
				Concurrency: 5, Batch: 1 + rand.IntN(4), Lease: 20 * time.Second, Poll: 10 * time.Millisecond, Backoff: quick.Backoff, MaxAttempts: 1000}))
		})
	}

	accepted := make([][]string, writers*keysOfEach)
	for w := range writers {
		store, box := open()
		front.Go(func() {
			for i := range each {
				k := w*keysOfEach + i%keysOfEach
				e := event(fmt.Sprint("key-", k), fmt.Sprintf("%d-%05d", k, i))
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := box.With(store.Tx(tx)).Accept(ctx, e); err != nil {
						return err
					}
					switch rand.IntN(10) {
					case 0:
						return errUndone
					case 1:
						_, err := tx.Exec(ctx, "SELECT pg_sleep(0.02)")
						return err
					}
					return nil
				})
				if errors.Is(err, errUndone) {
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				accepted[k] = append(accepted[k], e.ID)
				mu.Unlock()
			}
		})
	}

	someone := func() string { // whose event may be pending, running, done or gone
		mu.Lock()
		defer mu.Unlock()
		if ids := accepted[rand.IntN(len(accepted))]; len(ids) > 0 {
			return ids[rand.IntN(len(ids))]
		}
		return "nobody"
	}
	changed := [5]atomic.Int64{}
	for range 2 {
		store, _ := open()
		busy.Go(func() {
			for working.Err() == nil {
				var changes []inbox.Change
				for range 1 + rand.IntN(5) {
					c := inbox.Change{Kind: inbox.ChangeReplay + inbox.ChangeKind(rand.IntN(3)), ID: someone(), Actor: "somebody"}
					if rand.IntN(30) == 0 {
						c.Kind = inbox.ChangeForget
					}
					c.Nonce = newAsk(time.Second).Nonce
					if c.Kind == inbox.ChangeForget {
						mu.Lock()
						forgotten[c.ID] = true
						mu.Unlock()
					}
					changes = append(changes, c)
				}
				errs, err := store.Change(working, params, changes)
				noDeadlock("change", err)
				for i, c := range changes {
					if err == nil && (errs == nil || errs[i] == nil) {
						changed[c.Kind].Add(1)
					}
				}
			}
		})
		busy.Go(func() {
			for working.Err() == nil {
				_, err := store.Sweep(working, 1+rand.IntN(100))
				noDeadlock("sweep", err)
			}
		})
	}
	front.Wait()
	missing := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, ids := range accepted {
			for _, id := range ids {
				if worked[id] == 0 && !forgotten[id] {
					n++
				}
			}
		}
		return n
	}
	assert.Eventually(t, func() bool { return missing() == 0 }, time.Minute, 5*time.Millisecond)
	finish()
	busy.Wait()
	back.Wait()
	require.NotContains(t, log.String(), "40P01", "a deadlock")
	require.Zero(t, missing(), "events that were committed and never worked")
	for k, ids := range accepted {
		var want []string
		for _, id := range ids {
			if worked[id] > 0 {
				want = append(want, id)
			}
		}
		require.Equal(t, want, first[fmt.Sprint("key-", k)], "order of a key")
	}
	for kind := inbox.ChangeReplay; kind <= inbox.ChangeForget; kind++ {
		assert.Positive(t, changed[kind].Load(), "no %v was applied: this test shows nothing of it", kind)
	}
	t.Logf("applied: %d replays, %d resolutions, %d redactions, %d forgotten", changed[1].Load(), changed[2].Load(), changed[3].Load(), changed[4].Load())
}

var errUndone = errors.New("undone")

type tracked struct{ context.Context }

type lockedBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}
