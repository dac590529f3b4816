package pgdlq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/testenv"
)

// What a step reads for a letter does not depend on how many lanes and letters there are,
// also where the connection planned it while the tables were empty.
//
// It has a server of its own: transactions of others, also of other packages' tests, would
// keep that from removing dead rows, which steps then read past.
func TestStepsReadLittle(t *testing.T) {
	server := testenv.PostgresOwn(t, "fsync=off", "full_page_writes=off")
	store, pool, schema := newStoreOn(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	made := 0
	var claims []dlq.Claim
	steps := func(n int) []func() {
		letters := make([]dlq.Put, n)
		for i := range letters {
			made++
			letters[i] = letter(fmt.Sprint("l", made), fmt.Sprint("k", made))
		}
		ask := newAsk(time.Minute)
		ask.N = n
		take := func() {
			c, err := store.Claim(t.Context(), ask)
			require.NoError(t, err)
			require.Len(t, c.Claims, n)
			claims = c.Claims
		}
		send := func(k dlq.Kind) {
			all := make([]dlq.Settlement, n)
			for i, c := range claims {
				all[i] = settlement(k, c)
			}
			settle(t, store, all...)
		}
		approve := func() {
			all := make([]dlq.Change, n)
			for i, c := range claims {
				all[i] = change(dlq.ChangeApprove, c.Record)
			}
			errs, err := store.Change(t.Context(), params, all)
			require.NoError(t, err)
			require.Nil(t, errs)
		}
		return []func(){
			func() { put(t, store, letters...) },
			take,
			approve, // takes them from their worker
			func() { send(dlq.KindRelease) },
			func() { ask.Nonce = nonce(); take() },
			func() { send(dlq.KindReview) },
			approve,
			func() { ask.Nonce = nonce(); take() },
			func() { send(dlq.KindResolve) },
		}
	}
	run := func(n int) {
		for _, step := range steps(n) {
			step()
		}
	}
	for range 8 { // every statement has its plan for good
		run(1)
	}
	run(1000)
	run(1000)

	read := func() (n int) {
		// The server tells what it has counted when the connection is idle for a while.
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_stat_force_next_flush() IS NULL").Scan(new(bool)))
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
				WHERE schemaname = $1 AND relname IN ('dlq_letters', 'dlq_lanes', 'dlq_entries'))::integer
			+ (SELECT sum(seq_tup_read) FROM pg_stat_user_tables
				WHERE schemaname = $1 AND relname IN ('dlq_letters', 'dlq_lanes', 'dlq_entries'))::integer`, schema).Scan(&n))
		return n
	}
	_, err := pool.Exec(t.Context(), fmt.Sprintf("VACUUM %[1]s.dlq_letters, %[1]s.dlq_lanes, %[1]s.dlq_entries", schema))
	require.NoError(t, err)
	const n = 20
	for i, step := range steps(n) {
		before := read()
		step()
		got := read() - before
		t.Logf("step %d: %d rows for a letter", i, got/n)
		require.Less(t, got/n, 40, "step %d", i)
	}
}
