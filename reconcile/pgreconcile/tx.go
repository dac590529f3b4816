package pgreconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

// Tx returns a view of the store that works within the caller's transaction: see the
// package comment. It costs nothing to make. Use it from the goroutine of the
// transaction, and not after the transaction has ended.
//
// What another transaction has locked is answered with [ErrBusy] for itself, and the
// transaction goes on. A call that fails as a whole with a database error has aborted it, as
// any statement would. The view claims nothing: Claim is [reconcile.ErrInvalid].
func (s *Store) Tx(tx pgx.Tx) reconcile.Store { return &bound{s, within(tx)} }

// bound is the view of a Store within a transaction.
type bound struct {
	s *Store
	r pgcall.Route
}

func (b *bound) wrap(step string, err error) error { return b.s.wrap(step+" in a transaction", err) }

func (b *bound) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) ([]reconcile.Answer, error) {
	answers, err := b.s.begin(ctx, b.r, p, asks)
	return answers, b.wrap("begin", err)
}

func (b *bound) Claim(context.Context, reconcile.Params, reconcile.ClaimAsk) ([]reconcile.Entry, time.Duration, error) {
	return nil, 0, fmt.Errorf("pgreconcile: %w: operations are claimed outside of transactions", reconcile.ErrInvalid)
}

func (b *bound) Settle(ctx context.Context, p reconcile.Params, s []reconcile.Settlement) ([]error, error) {
	errs, err := b.s.settle(ctx, b.r, p, s)
	return errs, b.wrap("settle", err)
}

func (b *bound) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	entries, err := b.s.list(ctx, b.r, q)
	return entries, b.wrap("list", err)
}

func (b *bound) Counts(ctx context.Context, kind, after string, first bool, n int) ([]reconcile.Counts, error) {
	counts, err := b.s.counts(ctx, b.r, kind, after, first, n)
	return counts, b.wrap("counts", err)
}
