package pgdedup_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/internal/crashtest"
	"github.com/pawl-go/pawl/internal/testenv"
)

func TestKilledServerUnderLoad(t *testing.T) { killedServer(t, 2_000, 2) }

func TestLongKilledServerUnderLoad(t *testing.T) {
	kills := testenv.LongCount(t, 4, 10)
	killedServer(t, 2_500*kills, kills)
}

func killedServer(t *testing.T, ids, kills int) {
	server := testenv.PostgresOwn(t)
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	defer pool.Close()
	s, err := pgdedup.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	crashtest.KillUnderLoad(t, s, ids, kills, func() {
		server.Kill()
		server.Start()
	})
}
