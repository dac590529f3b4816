package boltinbox

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/inbox"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not. In a handler, the effect and the completion of the event are then one
// commit:
//
//	err := db.Update(func(tx *bbolt.Tx) error {
//		if err := tx.Bucket(orders).Put(id, order); err != nil {
//			return err
//		}
//		return box.With(store.Tx(tx)).Complete(ctx)
//	})
//	return inbox.OutcomeOf(err)
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can accept
// before it ends, since bbolt has one writer: keep it short, and wait for no
// remote within it.
func (s *Store) Tx(tx *bbolt.Tx) inbox.Store { return txStore{s, tx} }

type txStore struct {
	s  *Store
	tx *bbolt.Tx
}

func (t txStore) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) (answers []inbox.Answer, err error) {
	err = t.do(ctx, "accept", true, func(st *step) (err error) {
		answers, err = st.accept(p, arrivals)
		return err
	})
	return answers, err
}

func (t txStore) Claim(ctx context.Context, a inbox.Ask) (c inbox.Claimed, err error) {
	err = t.do(ctx, "claim", true, func(st *step) (err error) {
		c, err = st.claim(&a)
		return err
	})
	return c, err
}

func (t txStore) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) (errs []error, err error) {
	err = t.do(ctx, "settle", true, func(st *step) (err error) {
		errs, err = st.settle(p, settlements)
		return err
	})
	return errs, err
}

func (t txStore) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) (errs []error, err error) {
	err = t.do(ctx, "change", true, func(st *step) (err error) {
		errs, err = st.change(p, changes)
		return err
	})
	return errs, err
}

func (t txStore) List(ctx context.Context, q inbox.Query) (records []inbox.Record, err error) {
	err = t.do(ctx, "list", false, func(st *step) (err error) {
		records, err = st.list(&q)
		return err
	})
	return records, err
}

func (t txStore) Totals(ctx context.Context) (totals inbox.Totals, err error) {
	err = t.do(ctx, "totals", false, func(st *step) (err error) {
		totals, err = st.totals()
		return err
	})
	return totals, err
}

func (t txStore) do(ctx context.Context, op string, write bool, do func(*step) error) error {
	err := t.usable(ctx, write)
	if err == nil {
		_, err = t.s.within(t.tx, write, do)
	}
	return wrap(op+" in a transaction", err)
}

// usable says why the transaction cannot serve, before bbolt would panic.
func (t txStore) usable(ctx context.Context, write bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.tx == nil || t.tx.DB() == nil:
		return fmt.Errorf("%w: %w", inbox.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", inbox.ErrInvalid)
	case write && !t.tx.Writable():
		return fmt.Errorf("%w: %w", inbox.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
