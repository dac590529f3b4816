package backpressure

import (
	"context"
	"slices"
)

// Do runs fn when it is admitted and one of Concurrency workers is free, first come
// first served, and returns its error. Otherwise it returns a [*RefusedError] and
// fn was not called. fn runs on the caller's goroutine, with ctx; a panic goes
// through.
func (g *Gate) Do(ctx context.Context, fn func(context.Context) error) error {
	release, v := g.Acquire(ctx)
	if !v.Admit {
		return v.Err()
	}
	defer release()
	return fn(ctx)
}

// Acquire waits until a worker is free for the call of the context. If the verdict
// admits, the caller calls release when it is done; calling it again does nothing.
// Otherwise release is nil. A call whose context ends while it waits is refused.
func (g *Gate) Acquire(ctx context.Context) (release func(), v Verdict) {
	c := CallFrom(ctx)
	if g.opts.Concurrency == 0 {
		return nil, Verdict{Reason: QueueFull}
	}
	if ctx.Err() != nil {
		v := ended(ctx)
		g.arrived(c.Priority, v, noTurn)
		return nil, v
	}
	t, v := g.Admit(c)
	if !v.Admit {
		return nil, v
	}
	w := &queued{ticket: t, answer: make(chan Verdict, 1)}
	g.mu.Lock()
	g.queue.push(w)
	g.dispatch()
	g.mu.Unlock()
	select {
	case v := <-w.answer:
		return g.granted(w, v)
	case <-ctx.Done():
	}
	g.mu.Lock()
	if !g.queue.remove(w) { // answered at the same moment
		g.mu.Unlock()
		return g.granted(w, <-w.answer)
	}
	t.done.Store(true)
	g.leaveLocked(t)
	g.mu.Unlock()
	v = ended(ctx)
	g.dequeued(c.Priority, v, noTurn)
	return nil, v
}

func (g *Gate) granted(w *queued, v Verdict) (func(), Verdict) {
	g.dequeued(w.ticket.call.Priority, v, w.turned)
	if !v.Admit {
		return nil, v
	}
	released := false
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !released {
			released = true
			g.busy--
			g.dispatch()
		}
	}, v
}

// queued is a call of Do that waits.
type queued struct {
	ticket *Ticket
	answer chan Verdict // has room for the one there is
	turned turn         // what the log is to be told; set before the answer
}

// dispatch gives free workers to those that wait, and drops those whose deadline has
// passed.
func (g *Gate) dispatch() {
	for g.busy < g.opts.Concurrency {
		w := g.queue.pop()
		if w == nil {
			return
		}
		w.ticket.done.Store(true)
		v, turned := g.startLocked(w.ticket)
		w.turned = turned
		if v.Admit {
			g.busy++
		}
		w.answer <- v
	}
}

// A gateQueue is a queue of calls. Those that gave up leave a hole.
type gateQueue struct {
	calls []*queued
	head  int
}

func (q *gateQueue) push(w *queued) { q.calls = append(q.calls, w) }

func (q *gateQueue) pop() *queued {
	for q.head < len(q.calls) {
		w := q.calls[q.head]
		q.calls[q.head] = nil
		q.head++
		if q.head > 64 && q.head > len(q.calls)/2 {
			q.calls, q.head = slices.Delete(q.calls, 0, q.head), 0
		}
		if w != nil {
			return w
		}
	}
	q.calls, q.head = nil, 0
	return nil
}

func (q *gateQueue) remove(w *queued) bool {
	i := slices.Index(q.calls[q.head:], w)
	if i < 0 {
		return false
	}
	q.calls[q.head+i] = nil
	return true
}
