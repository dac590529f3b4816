// Package work is the loop of every primitive that works what it has stored: it
// claims units, runs them side by side, renews their leases, sends their
// settlements together, and drains when it is told to stop.
//
// What a unit is, the caller says: an ordering key with its events, a letter, an
// operation. A unit that is idle costs nothing; one that runs costs a goroutine.
package work

import (
	"context"
	"fmt"
	"time"
)

// A Config says what a [Loop] works and how. Claim, Run and Extend are required;
// the numbers are positive.
type Config[U any] struct {
	// Claim takes at most n units, with a lease of Lease each. Fewer mean that
	// there are no more now; next is when to ask again, or zero. When it fails, the
	// loop asks again, with growing pauses.
	Claim func(ctx context.Context, n int) (units []U, next time.Duration, err error)

	// Left is what remains of the lease of a unit that was just claimed. Nil: the
	// whole of Lease.
	Left func(U) time.Duration

	// Run works a unit to its end and settles it. Its context ends when the lease
	// is lost, with a cause that wraps Lost, and when the grace of the drain has
	// passed, with one that wraps Draining. Once draining is closed it should begin
	// nothing new. Before it sends the settlement that gives up the lease it calls
	// settling: that the lease is gone is no loss from then on.
	// It returns when there may be more to claim on account of this unit: at once
	// (zero), after a time, or [Never].
	Run func(ctx context.Context, u U, draining <-chan struct{}, settling func()) (again time.Duration)

	// Extend renews leases to Lease from now, and returns as [Settler.Send] does.
	// It is called from several goroutines at once.
	Extend func(ctx context.Context, units []U) ([]error, error)

	// Lost is the error that Extend has for a unit which is no longer the caller's,
	// Draining the cause with which units are cancelled at the end of a drain.
	Lost, Draining error

	// OnLost is told of a running unit that is cancelled because its lease was
	// lost, OnError of a claim that failed. Either may be nil.
	OnLost  func(u U, cause error)
	OnError func(err error)

	Concurrency int           // units that run at once
	Lease       time.Duration // of a unit
	Poll        time.Duration // between claims when nothing wakes the loop
	Grace       time.Duration // for running units when the loop ends
	Timeout     time.Duration // of a claim
}

// Never is what Run returns when its unit makes nothing due.
const Never time.Duration = -1

// A Loop works units until it is told to stop.
type Loop[U any] struct {
	Config[U]
	wake   chan struct{}
	ended  chan *task[U]
	leases Leases[U]

	// These belong to the goroutine of Run.
	running int
	wakes   uint64    // how often the loop was woken
	want    bool      // there may be something to claim
	due     time.Time // when to claim without being woken
	failed  int       // claims, one after another
	pause   time.Time // the end of the pause after them
	rest    time.Time // until when there is no claim after one that has found little
}

// A task is a unit that runs.
type task[U any] struct {
	lease Lease[U]
	wakes uint64 // of the loop when it was claimed
	again time.Duration
}

// New returns a loop. It starts nothing.
func New[U any](c Config[U]) *Loop[U] {
	return &Loop[U]{
		Config: c,
		wake:   make(chan struct{}, 1),
		ended:  make(chan *task[U], c.Concurrency),
		leases: Leases[U]{Extend: c.Extend, Lost: c.Lost, Duration: c.Lease, OnLost: c.OnLost},
	}
}

// Wake makes the loop claim at once, or when it has rested: see maxRest. It never
// blocks.
func (l *Loop[U]) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // it will wake up anyway
	}
}

// Work runs the loop until ctx ends, and then drains it: nothing more is claimed,
// running units have Grace to end, are then cancelled, and have Grace again to
// return. It returns how many did not: their leases are left to lapse. A loop
// works once.
func (l *Loop[U]) Work(ctx context.Context) (abandoned int) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(time.Until(l.next()), 0))
		select {
		case <-ctx.Done():
			return l.drain(ctx)
		case <-l.wake:
			l.wakes++
			l.want = true
		case <-timer.C:
			l.want = true
			l.due = time.Now().Add(l.Poll)
		case t := <-l.ended:
			l.end(t)
		}
		l.endAll()
		free := l.Concurrency - l.running
		if l.want && free > 0 && !l.pausing() && ctx.Err() == nil {
			l.claim(ctx, free)
		}
	}
}

// next is when to claim at the latest, if nothing happens before.
func (l *Loop[U]) next() time.Time {
	if l.want && l.running < l.Concurrency && !time.Now().Before(l.pause) { // it rests
		return l.rest
	}
	return l.due
}

// pausing says whether to leave the store alone, also when much arrives: it is in
// trouble, or was asked just now.
func (l *Loop[U]) pausing() bool {
	now := time.Now()
	return now.Before(l.pause) || now.Before(l.rest)
}

// maxRest bounds how long the loop rests. After a claim that found less than half of
// what it asked for it rests as long as the claim took, so that what arrives one by
// one is claimed together, and the store spends half of its time with claims at most.
const maxRest = 20 * time.Millisecond

// end notes that a task has ended.
func (l *Loop[U]) end(t *task[U]) {
	l.running--
	switch {
	case t.again == 0 || t.wakes != l.wakes:
		// What woke the loop while the unit ran may have been held up by it.
		l.want = true
	case t.again > 0:
		if at := time.Now().Add(t.again); at.Before(l.due) {
			l.due = at
		}
	}
}

// endAll notes all tasks that have ended, so that one claim can fill their places.
func (l *Loop[U]) endAll() {
	for {
		select {
		case t := <-l.ended:
			l.end(t)
		default:
			return
		}
	}
}

// claim fills n free places. It does not give up when ctx ends, so that what is
// granted is known and can be released.
func (l *Loop[U]) claim(ctx context.Context, n int) {
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
	defer cancel()
	sent := time.Now()
	units, next, err := l.Claim(claiming, n)
	if err != nil {
		l.failed++
		l.pause = time.Now().Add(pauseAfter(l.failed, l.Poll))
		l.due = l.pause
		if l.OnError != nil {
			l.OnError(err)
		}
		return
	}
	l.failed = 0
	l.want = len(units) >= n
	if 2*len(units) < n {
		l.rest = time.Now().Add(min(time.Since(sent), maxRest))
	}
	l.due = time.Now().Add(l.Poll)
	if next > 0 && next < l.Poll {
		l.due = time.Now().Add(next)
	}
	for _, u := range units {
		l.start(ctx, u, sent)
	}
}

// pauseAfter is how long the loop leaves its store alone after failed claims.
func pauseAfter(failed int, poll time.Duration) time.Duration {
	return min(50*time.Millisecond<<min(failed-1, 10), max(poll, 5*time.Second))
}

func (l *Loop[U]) start(ctx context.Context, u U, sent time.Time) {
	left := l.Lease
	if l.Left != nil {
		left = l.Left(u)
	}
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t := &task[U]{lease: Lease[U]{Unit: u, Cancel: cancel}, wakes: l.wakes}
	l.running++
	l.leases.Add(&t.lease, sent.Add(left))
	go func() {
		defer func() { // also when Run panics or ends its goroutine
			l.leases.Remove(&t.lease)
			cancel(nil)
			l.ended <- t
		}()
		t.again = l.Run(running, u, ctx.Done(), func() { l.leases.Settling(&t.lease) })
	}()
}

func (l *Loop[U]) drain(ctx context.Context) (abandoned int) {
	timer := time.NewTimer(l.Grace)
	defer timer.Stop()
	for cancelled := false; l.running > 0; {
		select {
		case <-l.ended:
			l.running--
		case <-timer.C:
			if cancelled {
				l.leases.RemoveAll()
				return l.running
			}
			cancelled = true
			l.leases.CancelAll(fmt.Errorf("%w: %w", l.Draining, context.Cause(ctx)))
			timer.Reset(l.Grace)
		}
	}
	return 0
}
