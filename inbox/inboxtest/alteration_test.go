package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/inbox"
)

// An alteration changes what goes into the memory store, and what comes out.
type alteration struct {
	*inbox.Memory
	mu sync.Mutex

	accept   func(*inbox.Params, []inbox.Arrival) []inbox.Arrival
	accepted func([]inbox.Arrival, []inbox.Answer) []inbox.Answer
	ask      func(*inbox.Ask)
	claimed  func(inbox.Ask, *inbox.Claimed)
	settle   func(*inbox.Params, []inbox.Settlement)
	settled  func([]inbox.Settlement, []error) []error
	change   func(*inbox.Params, []inbox.Change)
	changed  func([]inbox.Change, []error) []error
	query    func(*inbox.Query)
	listed   func([]inbox.Record)
	totals   func(*inbox.Totals)
	sweep    func() // in front of each Sweep
	swept    func()
	reopen   func()
}

func (a *alteration) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(arrivals)
	if a.accept != nil {
		sent = a.accept(&p, sent)
	}
	answers, err := a.Memory.Accept(ctx, p, sent)
	if a.accepted != nil && err == nil {
		answers = a.accepted(arrivals, answers)
	}
	return answers, err
}

func (a *alteration) Claim(ctx context.Context, ask inbox.Ask) (inbox.Claimed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := ask
	if a.ask != nil {
		a.ask(&sent)
	}
	c, err := a.Memory.Claim(ctx, sent)
	if a.claimed != nil && err == nil {
		a.claimed(ask, &c)
	}
	return c, err
}

func (a *alteration) Settle(ctx context.Context, p inbox.Params, s []inbox.Settlement) ([]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(s)
	if a.settle != nil {
		a.settle(&p, sent)
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

func (a *alteration) Change(ctx context.Context, p inbox.Params, c []inbox.Change) ([]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(c)
	if a.change != nil {
		a.change(&p, sent)
	}
	errs, err := a.Memory.Change(ctx, p, sent)
	if a.changed != nil && err == nil {
		if errs == nil {
			errs = make([]error, len(c))
		}
		errs = a.changed(c, errs)
	}
	return errs, err
}

func (a *alteration) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	if a.query != nil {
		a.query(&q)
	}
	rs, err := a.Memory.List(ctx, q)
	if a.listed != nil {
		a.listed(rs)
	}
	return rs, err
}

func (a *alteration) Totals(ctx context.Context) (inbox.Totals, error) {
	t, err := a.Memory.Totals(ctx)
	if a.totals != nil {
		a.totals(&t)
	}
	return t, err
}

func (a *alteration) Sweep(ctx context.Context, n int) (int, error) {
	if a.sweep != nil {
		a.sweep()
	}
	removed, err := a.Memory.Sweep(ctx, n)
	if a.swept != nil {
		a.swept()
	}
	return removed, err
}

// once refuses a settlement that was applied before.
func once() func([]inbox.Settlement, []error) []error {
	applied := map[string]bool{}
	return eachError(func(s inbox.Settlement, err error) error {
		name := fmt.Sprint(s.Kind, s.Stream, s.Key, s.Token, s.ID)
		if err == nil && applied[name] {
			return inbox.ErrStale
		}
		applied[name] = true
		return err
	})
}

func eachArrival(f func(*inbox.Arrival)) func(*inbox.Params, []inbox.Arrival) []inbox.Arrival {
	return func(_ *inbox.Params, arrivals []inbox.Arrival) []inbox.Arrival {
		for i := range arrivals {
			f(&arrivals[i])
		}
		return arrivals
	}
}

func eachClaim(f func(*inbox.Claim)) func(inbox.Ask, *inbox.Claimed) {
	return func(_ inbox.Ask, c *inbox.Claimed) {
		for i := range c.Claims {
			f(&c.Claims[i])
		}
	}
}

func eachSettlement(f func(*inbox.Settlement)) func(*inbox.Params, []inbox.Settlement) {
	return func(_ *inbox.Params, s []inbox.Settlement) {
		for i := range s {
			f(&s[i])
		}
	}
}

func eachError(f func(inbox.Settlement, error) error) func([]inbox.Settlement, []error) []error {
	return func(s []inbox.Settlement, errs []error) []error {
		for i := range s {
			errs[i] = f(s[i], errs[i])
		}
		return errs
	}
}

// changed returns the answers with one replaced by another.
func changed(answers []inbox.Answer, from, to inbox.Answer) []inbox.Answer {
	for i := range answers {
		if answers[i] == from {
			answers[i] = to
		}
	}
	return answers
}

func eachChange(f func(*inbox.Change)) func(*inbox.Params, []inbox.Change) {
	return func(_ *inbox.Params, cs []inbox.Change) {
		for i := range cs {
			f(&cs[i])
		}
	}
}

// eachAnswer alters the answers to changes; it returns nil when none is an error.
func eachAnswer(f func(inbox.Change, error) error) func([]inbox.Change, []error) []error {
	return func(cs []inbox.Change, errs []error) []error {
		for i := range cs {
			errs[i] = f(cs[i], errs[i])
		}
		if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			return nil
		}
		return errs
	}
}

func eachRecord(f func(*inbox.Record)) func([]inbox.Record) {
	return func(rs []inbox.Record) {
		for i := range rs {
			f(&rs[i])
		}
	}
}

// unless returns err unless it is a certain one.
func unless(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

// of returns the records of an event as they are.
func (a *alteration) of(id string) []inbox.Record {
	rs, _ := a.Memory.List(context.Background(), inbox.Query{ID: id, N: 100})
	return rs
}

// every returns all records as they are.
func (a *alteration) every() (all []inbox.Record) {
	for s := inbox.StatePending; s <= inbox.StateUnknown; s++ {
		rs, _ := a.Memory.List(context.Background(), inbox.Query{State: s, N: 1000})
		all = append(all, rs...)
	}
	return all
}

// do changes a record behind everybody's back.
func (a *alteration) do(k inbox.ChangeKind, r inbox.Record) {
	c := change(k, "")
	c.ID = r.ID
	if k != inbox.ChangeForget {
		c.Seq = r.Seq
	}
	a.Memory.Change(context.Background(), inbox.Params{Retention: longRetention, Keep: longKeep}, []inbox.Change{c})
}

// forgotten notes the events that are forgotten.
func (a *alteration) forgotten() map[string]bool {
	ids := map[string]bool{}
	a.change = eachChange(func(c *inbox.Change) { ids[c.ID] = ids[c.ID] || c.Kind == inbox.ChangeForget })
	return ids
}

// tells returns a function that settles all keys that were claimed.
func (a *alteration) tells(k inbox.Kind) func() {
	var claims []inbox.Claim
	a.claimed = eachClaim(func(c *inbox.Claim) { claims = append(claims, *c) })
	return func() {
		for _, c := range claims {
			a.Memory.Settle(context.Background(), inbox.Params{Retention: longRetention}, []inbox.Settlement{settlement(k, c, "")})
		}
	}
}

// releases returns a function that releases all keys that were claimed.
func (a *alteration) releases() func() { return a.tells(inbox.KindRelease) }
