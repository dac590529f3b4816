package dlqtest

import (
	"context"
	"errors"

	"github.com/pawl-go/pawl/dlq"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It calls
// the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	dlq.Store

	// Before is called before a step. When it returns an error, the step is not applied
	// and returns that error.
	Before func(Step) error

	// After is called when a step was applied. When it returns an error, the answer is
	// lost and the step returns that error.
	After func(Step) error
}

// A Step is one call of a [Faulty] store that changes something, with what it
// carries: exactly one field is set. A hook must not change them.
type Step struct {
	Letters     []dlq.Put
	Ask         *dlq.Ask
	Settlements []dlq.Settlement
	Changes     []dlq.Change
	Job         *dlq.Job
	Alarms      []dlq.Alarm
}

// ErrFault is an error for hooks to return.
var ErrFault = errors.New("dlqtest: the store fails on purpose")

// Put implements [dlq.Store].
func (f *Faulty) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	return around(f, Step{Letters: letters}, func() ([]dlq.Answer, error) { return f.Store.Put(ctx, p, letters) })
}

// Claim implements [dlq.Store].
func (f *Faulty) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	return around(f, Step{Ask: &a}, func() (dlq.Claimed, error) { return f.Store.Claim(ctx, a) })
}

// Settle implements [dlq.Store].
func (f *Faulty) Settle(ctx context.Context, p dlq.Params, s []dlq.Settlement) ([]error, error) {
	return around(f, Step{Settlements: s}, func() ([]error, error) { return f.Store.Settle(ctx, p, s) })
}

// Change implements [dlq.Store].
func (f *Faulty) Change(ctx context.Context, p dlq.Params, c []dlq.Change) ([]error, error) {
	return around(f, Step{Changes: c}, func() ([]error, error) { return f.Store.Change(ctx, p, c) })
}

// SaveJob implements [dlq.Store].
func (f *Faulty) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	return around(f, Step{Job: &j}, func() (dlq.Job, error) { return f.Store.SaveJob(ctx, p, j) })
}

// Alert implements [dlq.Store].
func (f *Faulty) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	return around(f, Step{Alarms: alarms}, func() ([]bool, error) { return f.Store.Alert(ctx, alarms) })
}

// Sweep implements [dlq.Sweeper]. Where the store is none, it removes nothing.
func (f *Faulty) Sweep(ctx context.Context, n int) (removed int, err error) {
	if s, ok := f.Store.(dlq.Sweeper); ok {
		return s.Sweep(ctx, n)
	}
	return 0, nil
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
		if lost := f.After(s); lost != nil {
			return none, lost
		}
	}
	return answer, err
}
