package ordertest

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl/order"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It
// calls the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	order.Store

	// Before is called before a step. When it returns an error, the step is not
	// applied and returns that error.
	Before func(Step) error

	// After is called when a step was applied. When it returns an error, the
	// answer is lost and the step returns that error.
	After func(Step) error
}

// A Step is one call of a [Faulty] store, with what it carries: exactly one field
// is set, or none for a call that only reads. A hook must not change them.
type Step struct {
	Arrivals    []order.Arrival
	Ask         *order.Ask
	Settlements []order.Settlement
}

// ErrFault is an error for hooks to return.
var ErrFault = errors.New("ordertest: the store fails on purpose")

// Push implements [order.Store].
func (f *Faulty) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	return around(f, Step{Arrivals: arrivals}, func() ([]order.Answer, error) { return f.Store.Push(ctx, p, arrivals) })
}

// Claim implements [order.Store].
func (f *Faulty) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	return around(f, Step{Ask: &a}, func() (order.Claimed, error) { return f.Store.Claim(ctx, p, a) })
}

// Settle implements [order.Store].
func (f *Faulty) Settle(ctx context.Context, p order.Params, s []order.Settlement) ([]error, error) {
	return around(f, Step{Settlements: s}, func() ([]error, error) { return f.Store.Settle(ctx, p, s) })
}

// Account implements [order.Store].
func (f *Faulty) Account(ctx context.Context, scope, key string) (order.Account, error) {
	return around(f, Step{}, func() (order.Account, error) { return f.Store.Account(ctx, scope, key) })
}

// Find implements [order.Store].
func (f *Faulty) Find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	return around(f, Step{}, func() ([]order.Found, error) { return f.Store.Find(ctx, p, places) })
}

// Gaps implements [order.Store].
func (f *Faulty) Gaps(ctx context.Context, scope string, q order.Query) ([]order.Gap, error) {
	return around(f, Step{}, func() ([]order.Gap, error) { return f.Store.Gaps(ctx, scope, q) })
}

// Parked implements [order.Store].
func (f *Faulty) Parked(ctx context.Context, scope string, q order.Query) ([]order.Message, error) {
	return around(f, Step{}, func() ([]order.Message, error) { return f.Store.Parked(ctx, scope, q) })
}

// Totals implements [order.Store].
func (f *Faulty) Totals(ctx context.Context, scope string) (order.Totals, error) {
	return around(f, Step{}, func() (order.Totals, error) { return f.Store.Totals(ctx, scope) })
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
