package watchdog

import (
	"fmt"
	"maps"
	"time"
)

// Hooks are functions that a watchdog calls at the events they name, outside of its
// locks and from the goroutine of Round, but Restarted from that of the restart. They
// must not block: a Changed that hangs stops the watchdog, which Healthy then says. One
// that panics is counted. Each may be nil. Names can be personal data: see what you
// log. Fields may be added.
type Hooks struct {
	// Round is called after every round, with an error when the store gave no answer.
	Round func(workers int, took time.Duration, err error)
	// Changed is called for a worker whose verdict or state is another than in the
	// round before. Several watchdogs each call it.
	Changed func(c Change)
	// Restarted is called when an attempt has ended.
	Restarted func(i Incident, err error, took time.Duration)
	// GivenUp is called once, by one of several watchdogs, when a worker is given up.
	GivenUp func(w Worker)
	// Recovered is called when the attempts of a worker that is well again are
	// forgotten, and Forgotten when it is not listed any more; both perhaps by more than
	// one watchdog.
	Recovered func(name string)
	Forgotten func(name string)
}

// A Change is a worker and what was thought of it before.
type Change struct {
	Worker     Worker
	WasVerdict Verdict // Undecided: it is new
	WasState   State
}

// Stats are what a watchdog has counted since New, and what the last round found.
type Stats struct {
	Rounds, FailedRounds uint64 // that the store answered, and did not
	Changes              uint64 // of verdicts and states
	Stuck, Zombies       uint64 // times a worker became so
	Restarts             uint64 // attempts that this watchdog was given
	FailedRestarts       uint64 // of them, those whose hook failed, panicked or took too long
	Postponed            uint64 // times no place was free for a restart
	Unsettled            uint64 // attempts whose end could not be written down
	FailedActs           uint64 // rounds in which the store took not every action
	GivenUp              uint64 // workers that this watchdog gave up
	Recovered, Forgotten uint64
	Panics               uint64 // of hooks

	LastRound  time.Time     // when the last round that was answered began, by this process's clock
	StoreTime  time.Time     // the store's, in that round
	Took       time.Duration // of that round
	Restarting int           // calls of Options.Restart that run
	Overdue    int           // those of them whose time is up

	// Workers counts the workers of the last round by verdict, and States by state. All
	// of them are Undecided and Unknown while the watchdog is not healthy.
	Workers    map[Verdict]int
	States     map[State]int
	UpToDate   bool // the last round was answered, not long ago
	GivenUpNow int  // workers that are given up
}

type lastRound struct {
	began    time.Time
	now      time.Time // the store's
	took     time.Duration
	verdicts map[Verdict]int
	states   map[State]int
	givenUp  int
	workers  int
	err      error
}

// Stats returns a snapshot. It asks the store nothing.
func (w *Watchdog) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.counts
	s.LastRound, s.StoreTime, s.Took = w.last.began, w.last.now, w.last.took
	s.Restarting, s.GivenUpNow, s.UpToDate = len(w.restarts), w.last.givenUp, w.freshness() == nil
	for _, r := range w.restarts {
		if r.overdue {
			s.Overdue++
		}
	}
	s.Workers, s.States = maps.Clone(w.last.verdicts), maps.Clone(w.last.states)
	if !s.UpToDate {
		s.Workers, s.States = map[Verdict]int{Undecided: w.last.workers}, map[State]int{Unknown: w.last.workers}
	}
	return s
}

// Healthy returns nil while the watchdog watches: the store has answered the last
// round, which began not longer than four times Options.Every ago, and a place is
// free for a restart. Otherwise the error wraps [ErrUnhealthy] and says why. It is for
// a liveness check of the process that watches, and asks the store nothing.
func (w *Watchdog) Healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.freshness(); err != nil {
		return err
	}
	overdue := 0
	for _, r := range w.restarts {
		if r.overdue {
			overdue++
		}
	}
	if overdue >= w.o.Parallel {
		return fmt.Errorf("%w: all %d places are taken by restarts that do not end", ErrUnhealthy, overdue)
	}
	return nil
}

// freshness says whether the last round can be believed.
func (w *Watchdog) freshness() error {
	switch age := time.Since(w.last.began); {
	case w.last.err != nil:
		return fmt.Errorf("%w: %w", ErrUnhealthy, w.last.err)
	case w.last.began.IsZero():
		return fmt.Errorf("%w: there was no round yet", ErrUnhealthy)
	case age > 4*w.o.Every:
		return fmt.Errorf("%w: the last round began %v ago", ErrUnhealthy, age.Round(time.Millisecond))
	}
	return nil
}

func (w *Watchdog) storeTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.now
}

// passed notes a round that was answered.
func (w *Watchdog) passed(workers []Worker, start time.Time, failures int) {
	w.mu.Lock()
	recovered := w.last.err != nil
	w.counts.Rounds++
	if failures > 0 {
		w.counts.FailedActs++
	}
	l := lastRound{began: start, now: w.last.now, took: time.Since(start), workers: len(workers), verdicts: map[Verdict]int{}, states: map[State]int{}}
	for i := range workers {
		l.verdicts[workers[i].Verdict]++
		l.states[workers[i].State]++
		if workers[i].GivenUp {
			l.givenUp++
		}
	}
	w.last = l
	w.mu.Unlock()
	if recovered && w.o.Logger != nil {
		w.o.Logger.Info("watchdog: the store answers again")
	}
	if h := w.o.Hooks; h != nil && h.Round != nil {
		w.call(func() { h.Round(len(workers), l.took, nil) })
	}
}

// failed notes a round that was not. Every worker is unknown from now on; what is
// known again is told as a change.
func (w *Watchdog) failed(err error, start time.Time) {
	w.mu.Lock()
	first := w.last.err == nil
	w.counts.FailedRounds++
	w.last.err = err
	clear(w.verdicts)
	w.mu.Unlock()
	if first && w.o.Logger != nil {
		w.o.Logger.Error("watchdog: the store gives no answer; every worker is unknown, and none is restarted", "error", err)
	}
	if h := w.o.Hooks; h != nil && h.Round != nil {
		w.call(func() { h.Round(0, time.Since(start), err) })
	}
}
