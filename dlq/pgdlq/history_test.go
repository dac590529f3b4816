package pgdlq_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
	"github.com/pawl-go/pawl/dlq/pgdlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// TestHistories compares random histories with memory, in a bubble. The server gets its
// time from a table. The rest of the suite has run in TestStore.
func TestHistories(t *testing.T) {
	t.Parallel()
	histories(t, 400)
}

func TestLongHistories(t *testing.T) { histories(t, testenv.LongCount(t, 600, 6000)) }

func histories(t *testing.T, steps int) {
	var ran atomic.Int32
	t.Cleanup(func() {
		if ran.Load() == 0 {
			t.Error("no subtest has the name of the histories")
		}
	})
	dlqtest.Run(t, dlqtest.Config{Bubble: true, Once: true, Steps: steps, New: func(t *testing.T) dlq.Store {
		if !strings.Contains(t.Name(), "RandomHistories") {
			t.Skip("TestStore runs it on the real clock")
		}
		ran.Add(1)
		return newClocked(t)
	}})
}

// clocked is a store whose server has the time of the caller's bubble.
type clocked struct {
	*pgdlq.Store
	pool   *pgxpool.Pool
	schema string
	t      *testing.T
}

// newClocked makes everything within the bubble, also the connections.
func newClocked(t *testing.T) dlq.Store {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 4 })
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE `+schema+`.clock (now bigint);
		INSERT INTO `+schema+`.clock VALUES (0);
		CREATE OR REPLACE FUNCTION `+schema+`.dlq_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT now FROM `+schema+`.clock $$;
		CREATE OR REPLACE FUNCTION `+schema+`.dlq_fold_sometimes(p_mode integer, p_stream text, p_rows integer) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
		BEGIN
			IF random() < 0.3 THEN PERFORM `+schema+`.dlq_fold(p_stream); END IF;
		END $$`)
	require.NoError(t, err)
	return &clocked{store, pool, schema, t}
}

// tick brings the server's clock to that of the bubble.
func (c *clocked) tick(ctx context.Context) {
	_, err := c.pool.Exec(ctx, "UPDATE "+c.schema+".clock SET now = $1 WHERE now <> $1", time.Now().UnixMicro())
	require.NoError(c.t, err)
}

func (c *clocked) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	c.tick(ctx)
	return c.Store.Put(ctx, p, letters)
}

func (c *clocked) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	c.tick(ctx)
	return c.Store.Claim(ctx, a)
}

func (c *clocked) Settle(ctx context.Context, p dlq.Params, s []dlq.Settlement) ([]error, error) {
	c.tick(ctx)
	return c.Store.Settle(ctx, p, s)
}

func (c *clocked) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	c.tick(ctx)
	return c.Store.Change(ctx, p, changes)
}

func (c *clocked) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	c.tick(ctx)
	return c.Store.SaveJob(ctx, p, j)
}

func (c *clocked) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	c.tick(ctx)
	return c.Store.Alert(ctx, alarms)
}

func (c *clocked) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	c.tick(ctx)
	return c.Store.Totals(ctx, after, n)
}

func (c *clocked) Sweep(ctx context.Context, n int) (int, error) {
	c.tick(ctx)
	return c.Store.Sweep(ctx, n)
}
