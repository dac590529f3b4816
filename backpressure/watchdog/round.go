package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run makes a round every Options.Every until ctx ends, and then waits for at most
// five seconds for restarts that are under way; it returns nil. Trouble with the store
// ends nothing: it is counted, logged once and told, and every worker is undecided
// until the store answers again. It returns [ErrInvalid] when it runs already.
func (w *Watchdog) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return invalid("the watchdog runs already")
	}
	w.running = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = false
	}()

	ticker := time.NewTicker(w.o.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		_, _ = w.Round(ctx) // counted and told there
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	w.waitForRestarts(5 * time.Second)
	return nil
}

// Round looks at every worker once, begins the restarts that are due, forgets workers
// that have been gone or silent for too long, and returns what it thinks of each
// worker, by name. Run calls it; a program with a schedule of its own may. It fails
// with [ErrUnavailable] when the store gave no answer: then nothing was decided.
//
// Restarts run in goroutines of their own until they end or ctx does; Round does not
// wait for them.
func (w *Watchdog) Round(ctx context.Context) ([]Worker, error) {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-w.turn }()
	if w.o.Self != nil {
		w.o.Self.Poll()
	}
	start := time.Now()
	workers, err := w.look(ctx)
	if err != nil {
		w.failed(err, start)
		return nil, err
	}
	w.tell(workers)
	actions := w.begin(ctx, workers)
	w.passed(workers, start, actions)
	return workers, nil
}

// look reads all records and judges them. The round counts as watching only if every
// page was answered.
func (w *Watchdog) look(ctx context.Context) ([]Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.o.Every, time.Second))
	defer cancel()
	var pages []Page
	asked := time.Now()
	answered := asked
	for after := ""; ; {
		page, err := w.store.List(ctx, w.o.Scope, after, MaxBatch)
		if err != nil {
			w.mu.Lock()
			w.watch.broken()
			w.mu.Unlock()
			return nil, unavailable("round", err)
		}
		if len(pages) == 0 {
			answered = time.Now()
		}
		pages = append(pages, page)
		if len(page.Records) < MaxBatch || len(pages) > MaxWorkers/MaxBatch {
			break
		}
		after = page.Records[len(page.Records)-1].Name
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.round++
	w.watch.answer(pages[0].Now, asked, answered)
	var workers []Worker
	for _, page := range pages {
		for _, e := range page.Records {
			worker := w.rules.judge(e, page.Now.Sub(e.BeatAt), w.watch.silent(&e, w.round))
			workers = append(workers, worker)
		}
	}
	w.watch.forget(w.round)
	w.last.now = pages[0].Now
	return workers, nil
}

// tell reports the workers whose verdict or state is another than in the last round.
func (w *Watchdog) tell(workers []Worker) {
	w.mu.Lock()
	var changed []Change
	before := w.verdicts
	w.verdicts = make(map[string]verdict, len(workers))
	for i := range workers {
		worker := &workers[i]
		now := verdict{worker.Verdict, worker.State}
		w.verdicts[worker.Name] = now
		was, known := before[worker.Name]
		if !known {
			was = verdict{}
		}
		if was != now {
			changed = append(changed, Change{Worker: *worker, WasVerdict: was.Verdict, WasState: was.State})
			w.counts.Changes++
			if now.Bad() && !was.Bad() {
				if now.Verdict == Stuck {
					w.counts.Stuck++
				} else {
					w.counts.Zombies++
				}
			}
		}
	}
	w.mu.Unlock()
	for _, c := range changed {
		if w.o.Logger != nil && (c.Worker.Verdict.Bad() || c.WasVerdict.Bad()) {
			w.o.Logger.Warn("watchdog: a worker is "+c.Worker.Verdict.String(), "worker", short(c.Worker.Name), "was", c.WasVerdict.String(), "why", c.Worker.Reason())
		}
		if h := w.o.Hooks; h != nil && h.Changed != nil {
			w.call(func() { h.Changed(c) })
		}
	}
}

// begin acts on what was found: takes, clears and forgets.
func (w *Watchdog) begin(ctx context.Context, workers []Worker) (failures int) {
	now := w.storeTime()
	var tidy []Action
	for i := range workers {
		worker := &workers[i]
		silent := now.Sub(worker.BeatAt)
		switch {
		case worker.Verdict == Gone && silent > w.o.KeepGone, worker.Verdict == Stuck && silent > w.o.KeepSilent && worker.Silent > w.o.Stable:
			tidy = append(tidy, Action{Kind: KindForget, Name: worker.Name, Token: worker.Token, Seq: worker.Seq})
		case w.o.Restart == nil:
		case worker.Verdict.Bad() && w.due(worker, now):
			if err := w.take(ctx, worker); err != nil {
				failures++
			}
		case worker.Verdict == Healthy && (worker.Attempts > 0 || worker.GivenUp) && now.Sub(worker.ActedAt) > w.o.Stable:
			tidy = append(tidy, Action{Kind: KindClear, Name: worker.Name, Claim: worker.Claim, Wait: w.o.Stable})
		}
	}
	for batch := range slices.Chunk(tidy, MaxBatch) {
		if err := w.tidy(ctx, batch); err != nil {
			failures++
		}
	}
	return failures
}

// due says whether to ask for an attempt. A worker that was given up is noted to be
// bad still now and then, so that it is not taken for stable.
func (w *Watchdog) due(worker *Worker, now time.Time) bool {
	if worker.GivenUp {
		return now.Sub(worker.ActedAt) > w.o.Stable/4
	}
	return !now.Before(worker.NextAt) || now.Before(worker.ActedAt) // the store's clock has gone back
}

// tidy forgets workers and their attempts.
func (w *Watchdog) tidy(ctx context.Context, actions []Action) error {
	outcomes, err := w.act(ctx, actions)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.Err != nil {
			continue
		}
		a := actions[i]
		w.mu.Lock()
		if a.Kind == KindForget {
			w.counts.Forgotten++
		} else {
			w.counts.Recovered++
		}
		w.mu.Unlock()
		h := w.o.Hooks
		switch {
		case a.Kind == KindForget && w.o.Logger != nil:
			w.o.Logger.Info("watchdog: a worker is not listed any more", "worker", short(a.Name))
		case a.Kind == KindClear && w.o.Logger != nil:
			w.o.Logger.Info("watchdog: a worker is well again", "worker", short(a.Name))
		}
		switch {
		case h == nil:
		case a.Kind == KindForget && h.Forgotten != nil:
			w.call(func() { h.Forgotten(a.Name) })
		case a.Kind == KindClear && h.Recovered != nil:
			w.call(func() { h.Recovered(a.Name) })
		}
	}
	return nil
}

// act sends actions, for at most five seconds.
func (w *Watchdog) act(ctx context.Context, actions []Action) ([]Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	outcomes, err := w.store.Act(ctx, w.o.Scope, actions)
	if err == nil && len(outcomes) != len(actions) {
		err = fmt.Errorf("%d answers to %d actions", len(outcomes), len(actions))
	}
	if err != nil {
		return nil, unavailable(actions[0].Kind.String(), err)
	}
	return outcomes, nil
}

// Resume lets a worker be restarted again that was given up: its attempts are zero. It
// fails with [ErrGone] if there is no such worker.
func (w *Watchdog) Resume(ctx context.Context, name string) error {
	return w.one(ctx, Action{Kind: KindResume, Name: name})
}

// Forget drops a worker that will not come back. One that sends heartbeats joins
// again. A worker that is not there is forgotten already.
func (w *Watchdog) Forget(ctx context.Context, name string) error {
	return w.one(ctx, Action{Kind: KindForget, Name: name})
}

func (w *Watchdog) one(ctx context.Context, a Action) error {
	if err := validateName(a.Name); err != nil {
		return err
	}
	outcomes, err := w.act(ctx, []Action{a})
	switch {
	case err != nil:
		return err
	case errors.Is(outcomes[0].Err, ErrGone):
		return fmt.Errorf("%w: %v of %s; nothing was changed", ErrGone, a.Kind, short(a.Name))
	case outcomes[0].Err != nil:
		return unavailable(a.Kind.String(), outcomes[0].Err)
	}
	return nil
}
