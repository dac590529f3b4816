package ordertest

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/order"
)

// An alteration changes what goes into the memory store, and what comes out.
type alteration struct {
	*order.Memory
	mu sync.Mutex

	push    func(*order.Params, []order.Arrival)
	pushed  func([]order.Arrival, []order.Answer)
	ask     func(*order.Params, *order.Ask)
	claimed func(order.Ask, *order.Claimed)
	settle  func(*order.Params, []order.Settlement) []order.Settlement
	settled func([]order.Settlement, []error) []error
	account func(*order.Account)
	found   func([]order.Found)
	gaps    func([]order.Gap)
	reopen  func()
}

func (a *alteration) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(arrivals)
	if a.push != nil {
		a.push(&p, sent)
	}
	answers, err := a.Memory.Push(ctx, p, sent)
	for i := range answers {
		if !arrivals[i].Assign {
			answers[i].Key, answers[i].Position = arrivals[i].Key, arrivals[i].Position
		}
	}
	if a.pushed != nil && err == nil {
		a.pushed(arrivals, answers)
	}
	return answers, err
}

func (a *alteration) Claim(ctx context.Context, p order.Params, ask order.Ask) (order.Claimed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := ask
	if a.ask != nil {
		a.ask(&p, &sent)
	}
	c, err := a.Memory.Claim(ctx, p, sent)
	if a.claimed != nil && err == nil {
		a.claimed(ask, &c)
	}
	return c, err
}

func (a *alteration) Settle(ctx context.Context, p order.Params, s []order.Settlement) ([]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(s)
	if a.settle != nil {
		sent = a.settle(&p, sent)
	}
	errs, err := a.Memory.Settle(ctx, p, sent)
	if a.settled != nil && err == nil {
		if errs == nil {
			errs = make([]error, len(s))
		}
		errs = a.settled(s, errs)
		if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			errs = nil
		}
	}
	return errs, err
}

func (a *alteration) Account(ctx context.Context, scope, key string) (order.Account, error) {
	account, err := a.Memory.Account(ctx, scope, key)
	if a.account != nil {
		a.account(&account)
	}
	return account, err
}

func (a *alteration) Find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	found, err := a.Memory.Find(ctx, p, places)
	if a.found != nil {
		a.found(found)
	}
	return found, err
}

func (a *alteration) Gaps(ctx context.Context, scope string, q order.Query) ([]order.Gap, error) {
	gaps, err := a.Memory.Gaps(ctx, scope, q)
	if a.gaps != nil {
		a.gaps(gaps)
	}
	return gaps, err
}
