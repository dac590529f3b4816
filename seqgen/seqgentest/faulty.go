package seqgentest

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-go/pawl/seqgen"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It
// calls the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	seqgen.Store

	// Before is called before a step. When it returns an error, the step is not
	// applied and returns that error.
	Before func(Step) error

	// After is called when a step was applied. When it returns an error, the
	// answer is lost and the step returns that error.
	After func(Step) error
}

// A Step is one call of a [Faulty] store, with what it carries: a Reserve has
// Asks, a Settle has Changes, a Look and a Voids have neither. A hook must not
// change them.
type Step struct {
	Params  seqgen.Params // only the Scope for a Look and a Voids
	Asks    []seqgen.Ask
	Changes []seqgen.Change
}

// Reserve implements [seqgen.Store].
func (f *Faulty) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	return around(f, Step{Params: p, Asks: asks}, func() ([]seqgen.Grant, error) { return f.Store.Reserve(ctx, p, asks) })
}

// Settle implements [seqgen.Store].
func (f *Faulty) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	return around(f, Step{Params: p, Changes: changes}, func() ([]seqgen.Outcome, error) { return f.Store.Settle(ctx, p, changes) })
}

// Look implements [seqgen.Store].
func (f *Faulty) Look(ctx context.Context, scope string, keys []string) ([]seqgen.State, error) {
	step := Step{Params: seqgen.Params{Scope: scope}}
	return around(f, step, func() ([]seqgen.State, error) { return f.Store.Look(ctx, scope, keys) })
}

// Voids implements [seqgen.Store].
func (f *Faulty) Voids(ctx context.Context, q seqgen.VoidQuery) ([]seqgen.Void, error) {
	step := Step{Params: seqgen.Params{Scope: q.Scope}}
	return around(f, step, func() ([]seqgen.Void, error) { return f.Store.Voids(ctx, q) })
}

// around runs a step between the two hooks.
func around[T any](f *Faulty, s Step, apply func() ([]T, error)) ([]T, error) {
	if f.Before != nil {
		if err := f.Before(s); err != nil {
			return nil, err
		}
	}
	answers, err := apply()
	if err == nil && f.After != nil {
		err = f.After(s)
	}
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// ErrReplyLost is what a store of [LoseReplies] returns for a step that it has
// applied.
var ErrReplyLost = errors.New("seqgentest: the step was applied, its reply is lost")

// LoseReplies returns a view of s that loses the answer to every ask and to every
// change once: a call that carries one not sent before is applied and returns
// [ErrReplyLost]. Sent again, it is answered. It keeps a note of all that was sent,
// so it is for tests only.
func LoseReplies(s seqgen.Store) *Faulty {
	var mu sync.Mutex
	sent := map[any]bool{}
	return &Faulty{Store: s, After: func(s Step) error {
		mu.Lock()
		defer mu.Unlock()
		known := len(sent)
		for _, a := range s.Asks {
			sent[a.Nonce] = true
		}
		for _, c := range s.Changes {
			sent[sentChange{s.Params.Scope, c}] = true
		}
		if len(sent) > known {
			return ErrReplyLost
		}
		return nil
	}}
}

type sentChange struct {
	scope string
	seqgen.Change
}
