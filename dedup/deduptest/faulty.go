package deduptest

import (
	"context"
	"errors"
	"sync"

	"github.com/pawl-go/pawl/dedup"
)

// A Faulty is a store that fails on purpose, to test what stands on a store. It
// calls the hooks from the goroutines of its callers; a nil hook never fails.
type Faulty struct {
	dedup.Store

	// Before is called before a step. When it returns an error, the step is not
	// applied and returns that error.
	Before func(Step) error

	// After is called when a step was applied. When it returns an error, the
	// answer is lost and the step returns that error.
	After func(Step) error
}

// A Step is one call of a [Faulty] store, with what it carries: a Claim has Asks,
// a Settle has Settlements, a Held has neither. A hook must not change them.
type Step struct {
	Params      dedup.Params // only the Scope for a Held
	Asks        []dedup.Ask
	Settlements []dedup.Settlement
}

// Claim implements [dedup.Store].
func (f *Faulty) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	return around(f, Step{Params: p, Asks: asks}, func() ([]dedup.Claim, error) {
		return f.Store.Claim(ctx, p, asks)
	})
}

// Settle implements [dedup.Store].
func (f *Faulty) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	return around(f, Step{Params: p, Settlements: s}, func() ([]error, error) {
		return f.Store.Settle(ctx, p, s)
	})
}

// Held implements [dedup.Store].
func (f *Faulty) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	return around(f, Step{Params: dedup.Params{Scope: scope}}, func() ([]dedup.Claim, error) {
		return f.Store.Held(ctx, scope, after, n)
	})
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
var ErrReplyLost = errors.New("deduptest: the step was applied, its reply is lost")

// LoseReplies returns a view of s that loses the answer of every ask and of
// every settlement once: a call that carries one not sent before is applied and
// returns [ErrReplyLost]. Sent again, it is answered. It keeps a note of all that
// was sent, so it is for tests only.
func LoseReplies(s dedup.Store) *Faulty {
	var mu sync.Mutex
	sent := map[any]bool{}
	return &Faulty{Store: s, After: func(s Step) error {
		mu.Lock()
		defer mu.Unlock()
		known := len(sent)
		for _, a := range s.Asks {
			sent[a.Nonce] = true
		}
		for _, one := range s.Settlements {
			sent[settlementName{s.Params.Scope, one.Kind, one.ID, one.Token}] = true
		}
		if len(sent) > known {
			return ErrReplyLost
		}
		return nil
	}}
}

// A settlementName tells two settlements apart, as far as the token does.
type settlementName struct {
	scope string
	kind  dedup.Kind
	id    string
	token uint64
}
