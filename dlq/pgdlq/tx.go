package pgdlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// Tx returns a view of the store that works within the caller's transaction: see
// the package comment. It costs nothing to make. Use it from the goroutine of the
// transaction, and not after the transaction has ended.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		_, err := queue.With(store.Tx(tx)).Put(ctx, dlq.Dead{Message: m, Cause: failure})
//		return err // beside what acknowledges the message
//	})
//
// A call of the view that fails with a database error has aborted the
// transaction, as any statement would. The view claims nothing: Claim is
// [dlq.ErrInvalid].
func (s *Store) Tx(tx pgx.Tx) dlq.Store { return &bound{s, within(tx)} }

// bound is the view of a Store within a transaction.
type bound struct {
	s *Store
	r pgcall.Route
}

func (b *bound) wrap(step string, err error) error { return b.s.wrap(step+" in a transaction", err) }

func (b *bound) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	answers, err := b.s.put(ctx, b.r, p, letters)
	return answers, b.wrap("put", err)
}

func (b *bound) Claim(context.Context, dlq.Ask) (dlq.Claimed, error) {
	return dlq.Claimed{}, fmt.Errorf("pgdlq: %w: letters are claimed outside of transactions", dlq.ErrInvalid)
}

func (b *bound) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	errs, err := b.s.settle(ctx, b.r, p, settlements)
	return errs, b.wrap("settle", err)
}

func (b *bound) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	errs, err := b.s.change(ctx, b.r, p, changes)
	return errs, b.wrap("change", err)
}

func (b *bound) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	saved, err := b.s.saveJob(ctx, b.r, p, j)
	return saved, b.s.saving(err)
}

func (b *bound) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	first, err := b.s.alert(ctx, b.r, alarms)
	return first, b.wrap("alert", err)
}

func (b *bound) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	page, err := b.s.list(ctx, b.r, q)
	return page, b.wrap("list", err)
}

func (b *bound) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	groups, err := b.s.groups(ctx, b.r, stream, after, n)
	return groups, b.wrap("groups", err)
}

func (b *bound) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	entries, next, err := b.s.audit(ctx, b.r, q)
	return entries, next, b.wrap("audit", err)
}

func (b *bound) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	jobs, err := b.s.jobs(ctx, b.r, stream, after, n)
	return jobs, b.wrap("jobs", err)
}

func (b *bound) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	totals, err := b.s.totals(ctx, b.r, after, n)
	return totals, b.wrap("totals", err)
}
