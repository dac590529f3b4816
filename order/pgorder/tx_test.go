package pgorder_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/pgorder"
)

var params = order.Params{
	Scope: "test", Start: 1, Window: 8, MaxBuffered: 1000, MaxAhead: 1 << 20, Late: true,
	GapLook: time.Hour, KeepBody: time.Hour, KeepGaps: time.Hour,
}

func arrival(key string, n uint64) order.Arrival {
	return order.Arrival{Message: order.Message{Key: key, Position: order.Position{Epoch: 1, Number: n}, Payload: []byte("payload")}, Digest: [16]byte{byte(n)}}
}

func ask(nonce byte) order.Ask {
	return order.Ask{Nonce: [16]byte{nonce}, Keys: 16, Messages: 64, Bytes: 1 << 20, Lease: time.Minute}
}

func begin(t *testing.T, d *desk) pgx.Tx {
	t.Helper()
	tx, err := d.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// What a transaction pushes is there when it commits, and not when it does not.
func TestTxPushes(t *testing.T) {
	d := newDesk(t, nil)
	for _, commit := range []bool{false, true} {
		tx := begin(t, d)
		answers, err := d.buf.With(d.store.Tx(tx)).Push(t.Context(), order.Message{Key: "a", Position: order.Position{Epoch: 1, Number: 1}})
		require.NoError(t, err)
		require.Equal(t, order.Buffered, answers[0].State)
		account, err := d.buf.Account(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, account.Ledgers)
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
	account, err := d.buf.Account(t.Context(), "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, account.Ledgers[0].Buffered)
}

// Nobody waits for the end of a stranger's transaction: other keys go on, and
// that one is answered in time, in transactions as well as outside of them.
func TestNobodyWaitsForATransaction(t *testing.T) {
	d := newDesk(t, nil)
	answers, err := d.store.Push(t.Context(), params, []order.Arrival{arrival("known", 1), arrival("other", 1)})
	require.NoError(t, err)
	require.Equal(t, order.Buffered, answers[0].State)
	tx := begin(t, d)
	answers, err = d.store.Tx(tx).Push(t.Context(), params, []order.Arrival{arrival("known", 2), arrival("new", 1)})
	require.NoError(t, err)
	require.Equal(t, order.Buffered, answers[1].State)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := begin(t, d)
	for _, c := range []struct {
		name  string
		store order.Store
	}{{"outside", d.store}, {"in a transaction", d.store.Tx(other)}} { // in this order: the second holds a key, too
		name, s := c.name, c.store
		for _, key := range []string{"known", "new"} {
			answers, err := s.Push(ctx, params, []order.Arrival{arrival(key, 3), arrival("other", 1)})
			require.NoError(t, err, "%s %s", name, key)
			require.ErrorIs(t, answers[0].Err, pgorder.ErrBusy, "%s %s", name, key)
			require.Equal(t, order.Duplicate, answers[1].State)
		}
		errs, err := s.Settle(ctx, params, []order.Settlement{
			{Kind: order.KindForget, Key: "known"}, {Kind: order.KindResume, Key: "other", Epoch: 1, From: 9}})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], pgorder.ErrBusy)
		require.ErrorIs(t, errs[1], order.ErrNotFound)
	}
	require.NoError(t, other.Commit(ctx), "a transaction that was answered so can go on")
	claimed, err := d.store.Claim(ctx, params, ask(1))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 1, "a claim passes over the key")
	require.Equal(t, "other", claimed.Claims[0].Key)
	require.Positive(t, claimed.Next)

	require.NoError(t, tx.Commit(ctx))
	claimed, err = d.store.Claim(ctx, params, ask(2))
	require.NoError(t, err)
	require.Len(t, claimed.Claims, 2)
}

// Batches of the same keys in any order do not deadlock.
func TestBatchesDoNotDeadlock(t *testing.T) {
	d := newDesk(t, nil)
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for i := range 20 {
				var batch []order.Arrival
				for k := range 12 {
					key := (k*(2*w+1) + i) % 12
					batch = append(batch, arrival(fmt.Sprint("key-", key), uint64(i+1)))
				}
				answers, err := d.store.Push(t.Context(), params, batch)
				if !assert.NoError(t, err) {
					return
				}
				for _, a := range answers {
					if a.Err != nil && !assert.ErrorIs(t, a.Err, pgorder.ErrBusy) {
						return
					}
				}
			}
		})
	}
	all.Wait()
}

func TestTxAboveReadCommittedIsRefused(t *testing.T) {
	d := newDesk(t, nil)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = d.store.Tx(tx).Push(t.Context(), params, []order.Arrival{arrival("a", 1)})
		require.ErrorIs(t, err, pgorder.ErrIsolation)
		require.ErrorIs(t, err, order.ErrInvalid)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	_, err := d.store.Tx(nil).Push(t.Context(), params, []order.Arrival{arrival("a", 1)})
	require.ErrorIs(t, err, order.ErrInvalid)
}
