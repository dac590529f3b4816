package pginbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/pginbox"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestNewRefuses(t *testing.T) {
	_, err := pginbox.New(nil, nil)
	require.ErrorIs(t, err, inbox.ErrInvalid)
	_, err = pginbox.New(connect(t, testenv.Postgres(t)), &pginbox.Options{Schema: `a"b`})
	require.ErrorIs(t, err, inbox.ErrInvalid)
}

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	check := func(name, value string) error {
		s, err := pginbox.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pginbox.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	require.ErrorIs(t, check("synchronous_commit", "off"), inbox.ErrAtRisk)
	require.ErrorIs(t, check("default_transaction_isolation", "serializable"), pginbox.ErrIsolation)

	other, err := pginbox.New(pool, &pginbox.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pginbox.ErrNotMigrated)
	_, err = other.Accept(t.Context(), params, []inbox.Arrival{arrival("a", "1")})
	require.ErrorIs(t, err, pginbox.ErrNotMigrated)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'inbox'")
	require.NoError(t, err)
	var newer *pginbox.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

// Migrate may be called by many at once, and again.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	pool := connect(t, testenv.Postgres(t))
	schema := testenv.SchemaName(t)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE") })
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			store, err := pginbox.New(pool, &pginbox.Options{Schema: schema})
			assert.NoError(t, err)
			for range 2 {
				assert.NoError(t, store.Migrate(t.Context()))
			}
			_, err = store.Accept(t.Context(), params, []inbox.Arrival{arrival("a", "1")})
			assert.NoError(t, err)
			assert.NoError(t, store.Check(t.Context()))
		})
	}
	all.Wait()
}

// A sweep looks at no more records than it was told, and goes on where it stopped.
// It forgets keys with nothing pending, also those whose owner died after it had
// completed the last event.
func TestSweepInSmallSteps(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.store.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, inbox.ErrInvalid)
	brief := inbox.Params{Retention: time.Millisecond, Keep: time.Millisecond}
	const n = 30
	for i := range n {
		d.accept(fmt.Sprint(i), fmt.Sprint(i))
	}
	claimed, err := d.store.Claim(t.Context(), newAsk(50*time.Millisecond))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, n)
	for i, c := range claimed.Claims {
		batch := []inbox.Settlement{settlement(inbox.KindDone, c, c.Records[0].ID), settlement(inbox.KindRelease, c, "")}
		if i%2 == 0 {
			batch = batch[:1] // the owner dies
		}
		errs, err := d.store.Settle(t.Context(), brief, batch)
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	d.accept("waits", "waits")
	keys := func() (count int) {
		require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+d.schema+".inbox_keys").Scan(&count))
		return count
	}
	require.Equal(t, n, keys())
	sum := 0
	require.Eventually(t, func() bool {
		got, err := d.store.Sweep(t.Context(), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, got, 1)
		sum += got
		return keys() == 0 && sum == n
	}, time.Minute, time.Millisecond)
	totals, err := d.store.Totals(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, totals.Pending)
	require.Zero(t, totals.Done)
}

func TestSchema(t *testing.T) {
	text, err := pginbox.Schema("")
	require.NoError(t, err)
	require.Len(t, text, 9)
	assert.Contains(t, text[0], `CREATE TABLE "pawl".inbox_records (`)
	for _, s := range text {
		assert.NotContains(t, s, "{schema}")
	}
}
