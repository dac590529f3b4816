package pginbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

// TestHistories compares random histories with memory, in a bubble. The server gets its
// time from a table. The rest of the suite has run in TestStore.
func TestHistories(t *testing.T) {
	t.Parallel()
	histories(t, 400)
}

func TestLongHistories(t *testing.T) { histories(t, testenv.LongCount(t, 1000, 10_000)) }

func histories(t *testing.T, steps int) {
	var ran atomic.Int32
	t.Cleanup(func() {
		if ran.Load() == 0 {
			t.Error("no subtest has the name of the histories")
		}
	})
	inboxtest.Run(t, inboxtest.Config{Bubble: true, Once: true, Steps: steps, New: func(t *testing.T) inbox.Store {
		if !strings.Contains(t.Name(), "RandomHistories") {
			t.Skip("TestStore runs it on the real clock")
		}
		ran.Add(1)
		return newClocked(t)
	}})
}

// clocked is a store whose server has the time of the caller's bubble.
type clocked struct {
	*pginbox.Store
	pool   *pgxpool.Pool
	schema string
	t      *testing.T
}

// newClocked makes everything within the bubble, also the connections.
func newClocked(t *testing.T) inbox.Store {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 4 })
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE `+schema+`.clock (now bigint);
		INSERT INTO `+schema+`.clock VALUES (0);
		CREATE OR REPLACE FUNCTION `+schema+`.inbox_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT now FROM `+schema+`.clock $$`)
	require.NoError(t, err)
	return &clocked{store, pool, schema, t}
}

// tick brings the server's clock to that of the bubble, for a step that was cancelled, too.
func (c *clocked) tick(ctx context.Context) {
	_, err := c.pool.Exec(context.WithoutCancel(ctx), "UPDATE "+c.schema+".clock SET now = $1 WHERE now <> $1", time.Now().UnixMicro())
	require.NoError(c.t, err)
}

func (c *clocked) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	c.tick(ctx)
	return c.Store.Accept(ctx, p, arrivals)
}

func (c *clocked) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	c.tick(ctx)
	return c.Store.Claim(ctx, a)
}

func (c *clocked) Settle(ctx context.Context, p inbox.Params, s []inbox.Settlement) ([]error, error) {
	c.tick(ctx)
	return c.Store.Settle(ctx, p, s)
}

func (c *clocked) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]error, error) {
	c.tick(ctx)
	return c.Store.Change(ctx, p, changes)
}

func (c *clocked) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	c.tick(ctx)
	return c.Store.List(ctx, q)
}

func (c *clocked) Totals(ctx context.Context) (inbox.Totals, error) {
	c.tick(ctx)
	return c.Store.Totals(ctx)
}

func (c *clocked) Sweep(ctx context.Context, n int) (int, error) {
	c.tick(ctx)
	return c.Store.Sweep(ctx, n)
}
