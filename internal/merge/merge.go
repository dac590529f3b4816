// Package merge joins concurrent single calls into batches, so that many
// goroutines with one item each share a round trip or a commit.
//
// A call starts at once when none is under way, or fewer than the width allows; the
// items that arrive meanwhile form the next one. Nobody waits for company by the clock: a call that follows
// another only lets the callers run first that were just answered. A caller that
// gives up does not spoil its neighbours: the joined call runs on a context of its
// own.
package merge

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Merger joins calls of Do. All fields are set before the first call and not
// changed afterwards; a Merger needs no Close, since its goroutine ends when
// there is nothing to do.
type Merger[Q, A any] struct {
	// Call answers a batch: one answer for each item, in order, or an error for
	// all of them. Do has to validate its item before, so that one bad item cannot
	// fail its neighbours, and Call should not try again for the sake of one. waits
	// says whether the caller of an item has not given up yet.
	Call func(ctx context.Context, items []Q, waits func(i int) bool) ([]A, error)

	// Orphan receives what became of an item whose caller gave up while the call
	// was under way. It must not block. Nil: nobody hears of it.
	Orphan func(item Q, answer A, err error)

	// Max is the largest batch; zero means 512.
	Max int

	// Timeout ends a call that takes longer; zero means 10 seconds. What arrived
	// meanwhile waits for it.
	Timeout time.Duration

	// Limit is how many items may wait, those included whose callers have given up
	// meanwhile; zero means 100,000. Beyond it Do fails with ErrFull.
	Limit int

	// Width is how many calls may be under way at once; zero means one. A second
	// one begins when an item comes while nobody waits, so each call keeps callers
	// of its own. It is for stores that work side by side: one that takes calls in
	// turn is better off with one large call.
	Width int

	mu      sync.Mutex
	queue   []*waiter[Q, A]
	running int // calls of run
}

// WidthOf is the Width that a store asks for by a method MergeWidth() int, within 1 and
// 8. One that has no such method asks for 1.
func WidthOf(store any) int {
	if w, ok := store.(interface{ MergeWidth() int }); ok {
		return min(max(w.MergeWidth(), 1), 8)
	}
	return 1
}

// ErrFull says that too many items wait already. The item was not sent.
var ErrFull = errors.New("too many calls wait for the store")

// Do hands over one item and returns its answer. When ctx ends first, Do returns
// its error: an item that was not sent yet never will be, and the answer to one
// that was goes to Orphan.
func (m *Merger[Q, A]) Do(ctx context.Context, item Q) (A, error) {
	if err := ctx.Err(); err != nil {
		var none A
		return none, err
	}
	w := &waiter[Q, A]{item: item, answered: make(chan struct{})}
	if !m.enqueue(w) {
		var none A
		return none, ErrFull
	}
	select {
	case <-w.answered:
		return w.answer, w.err
	case <-ctx.Done():
		if w.state.CompareAndSwap(waiting, gone) || w.state.CompareAndSwap(sent, gone) {
			var none A
			return none, ctx.Err()
		}
		<-w.answered // the answer came at the same moment
		return w.answer, w.err
	}
}

type waiter[Q, A any] struct {
	item     Q
	state    atomic.Int32
	answered chan struct{}
	answer   A
	err      error
}

// The states of a waiter. A caller that gives up moves it to gone, unless it was
// answered before.
const (
	waiting int32 = iota
	sent
	answered
	gone
)

func (m *Merger[Q, A]) enqueue(w *waiter[Q, A]) bool {
	limit := m.Limit
	if limit == 0 {
		limit = 100_000
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) >= limit {
		return false
	}
	m.queue = append(m.queue, w)
	if m.running == 0 || m.running < m.Width && len(m.queue) == 1 {
		m.running++
		go m.run()
	}
	return true
}

// Len returns how many items wait.
func (m *Merger[Q, A]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue)
}

// run makes one call after another until the queue is empty.
func (m *Merger[Q, A]) run() {
	idle, last := false, 0
	defer func() {
		if !idle { // Call ended this goroutine
			go m.run()
		}
	}()
	for {
		m.yield(last)
		batch := m.take()
		if batch == nil {
			idle = true
			return
		}
		last = len(batch)
		m.call(batch)
	}
}

// yield lets the callers that were just answered, and are ready to run, get their
// next items in: once, and again while fewer have come than the last call had, up
// to a hundred times. That takes some 20 microseconds if nobody comes, a fraction
// of what a call takes.
func (m *Merger[Q, A]) yield(last int) {
	for n := 0; n == 0 || n < 100 && m.Len() < last; n++ {
		runtime.Gosched()
	}
}

func (m *Merger[Q, A]) take() []*waiter[Q, A] {
	most := m.Max
	if most == 0 {
		most = 512
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.queue), most)
	if n == 0 {
		m.running--
		m.queue = nil
		return nil
	}
	batch := m.queue[:n:n]
	m.queue = m.queue[n:]
	return batch
}

// call sends those of a batch whose callers still wait, and hands out the
// answers.
func (m *Merger[Q, A]) call(batch []*waiter[Q, A]) {
	kept := batch[:0]
	items := make([]Q, 0, len(batch))
	for _, w := range batch {
		if w.state.CompareAndSwap(waiting, sent) {
			kept = append(kept, w)
			items = append(items, w.item)
		}
	}
	if len(kept) == 0 {
		return
	}
	timeout := m.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var answers []A
	err := errNoReturn
	defer func() { m.answer(kept, answers, err) }()
	answers, err = m.Call(ctx, items, func(i int) bool { return kept[i].state.Load() == sent })
	if err == nil && len(answers) != len(items) {
		err = fmt.Errorf("%d answers to %d items", len(answers), len(items))
	}
}

var errNoReturn = errors.New("the call ended its goroutine")

func (m *Merger[Q, A]) answer(kept []*waiter[Q, A], answers []A, err error) {
	for i, w := range kept {
		w.err = err
		if err == nil {
			w.answer = answers[i]
		}
		if !w.state.CompareAndSwap(sent, answered) && m.Orphan != nil {
			m.Orphan(w.item, w.answer, err)
		}
		close(w.answered)
	}
}
