package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// leases renews the claims of all calls of Do that are under way, each time in
// one batch, from one timer. The timer runs only while there are any.
type leases struct {
	guard *Guard

	mu    sync.Mutex
	first *run // a list, doubly linked through run.held
	size  int
	timer *time.Timer
}

// A lease is what a run keeps of its lease.
type lease struct {
	prev, next *run
	listed     bool
	until      time.Time // by the local clock, counted from before the ask was sent: never too late
}

// batchSize is how many leases are renewed in one step.
const batchSize = 256

func (l *leases) add(r *run, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.held = lease{next: l.first, listed: true, until: until}
	if l.first != nil {
		l.first.held.prev = r
	}
	l.first = r
	if l.size++; l.size > 1 {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.interval(), l.renew)
	} else {
		l.timer.Reset(l.interval())
	}
}

func (l *leases) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.held.listed {
		return
	}
	if r.held.prev != nil {
		r.held.prev.held.next = r.held.next
	} else {
		l.first = r.held.next
	}
	if r.held.next != nil {
		r.held.next.held.prev = r.held.prev
	}
	r.held = lease{}
	if l.size--; l.size == 0 {
		l.timer.Stop()
	}
}

// interval is the time between renewals: a claim lives through two that fail.
func (l *leases) interval() time.Duration { return max(l.guard.opts.Lease/3, time.Millisecond/2) }

// renew extends every lease, and cancels the effects of those that are lost. If
// the store does not answer it comes back sooner.
func (l *leases) renew() {
	l.mu.Lock()
	runs := make([]*run, 0, l.size)
	for r := l.first; r != nil; r = r.held.next {
		runs = append(runs, r)
	}
	l.mu.Unlock()

	answered := true
	for len(runs) > 0 {
		n := min(len(runs), batchSize)
		answered = l.extend(runs[:n]) && answered
		runs = runs[n:]
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 {
		next := l.interval()
		if !answered {
			next /= 4
		}
		l.timer.Reset(next)
	}
}

func (l *leases) extend(runs []*run) (answered bool) {
	g := l.guard
	s := make([]Settlement, len(runs))
	for i, r := range runs {
		s[i] = r.claim.Extend(g.opts.Lease)
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(l.interval(), 10*time.Millisecond))
	defer cancel()
	sent := time.Now()
	errs, err := g.store.Settle(ctx, g.params(false), s)
	answered = true
	for i, r := range runs {
		e := err
		if e == nil && errs != nil {
			e = errs[i]
		}
		answered = answered && (e == nil || errors.Is(e, ErrStale))
		l.renewed(r, sent, e)
	}
	return answered
}

// renewed notes the answer to one renewal.
func (l *leases) renewed(r *run, sent time.Time, err error) {
	g := l.guard
	l.mu.Lock()
	if !r.held.listed { // its effect has ended meanwhile
		l.mu.Unlock()
		return
	}
	if err == nil {
		r.held.until = sent.Add(g.opts.Lease)
	}
	lapsed := !time.Now().Before(r.held.until)
	l.mu.Unlock()

	switch {
	case err == nil:
		g.counts.extended.Add(1)
		return
	case errors.Is(err, ErrStale):
		err = fmt.Errorf("dedup: lease of %s lost: %w", short(r.claim.ID), err)
	case lapsed:
		err = fmt.Errorf("dedup: lease of %s not renewed in time, the store does not answer: %w: %w", short(r.claim.ID), ErrStale, err)
	default:
		return
	}
	if r.Context.Err() == nil {
		g.leaseLost(r, err)
		r.cancel(err)
	}
}
