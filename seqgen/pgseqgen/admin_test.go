package pgseqgen_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
)

func TestNewRefuses(t *testing.T) {
	_, err := pgseqgen.New(nil, nil)
	require.ErrorIs(t, err, seqgen.ErrInvalid)
	_, err = pgseqgen.New(connect(t, testenv.Postgres(t)), &pgseqgen.Options{Schema: `a"b`})
	require.ErrorIs(t, err, seqgen.ErrInvalid)
}

func TestCheck(t *testing.T) {
	store, pool, schema := newStore(t)
	require.NoError(t, store.Check(t.Context()), "the server's defaults are safe")
	check := func(name, value string) error {
		s, err := pgseqgen.New(connect(t, testenv.Postgres(t), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams[name] = value
		}), &pgseqgen.Options{Schema: schema})
		require.NoError(t, err)
		return s.Check(t.Context())
	}
	require.ErrorIs(t, check("synchronous_commit", "off"), seqgen.ErrAtRisk)
	require.ErrorIs(t, check("default_transaction_isolation", "serializable"), pgseqgen.ErrIsolation)

	other, err := pgseqgen.New(pool, &pgseqgen.Options{Schema: schema + "_other"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(t.Context()), pgseqgen.ErrNotMigrated)
	_, err = other.Reserve(t.Context(), seqgen.Params{Scope: "s", Retention: time.Hour}, []seqgen.Ask{{Key: "k", Mode: seqgen.Single, N: 1}})
	require.ErrorIs(t, err, pgseqgen.ErrNotMigrated)

	_, err = pool.Exec(t.Context(), "UPDATE "+schema+".pawl_versions SET version = 99 WHERE component = 'seqgen'")
	require.NoError(t, err)
	var newer *pgseqgen.NewerSchemaError
	require.ErrorAs(t, store.Check(t.Context()), &newer)
	require.ErrorAs(t, store.Migrate(t.Context()), &newer)
}

func TestSweep(t *testing.T) {
	store, _, _ := newStore(t)
	_, err := store.Sweep(t.Context(), 0)
	require.ErrorIs(t, err, seqgen.ErrInvalid)
	p := seqgen.Params{Scope: "s", Retention: time.Millisecond}
	long := seqgen.Params{Scope: "s", Retention: time.Hour}
	g, err := store.Reserve(t.Context(), p, []seqgen.Ask{{Key: "k", Mode: seqgen.Single, N: 100}})
	require.NoError(t, err)
	void := func(p seqgen.Params, lo uint64) {
		o, err := store.Settle(t.Context(), p, []seqgen.Change{{Kind: seqgen.KindVoid, Key: "k", Epoch: g[0].Epoch, Lo: lo, Hi: lo, Reason: seqgen.GaveUp}})
		require.NoError(t, err)
		require.NoError(t, o[0].Err)
	}
	for lo := uint64(1); lo < 20; lo += 2 {
		void(p, lo)
	}
	void(long, 50)
	time.Sleep(2 * time.Millisecond)
	n, err := store.Sweep(t.Context(), 4)
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	n, err = store.Sweep(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, 6, n)
	voids, err := store.Voids(t.Context(), seqgen.VoidQuery{Scope: "s", Key: "k", Epoch: g[0].Epoch, From: 1, To: 100, Limit: 10})
	require.NoError(t, err)
	require.Len(t, voids, 1)
	assert.EqualValues(t, 50, voids[0].Lo)
}

func TestSchema(t *testing.T) {
	text, err := pgseqgen.Schema("")
	require.NoError(t, err)
	require.Len(t, text, 2)
	assert.Contains(t, text[0], `CREATE TABLE "pawl".seqgen_keys (`)
	assert.NotContains(t, text[1], "{schema}")
}
