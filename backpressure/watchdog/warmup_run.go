package watchdog

import (
	"context"
	"errors"
	"time"
)

// Run begins the window and runs the checks until ctx ends; then the worker is
// isolated, and Run returns nil. It returns [ErrInvalid] when it runs already.
func (w *Warmup) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return invalid("the warm-up runs already")
	}
	w.running = true
	w.again(Observing)
	w.mu.Unlock()
	w.told(Observing, "")
	defer func() {
		w.mu.Lock()
		w.running = false
		w.again(Isolated)
		w.mu.Unlock()
		w.told(Isolated, "")
	}()

	w.round(ctx)
	timer := time.NewTimer(w.wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.kick:
		case <-timer.C:
			w.round(ctx)
		}
		timer.Reset(w.wait())
	}
}

// wait is how long to wait for the next run of the checks. It ends with the window.
func (w *Warmup) wait() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == Observing {
		return min(w.left(), w.o.Every)
	}
	return w.o.Every
}

// round runs the checks once and draws the conclusion, unless the window has begun
// again meanwhile. The worker joins when the window had passed before the checks began.
func (w *Warmup) round(ctx context.Context) {
	w.mu.Lock()
	if w.phase == Joined {
		w.mu.Unlock()
		return // its checks do not isolate it any more
	}
	epoch, over := w.epoch, w.left() == 0
	w.mu.Unlock()

	ok := w.check(ctx)
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	phase, why := w.phase, ""
	switch {
	case w.epoch != epoch:
	case !ok:
		w.again(Failing)
		why = "check failed"
	case w.phase == Failing: // the time it failed for does not count
		w.again(Observing)
	case over:
		w.phase = Joined
		w.counts.Joins++
		close(w.ready)
	}
	changed := w.phase != phase || why != ""
	phase = w.phase
	w.mu.Unlock()
	if changed {
		w.told(phase, why)
	}
}

// check runs all checks, and says whether all passed.
func (w *Warmup) check(ctx context.Context) bool {
	all := true
	for i := range w.o.Checks {
		ok := w.one(ctx, i)
		if ctx.Err() != nil {
			return false
		}
		all = all && ok
		w.mu.Lock()
		w.results[i].ran, w.results[i].ok = true, ok
		if !ok {
			w.counts.CheckFailures++
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.CheckRuns++
	return all
}

// one runs one check in a goroutine of its own, of which there is one at a time.
func (w *Warmup) one(ctx context.Context, i int) bool {
	w.mu.Lock()
	hangs := w.results[i].hangs
	w.results[i].hangs = true
	w.mu.Unlock()
	if hangs {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.CheckTimeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		err := guarded(func() error { return w.o.Checks[i].Run(ctx) })
		w.mu.Lock()
		w.results[i].hangs = false
		if errors.Is(err, ErrPanic) {
			w.counts.Panics++
		}
		w.mu.Unlock()
		answer <- err
	}()
	select {
	case err := <-answer:
		return err == nil
	case <-ctx.Done():
		return false
	}
}
