package pginbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// Tx returns a view of the store that works within the caller's transaction: see
// the package comment. It costs nothing to make. Use it through
// [inbox.Box.With], from the goroutine of the transaction, and not after the
// transaction has ended.
//
// A call of the view that fails with a database error has aborted the
// transaction, as any statement would. The view claims nothing: Claim is
// [inbox.ErrInvalid].
func (s *Store) Tx(tx pgx.Tx) inbox.Store {
	return &bound{s, within(tx)}
}

// bound is the view of a Store within a transaction.
type bound struct {
	s *Store
	r pgcall.Route
}

func (b *bound) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	answers, err := b.s.accept(ctx, b.r, p, arrivals)
	return answers, b.s.wrap("accept in a transaction", err)
}

func (b *bound) Claim(context.Context, inbox.Ask) (inbox.Claimed, error) {
	return inbox.Claimed{}, fmt.Errorf("pginbox: %w: work is claimed outside of transactions", inbox.ErrInvalid)
}

func (b *bound) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) ([]error, error) {
	errs, err := b.s.settle(ctx, b.r, p, settlements)
	return errs, b.s.wrap("settle in a transaction", err)
}

func (b *bound) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]error, error) {
	errs, err := b.s.change(ctx, b.r, p, changes)
	return errs, b.s.wrap("change in a transaction", err)
}

func (b *bound) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	records, err := b.s.list(ctx, b.r, q)
	return records, b.s.wrap("list in a transaction", err)
}

func (b *bound) Totals(ctx context.Context) (inbox.Totals, error) {
	totals, err := b.s.totals(ctx, b.r)
	return totals, b.s.wrap("totals in a transaction", err)
}

// InTx makes a handler for [inbox.Box.Work]: fn writes to tx what the event is to
// effect, and that and the event's completion are one commit, so the effect happens
// once. The store is the box's.
//
//	err := box.Work(ctx, store.InTx(box, func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome {
//		_, err := tx.Exec(ctx, "INSERT INTO orders ...")
//		return inbox.OutcomeOf(err)
//	}), nil)
//
// Only Done commits. With any other outcome, with a panic, when the lease was lost
// and when the commit fails, what fn wrote is rolled back, and the outcome is
// recorded by itself. A commit whose answer was lost is not guessed at: the event is
// tried again, and is found to be done if it was.
//
// The transaction is READ COMMITTED. fn must not commit it or roll it back, nor use tx
// after it has returned. Every event holds a connection while fn works: the pool
// should have a few more connections than WorkOptions.Concurrency, or else claims and
// leases wait.
func (s *Store) InTx(box *inbox.Box, fn func(ctx context.Context, tx pgx.Tx, r inbox.Record) inbox.Outcome) func(context.Context, inbox.Record) inbox.Outcome {
	return func(ctx context.Context, r inbox.Record) (o inbox.Outcome) {
		err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if o = fn(ctx, tx, r); o.String() != "done" {
				return errRolledBack
			}
			return box.With(s.Tx(tx)).Complete(ctx)
		})
		if err == nil || errors.Is(err, errRolledBack) {
			return o
		}
		return inbox.Failed(s.wrap("work in a transaction", err))
	}
}

var errRolledBack = errors.New("the handler's outcome was not done")
