package inboxtest

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl/inbox"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It
// calls the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	inbox.Store

	// Before is called before a step. When it returns an error, the step is not
	// applied and returns that error.
	Before func(Step) error

	// After is called when a step was applied. When it returns an error, the
	// answer is lost and the step returns that error.
	After func(Step) error
}

// A Step is one call of a [Faulty] store, with what it carries: exactly one field
// is set, or none for a List, Totals or Sweep. A hook must not change them.
type Step struct {
	Arrivals    []inbox.Arrival
	Ask         *inbox.Ask
	Settlements []inbox.Settlement
	Changes     []inbox.Change
}

// ErrFault is an error for hooks to return.
var ErrFault = errors.New("inboxtest: the store fails on purpose")

// Accept implements [inbox.Store].
func (f *Faulty) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	return around(f, Step{Arrivals: arrivals}, func() ([]inbox.Answer, error) { return f.Store.Accept(ctx, p, arrivals) })
}

// Claim implements [inbox.Store].
func (f *Faulty) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	return around(f, Step{Ask: &a}, func() (inbox.Claimed, error) { return f.Store.Claim(ctx, a) })
}

// Settle implements [inbox.Store].
func (f *Faulty) Settle(ctx context.Context, p inbox.Params, s []inbox.Settlement) ([]error, error) {
	return around(f, Step{Settlements: s}, func() ([]error, error) { return f.Store.Settle(ctx, p, s) })
}

// Change implements [inbox.Store].
func (f *Faulty) Change(ctx context.Context, p inbox.Params, c []inbox.Change) ([]error, error) {
	return around(f, Step{Changes: c}, func() ([]error, error) { return f.Store.Change(ctx, p, c) })
}

// List implements [inbox.Store].
func (f *Faulty) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	return around(f, Step{}, func() ([]inbox.Record, error) { return f.Store.List(ctx, q) })
}

// Totals implements [inbox.Store].
func (f *Faulty) Totals(ctx context.Context) (inbox.Totals, error) {
	return around(f, Step{}, func() (inbox.Totals, error) { return f.Store.Totals(ctx) })
}

// Sweep implements [inbox.Sweeper]. Where the store is none, it removes nothing.
func (f *Faulty) Sweep(ctx context.Context, n int) (removed int, err error) {
	return around(f, Step{}, func() (int, error) {
		if s, ok := f.Store.(inbox.Sweeper); ok {
			return s.Sweep(ctx, n)
		}
		return 0, nil
	})
}

// around runs a step between the two hooks.
func around[T any](f *Faulty, s Step, apply func() (T, error)) (T, error) {
	var none T
	if f.Before != nil {
		if err := f.Before(s); err != nil {
			return none, err
		}
	}
	answer, err := apply()
	if err == nil && f.After != nil {
		err = f.After(s)
	}
	if err != nil {
		return none, err
	}
	return answer, nil
}
