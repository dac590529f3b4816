package pginbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
)

// While an old snapshot keeps every dead row in place, claims do not read them
// again and again: what a claim touches does not grow with what was worked.
func TestClaimsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	reader, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer reader.Rollback(context.Background())
	_, err = reader.Exec(t.Context(), "SELECT count(*) FROM "+d.schema+".inbox_records")
	require.NoError(t, err)

	const n = 4000
	done := func(context.Context, inbox.Record) inbox.Outcome { return inbox.Done() }
	for from := 0; from < n; from += 1000 {
		var events []inbox.Event
		for i := range 1000 {
			events = append(events, event(fmt.Sprint(from+i), fmt.Sprint(from+i)))
		}
		_, err := d.box.Accept(t.Context(), events...)
		require.NoError(t, err)
		d.work(done)
	}
	floor := d.store.Floor(inbox.DefaultStream)
	assert.Greater(t, floor, int64(n-1000), "the floor rises with what was worked")

	buffers := func(floor int64) float64 {
		var text string
		err := d.pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM "+d.schema+
			".inbox_claim('default', '\\x00', 100, 1, 1, 1000000, $1, extract(epoch FROM now())::bigint * 1000000 - 500000, false, 0, 0, 0)",
			pgx.QueryExecModeSimpleProtocol, floor).Scan(&text)
		require.NoError(t, err)
		var plan []struct {
			Plan struct {
				Hit  float64 `json:"Shared Hit Blocks"`
				Read float64 `json:"Shared Read Blocks"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text), &plan))
		return plan[0].Plan.Hit + plan[0].Plan.Read
	}
	buffers(floor) // plans are made
	d.accept("last", "last")
	require.Greater(t, buffers(1), float64(n), "without a floor, a claim reads all that was worked: the snapshot is held")
	at := d.store.Floor(inbox.DefaultStream)
	d.accept("very last", "very last")
	d.work(done) // the floor goes on to where nothing is
	d.accept("truly", "truly")
	at = max(at, d.store.Floor(inbox.DefaultStream))
	require.Less(t, buffers(at), float64(n/4))
}

// Claims of a new inbox, which find nothing, do not go past the first event; nor do
// those between any two.
func TestEachEventIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i := range 50 {
		for range 4 {
			claimed, err := d.store.Claim(t.Context(), newAsk(time.Hour))
			require.NoError(t, err)
			require.Empty(t, claimed.Claims)
		}
		d.accept(fmt.Sprint(i), fmt.Sprint(i))
		claimed, err := d.store.Claim(t.Context(), newAsk(time.Hour))
		require.NoError(t, err)
		require.Len(t, claimed.Claims, 1)
	}
}

// Events are accepted by many, some in transactions that commit late, and worked
// by several stores: none is missed because a claim has gone past its number.
func TestNothingIsMissed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const writers, each = 6, 60
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var front, back sync.WaitGroup
	var worked sync.Map
	var count atomic.Int64
	for range 2 {
		store, err := pginbox.New(d.pool, &pginbox.Options{Schema: d.schema})
		require.NoError(t, err)
		store.NeverRescan()
		box, err := inbox.New(store, nil)
		require.NoError(t, err)
		back.Go(func() {
			assert.NoError(t, box.Work(ctx, func(_ context.Context, r inbox.Record) inbox.Outcome {
				if _, twice := worked.LoadOrStore(r.ID, true); twice {
					t.Errorf("%s was worked twice", r.ID)
				}
				if count.Add(1) == writers*each {
					stop()
				}
				return inbox.Done()
			}, &inbox.WorkOptions{Poll: quick.Poll, Lease: 5 * time.Second}))
		})
	}
	for w := range writers {
		front.Go(func() {
			for i := range each {
				e := event(fmt.Sprint("key-", (w+i)%9), fmt.Sprintf("%d-%d", w, i))
				// Not under ctx, which can end before the answer to the last commit is here.
				err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
					_, err := d.box.With(d.store.Tx(tx)).Accept(t.Context(), e)
					if err == nil && i%5 == w%5 { // others go past it
						_, err = tx.Exec(t.Context(), "SELECT pg_sleep(0.03)")
					}
					return err
				})
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	front.Wait()
	back.Wait()
	require.EqualValues(t, writers*each, count.Load())
}

// A bell that is pressed while it rings rings once more, for all of them.
func TestBellRingsForAll(t *testing.T) {
	rings := make(chan struct{})
	bell := pginbox.NewBell(func() { rings <- struct{}{} })
	bell.Press()
	for range 100 {
		bell.Press() // it waits for us
	}
	<-rings
	<-rings
	bell.Press()
	<-rings
	select {
	case <-rings:
		t.Fatal("it rang for nobody")
	default:
	}
}
