package pgdedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/pgdedup"
)

// A ledger is a business table beside a store, and a guard over that store.
type ledger struct {
	t     *testing.T
	store *pgdedup.Store
	guard *dedup.Guard
	pool  *pgxpool.Pool
	table string
}

func newLedger(t *testing.T, opts *dedup.Options) *ledger {
	store, pool, schema := newStore(t)
	guard, err := dedup.New(store, opts)
	require.NoError(t, err)
	l := &ledger{t, store, guard, pool, schema + ".payments"}
	_, err = pool.Exec(t.Context(), "CREATE TABLE "+l.table+" (id text)")
	require.NoError(t, err)
	return l
}

func (l *ledger) pay(tx pgx.Tx, id string) error {
	return l.guard.With(l.store.Tx(tx)).Do(l.t.Context(), dedup.Request{ID: id}, func(ctx context.Context) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+l.table+" VALUES ($1)", id)
		return err
	})
}

func (l *ledger) payments() (n int) {
	l.t.Helper()
	require.NoError(l.t, l.pool.QueryRow(l.t.Context(), "SELECT count(*) FROM "+l.table).Scan(&n))
	return n
}

func (l *ledger) claim(id string) dedup.Claim {
	l.t.Helper()
	c, err := l.guard.Claim(l.t.Context(), dedup.Request{ID: id})
	require.NoError(l.t, err)
	return c
}

func (l *ledger) begin() pgx.Tx {
	l.t.Helper()
	tx, err := l.pool.Begin(l.t.Context())
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestTxCommitsClaimEffectAndCompletionTogether(t *testing.T) {
	l := newLedger(t, nil)
	for range 2 { // the second finds it done
		require.NoError(t, pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error { return l.pay(tx, "order-1") }))
	}
	assert.Equal(t, 1, l.payments())
	assert.Equal(t, dedup.Done, l.claim("order-1").State)
}

func TestTxRollbackLeavesTheIDNew(t *testing.T) {
	l := newLedger(t, &dedup.Options{OnLapse: dedup.Hold})
	fails := errors.New("the business says no")
	err := pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
		require.NoError(t, l.pay(tx, "order-1"))
		return fails
	})
	require.ErrorIs(t, err, fails)
	assert.Zero(t, l.payments())
	c := l.claim("order-1")
	assert.Equal(t, dedup.Acquired, c.State)
	assert.Equal(t, 1, c.Attempt)
}

func TestOthersAreAnsweredInFlightWhileATxIsOpen(t *testing.T) {
	l := newLedger(t, nil)
	tx := l.begin()
	require.NoError(t, l.pay(tx, "order-1"))

	// All are answered with the transaction still open: a claim that waited for it
	// would run into the timeout.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	c, err := l.guard.Claim(ctx, dedup.Request{ID: "order-1"})
	require.NoError(t, err)
	inTx, err := l.guard.With(l.store.Tx(l.begin())).Claim(ctx, dedup.Request{ID: "order-1"})
	require.NoError(t, err)
	many, err := l.guard.ClaimBatch(ctx, []dedup.Request{{ID: "order-0"}, {ID: "order-1"}, {ID: "order-2"}})
	require.NoError(t, err)
	t.Log("three calls took", time.Since(start))

	for _, c := range []dedup.Claim{c, inTx, many[1]} {
		assert.Equal(t, dedup.InFlight, c.State)
		assert.Zero(t, c.Left)
	}
	assert.Equal(t, dedup.Acquired, many[0].State)
	assert.Equal(t, dedup.Acquired, many[2].State)

	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, dedup.Done, l.claim("order-1").State)
}

func TestALostTxConnectionReleases(t *testing.T) {
	l := newLedger(t, nil)
	tx := l.begin()
	require.NoError(t, l.pay(tx, "order-1"))
	require.Equal(t, dedup.InFlight, l.claim("order-1").State)

	_, err := l.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return l.claim("order-1").State == dedup.Acquired }, time.Minute, 10*time.Millisecond)
	assert.Error(t, tx.Commit(t.Context()))
	assert.Zero(t, l.payments())
}

func TestTxCompletesAClaimMadeOutside(t *testing.T) {
	l := newLedger(t, nil)
	c := l.claim("order-1")
	require.Equal(t, dedup.Acquired, c.State)

	tx := l.begin()
	require.NoError(t, l.guard.With(l.store.Tx(tx)).Settle(t.Context(), c.Complete([]byte("paid"))))
	assert.Equal(t, dedup.InFlight, l.claim("order-1").State, "not completed before the commit")
	require.NoError(t, tx.Rollback(t.Context()))

	tx = l.begin()
	require.NoError(t, l.guard.With(l.store.Tx(tx)).Settle(t.Context(), c.Complete([]byte("paid"))))
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, []byte("paid"), l.claim("order-1").Result)
}

func TestSettleOfAnIDThatAnotherTxHoldsIsBusy(t *testing.T) {
	l := newLedger(t, nil)
	c, free := l.claim("order-1"), l.claim("order-2")
	tx := l.begin()
	require.NoError(t, l.guard.With(l.store.Tx(tx)).Settle(t.Context(), c.Extend(time.Hour)))

	p := dedup.Params{Scope: "default", Lease: time.Minute, Retention: time.Hour}
	errs, err := l.store.Settle(t.Context(), p, []dedup.Settlement{c.Release(), free.Complete(nil)})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pgdedup.ErrBusy)
	require.NoError(t, errs[1], "its neighbour is not held up")

	other := l.begin()
	errs, err = l.store.Tx(other).Settle(t.Context(), p, []dedup.Settlement{c.Release()})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pgdedup.ErrBusy)
	require.NoError(t, other.Commit(t.Context()), "the transaction can go on")

	require.NoError(t, tx.Rollback(t.Context()))
	errs, err = l.store.Settle(t.Context(), p, []dedup.Settlement{c.Release()})
	require.NoError(t, err)
	assert.Nil(t, errs)
}

// Retain is part of the transaction, and waits for nobody who has the record for long.
func TestRetainInATransaction(t *testing.T) {
	l := newLedger(t, nil)
	for _, id := range []string{"order-1", "order-2"} {
		require.NoError(t, l.guard.Settle(t.Context(), l.claim(id).Complete(nil)))
	}
	expires := func() (all []int64) {
		rows, err := l.pool.Query(t.Context(), "SELECT expires_at FROM "+strings.TrimSuffix(l.table, ".payments")+".dedup ORDER BY id")
		require.NoError(t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		return all
	}
	before := expires()
	tx := l.begin()
	require.NoError(t, l.guard.With(l.store.Tx(tx)).Retain(t.Context(), 1000*time.Hour, "order-1", "order-1", "never-seen"))
	assert.Equal(t, before, expires(), "not before the commit")

	p := dedup.Params{Scope: "default", Lease: time.Minute, Retention: time.Hour}
	retain := func(id string) dedup.Settlement {
		return dedup.Settlement{Kind: dedup.KindRetain, ID: id, Retention: 2000 * time.Hour}
	}
	errs, err := l.store.Settle(t.Context(), p, []dedup.Settlement{retain("order-1"), retain("order-2")})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], pgdedup.ErrBusy)
	require.NoError(t, errs[1], "its neighbour is not held up")
	require.NoError(t, tx.Rollback(t.Context()))
	after := expires()
	assert.Equal(t, before[0], after[0], "rolled back")
	assert.Greater(t, after[1], before[1]+int64(1000*time.Hour/time.Microsecond))

	require.NoError(t, l.guard.Retain(t.Context(), 1000*time.Hour, "order-1", "order-2"))
	last := expires()
	assert.Greater(t, last[0], before[0])
	assert.Equal(t, after[1], last[1], "it stays longer anyway")
}

func TestTxSeesItsOwnClaims(t *testing.T) {
	l := newLedger(t, nil)
	bound := l.guard.With(l.store.Tx(l.begin()))
	first, err := bound.Claim(t.Context(), dedup.Request{ID: "order-1"})
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, first.State)
	second, err := bound.Claim(t.Context(), dedup.Request{ID: "order-1"})
	require.NoError(t, err)
	assert.Equal(t, dedup.InFlight, second.State)
	require.NoError(t, bound.Settle(t.Context(), first.Hold()))
	held, err := bound.Held(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, held, 1)
	assert.Equal(t, "order-1", held[0].ID)
	outside, err := l.guard.Held(t.Context(), "", 10)
	require.NoError(t, err)
	assert.Empty(t, outside)
}

func TestTxAboveReadCommittedIsRefused(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			l := newLedger(t, nil)
			tx, err := l.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer tx.Rollback(context.Background())
			_, err = tx.Exec(t.Context(), "SELECT count(*) FROM "+l.table) // takes its snapshot
			require.NoError(t, err)
			require.Equal(t, dedup.Acquired, l.claim("order-1").State)

			_, err = l.guard.With(l.store.Tx(tx)).Claim(t.Context(), dedup.Request{ID: "order-1"})
			require.ErrorIs(t, err, pgdedup.ErrIsolation)
			require.ErrorIs(t, err, dedup.ErrInvalid)
		})
	}
}

// TestTxRaces lets many transactions, of which every third rolls back, and claims
// outside of them race for few IDs.
func TestTxRaces(t *testing.T) {
	const ids, workers = 40, 8
	l := newLedger(t, nil)
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			for i := range ids * 3 {
				id := fmt.Sprintf("order-%d", (i*7+w)%ids)
				err := pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
					if err := l.pay(tx, id); err != nil {
						return err
					}
					if (i+w)%3 == 0 {
						return errRollback
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRollback) && !errors.Is(err, dedup.ErrInFlight) {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range workers {
		require.NoError(t, <-errs)
	}
	for i := range ids { // those that only rolled back or met each other
		require.NoError(t, pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error { return l.pay(tx, fmt.Sprintf("order-%d", i)) }))
	}
	assert.Equal(t, ids, l.payments(), "each effect once")
}

var errRollback = errors.New("roll back")

// A duplicate that is only asked about in an open transaction leaves the owner
// alone: it renews and completes.
func TestAskingInATransactionDoesNotDisturbTheOwner(t *testing.T) {
	l := newLedger(t, &dedup.Options{Lease: time.Minute, SettleTimeout: 10 * time.Second})
	tx, err := l.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	view := l.guard.With(l.store.Tx(tx))
	effects := 0
	effect := func(ctx context.Context) error {
		effects++
		c, err := view.Claim(ctx, dedup.Request{ID: "order-1"})
		require.NoError(t, err)
		require.Equal(t, dedup.InFlight, c.State)
		require.Positive(t, c.Left)
		return nil
	}
	require.NoError(t, l.guard.Do(t.Context(), dedup.Request{ID: "order-1"}, effect))
	c, err := view.Claim(t.Context(), dedup.Request{ID: "order-1"})
	require.NoError(t, err)
	require.Equal(t, dedup.Done, c.State)
	require.Equal(t, dedup.Done, l.claim("order-1").State) // the open transaction has no lock on it
	require.Equal(t, 1, effects)
}

// A view on no transaction says so.
func TestNilTx(t *testing.T) {
	l := newLedger(t, nil)
	_, err := l.guard.With(l.store.Tx(nil)).Claim(t.Context(), dedup.Request{ID: "order-1"})
	require.ErrorIs(t, err, dedup.ErrInvalid)
}
