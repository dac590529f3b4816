package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Leases keeps the leases of all units that run: it renews them together, in as
// few steps as possible, and cancels a unit when its lease is lost. That is when
// the store says so, or when the lease has run out by the local clock, whether
// the store answers or not. There are two timers, which run only while there are
// leases, and no goroutine beside them.
type Leases[U any] struct {
	// Extend renews leases to Duration from now, and returns as [Settler.Send]
	// does. It is called from several goroutines at once.
	Extend func(ctx context.Context, units []U) ([]error, error)

	// Lost is the error that Extend has for a unit which is no longer the caller's.
	// The cause with which a unit is cancelled wraps it.
	Lost error

	// Duration is how long a lease lasts.
	Duration time.Duration

	// OnLost is told of a unit after it was cancelled, OnExtended of a lease that
	// was renewed. Either may be nil.
	OnLost     func(u U, cause error)
	OnExtended func(u U)

	mu    sync.Mutex
	first *Lease[U] // a list, doubly linked
	size  int
	renew *time.Timer
	due   time.Time // when renew fires; zero if it does not, as while leases are renewed
	lapse *time.Timer
	watch time.Time // when lapse fires; zero if it does not
}

// A Lease is the lease of one running unit. It can be part of what it belongs to,
// so that keeping it costs no allocation.
type Lease[U any] struct {
	Unit   U
	Cancel context.CancelCauseFunc

	prev, next *Lease[U]
	listed     bool
	settling   bool
	lost       bool
	until      time.Time
	err        error // of the last renewal
}

// renewBatch is how many leases are renewed in one step.
const renewBatch = 256

// Add keeps a lease that ends at until by the local clock, which must be counted
// from before the unit was claimed, so that it is never too late.
func (k *Leases[U]) Add(l *Lease[U], until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.next, l.listed, l.until = k.first, true, until
	if k.first != nil {
		k.first.prev = l
	}
	k.first = l
	k.size++
	if k.renew == nil {
		k.renew = time.AfterFunc(k.interval(), k.renewAll)
		k.lapse = time.AfterFunc(time.Until(until), k.lapseAll)
		k.watch = until
	}
	k.renewIn(min(k.interval(), time.Until(until)/2))
	if k.watch.IsZero() || until.Before(k.watch) {
		k.lapse.Reset(time.Until(until))
		k.watch = until
	}
}

// Settling says that the unit has ended and is being settled: its lease is still
// renewed, but that it is gone is no longer a loss.
func (k *Leases[U]) Settling(l *Lease[U]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.settling = true
}

// Remove keeps a lease no longer. Removing it twice is harmless.
func (k *Leases[U]) Remove(l *Lease[U]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !l.listed {
		return
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		k.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next, l.listed = nil, nil, false
	if k.size--; k.size == 0 {
		k.renew.Stop()
		k.lapse.Stop()
		k.due, k.watch = time.Time{}, time.Time{}
	}
}

// RemoveAll keeps no lease any longer: they are left to lapse.
func (k *Leases[U]) RemoveAll() {
	for {
		k.mu.Lock()
		l := k.first
		k.mu.Unlock()
		if l == nil {
			return
		}
		k.Remove(l)
	}
}

// Len returns how many leases are kept.
func (k *Leases[U]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size
}

// CancelAll cancels every unit, whose leases stay.
func (k *Leases[U]) CancelAll(cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := k.first; l != nil; l = l.next {
		l.Cancel(cause)
	}
}

// interval is the time between renewals: a lease lives through two that fail.
func (k *Leases[U]) interval() time.Duration { return max(k.Duration/3, time.Millisecond/2) }

// renewAll extends every lease. If the store does not answer it comes back
// sooner.
func (k *Leases[U]) renewAll() {
	k.mu.Lock()
	k.due = time.Time{}
	leases := make([]*Lease[U], 0, k.size)
	for l := k.first; l != nil; l = l.next {
		leases = append(leases, l)
	}
	k.mu.Unlock()

	answered := make(chan bool, len(leases)/renewBatch+1)
	batches := 0
	for ; len(leases) > 0; batches++ {
		n := min(len(leases), renewBatch)
		batch := leases[:n]
		leases = leases[n:]
		if len(leases) == 0 {
			answered <- k.extend(batch)
		} else {
			go func() { answered <- k.extend(batch) }()
		}
	}
	next := k.interval()
	for range batches {
		if !<-answered {
			next = k.interval() / 4
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size > 0 {
		k.renewIn(next)
	}
}

// renewIn sets the timer of the next renewal, unless it fires before that. k.mu
// is held.
func (k *Leases[U]) renewIn(d time.Duration) {
	if at := time.Now().Add(d); k.due.IsZero() || at.Before(k.due) {
		k.renew.Reset(d)
		k.due = at
	}
}

// extend renews a batch, and says whether each lease was answered for.
func (k *Leases[U]) extend(leases []*Lease[U]) (answered bool) {
	units := make([]U, len(leases))
	for i, l := range leases {
		units[i] = l.Unit
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(k.interval(), 10*time.Millisecond))
	defer cancel()
	sent := time.Now()
	errs, err := k.Extend(ctx, units)
	answered = true
	for i, l := range leases {
		e := err
		if e == nil && errs != nil {
			e = errs[i]
		}
		answered = answered && (e == nil || errors.Is(e, k.Lost))
		k.extended(l, sent, e)
	}
	return answered
}

// extended notes the answer to one renewal.
func (k *Leases[U]) extended(l *Lease[U], sent time.Time, err error) {
	k.mu.Lock()
	l.err = err
	switch {
	case err == nil && l.listed:
		l.until = sent.Add(k.Duration)
		k.mu.Unlock()
		if k.OnExtended != nil {
			k.OnExtended(l.Unit)
		}
		return
	case !l.listed || l.settling || l.lost || !errors.Is(err, k.Lost):
		k.mu.Unlock()
		return
	}
	l.lost = true
	k.mu.Unlock()
	k.lose(l, fmt.Errorf("lease lost: %w", err))
}

// lapseAll cancels the units whose leases have run out, and looks when the next
// one does.
func (k *Leases[U]) lapseAll() {
	var lapsed []*Lease[U]
	k.mu.Lock()
	now := time.Now()
	k.watch = time.Time{}
	for l := k.first; l != nil; l = l.next {
		switch {
		case l.lost || l.settling:
		case !now.Before(l.until):
			l.lost = true
			lapsed = append(lapsed, l)
		case k.watch.IsZero() || l.until.Before(k.watch):
			k.watch = l.until
		}
	}
	if !k.watch.IsZero() {
		k.lapse.Reset(time.Until(k.watch))
	}
	k.mu.Unlock()
	for _, l := range lapsed {
		l.Cancel(k.lapsed(l))
	}
	for _, l := range lapsed {
		if k.OnLost != nil {
			k.OnLost(l.Unit, k.lapsed(l))
		}
	}
}

func (k *Leases[U]) lapsed(l *Lease[U]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil {
		return fmt.Errorf("lease not renewed in time, the store does not answer: %w", k.Lost)
	}
	return fmt.Errorf("lease not renewed in time, the store does not answer: %w: %w", k.Lost, l.err)
}

func (k *Leases[U]) lose(l *Lease[U], cause error) {
	l.Cancel(cause) // first: whoever is told may be slow
	if k.OnLost != nil {
		k.OnLost(l.Unit, cause)
	}
}
