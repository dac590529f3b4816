package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/retry"
)

// A program is one run.
type program struct {
	config
	account *account
	store   storage
	box     *inbox.Box
	order   *ordering // nil without -order
	outage  *outage   // nil without -degrade
	gateway *gatewayClient
}

// pipeline delivers, works and counts.
func pipeline(ctx context.Context, c config, a *account) (err error) {
	bodies, skipped, err := readBodies(c.bodies)
	if err != nil {
		return err
	}
	a.Bodies, a.Skipped = len(bodies), skipped
	p := &program{config: c, account: a}
	closeAll, err := p.open(ctx)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	s, err := plan(ctx, c, bodies, p.store)
	if err != nil {
		return err
	}
	start := time.Now()
	err = p.work(ctx, s)
	a.Seconds = time.Since(start).Seconds()
	if err := errors.Join(err, a.count(ctx, p, s)); err != nil {
		return err
	}
	if c.effects != "" {
		return writeEffects(c.effects, a.list)
	}
	return nil
}

// open opens what the flags name. What it returns closes what was opened, also
// after an error.
func (p *program) open(ctx context.Context) (closeAll func() error, err error) {
	var opened []func() error
	closeAll = func() (err error) {
		for i := len(opened) - 1; i >= 0; i-- {
			err = errors.Join(err, opened[i]())
		}
		return err
	}
	var claims dedup.Store
	if p.degrade {
		if p.outage, err = startOutage(ctx); err != nil {
			return closeAll, err
		}
		opened = append(opened, p.outage.close)
		claims = p.outage.failover
	}
	if p.store, err = open(ctx, p.config, claims); err != nil {
		return closeAll, err
	}
	opened = append(opened, p.store.close)
	if err = p.openGateway(ctx); err != nil {
		return closeAll, err
	}
	opened = append(opened, p.gateway.close)
	if !p.config.order {
		_, _, err = p.store.ordered("")
		return closeAll, err
	}
	l, err := openLanes(ctx, p.config, p.store, p.outage)
	if err != nil {
		return closeAll, err
	}
	opened = append(opened, l.close)
	if p.order, err = newOrdering(p.config, p.box, p.store, l); err != nil {
		return closeAll, err
	}
	if l.recall {
		err = p.order.recall(ctx)
	}
	if err == nil {
		err = p.store.orderedBy(p.orderStore)
	}
	return closeAll, err
}

// openGateway says where the gateway's log lies. Data without an event have no reply
// either, and begin it anew.
func (p *program) openGateway(ctx context.Context) (err error) {
	if p.box, err = inbox.New(p.store.events(), nil); err != nil {
		return err
	}
	path := p.gatewayLog
	if path == "" && p.kept() {
		if path, err = p.store.place(ctx); err != nil {
			return err
		}
	}
	t, err := p.box.Totals(ctx)
	if err != nil {
		return err
	}
	p.gateway, err = newGateway(p.config, path, !p.kept() || t == (inbox.Totals{}))
	return err
}

// work delivers while the workers run, until nothing is left to do.
func (p *program) work(ctx context.Context, s *schedule) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	workers := []func(context.Context) error{
		func(ctx context.Context) error { return p.box.Work(ctx, p.handler(), workOptions) },
	}
	if p.order != nil {
		workers = append(workers, p.order.run)
	}
	if p.outage != nil {
		workers = append(workers, p.outage.failover.Run)
	}
	replies, err := p.store.answers().work(p.gateway)
	if err != nil {
		return err
	}
	workers = append(workers, replies...)
	ended := make(chan error, len(workers))
	for _, run := range workers {
		go func() { ended <- run(working) }()
	}

	err = p.deliver(ctx, s.deliveries)
	if err == nil {
		err = p.drain(ctx)
	}
	stop()
	for range workers {
		err = errors.Join(err, <-ended)
	}
	return err
}

// workOptions have a short lease: a run that was killed holds its keys for no
// longer. What the handler needs is near, or back soon, so it is tried again soon,
// and never given up.
var workOptions = &inbox.WorkOptions{
	Lease:   2 * time.Second,
	Poll:    100 * time.Millisecond,
	Backoff: retry.Exponential(100*time.Millisecond, time.Second, retry.EqualJitter),

	MaxAttempts: 10_000,
}

// handler has the effect of an event at once, or hands it to what puts the events
// in order.
func (p *program) handler() func(context.Context, inbox.Record) inbox.Outcome {
	if p.order != nil {
		return p.order.push
	}
	return func(ctx context.Context, r inbox.Record) inbox.Outcome {
		return inbox.OutcomeOf(p.store.handle(ctx, effectOn(r)))
	}
}

// drain waits until nothing is left to do.
func (p *program) drain(ctx context.Context) error {
	if err := p.handedOver(ctx); err != nil {
		return err
	}
	if p.order != nil {
		if err := wait(ctx, "events wait for their turn", p.order.waiting); err != nil {
			return err
		}
	}
	if p.outage != nil {
		if err := p.outage.handBack(ctx); err != nil {
			return err
		}
	}
	return wait(ctx, "replies are not settled", p.store.answers().waiting)
}

// handedOver waits until the inbox has handed over what it has accepted.
func (p *program) handedOver(ctx context.Context) error {
	return wait(ctx, "events are pending", func(ctx context.Context) (int, error) {
		t, err := p.box.Totals(ctx)
		return t.Pending, err
	})
}

// wait waits until nothing is left, as long as there is progress.
func wait(ctx context.Context, what string, left func(context.Context) (int, error)) error {
	const patience = time.Minute
	before, since := -1, time.Now()
	for {
		n, err := left(ctx)
		if err != nil || n == 0 {
			return err
		}
		if n != before {
			before, since = n, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d %s and nothing moves", n, what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
