package boltdedup

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dedup"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not. With it a claim, the business write and the completion are one commit:
//
//	err := db.Update(func(tx *bbolt.Tx) error {
//		return guard.With(store.Tx(tx)).Do(ctx, req, func(ctx context.Context) error {
//			return tx.Bucket(orders).Put(id, order)
//		})
//	})
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can claim before
// it ends, since bbolt has one writer: keep it short, and wait for no remote
// within it.
func (s *Store) Tx(tx *bbolt.Tx) dedup.Store { return txStore{s, tx} }

type txStore struct {
	s  *Store
	tx *bbolt.Tx
}

func (t txStore) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	if err := t.usable(ctx, true); err != nil {
		return nil, wrap("claim in a transaction", err)
	}
	claims, _, err := t.s.claim(t.tx, p, asks)
	return claims, wrap("claim in a transaction", err)
}

func (t txStore) Settle(ctx context.Context, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	if err := t.usable(ctx, true); err != nil {
		return nil, wrap("settle in a transaction", err)
	}
	errs, _, err := t.s.settle(t.tx, p, settlements)
	return errs, wrap("settle in a transaction", err)
}

func (t txStore) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	if err := t.usable(ctx, false); err != nil {
		return nil, wrap("held in a transaction", err)
	}
	claims, err := t.s.held(t.tx, scope, after, n)
	return claims, wrap("held in a transaction", err)
}

// usable says why the transaction cannot serve, before bbolt would panic.
func (t txStore) usable(ctx context.Context, toWrite bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.tx == nil || t.tx.DB() == nil:
		return fmt.Errorf("%w: %w", dedup.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", dedup.ErrInvalid)
	case toWrite && !t.tx.Writable():
		return fmt.Errorf("%w: %w", dedup.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
