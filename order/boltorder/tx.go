package boltorder

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/order"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not. [Store.InTx] uses it to commit what a handler writes with the move of the cursor.
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can push before
// it ends, since bbolt has one writer: keep it short, and wait for no remote
// within it.
func (s *Store) Tx(tx *bbolt.Tx) order.Store { return txStore{s, tx} }

type txStore struct {
	s  *Store
	tx *bbolt.Tx
}

func (t txStore) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) (answers []order.Answer, err error) {
	err = t.do(ctx, "push", p.Scope, true, func(st *step) (err error) {
		answers, err = st.push(&p, arrivals)
		return err
	})
	return answers, err
}

func (t txStore) Claim(ctx context.Context, p order.Params, a order.Ask) (c order.Claimed, err error) {
	err = t.do(ctx, "claim", p.Scope, true, func(st *step) (err error) {
		c, err = st.claim(&p, &a)
		return err
	})
	return c, err
}

func (t txStore) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) (errs []error, err error) {
	err = t.do(ctx, "settle", p.Scope, true, func(st *step) (err error) {
		errs, err = st.settle(&p, settlements)
		return err
	})
	return errs, err
}

func (t txStore) Account(ctx context.Context, scope, key string) (a order.Account, err error) {
	a.Key = key
	err = t.do(ctx, "account", scope, false, func(st *step) (err error) {
		a, err = st.account(key)
		return err
	})
	return a, err
}

func (t txStore) Find(ctx context.Context, p order.Params, places []order.Place) (found []order.Found, err error) {
	found = nothing(places)
	err = t.do(ctx, "find", p.Scope, false, func(st *step) (err error) {
		found, err = st.find(&p, places)
		return err
	})
	return found, err
}

func (t txStore) Gaps(ctx context.Context, scope string, q order.Query) (gaps []order.Gap, err error) {
	err = t.do(ctx, "gaps", scope, false, func(st *step) (err error) {
		gaps, err = st.listGaps(&q)
		return err
	})
	return gaps, err
}

func (t txStore) Parked(ctx context.Context, scope string, q order.Query) (messages []order.Message, err error) {
	err = t.do(ctx, "parked", scope, false, func(st *step) (err error) {
		messages, err = st.listParked(&q)
		return err
	})
	return messages, err
}

func (t txStore) Totals(ctx context.Context, scope string) (totals order.Totals, err error) {
	err = t.do(ctx, "totals", scope, false, func(st *step) (err error) {
		totals, err = st.total()
		return err
	})
	return totals, err
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
		return fmt.Errorf("%w: %w", order.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", order.ErrInvalid)
	case write && !t.tx.Writable():
		return fmt.Errorf("%w: %w", order.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
