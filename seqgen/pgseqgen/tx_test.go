package pgseqgen_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/pgseqgen"
)

// A press prints invoices, each with a number of its own, in one transaction.
type press struct {
	t     *testing.T
	store *pgseqgen.Store
	gen   *seqgen.Generator
	pool  *pgxpool.Pool
	table string
}

func newPress(t *testing.T) *press {
	store, pool, schema := newStore(t)
	gen, err := seqgen.New(store, nil)
	require.NoError(t, err)
	p := &press{t, store, gen, pool, schema + ".invoices"}
	_, err = pool.Exec(t.Context(), "CREATE TABLE "+p.table+" (number bigint PRIMARY KEY)")
	require.NoError(t, err)
	return p
}

// print prints one, and rolls back with the error of then.
func (p *press) print(ctx context.Context, then error) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		at, err := p.gen.With(p.store.Tx(tx)).NextTx(ctx, "invoices")
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO "+p.table+" VALUES ($1)", int64(at.Number)); err != nil {
			return err
		}
		return then
	})
}

func (p *press) printed() []int64 {
	p.t.Helper()
	rows, err := p.pool.Query(context.Background(), "SELECT number FROM "+p.table+" ORDER BY number")
	require.NoError(p.t, err)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(p.t, err)
	return numbers
}

func upTo(n int64) (numbers []int64) {
	for i := int64(1); i <= n; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

// Rolled back and committed ones at once leave no hole.
func TestNextTxIsGapless(t *testing.T) {
	p := newPress(t)
	no := errors.New("no")
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for i := range 30 {
				if (w+i)%3 == 0 {
					assert.ErrorIs(t, p.print(t.Context(), no), no)
				} else {
					assert.NoError(t, p.print(t.Context(), nil))
				}
			}
		})
	}
	all.Wait()
	assert.Equal(t, upTo(120), p.printed())
}

// A transaction whose connection is lost returns its number.
func TestNextTxOfALostConnection(t *testing.T) {
	p := newPress(t)
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	at, err := p.gen.With(p.store.Tx(tx)).NextTx(t.Context(), "invoices")
	require.NoError(t, err)
	require.EqualValues(t, 1, at.Number)
	_, err = p.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
	require.NoError(t, err)
	require.Error(t, tx.Commit(t.Context()))
	require.NoError(t, p.print(t.Context(), nil))
	assert.Equal(t, upTo(1), p.printed())
}

// A step outside does not wait for the end of a stranger's transaction, and one
// key of a batch does not hold up another.
func TestStepsOutsideDoNotWaitForATransaction(t *testing.T) {
	p := newPress(t)
	require.NoError(t, p.print(t.Context(), nil))
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = p.gen.With(p.store.Tx(tx)).NextTx(t.Context(), "invoices")
	require.NoError(t, err)
	_, err = p.gen.With(p.store.Tx(tx)).NextTx(t.Context(), "new")
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	params := seqgen.Params{Scope: "default", Retention: time.Hour}
	grants, err := p.store.Reserve(ctx, params, []seqgen.Ask{
		{Key: "invoices", Mode: seqgen.Gapless, N: 1, Nonce: [16]byte{1}}, {Key: "other", Mode: seqgen.Single, N: 1, Nonce: [16]byte{2}},
		{Key: "new", Mode: seqgen.Gapless, N: 1, Nonce: [16]byte{4}}})
	require.NoError(t, err)
	require.ErrorIs(t, grants[0].Err, pgseqgen.ErrBusy)
	require.NoError(t, grants[1].Err)
	require.EqualValues(t, 1, grants[1].Lo)
	require.ErrorIs(t, grants[2].Err, pgseqgen.ErrBusy)
	outcomes, err := p.store.Settle(ctx, params, []seqgen.Change{{Kind: seqgen.KindBump, Key: "invoices", Nonce: [16]byte{3}}})
	require.NoError(t, err)
	require.ErrorIs(t, outcomes[0].Err, pgseqgen.ErrBusy)

	require.NoError(t, tx.Commit(ctx))
	outcomes, err = p.store.Settle(ctx, params, []seqgen.Change{{Kind: seqgen.KindBump, Key: "invoices", Nonce: [16]byte{3}}})
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err)
	require.EqualValues(t, 2, outcomes[0].Epoch)
}

func TestTxAboveReadCommittedIsRefused(t *testing.T) {
	p := newPress(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := p.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = p.gen.With(p.store.Tx(tx)).NextTx(t.Context(), "invoices")
		require.ErrorIs(t, err, pgseqgen.ErrIsolation)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	_, err := p.gen.With(p.store.Tx(nil)).NextTx(t.Context(), "invoices")
	require.ErrorIs(t, err, seqgen.ErrInvalid)
}

// TestTwoProcessesOnOneKey takes numbers of one key through two generators.
func TestTwoProcessesOnOneKey(t *testing.T) {
	store, _, _ := newStore(t)
	var mu sync.Mutex
	var got []int64
	var all sync.WaitGroup
	for range 2 {
		gen, err := seqgen.New(store, nil)
		require.NoError(t, err)
		for range 8 {
			all.Go(func() {
				last := uint64(0)
				for range 50 {
					at, err := gen.Next(t.Context(), "k")
					if !assert.NoError(t, err) {
						return
					}
					assert.Greater(t, at.Number, last)
					last = at.Number
					mu.Lock()
					got = append(got, int64(at.Number))
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	slices.Sort(got)
	assert.Equal(t, upTo(800), got)
}

// TestNumbersSurviveAKilledServer kills the server under load: no number comes
// twice.
func TestNumbersSurviveAKilledServer(t *testing.T) {
	server := testenv.PostgresOwn(t)
	pool := connect(t, server.URL())
	store, err := pgseqgen.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	gen, err := seqgen.New(store, nil)
	require.NoError(t, err)
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			key := fmt.Sprint("k", w%3)
			for ctx.Err() == nil {
				at, err := gen.Next(ctx, key)
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				mu.Lock()
				seen[key+at.String()]++
				mu.Unlock()
			}
		})
	}
	enough := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) >= n }
	}
	for n := range 2 {
		require.Eventually(t, enough(500*(n+1)), time.Minute, time.Millisecond)
		server.Kill()
		server.Start()
	}
	require.Eventually(t, enough(2000), time.Minute, time.Millisecond)
	stop()
	all.Wait()
	for at, n := range seen {
		require.Equal(t, 1, n, at)
	}
}
