package pginbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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
	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/retry"
)

func TestKilledServerUnderLoad(t *testing.T) {
	t.Parallel()
	killedServer(t, 200, 2)
}

func TestLongKilledServerUnderLoad(t *testing.T) {
	testenv.Long(t)
	killedServer(t, testenv.LongCount(t, 800, 3_000), testenv.LongCount(t, 5, 10))
}

var crashing = &inbox.WorkOptions{Backoff: retry.Constant(time.Millisecond), Lease: time.Second, MaxAttempts: 1000, Poll: 20 * time.Millisecond}

// killedServer accepts events of eight keys, and works them in transactions, while
// the server is killed again and again: each effect is there once and in order, and
// every answered event is worked.
func killedServer(t *testing.T, events, kills int) {
	const keys = 8
	server := testenv.PostgresOwn(t)
	store, pool, schema := newStoreOn(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 20 })
	d := deskOn(t, store, pool, schema)

	ctx, stop := context.WithCancel(t.Context())
	var front, back sync.WaitGroup
	var accepted, unanswered atomic.Int64
	for k := range keys {
		front.Go(func() {
			for n := 0; n < events && ctx.Err() == nil; {
				_, err := d.box.Accept(ctx, event(fmt.Sprint("key-", k), fmt.Sprintf("%d-%05d", k, n)))
				if err != nil { // whether it was stored is not known: again
					unanswered.Add(1)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				accepted.Add(1)
				n++
			}
		})
	}
	for range 2 { // as two processes
		other, err := pginbox.New(pool, &pginbox.Options{Schema: schema})
		require.NoError(t, err)
		box, err := inbox.New(other, nil)
		require.NoError(t, err)
		back.Go(func() {
			assert.NoError(t, box.Work(ctx, other.InTx(box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
				return inbox.OutcomeOf(d.write(ctx, tx, r))
			}), crashing))
		})
	}
	for n := range kills {
		target := int64(events) * keys * int64(n+1) / int64(kills+1)
		require.Eventually(t, func() bool { return accepted.Load() >= target }, time.Minute, time.Millisecond)
		server.Kill()
		server.Start()
	}
	front.Wait()
	for done := -1; done < keys*events; { // however long it takes, it goes on
		var now inbox.Totals
		if !assert.Eventually(t, func() bool {
			var err error
			now, err = d.box.Totals(ctx)
			return err == nil && now.Done > done
		}, time.Minute, 20*time.Millisecond, "%d of %d are done", done, keys*events) {
			break
		}
		done = now.Done
	}
	stop()
	back.Wait()
	for k := range keys {
		var want []string
		for n := range events {
			want = append(want, fmt.Sprintf("p/%d-%05d", k, n))
		}
		require.Equal(t, want, d.effects(fmt.Sprint("key-", k)))
	}
	t.Logf("%d events, %d calls without an answer", accepted.Load(), unanswered.Load())
}

// Where a child finds the server and the schema it works on until it is killed.
const (
	crashURL    = "PGINBOX_CRASH_URL"
	crashSchema = "PGINBOX_CRASH_SCHEMA"
)

// workUntilKilled works events in transactions. A handler takes a while after it
// has written, so that the process dies in it.
func workUntilKilled(url, schema string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	store, err := pginbox.New(pool, &pginbox.Options{Schema: schema})
	if err != nil {
		return err
	}
	box, err := inbox.New(store, nil)
	if err != nil {
		return err
	}
	return box.Work(context.Background(), store.InTx(box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		_, err := tx.Exec(ctx, "INSERT INTO "+schema+".effects (key, event) VALUES ($1, $2)", r.Key, r.ID)
		time.Sleep(5 * time.Millisecond)
		return inbox.OutcomeOf(err)
	}), crashing)
}

// A worker process is killed again and again. Its events run again within seconds,
// in order, and each has its effect once.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	killedWorker(t, 120, 3)
}

func TestLongKilledWorker(t *testing.T) {
	testenv.Long(t)
	killedWorker(t, testenv.LongCount(t, 500, 2_000), testenv.LongCount(t, 6, 20))
}

func killedWorker(t *testing.T, events, kills int) {
	d := newDesk(t)
	want := map[string][]string{}
	for i := range events {
		key, id := fmt.Sprint("key-", i%7), fmt.Sprintf("%05d", i)
		d.accept(key, id)
		want[key] = append(want[key], "p/"+id)
	}
	for n := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashURL+"="+testenv.Postgres(t), crashSchema+"="+d.schema)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		before := len(d.effects(""))
		assert.Eventually(t, func() bool { return len(d.effects("")) > before+events/(kills+1)/2 }, time.Minute, time.Millisecond,
			"kill %d: the events of the last worker do not run again", n)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Empty(t, stderr.String())
	}
	start := time.Now()
	d.work(d.store.InTx(d.box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
		return inbox.OutcomeOf(d.write(ctx, tx, r))
	}))
	assert.Less(t, time.Since(start), 10*time.Second)
	t.Logf("the rest was worked within %v of the last kill, with a lease of %v", time.Since(start), crashing.Lease)
	for key, ids := range want {
		require.Equal(t, ids, d.effects(key))
	}
}
