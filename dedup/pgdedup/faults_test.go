package pgdedup_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
	"github.com/pawl-go/pawl/internal/testenv"
)

var params = dedup.Params{Scope: "test", Lease: time.Minute, Retention: time.Hour}

func ask(id string) dedup.Ask {
	a := dedup.Ask{Request: dedup.Request{ID: id}}
	_, _ = rand.Read(a.Nonce[:])
	return a
}

func asks(prefix string, n int) []dedup.Ask {
	all := make([]dedup.Ask, n)
	for i := range all {
		all[i] = ask(fmt.Sprintf("%s-%05d", prefix, i))
	}
	return all
}

// textual makes each request carry its SQL, so that a proxy can tell them apart.
func textual(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// behindProxy returns a store whose connections pass a proxy.
func behindProxy(t *testing.T) (*pgdedup.Store, *testenv.Proxy) {
	_, _, schema := newStore(t)
	proxy := testenv.NewProxy(t, testenv.Postgres(t))
	store, err := pgdedup.New(connect(t, proxy.URL(), textual), &pgdedup.Options{Schema: schema})
	require.NoError(t, err)
	return store, proxy
}

func TestLostReplies(t *testing.T) {
	store, proxy := behindProxy(t)
	lose := func(step string) { t.Helper(); proxy.DropRepliesTo(step, 1) }

	a := ask("1")
	lose("dedup_claim")
	_, err := store.Claim(t.Context(), params, []dedup.Ask{a})
	require.Error(t, err)
	require.Equal(t, 1, proxy.Dropped())
	claims, err := store.Claim(t.Context(), params, []dedup.Ask{a})
	require.NoError(t, err)
	c := claims[0]
	require.Equal(t, dedup.Acquired, c.State, "the claim was granted, and asking again says so")
	require.Equal(t, 1, c.Attempt)

	for i, s := range []dedup.Settlement{c.Extend(time.Hour), c.Hold(), c.Complete([]byte("done")), {Kind: dedup.KindForget, ID: "1"}} {
		lose("dedup_settle")
		_, err = store.Settle(t.Context(), params, []dedup.Settlement{s})
		require.Error(t, err, s.Kind)
		require.Equal(t, 2+i, proxy.Dropped())
		errs, err := store.Settle(t.Context(), params, []dedup.Settlement{s})
		require.NoError(t, err)
		require.Nil(t, errs, s.Kind)
	}
}

func TestAGuardOutlivesLostReplies(t *testing.T) {
	store, proxy := behindProxy(t)
	guard, err := dedup.New(store, nil)
	require.NoError(t, err)
	runs := 0
	for _, step := range []string{"dedup_claim", "dedup_settle"} {
		proxy.DropRepliesTo(step, 1)
		require.NoError(t, guard.Do(t.Context(), dedup.Request{ID: step}, func(context.Context) error { runs++; return nil }))
	}
	assert.Equal(t, 2, runs)
	assert.Equal(t, 2, proxy.Dropped())
}

// TestCutInABatch cuts the connection behind the first transaction of a batch:
// its claims stand, the others say that they have no answer, and asking again
// with the same nonces gives every claim to the caller.
func TestCutInABatch(t *testing.T) {
	store, proxy := behindProxy(t)
	all := asks("cut", 600) // three transactions
	proxy.DropRepliesTo("cut-00300", 1)
	claims, err := store.Claim(t.Context(), params, all)
	require.NoError(t, err)
	for i, c := range claims {
		if i < 256 {
			require.NoError(t, c.Err)
			require.Equal(t, dedup.Acquired, c.State)
		} else {
			require.Error(t, c.Err)
			require.Equal(t, all[i].ID, c.ID)
		}
	}
	claims, err = store.Claim(t.Context(), params, all)
	require.NoError(t, err)
	settlements := make([]dedup.Settlement, len(claims))
	for i, c := range claims {
		require.Equal(t, dedup.Acquired, c.State)
		require.Equal(t, 1, c.Attempt)
		settlements[i] = c.Complete(nil)
	}

	proxy.DropRepliesTo("cut-00300", 1)
	errs, err := store.Settle(t.Context(), params, settlements)
	require.NoError(t, err)
	for i, err := range errs {
		require.Equal(t, i >= 256, err != nil)
	}
	errs, err = store.Settle(t.Context(), params, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func TestUnreachableAndClosed(t *testing.T) {
	store, proxy := behindProxy(t)
	proxy.Refuse()
	proxy.Cut()
	secret := "tel:+491701234567"
	_, err := store.Claim(t.Context(), params, []dedup.Ask{ask(secret)})
	require.ErrorContains(t, err, "pgdedup: claim: ")
	require.NotContains(t, err.Error(), secret)
	_, err = store.Settle(t.Context(), params, []dedup.Settlement{{Kind: dedup.KindRelease, ID: secret, Token: 1}})
	require.ErrorContains(t, err, "pgdedup: settle: ")
	_, err = store.Held(t.Context(), "test", "", 1)
	require.ErrorContains(t, err, "pgdedup: held: ")
	require.ErrorIs(t, store.Check(t.Context()), dedup.ErrUnchecked)

	pool := connect(t, testenv.Postgres(t))
	pool.Close()
	store, err = pgdedup.New(pool, nil)
	require.NoError(t, err, "New does no I/O")
	_, err = store.Claim(t.Context(), params, []dedup.Ask{ask("1")})
	require.ErrorContains(t, err, "closed pool")
}

// TestCancelledBehindTheServer cancels while the server has the claim in hand:
// the answer may be lost, but the same ask finds out.
func TestCancelledBehindTheServer(t *testing.T) {
	store, proxy := behindProxy(t)
	proxy.Delay(time.Hour)
	defer proxy.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a := ask("1")
	_, err := store.Claim(ctx, params, []dedup.Ask{a})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	proxy.Cut()
	proxy.Heal()
	require.Eventually(t, func() bool {
		claims, err := store.Claim(t.Context(), params, []dedup.Ask{a})
		return err == nil && claims[0].State == dedup.Acquired && claims[0].Attempt == 1
	}, time.Minute, 10*time.Millisecond)
}

func TestClaimsSurviveAKilledServer(t *testing.T) {
	server := testenv.PostgresOwn(t)
	store, _, _ := newStoreOn(t, server.URL())
	all := asks("kill", 300)
	claims, err := store.Claim(t.Context(), params, all)
	require.NoError(t, err)
	errs, err := store.Settle(t.Context(), params, []dedup.Settlement{claims[0].Complete([]byte("done")), claims[1].Hold()})
	require.NoError(t, err)
	require.Nil(t, errs)

	server.Kill()
	_, err = store.Claim(t.Context(), params, all)
	require.Error(t, err)
	server.Start()
	var again []dedup.Claim
	require.Eventually(t, func() bool {
		again, err = store.Claim(t.Context(), params, all)
		return err == nil && again[len(again)-1].Err == nil
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, dedup.Done, again[0].State)
	assert.Equal(t, dedup.Unknown, again[1].State)
	for i, c := range again[2:] {
		require.Equal(t, dedup.Acquired, c.State)
		require.Equal(t, claims[i+2].Token, c.Token)
	}
}

// TestFewLocks runs on a server whose lock table has no room for a whole chunk.
func TestFewLocks(t *testing.T) {
	server := testenv.PostgresOwn(t, "max_locks_per_transaction=10", "max_connections=20")
	store, pool, _ := newStoreOn(t, server.URL())

	// The test must be able to fail: this many locks do not fit.
	_, err := pool.Exec(t.Context(), "SELECT pg_try_advisory_xact_lock(n) FROM generate_series(1, 2000) n")
	require.ErrorContains(t, err, "53200")

	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			all := asks(fmt.Sprintf("few-%d", w), 1000)
			claims, err := store.Claim(t.Context(), params, all)
			if !assert.NoError(t, err) {
				return
			}
			settlements := make([]dedup.Settlement, len(claims))
			for i, c := range claims {
				if !assert.NoError(t, c.Err) || !assert.Equal(t, dedup.Acquired, c.State) {
					return
				}
				settlements[i] = c.Complete(nil)
			}
			errs, err := store.Settle(t.Context(), params, settlements)
			assert.NoError(t, err)
			assert.Nil(t, errs)
		})
	}
	wg.Wait()
}

func TestNotMigrated(t *testing.T) {
	pool := connect(t, testenv.Postgres(t))
	store, err := pgdedup.New(pool, &pgdedup.Options{Schema: testenv.SchemaName(t)})
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), params, []dedup.Ask{ask("1")})
	require.ErrorIs(t, err, pgdedup.ErrNotMigrated)
	_, err = store.Settle(t.Context(), params, []dedup.Settlement{{Kind: dedup.KindRelease, ID: "1", Token: 1}})
	require.ErrorIs(t, err, pgdedup.ErrNotMigrated)
	_, err = store.Sweep(t.Context(), 1)
	require.ErrorIs(t, err, pgdedup.ErrNotMigrated)
	require.ErrorIs(t, store.Check(t.Context()), pgdedup.ErrNotMigrated)
}

func TestNewRefuses(t *testing.T) {
	_, err := pgdedup.New(nil, nil)
	require.ErrorIs(t, err, dedup.ErrInvalid)
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // connects when used
	require.NoError(t, err)
	defer pool.Close()
	for _, schema := range []string{strings.Repeat("x", 64), "a$b", "a\x00b", "a'b", "\xff"} {
		_, err := pgdedup.New(pool, &pgdedup.Options{Schema: schema})
		require.ErrorIs(t, err, dedup.ErrInvalid, "%q", schema)
	}
	_, err = pgdedup.New(pool, nil)
	require.NoError(t, err)
}
