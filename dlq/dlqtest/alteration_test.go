package dlqtest

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/dlq"
)

// An alteration changes what goes into the memory store, and what comes out.
type alteration struct {
	*dlq.Memory
	mu sync.Mutex

	put      func(*dlq.Params, []dlq.Put)
	answered func([]dlq.Put, []dlq.Answer)
	ask      func(*dlq.Ask)
	claimed  func(dlq.Ask, *dlq.Claimed)
	settle   func(*dlq.Params, []dlq.Settlement) []dlq.Settlement
	settled  func([]dlq.Settlement, []error)
	change   func(*dlq.Params, []dlq.Change) []dlq.Change
	changed  func([]dlq.Change, []error)
	save     func(*dlq.Params, *dlq.Job)
	saved    func(*dlq.Job, *error)
	alarm    func([]dlq.Alarm)
	query    func(*dlq.Query)
	listed   func(dlq.Query, *dlq.Page)
	groups   func([]dlq.Group)
	entries  func([]dlq.Entry) []dlq.Entry
	totals   func([]dlq.Totals)
	sweep    func(n *int)
	reopen   func()
}

func (a *alteration) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(letters)
	if a.put != nil {
		a.put(&p, sent)
	}
	answers, err := a.Memory.Put(ctx, p, sent)
	if a.answered != nil && err == nil {
		a.answered(letters, answers)
	}
	return answers, err
}

func (a *alteration) Claim(ctx context.Context, ask dlq.Ask) (dlq.Claimed, error) {
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

func (a *alteration) Settle(ctx context.Context, p dlq.Params, s []dlq.Settlement) ([]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(s)
	if a.settle != nil {
		sent = a.settle(&p, sent)
	}
	errs, err := a.Memory.Settle(ctx, p, sent)
	return altered(s, errs, a.settled), err
}

func (a *alteration) Change(ctx context.Context, p dlq.Params, c []dlq.Change) ([]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := slices.Clone(c)
	if a.change != nil {
		sent = a.change(&p, sent)
	}
	errs, err := a.Memory.Change(ctx, p, sent)
	return altered(c, errs, a.changed), err
}

// altered lets a function change errors; the answer is nil when none is left.
func altered[T any](items []T, errs []error, f func([]T, []error)) []error {
	if f == nil {
		return errs
	}
	if errs == nil {
		errs = make([]error, len(items))
	}
	f(items, errs)
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

func (a *alteration) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	if a.save != nil {
		a.save(&p, &j)
	}
	got, err := a.Memory.SaveJob(ctx, p, j)
	if a.saved != nil {
		a.saved(&got, &err)
	}
	return got, err
}

func (a *alteration) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	sent := slices.Clone(alarms)
	if a.alarm != nil {
		a.alarm(sent)
	}
	return a.Memory.Alert(ctx, sent)
}

func (a *alteration) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	sent := q
	if a.query != nil {
		a.query(&sent)
	}
	p, err := a.Memory.List(ctx, sent)
	if a.listed != nil {
		a.listed(q, &p)
	}
	return p, err
}

func (a *alteration) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	g, err := a.Memory.Groups(ctx, stream, after, n)
	if a.groups != nil {
		a.groups(g)
	}
	return g, err
}

func (a *alteration) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	e, next, err := a.Memory.Audit(ctx, q)
	if a.entries != nil {
		e = a.entries(e)
	}
	return e, next, err
}

func (a *alteration) Totals(ctx context.Context, after string, n int) ([]dlq.Totals, error) {
	t, err := a.Memory.Totals(ctx, after, n)
	if a.totals != nil {
		a.totals(t)
	}
	return t, err
}

func (a *alteration) Sweep(ctx context.Context, n int) (int, error) {
	if a.sweep != nil {
		a.sweep(&n)
	}
	return a.Memory.Sweep(ctx, n)
}

func eachPut(f func(*dlq.Put)) func(*dlq.Params, []dlq.Put) {
	return func(_ *dlq.Params, letters []dlq.Put) {
		for i := range letters {
			f(&letters[i])
		}
	}
}

func eachAnswer(from, to dlq.Answer) func([]dlq.Put, []dlq.Answer) {
	return func(_ []dlq.Put, answers []dlq.Answer) {
		for i := range answers {
			if answers[i] == from {
				answers[i] = to
			}
		}
	}
}

func eachClaim(f func(*dlq.Claim)) func(dlq.Ask, *dlq.Claimed) {
	return func(_ dlq.Ask, c *dlq.Claimed) {
		for i := range c.Claims {
			f(&c.Claims[i])
		}
	}
}

func eachSettlement(f func(*dlq.Settlement)) func(*dlq.Params, []dlq.Settlement) []dlq.Settlement {
	return func(_ *dlq.Params, s []dlq.Settlement) []dlq.Settlement {
		for i := range s {
			f(&s[i])
		}
		return s
	}
}

func eachChange(f func(*dlq.Change)) func(*dlq.Params, []dlq.Change) []dlq.Change {
	return func(_ *dlq.Params, c []dlq.Change) []dlq.Change {
		for i := range c {
			f(&c[i])
		}
		return c
	}
}

func eachRecord(f func(*dlq.Record)) func(dlq.Query, *dlq.Page) {
	return func(_ dlq.Query, p *dlq.Page) {
		for i := range p.Records {
			f(&p.Records[i])
		}
	}
}
