package boltreconcile

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/pawl-go/pawl/reconcile"
)

// Tx returns a view of the store whose steps are part of the caller's
// transaction: they happen when it commits and have not happened when it does
// not.
//
// When a step returns an error, return it from the transaction's function, so
// that all is rolled back.
//
// The view costs nothing to make, lives as long as the transaction and belongs
// to its goroutine. The transaction must be a writable one of the store's own
// file; any other gives an error at the first step. Nobody else can begin or settle
// an operation before it ends, since bbolt has one writer: keep it short, and wait for
// no remote within it.
func (s *Store) Tx(tx *bbolt.Tx) reconcile.Store { return txStore{inTx{s, tx}} }

// Tx is [Store.Tx] for observations: what a webhook says is appended in the transaction
// in which it leaves the inbox, say.
func (t *TimelineStore) Tx(tx *bbolt.Tx) reconcile.TimelineStore { return txTimeline{inTx{t.s, tx}} }

// Tx is [Store.Tx] for what checks find and count.
func (c *CheckStore) Tx(tx *bbolt.Tx) reconcile.CheckStore { return txChecks{inTx{c.s, tx}} }

type txStore struct{ inTx }

func (t txStore) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	return run(ctx, t.update, "begin", func(st *step) ([]reconcile.Answer, error) { return st.begin(p, asks) })
}

func (t txStore) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	c, err := run(ctx, t.update, "claim", func(st *step) (claimed, error) { return st.claim(p, &a) })
	return c.entries, c.next, err
}

func (t txStore) Settle(ctx context.Context, p reconcile.Params, settlements []reconcile.Settlement) ([]error, error) {
	return run(ctx, t.update, "settle", func(st *step) ([]error, error) { return st.settle(p, settlements) })
}

func (t txStore) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	return run(ctx, t.view, "list", func(st *step) ([]reconcile.Entry, error) { return st.list(&q) })
}

func (t txStore) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	return run(ctx, t.view, "counts", func(st *step) ([]reconcile.Counts, error) { return st.listCounts(kind, after, first, n) })
}

type txTimeline struct{ inTx }

func (t txTimeline) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	return run(ctx, t.update, "append", func(st *step) ([]reconcile.Appending, error) { return st.appendAll(&p, os) })
}

func (t txTimeline) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	return run(ctx, t.view, "read", func(st *step) (reconcile.History, error) { return st.read(p.Kind, ref) })
}

func (t txTimeline) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (n int, err error) {
	return run(ctx, t.update, "forget", func(st *step) (int, error) { return st.forget(p.Kind, ref) })
}

type txChecks struct{ inTx }

func (t txChecks) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	return run(ctx, t.update, "report", func(st *step) ([]reconcile.Outcome, error) { return st.report(&p, rs) })
}

func (t txChecks) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) ([]reconcile.Finding, error) {
	return run(ctx, t.update, "claim findings", func(st *step) ([]reconcile.Finding, error) {
		return st.claimFindings(p.Kind, check, n, hold)
	})
}

func (t txChecks) List(ctx context.Context, q reconcile.FindingQuery) ([]reconcile.Finding, error) {
	return run(ctx, t.view, "list findings", func(st *step) ([]reconcile.Finding, error) { return st.listFindings(&q) })
}

func (t txChecks) Open(ctx context.Context, kind string) ([]reconcile.OpenFindings, error) {
	return run(ctx, t.view, "count findings", func(st *step) ([]reconcile.OpenFindings, error) { return st.openFindings(kind) })
}

func (t txChecks) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	return t.update(ctx, "tally", func(st *step) error { return st.tallyAll(&p, cells) })
}

func (t txChecks) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) ([]reconcile.Volume, error) {
	return run(ctx, t.view, "volumes", func(st *step) ([]reconcile.Volume, error) { return st.volumes(p.Kind, after, n, starts) })
}

// inTx runs steps in the caller's transaction.
type inTx struct {
	s  *Store
	tx *bbolt.Tx
}

func (t inTx) update(ctx context.Context, op string, do func(*step) error) error {
	return t.do(ctx, op, true, do)
}

func (t inTx) view(ctx context.Context, op string, do func(*step) error) error {
	return t.do(ctx, op, false, do)
}

func (t inTx) do(ctx context.Context, op string, write bool, do func(*step) error) error {
	err := t.usable(ctx, write)
	if err == nil {
		_, err = t.s.within(t.tx, write, do)
	}
	return wrap(op+" in a transaction", err)
}

// usable says why the transaction cannot serve, before bbolt would panic.
func (t inTx) usable(ctx context.Context, write bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t.tx == nil || t.tx.DB() == nil:
		return fmt.Errorf("%w: %w", reconcile.ErrInvalid, bbolterrors.ErrTxClosed)
	case t.tx.DB() != t.s.db:
		return fmt.Errorf("%w: the transaction is one of another file than the store's", reconcile.ErrInvalid)
	case write && !t.tx.Writable():
		return fmt.Errorf("%w: %w", reconcile.ErrInvalid, bbolterrors.ErrTxNotWritable)
	}
	return nil
}
