package watchdogtest

import (
	"context"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It calls
// the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	watchdog.Store

	// Before is called before a step, with its name: "beat", "list" or "act". When it
	// returns an error, the step is not applied and returns that error.
	Before func(step string) error

	// After is called when a step was applied. When it returns an error, the answer is
	// lost and the step returns that error.
	After func(step string) error
}

// Beat implements [watchdog.Store].
func (f *Faulty) Beat(ctx context.Context, p watchdog.Params, beats []watchdog.Beat) ([]watchdog.Ack, error) {
	return around(f, "beat", func() ([]watchdog.Ack, error) { return f.Store.Beat(ctx, p, beats) })
}

// List implements [watchdog.Store].
func (f *Faulty) List(ctx context.Context, scope, after string, limit int) (watchdog.Page, error) {
	return around(f, "list", func() (watchdog.Page, error) { return f.Store.List(ctx, scope, after, limit) })
}

// Act implements [watchdog.Store].
func (f *Faulty) Act(ctx context.Context, scope string, actions []watchdog.Action) ([]watchdog.Outcome, error) {
	return around(f, "act", func() ([]watchdog.Outcome, error) { return f.Store.Act(ctx, scope, actions) })
}

// around runs a step between the two hooks.
func around[T any](f *Faulty, step string, apply func() (T, error)) (none T, err error) {
	if f.Before != nil {
		if err := f.Before(step); err != nil {
			return none, err
		}
	}
	answer, err := apply()
	if err == nil && f.After != nil {
		err = f.After(step)
	}
	if err != nil {
		return none, err
	}
	return answer, nil
}
