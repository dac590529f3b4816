package pginbox_test

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/retry"
)

var params = inbox.Params{Retention: time.Hour, Keep: 2 * time.Hour}

func event(key, id string) inbox.Event {
	return inbox.Event{ID: "p/" + id, Provider: "p", Type: "t", Key: key, Payload: []byte("body of " + id)}
}

func arrival(key, id string) inbox.Arrival {
	e := event(key, id)
	return inbox.Arrival{Event: e, Digest: sha256.Sum256(e.Payload), Streams: []string{inbox.DefaultStream}}
}

var nonces atomic.Uint64

func newAsk(lease time.Duration) inbox.Ask {
	n := nonces.Add(1)
	a := inbox.Ask{Stream: inbox.DefaultStream, Keys: 100, Events: 100, Bytes: 1 << 20, Lease: lease}
	for i := range 8 {
		a.Nonce[i] = byte(n >> (8 * i))
	}
	return a
}

func settlement(k inbox.Kind, c inbox.Claim, id string) inbox.Settlement {
	return inbox.Settlement{Kind: k, Stream: c.Stream, Key: c.Key, Token: c.Token, ID: id}
}

// A desk is a box on a schema of its own, with a table for effects.
type desk struct {
	*testing.T
	store  *pginbox.Store
	box    *inbox.Box
	pool   *pgxpool.Pool
	schema string
}

func newDesk(t *testing.T) *desk {
	store, pool, schema := newStore(t)
	return deskOn(t, store, pool, schema)
}

func deskOn(t *testing.T, store *pginbox.Store, pool *pgxpool.Pool, schema string) *desk {
	box, err := inbox.New(store, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS "+schema+".effects (id bigint GENERATED ALWAYS AS IDENTITY, key text, event text)")
	require.NoError(t, err)
	return &desk{t, store, box, pool, schema}
}

// accept stores events of one key, and fails if one is not new.
func (d *desk) accept(key string, ids ...string) {
	d.Helper()
	var events []inbox.Event
	for _, id := range ids {
		events = append(events, event(key, id))
	}
	answers, err := d.box.Accept(d.Context(), events...)
	require.NoError(d, err)
	for _, a := range answers {
		require.Equal(d, inbox.Accepted, a)
	}
}

// write is a handler's effect.
func (d *desk) write(ctx context.Context, tx pgx.Tx, r inbox.Record) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+d.schema+".effects (key, event) VALUES ($1, $2)", r.Key, r.ID)
	return err
}

// effects are the events that have had an effect, in order; of one key, or of all.
func (d *desk) effects(key string) []string {
	d.Helper()
	rows, err := d.pool.Query(context.Background(), "SELECT event FROM "+d.schema+".effects WHERE $1 IN ('', key) ORDER BY id", key)
	require.NoError(d, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(d, err)
	return ids
}

// work works with handle until nothing is pending.
func (d *desk) work(handle func(context.Context, inbox.Record) inbox.Outcome) {
	d.Helper()
	ctx, stop := context.WithTimeout(d.Context(), 2*time.Minute)
	defer stop()
	done := make(chan error)
	go func() { done <- d.box.Work(ctx, handle, quick) }()
	require.Eventually(d, func() bool {
		totals, err := d.box.Totals(d.Context())
		return err == nil && totals.Pending == 0
	}, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(d, <-done)
}

var quick = &inbox.WorkOptions{Backoff: retry.Constant(time.Millisecond), Lease: time.Second, MaxAttempts: 1000, Poll: 10 * time.Millisecond}
