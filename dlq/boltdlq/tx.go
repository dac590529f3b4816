package boltdlq

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/dlq"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not. A message then leaves where it was, and becomes a letter, in one commit:
//
//	err := db.Update(func(tx *bbolt.Tx) error {
//		if err := tx.Bucket(orders).Delete(id); err != nil {
//			return err
//		}
//		_, err := queue.With(store.Tx(tx)).Put(ctx, dead)
//		return err
//	})
//
// The reverse, an effect and the resolution of its letter, is what [Store.InTx] does.
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can put or settle
// a letter before it ends, since bbolt has one writer: keep it short, and wait for
// no remote within it.
func (s *Store) Tx(tx *bbolt.Tx) dlq.Store { return txStore{s, tx} }

type txStore struct {
	s  *Store
	tx *bbolt.Tx
}

func (t txStore) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	return run(ctx, t.update, "put", func(st *step) ([]dlq.Answer, error) { return st.put(p, letters) })
}

func (t txStore) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	return run(ctx, t.update, "claim", func(st *step) (dlq.Claimed, error) { return st.claim(&a) })
}

func (t txStore) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	return run(ctx, t.update, "settle", func(st *step) ([]error, error) { return st.settle(p, settlements) })
}

func (t txStore) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	return run(ctx, t.update, "change", func(st *step) ([]error, error) { return st.change(p, changes) })
}

func (t txStore) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	return saved(run(ctx, t.update, "save a job", func(st *step) (savedJob, error) { return st.saveJob(p, &j) }))
}

func (t txStore) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	return run(ctx, t.update, "alert", func(st *step) ([]bool, error) { return st.alert(alarms) })
}

func (t txStore) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	return run(ctx, t.view, "list", func(st *step) (dlq.Page, error) { return st.list(&q) })
}

func (t txStore) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	return run(ctx, t.view, "groups", func(st *step) ([]dlq.Group, error) { return st.listGroups(stream, after, n) })
}

func (t txStore) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	p, err := run(ctx, t.view, "audit", func(st *step) (entryPage, error) { return st.audit(&q) })
	return p.entries, p.next, err
}

func (t txStore) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	return run(ctx, t.view, "jobs", func(st *step) ([]dlq.Job, error) { return st.listJobs(stream, after, n) })
}

func (t txStore) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	return run(ctx, t.view, "totals", func(st *step) ([]dlq.Totals, error) { return st.listTotals(after, n) })
}

func (t txStore) update(ctx context.Context, op string, do func(*step) error) error {
	return t.do(ctx, op, true, do)
}

func (t txStore) view(ctx context.Context, op string, do func(*step) error) error {
	return t.do(ctx, op, false, do)
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
		return fmt.Errorf("%w: %w", dlq.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", dlq.ErrInvalid)
	case write && !t.tx.Writable():
		return fmt.Errorf("%w: %w", dlq.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
