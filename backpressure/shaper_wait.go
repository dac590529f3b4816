package backpressure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// A waiter is a caller that waits for tokens. It holds none until it is granted, so
// one that gives up has nothing to give back.
type waiter struct {
	line    *Line
	cost    int
	at      time.Duration
	granted bool // guarded by Shaper.mu
	ready   chan struct{}
}

// Wait waits for the tokens of a call of that cost. Callers are served by the
// importance of their lines, which grows with their age, and within a line in the
// order in which they came.
//
// It returns nil when the tokens were taken, and otherwise a [*RefusedError], with
// no token taken: when ctx ends, when its deadline is certain to come first (at
// once then), and when too many wait already. It fails with [ErrInvalid] where the
// options have a Now, whose time no timer knows.
func (l *Line) Wait(ctx context.Context, cost int) error {
	if l.s.opts.Now != nil {
		return fmt.Errorf("%w: Wait needs the process's clock, and the shaper has another; ask with Allow", ErrInvalid)
	}
	v := l.await(ctx, cost)
	if !v.Admit {
		l.refused(cost, v)
	}
	return v.Err()
}

func (l *Line) await(ctx context.Context, cost int) Verdict {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	at := l.s.now()
	if v := l.allow(at, cost); v.Admit || v.Reason == CostInvalid {
		return v
	}
	w, v := l.enqueue(ctx, at, cost)
	if w == nil {
		return v
	}
	select {
	case <-w.ready:
		return Verdict{Admit: true}
	case <-ctx.Done():
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if w.granted { // at the same moment
		return Verdict{Admit: true}
	}
	l.remove(slices.Index(l.queue, w))
	l.s.pump(l.s.now()) // the next one may cost less
	return ended(ctx)
}

// enqueue returns the waiter, or the verdict on a caller that cannot wait.
func (l *Line) enqueue(ctx context.Context, at time.Duration, cost int) (*waiter, Verdict) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.queue) >= s.opts.MaxWaiters {
		return nil, Verdict{Reason: QueueFull, RetryAfter: l.until(at, l.opts.Burst)}
	}
	if deadline, ok := ctx.Deadline(); ok {
		if d := l.soonest(at, cost); d > time.Until(deadline) {
			return nil, Verdict{Reason: Expired, RetryAfter: d}
		}
	}
	w := &waiter{line: l, cost: cost, at: at, ready: make(chan struct{})}
	l.queue = append(l.queue, w)
	s.waits.Add(1)
	l.counts.Waiting++
	if len(l.queue) == 1 {
		l.oldest.Store(max(int64(at), 1))
	}
	s.pump(at)
	return w, Verdict{}
}

// soonest is the least time in which a new caller can have its turn: when the line
// gets all that it could from itself and from every lesser line.
func (l *Line) soonest(at time.Duration, cost int) time.Duration {
	need, perSecond := float64(cost), l.opts.Rate
	for _, w := range l.queue {
		need += float64(w.cost)
	}
	need -= l.tokens(at)
	for _, from := range l.lesser {
		need -= from.tokens(at)
		perSecond += from.opts.Rate
	}
	if need <= 0 {
		return 0
	}
	return time.Duration(min(need/perSecond*1e9, math.MaxInt64/2))
}

func (l *Line) tokens(at time.Duration) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock(at)
	n := l.rest.TokensAt(now)
	if l.floor != nil {
		n += l.floor.TokensAt(now)
	}
	return n
}

// pump grants what can be granted, and sets the timer for when there may be more.
func (s *Shaper) pump(at time.Duration) {
	for s.grantOne(at) {
	}
	s.arm(at)
}

// grantOne serves the most important waiter that can be served. Only the first of
// each line is looked at.
func (s *Shaper) grantOne(at time.Duration) bool {
	s.heads = s.heads[:0]
	for _, l := range s.order {
		if len(l.queue) > 0 {
			s.heads = append(s.heads, l)
		}
	}
	slices.SortStableFunc(s.heads, func(a, b *Line) int {
		if d := b.importance(at) - a.importance(at); d != 0 {
			return d
		}
		return cmp.Compare(a.queue[0].at, b.queue[0].at)
	})
	for i, l := range s.heads {
		k := s.keepsFor(i, at)
		cost := l.queue[0].cost
		ok, _ := l.take(at, cost, k)
		if ok || l.borrow(at, cost, k, l.importance(at)) {
			w := l.queue[0]
			l.remove(0)
			w.granted = true
			close(w.ready)
			return true
		}
	}
	return false
}

// keepsFor is keeps for the line at a place among the heads: only those before it
// that could take its tokens come first.
func (s *Shaper) keepsFor(i int, at time.Duration) share {
	l := s.heads[i]
	for _, before := range s.heads[:i] {
		if before.opts.Importance > l.opts.Importance {
			return keepAll
		}
	}
	for _, g := range l.greater {
		if len(g.queue) == 0 && g.shortUntil.Load() > int64(at) && g.opts.Importance > l.importance(at) {
			return keepHalf
		}
	}
	return keepNone
}

// remove takes a waiter out of the queue.
func (l *Line) remove(i int) {
	l.queue = slices.Delete(l.queue, i, i+1)
	l.s.waits.Add(-1)
	l.counts.Waiting--
	if len(l.queue) == 0 {
		l.queue = nil
		l.oldest.Store(0)
	} else {
		l.oldest.Store(max(int64(l.queue[0].at), 1))
	}
}

// arm sets the timer for the first moment at which some head may be granted: when
// its line, or one it may take from, has the tokens; when it is as important as one
// it has to leave its tokens to; or when a line is no longer short.
func (s *Shaper) arm(at time.Duration) {
	next := time.Duration(math.MaxInt64)
	soon := func(d time.Duration) {
		if d > 0 {
			next = min(next, d)
		}
	}
	for _, l := range s.heads {
		if len(l.queue) == 0 {
			continue
		}
		w := l.queue[0]
		soon(l.until(at, w.cost))
		soon(l.until(at, w.cost+l.keep))
		for _, from := range l.lesser {
			soon(from.untilLent(at, w.cost))
			soon(from.untilLent(at, w.cost+from.keep))
		}
		soon(s.opts.Age - (at-w.at)%s.opts.Age)
		soon(time.Duration(s.short.Load()) - at)
	}
	switch {
	case next == math.MaxInt64:
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(next, s.wake)
	default:
		s.timer.Reset(next)
	}
}

func (s *Shaper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pump(s.now())
}
