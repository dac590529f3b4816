package boltseqgen

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/seqgen"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not. It is what mode Gapless needs:
//
//	err := db.Update(func(tx *bbolt.Tx) error {
//		at, err := generator.With(store.Tx(tx)).NextTx(ctx, "invoices")
//		if err != nil {
//			return err
//		}
//		return tx.Bucket(invoices).Put(key(at), invoice)
//	})
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can reserve before
// it ends, since bbolt has one writer: keep it short, and wait for no remote within
// it.
func (s *Store) Tx(tx *bbolt.Tx) seqgen.Store { return txStore{s, tx} }

type txStore struct {
	s  *Store
	tx *bbolt.Tx
}

func (t txStore) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) (grants []seqgen.Grant, err error) {
	err = t.do(ctx, "reserve", p.Scope, true, func(st *step) (err error) {
		grants, err = st.reserve(p, asks)
		return err
	})
	return grants, err
}

func (t txStore) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) (outcomes []seqgen.Outcome, err error) {
	err = t.do(ctx, "settle", p.Scope, true, func(st *step) (err error) {
		outcomes, err = st.settle(p, changes)
		return err
	})
	return outcomes, err
}

func (t txStore) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	states := unknown(keys)
	err := t.do(ctx, "look", scope, false, func(st *step) error {
		st.look(states)
		return nil
	})
	return states, err
}

func (t txStore) Voids(ctx context.Context, q seqgen.VoidQuery) (page []seqgen.Void, err error) {
	err = t.do(ctx, "voids", q.Scope, false, func(st *step) (err error) {
		page, err = st.list(&q)
		return err
	})
	return page, err
}

func (t txStore) do(ctx context.Context, op, scope string, write bool, do func(*step) error) error {
	err := t.usable(ctx, write)
	if err == nil {
		_, err = t.s.within(t.tx, scope, write, do)
	}
	return wrap(op+" in a transaction", err)
}

// usable says why the transaction cannot serve, before bbolt would panic.
func (t txStore) usable(ctx context.Context, write bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.tx == nil || t.tx.DB() == nil:
		return fmt.Errorf("%w: %w", seqgen.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", seqgen.ErrInvalid)
	case write && !t.tx.Writable():
		return fmt.Errorf("%w: %w", seqgen.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
