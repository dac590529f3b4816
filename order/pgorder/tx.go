package pgorder

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

// Tx returns a view of the store that works within the caller's transaction: see
// the package comment. It costs nothing to make. Use it through
// [order.Buffer.With], from the goroutine of the transaction, and not after the
// transaction has ended.
//
// A call of the view that fails with a database error has aborted the
// transaction, as any statement would.
func (s *Store) Tx(tx pgx.Tx) order.Store {
	return &bound{s, within(tx)}
}

// bound is the view of a Store within a transaction.
type bound struct {
	s *Store
	r pgcall.Route
}

func (b *bound) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers, err := b.s.push(ctx, b.r, p, arrivals)
	return answers, b.s.wrap("push in a transaction", err)
}

func (b *bound) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	claimed, err := b.s.claim(ctx, b.r, p, a)
	return claimed, b.s.wrap("claim in a transaction", err)
}

func (b *bound) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
	errs, err := b.s.settle(ctx, b.r, p, settlements)
	return errs, b.s.wrap("settle in a transaction", err)
}

func (b *bound) Account(ctx context.Context, scope, key string) (order.Account, error) {
	account, err := b.s.account(ctx, b.r, scope, key)
	return account, b.s.wrap("account in a transaction", err)
}

func (b *bound) Find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	found, err := b.s.find(ctx, b.r, p, places)
	return found, b.s.wrap("find in a transaction", err)
}

func (b *bound) Gaps(ctx context.Context, scope string, q order.Query) ([]order.Gap, error) {
	gaps, err := b.s.gaps(ctx, b.r, scope, q)
	return gaps, b.s.wrap("gaps in a transaction", err)
}

func (b *bound) Parked(ctx context.Context, scope string, q order.Query) ([]order.Message, error) {
	parked, err := b.s.parked(ctx, b.r, scope, q)
	return parked, b.s.wrap("parked in a transaction", err)
}

func (b *bound) Totals(ctx context.Context, scope string) (order.Totals, error) {
	totals, err := b.s.totals(ctx, b.r, scope)
	return totals, b.s.wrap("totals in a transaction", err)
}
