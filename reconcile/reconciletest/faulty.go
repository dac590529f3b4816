package reconciletest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It calls
// the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	reconcile.Store
	// Before is called before a step, which is not applied when it returns an error.
	Before func(step string) error
	// After is called when a step was applied; its error replaces the answer.
	After func(step string) error
}

// Begin implements [reconcile.Store].
func (f *Faulty) Begin(ctx context.Context, p reconcile.Params, asks []reconcile.Ask) (as []reconcile.Answer, err error) {
	err = f.around("begin", func() (err error) { as, err = f.Store.Begin(ctx, p, asks); return err })
	return as, err
}

// Claim implements [reconcile.Store].
func (f *Faulty) Claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) (es []reconcile.Entry, _ time.Duration, err error) {
	var next time.Duration
	err = f.around("claim", func() (err error) { es, next, err = f.Store.Claim(ctx, p, a); return err })
	return es, next, err
}

// Settle implements [reconcile.Store].
func (f *Faulty) Settle(ctx context.Context, p reconcile.Params, s []reconcile.Settlement) (errs []error, err error) {
	step := "settle"
	if len(s) > 0 {
		step = s[0].Verb.String()
	}
	err = f.around(step, func() (err error) { errs, err = f.Store.Settle(ctx, p, s); return err })
	return errs, err
}

func (f *Faulty) around(step string, do func() error) error {
	if f.Before != nil {
		if err := f.Before(step); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if f.After != nil {
		return f.After(step)
	}
	return nil
}
