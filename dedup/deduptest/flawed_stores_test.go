package deduptest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// An alteration changes calls on their way to the memory store.
type alteration struct {
	dedup.Store
	claim  func(*dedup.Params, []dedup.Ask)
	settle func(*dedup.Params, []dedup.Settlement)
}

func altered(set func(*alteration)) func() dedup.Store {
	return func() dedup.Store {
		a := &alteration{Store: dedup.NewMemory()}
		set(a)
		return a
	}
}

func eachAsk(f func(*dedup.Ask)) func(*dedup.Params, []dedup.Ask) {
	return func(_ *dedup.Params, asks []dedup.Ask) {
		for i := range asks {
			f(&asks[i])
		}
	}
}

func eachSettlement(f func(*dedup.Settlement)) func(*dedup.Params, []dedup.Settlement) {
	return func(_ *dedup.Params, s []dedup.Settlement) {
		for i := range s {
			f(&s[i])
		}
	}
}

func (a *alteration) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	sent := slices.Clone(asks)
	if a.claim != nil {
		a.claim(&p, sent)
	}
	cs, err := a.Store.Claim(ctx, p, sent)
	for i := range cs {
		cs[i].ID = asks[i].ID
	}
	return cs, err
}

func (a *alteration) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	s = slices.Clone(s)
	if a.settle != nil {
		a.settle(&p, s)
	}
	return a.Store.Settle(ctx, p, s)
}

// deaf ignores the context.
type deaf struct{ dedup.Store }

func (d deaf) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	return d.Store.Claim(context.WithoutCancel(ctx), p, asks)
}

// terse returns only the errors there are.
type terse struct{ dedup.Store }

func (t terse) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	errs, err := t.Store.Settle(ctx, p, s)
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil }), err
}

// hasty answers an ID that a batch repeats from its first place.
type hasty struct{ dedup.Store }

func (h hasty) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	first := map[string]dedup.Claim{}
	cs := make([]dedup.Claim, len(asks))
	for i, a := range asks {
		if _, ok := first[a.ID]; !ok {
			answer, err := h.Store.Claim(ctx, p, asks[i:i+1])
			if err != nil {
				return nil, err
			}
			first[a.ID] = answer[0]
		}
		cs[i] = first[a.ID]
	}
	return cs, nil
}

// checkThenSet looks an ID up in one step and takes it in another.
type checkThenSet struct {
	dedup.Store
	mu   sync.Mutex
	seen map[string]bool
}

func (s *checkThenSet) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	s.mu.Lock()
	taken := s.seen[asks[0].ID]
	s.mu.Unlock()
	if taken {
		return s.Store.Claim(ctx, p, asks)
	}
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[asks[0].ID] = true
	return []dedup.Claim{{State: dedup.Acquired, ID: asks[0].ID, Token: 1, Attempt: 1, Left: p.Lease}}, nil
}

// A brokenModel is a store made of the model, with some of its steps replaced.
// Without any it is a correct store.
type brokenModel struct {
	mu     sync.Mutex
	model  *model
	clock  func() time.Time
	claim  func(*model, time.Time, dedup.Params, dedup.Ask) dedup.Claim
	settle func(*model, time.Time, dedup.Params, dedup.Settlement) error
	held   func(page []dedup.Claim, m *model, scope string) []dedup.Claim
}

func broken(set func(*brokenModel)) func() dedup.Store {
	return func() dedup.Store {
		b := &brokenModel{model: newModel(), clock: time.Now}
		b.claim = (*model).claim
		b.settle = (*model).settle
		b.held = func(page []dedup.Claim, _ *model, _ string) []dedup.Claim { return page }
		set(b)
		return b
	}
}

func (b *brokenModel) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	cs := make([]dedup.Claim, len(asks))
	for i, a := range asks {
		cs[i] = b.claim(b.model, now, p, a)
	}
	return cs, nil
}

func (b *brokenModel) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock()
	var errs []error
	for i, one := range s {
		if err := b.settle(b.model, now, p, one); err != nil {
			if errs == nil {
				errs = make([]error, len(s))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

func (b *brokenModel) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held(b.model.held(b.clock(), scope, after, n), b.model, scope), nil
}

// ignoreToken lets anybody settle.
func ignoreToken(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
	if r := m.recs[key{p.Scope, s.ID}]; r != nil {
		s.Token = r.token
	}
	return m.settle(now, p, s)
}

// onlyOnce refuses what was applied before.
func onlyOnce(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
	if r := m.recs[key{p.Scope, s.ID}]; r != nil && r.phase != claimed && r.phase != held && s.Kind != dedup.KindForget {
		return dedup.ErrStale
	}
	return m.settle(now, p, s)
}

// inTimeOnly refuses the owner of a lapsed claim.
func inTimeOnly(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
	if r := m.recs[key{p.Scope, s.ID}]; r != nil && r.phase == claimed && r.lapsed(now) && s.Kind != dedup.KindForget {
		return dedup.ErrStale
	}
	return m.settle(now, p, s)
}

// retains lets something else happen to the record of an ID that is retained, whatever
// its state.
func retains(do func(*record, time.Time, dedup.Settlement)) func(*model, time.Time, dedup.Params, dedup.Settlement) error {
	return func(m *model, now time.Time, p dedup.Params, s dedup.Settlement) error {
		if s.Kind != dedup.KindRetain {
			return m.settle(now, p, s)
		}
		if r := m.live(now, key{p.Scope, s.ID}); r != nil {
			do(r, now, s)
		}
		return nil
	}
}

// retainsLast sorts a batch by kind.
type retainsLast struct{ dedup.Store }

func (s retainsLast) Settle(ctx context.Context, p dedup.Params, all []dedup.Settlement) ([]error, error) {
	errs := make([]error, len(all))
	for _, last := range []bool{false, true} {
		for i := range all {
			if (all[i].Kind == dedup.KindRetain) == last {
				answers, err := s.Store.Settle(ctx, p, all[i:i+1])
				if err != nil {
					return nil, err
				}
				errs[i] = errorAt(answers, 0)
			}
		}
	}
	return errs, nil
}
