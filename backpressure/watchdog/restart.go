package watchdog

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// restarting is a call of Options.Restart that has not returned.
type restarting struct {
	since   time.Time
	overdue bool // its time is up
}

// take asks the store for an attempt to restart a worker, and begins it if this
// watchdog is the one that gets it. A worker whose hook has not returned here, and one
// for which no hook is free, is left for a later round or another watchdog.
func (w *Watchdog) take(ctx context.Context, worker *Worker) error {
	if !w.reserve(worker.Name) {
		return nil
	}
	a := Action{Kind: KindTake, Name: worker.Name, Token: worker.Token, Wait: w.o.RestartTimeout + w.o.RestartTimeout/4, Most: w.o.MaxRestarts}
	switch {
	case worker.Verdict == Zombie:
		a.Stalled = w.o.Zombie
	case worker.State == StoppedPolling:
		a.Quiet = time.Duration(w.o.Missed+1) * worker.Interval
	default:
		a.Seq = worker.Seq
	}
	rand.Read(a.Nonce[:])
	outcomes, err := w.act(ctx, []Action{a})
	if err != nil && ctx.Err() == nil {
		outcomes, err = w.act(ctx, []Action{a}) // the reply may be lost; the nonce finds it
	}
	if err != nil {
		w.release(worker.Name)
		return err
	}
	switch o := outcomes[0]; {
	case o.Err == nil:
		w.started()
		go w.restart(ctx, Incident{Worker: *worker, Attempt: o.Attempt, Token: o.Claim})
		return nil
	case errors.Is(o.Err, ErrGivenUp):
		w.release(worker.Name)
		if o.First {
			w.giveUp(worker)
		}
	default:
		w.release(worker.Name)
		if !errors.Is(o.Err, ErrBusy) && !errors.Is(o.Err, ErrChanged) && !errors.Is(o.Err, ErrGone) {
			return o.Err
		}
	}
	return nil
}

func (w *Watchdog) giveUp(worker *Worker) {
	w.mu.Lock()
	w.counts.GivenUp++
	w.mu.Unlock()
	if w.o.Logger != nil {
		w.o.Logger.Error("watchdog: a worker was given up; it is not restarted until Resume, or until it is well",
			"worker", short(worker.Name), "restarts", w.o.MaxRestarts, "why", worker.Reason())
	}
	if h := w.o.Hooks; h != nil && h.GivenUp != nil {
		w.call(func() { h.GivenUp(*worker) })
	}
}

// restart calls the hook and reports how it went. When the hook's time is up it is
// reported as failed, and its place is free again only when it returns.
func (w *Watchdog) restart(ctx context.Context, i Incident) {
	defer w.over()
	name := i.Worker.Name
	hook, cancel := context.WithTimeout(ctx, w.o.RestartTimeout)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		defer w.release(name)
		returned <- guarded(func() error { return w.o.Restart(hook, i) })
	}()
	start := time.Now()
	var err error
	select {
	case err = <-returned:
	case <-hook.Done(): // a hook that heeds it returns now
		grace := time.NewTimer(min(w.o.RestartTimeout/8, time.Second))
		defer grace.Stop()
		select {
		case err = <-returned:
		case <-grace.C:
			err = context.Cause(hook)
			w.overdue(name)
		}
	}
	w.settle(ctx, i, err)
	w.mu.Lock()
	if err != nil {
		w.counts.FailedRestarts++
	}
	w.mu.Unlock()
	if w.o.Logger != nil {
		w.o.Logger.Warn("watchdog: restart", "worker", short(name), "attempt", i.Attempt, "why", i.Worker.Reason(), "outcome", outcomeOf(err))
	}
	if h := w.o.Hooks; h != nil && h.Restarted != nil {
		w.call(func() { h.Restarted(i, err, time.Since(start)) })
	}
}

// settle ends the attempt in the store. If it cannot, the attempt ends there by
// itself when the time of the hook has passed.
func (w *Watchdog) settle(ctx context.Context, i Incident, err error) {
	a := Action{Kind: KindDone, Name: i.Worker.Name, Claim: i.Token, Wait: min(w.o.Backoff.Delay(i.Attempt, i.Token), MaxDuration)}
	if isGone(err) {
		a = Action{Kind: KindForget, Name: i.Worker.Name, Token: i.Worker.Token}
	}
	ctx = context.WithoutCancel(ctx)
	for range 2 {
		if outcomes, err := w.act(ctx, []Action{a}); err == nil {
			if a.Kind == KindForget && outcomes[0].Err == nil {
				w.mu.Lock()
				w.counts.Forgotten++
				w.mu.Unlock()
			}
			return
		}
	}
	w.mu.Lock()
	w.counts.Unsettled++
	w.mu.Unlock()
}

// reserve takes a place for a restart; release gives it back.
func (w *Watchdog) reserve(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, runs := w.restarts[name]; runs {
		return false
	}
	if len(w.restarts) >= w.o.Parallel {
		w.counts.Postponed++
		return false
	}
	w.restarts[name] = restarting{since: time.Now()}
	return true
}

func (w *Watchdog) release(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.restarts, name)
}

func (w *Watchdog) overdue(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, runs := w.restarts[name]; runs {
		r.overdue = true
		w.restarts[name] = r
	}
}

// waitForRestarts waits until the restarts are reported, but not for hooks that do not
// heed their context.
func (w *Watchdog) waitForRestarts(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		w.mu.Lock()
		active := w.active
		w.mu.Unlock()
		if active == 0 {
			return
		}
		select {
		case <-w.ended:
		case <-timer.C:
			return
		}
	}
}

// started and over count the restarts that are not reported yet.
func (w *Watchdog) started() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Restarts++
	w.active++
}

func (w *Watchdog) over() {
	w.mu.Lock()
	w.active--
	w.mu.Unlock()
	select {
	case w.ended <- struct{}{}:
	default:
	}
}

// call calls a hook that panics at the worst.
func (w *Watchdog) call(hook func()) {
	if err := guarded(func() error { hook(); return nil }); err != nil {
		w.mu.Lock()
		w.counts.Panics++
		w.mu.Unlock()
		if w.o.Logger != nil {
			w.o.Logger.Error("watchdog: a hook panicked", "error", err)
		}
	}
}
