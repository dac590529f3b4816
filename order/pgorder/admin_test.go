package pgorder_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
)

func TestNewRefuses(t *testing.T) {
	_, err := pgorder.New(nil, nil)
	require.ErrorIs(t, err, order.ErrInvalid)
	_, err = pgorder.New(connect(t, testenv.Postgres(t)), &pgorder.Options{Schema: `a"b`})
	require.ErrorIs(t, err, order.ErrInvalid)
}

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	check := func(name, value string) error {
		s, err := pgorder.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pgorder.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	require.ErrorIs(t, check("synchronous_commit", "off"), order.ErrAtRisk)
	require.ErrorIs(t, check("default_transaction_isolation", "serializable"), pgorder.ErrIsolation)

	other, err := pgorder.New(pool, &pgorder.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pgorder.ErrNotMigrated)
	_, err = other.Push(t.Context(), params, []order.Arrival{arrival("a", 1)})
	require.ErrorIs(t, err, pgorder.ErrNotMigrated)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'order'")
	require.NoError(t, err)
	var newer *pgorder.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

func TestSweepInSmallSteps(t *testing.T) {
	store, _, _ := newStore(t)
	_, err := store.Sweep(t.Context(), params, 0)
	require.ErrorIs(t, err, order.ErrInvalid)
	var batch []order.Arrival
	for _, key := range []string{"a", "b", "c"} {
		for n := uint64(1); n <= 30; n++ {
			batch = append(batch, arrival(key, n))
		}
	}
	_, err = store.Push(t.Context(), params, batch)
	require.NoError(t, err)
	claimed, err := store.Claim(t.Context(), params, ask(1))
	require.NoError(t, err)
	for _, c := range claimed.Claims {
		errs, err := store.Settle(t.Context(), params, []order.Settlement{{Kind: order.KindDeliver, Key: c.Key, Token: c.Token, Epoch: 1, To: 31}})
		require.NoError(t, err)
		require.Nil(t, errs)
	}
	sum := 0
	for range 200 {
		n, err := store.Sweep(t.Context(), params, 1)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1)
		sum += n
	}
	assert.Equal(t, 3*(30-params.Window), sum)
}

func TestSchema(t *testing.T) {
	text, err := pgorder.Schema("")
	require.NoError(t, err)
	require.Len(t, text, 7)
	assert.Contains(t, text[0], `CREATE TABLE "pawl".order_keys (`)
	for _, s := range text {
		assert.NotContains(t, s, "{schema}")
	}
}
