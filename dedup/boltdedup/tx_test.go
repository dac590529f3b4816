package boltdedup_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dedup"
)

var orders = []byte("orders")

// fulfil writes an order and claims and completes its message in one commit. It
// fails behind all of that when failure is set.
func fulfil(ctx context.Context, db *bbolt.DB, g *dedup.Guard, s txer, id string, failure error) error {
	return db.Update(func(tx *bbolt.Tx) error {
		err := g.With(s.Tx(tx)).Do(ctx, dedup.Request{ID: id}, func(context.Context) error {
			b, err := tx.CreateBucketIfNotExists(orders)
			if err != nil {
				return err
			}
			return b.Put([]byte(id), append(b.Get([]byte(id)), '1'))
		})
		return errors.Join(err, failure)
	})
}

type txer interface{ Tx(*bbolt.Tx) dedup.Store }

// order is the mark that fulfil left: one digit for each time.
func order(t testing.TB, db *bbolt.DB, id string) (mark string) {
	t.Helper()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(orders); b != nil {
			mark = string(b.Get([]byte(id)))
		}
		return nil
	}))
	return mark
}

func TestTxCommitsClaimEffectAndCompletionTogether(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, nil)
	before := lastTx(t, db)
	require.NoError(t, fulfil(ctx, db, g, s, "id", nil))
	require.Equal(t, before+1, lastTx(t, db), "it is one commit")
	require.NoError(t, fulfil(ctx, db, g, s, "id", nil), "a duplicate is a success and does nothing")
	require.Equal(t, "1", order(t, db, "id"))
	c, err := g.Claim(ctx, dedup.Request{ID: "id"})
	require.NoError(t, err)
	require.Equal(t, dedup.Done, c.State)
}

func TestTxRollbackReleases(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, &dedup.Options{OnLapse: dedup.Hold})
	failure := errors.New("no stock")
	require.ErrorIs(t, fulfil(ctx, db, g, s, "id", failure), failure)
	require.Empty(t, order(t, db, "id"))
	require.Zero(t, count(t, db), "nothing is left, not even a bucket")
	c, err := g.Claim(ctx, dedup.Request{ID: "id"})
	require.NoError(t, err)
	require.Equal(t, dedup.Acquired, c.State)
	require.Equal(t, 1, c.Attempt)
}

// Nobody sees a claim of a transaction that may still be rolled back.
func TestTxIsNotSeenBeforeItsCommit(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	g := newGuard(t, s, &dedup.Options{OnLapse: dedup.Hold})
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		bound := g.With(s.Tx(tx))
		c, err := bound.Claim(ctx, dedup.Request{ID: "id"})
		require.NoError(t, err)
		require.NoError(t, bound.Settle(ctx, c.Hold()))
		list, err := g.Held(ctx, "", 10)
		require.NoError(t, err)
		require.Empty(t, list)
		list, err = bound.Held(ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		return nil
	}))
	list, err := g.Held(ctx, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A transaction that cannot serve gives an error at the first step: never a
// claim, and never a panic.
func TestTxThatCannotServe(t *testing.T) {
	ctx := t.Context()
	db := open(t)
	s := newStore(t, db)
	p := dedup.Params{Scope: "s", Lease: time.Hour, Retention: time.Hour}
	asks := []dedup.Ask{{Request: dedup.Request{ID: "id"}}}
	_, err := s.Claim(ctx, p, asks) // from now on there is something to read
	require.NoError(t, err)
	refuses := func(ctx context.Context, tx *bbolt.Tx, want error) {
		t.Helper()
		claims, err := s.Tx(tx).Claim(ctx, p, asks)
		require.ErrorIs(t, err, want)
		require.Nil(t, claims)
		_, err = s.Tx(tx).Settle(ctx, p, []dedup.Settlement{{Kind: dedup.KindForget, ID: "no such ID"}})
		require.ErrorIs(t, err, want)
	}

	refuses(ctx, nil, bbolterrors.ErrTxClosed)

	reading, err := db.Begin(false)
	require.NoError(t, err)
	defer reading.Rollback()
	refuses(ctx, reading, bbolterrors.ErrTxNotWritable)
	_, err = s.Tx(reading).Held(ctx, "s", "", 1)
	require.NoError(t, err, "listing needs no writable one")
	require.NoError(t, reading.Rollback())

	writing, err := db.Begin(true)
	require.NoError(t, err)
	defer writing.Rollback()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	refuses(gone, writing, context.Canceled)
	require.NoError(t, writing.Rollback())
	refuses(ctx, writing, bbolterrors.ErrTxClosed)
	_, err = s.Tx(writing).Held(ctx, "s", "", 1)
	require.ErrorIs(t, err, bbolterrors.ErrTxClosed)

	other := openFile(t, filepath.Join(t.TempDir(), "other.db"), nil)
	require.NoError(t, other.Update(func(tx *bbolt.Tx) error {
		_, err := s.Tx(tx).Claim(ctx, p, asks)
		require.ErrorContains(t, err, "another file")
		return nil
	}))
	require.Zero(t, count(t, other))
}
