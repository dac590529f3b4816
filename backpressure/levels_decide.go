package backpressure

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Observe tells the value of a signal, now. It returns an [*UnknownError] for a
// signal that is not in the options. A value that is NaN or below zero is
// [ErrInvalid]; it is counted, and the last value goes on to count.
func (l *Levels) Observe(signal string, value float64) error {
	return l.observe(l.opts.Now(), signal, value)
}

func (l *Levels) observe(now time.Time, signal string, value float64) error {
	l.mu.Lock()
	s := l.signals[signal]
	switch {
	case s == nil:
		l.mu.Unlock()
		return &UnknownError{"signal", signal}
	case !(value >= 0):
		l.counts.Invalid++
		l.decide(l.clock(now))
		l.mu.Unlock()
		l.tell()
		return fmt.Errorf("%w: signal %s is %v; its last value counts", ErrInvalid, signal, value)
	}
	now = l.clock(now)
	s.value, s.told, s.at = value, true, now
	l.decide(now)
	l.mu.Unlock()
	l.tell()
	return nil
}

// Raise holds the level at least at to, 0 to MaxLevel, for a time from now: what a
// forecast may do. It never lowers it, and the higher of several holds until the
// last of them ends. reason stands in the event.
func (l *Levels) Raise(to int, d time.Duration, reason string) error {
	return l.raise(l.opts.Now(), to, d, reason)
}

func (l *Levels) raise(now time.Time, to int, d time.Duration, reason string) error {
	if to < 0 || to > MaxLevel || d <= 0 {
		return fmt.Errorf("%w: raise to level %d for %v", ErrInvalid, to, d)
	}
	l.mu.Lock()
	now = l.clock(now)
	if !now.Before(l.until) {
		l.raised = 0
	}
	l.raised = max(l.raised, to)
	if until := now.Add(d); until.After(l.until) {
		l.until = until
	}
	if from := l.Level(); to > from {
		l.change(Event{From: from, To: to, At: now, Signal: "raise", Value: float64(to), Mark: float64(to), Reason: reason})
	}
	l.mu.Unlock()
	l.tell()
	return nil
}

// Run asks the gauges at every interval until ctx ends, and returns its error. A
// gauge that fails or panics is counted and logged; its last value goes on to count.
func (l *Levels) Run(ctx context.Context) error {
	every := time.NewTicker(l.opts.Every)
	defer every.Stop()
	for {
		for i := range l.opts.Signals {
			l.ask(ctx, &l.opts.Signals[i])
		}
		l.mu.Lock()
		l.decide(l.clock(l.opts.Now()))
		l.mu.Unlock()
		l.tell()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
}

func (l *Levels) ask(ctx context.Context, s *Signal) {
	if s.Gauge == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Every)
	defer cancel()
	var value float64
	var why any
	err := errPanicked
	l.guard(func() { value, err = s.Gauge(ctx) })
	if err == nil {
		err = l.Observe(s.Name, value)
		why = err
	} else {
		why = fmt.Sprintf("%T", err) // its text may hold anything
		l.mu.Lock()
		l.counts.GaugeErrors++
		l.mu.Unlock()
	}
	if err != nil && l.opts.Logger != nil {
		l.opts.Logger.WarnContext(ctx, "backpressure: a gauge has no value; the last one counts", "signal", s.Name, "error", why)
	}
}

var errPanicked = fmt.Errorf("backpressure: the function panicked")

// decide brings the level up to date. The caller holds the lock.
func (l *Levels) decide(now time.Time) {
	from := l.Level()
	if to, s := l.demanded(); to > from {
		l.change(Event{From: from, To: to, At: now, Signal: s.Name, Value: s.value, Mark: s.Enter[to-1]})
		return
	}
	to, last := from, (*signalState)(nil)
	for level := from; level > 0; level-- { // all of them, since each has a time of its own
		s := l.holds(now, level)
		if to == level && s != nil && now.Sub(l.below[level-1]) >= l.opts.Dwell {
			to, last = level-1, s
		}
	}
	if to < from {
		l.change(Event{From: from, To: to, At: now, Signal: last.Name, Value: last.value, Mark: last.Leave * last.Enter[to]})
	}
}

// demanded is the highest level that a signal's value asks for, and that signal.
func (l *Levels) demanded() (level int, by *signalState) {
	for i := range l.opts.Signals {
		s := l.signals[l.opts.Signals[i].Name]
		if n := s.enters(); n > level {
			level, by = n, s
		}
	}
	return level, by
}

// holds returns nil when something holds the level, and sets since when nothing
// does. Otherwise it returns the signal that is the nearest below its leave mark.
func (l *Levels) holds(now time.Time, level int) *signalState {
	var nearest *signalState
	held := level <= l.raised && now.Before(l.until)
	closest := -1.0
	for i := range l.opts.Signals {
		s := l.signals[l.opts.Signals[i].Name]
		part := s.value / s.Enter[level-1]
		if part >= s.Leave {
			held = true
		}
		if part/s.Leave > closest {
			closest, nearest = part/s.Leave, s
		}
	}
	if held {
		l.below[level-1] = time.Time{}
		return nil
	}
	if l.below[level-1].IsZero() {
		l.below[level-1] = now
	}
	return nearest
}

// change sets the level and puts the event on the list. The caller holds the lock.
func (l *Levels) change(e Event) {
	if e.Reason == "" {
		e.Reason = e.describe()
	}
	before, after := degradeOf(e.From), degradeOf(e.To)
	e.Added, e.Removed = after&^before, before&^after
	if e.To > e.From {
		l.below = [MaxLevel]time.Time{}
	}
	l.current.Store(int32(e.To))
	l.counts.Changes++
	l.events = append(l.events, e)
}

// tell hands the events out, in order: one goroutine at a time, and the others'
// events too.
func (l *Levels) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.telling {
		return
	}
	l.telling = true
	for len(l.events) > 0 {
		e := l.events[0]
		l.events = l.events[1:]
		l.mu.Unlock()
		l.tellOne(e)
		l.mu.Lock()
	}
	l.events, l.telling = nil, false
}

func (l *Levels) tellOne(e Event) {
	if l.opts.Logger != nil {
		l.opts.Logger.Warn("backpressure: another level", "from", e.From, "to", e.To, "reason", e.Reason)
	}
	if l.opts.ScaleOut != nil && e.From == 0 {
		scale := min(max(e.Value/e.Mark-1, 0.3), 0.5)
		l.guard(func() { l.opts.ScaleOut(Advice{e.Signal, e.Value, e.Mark, scale}) })
	}
	if l.opts.OnChange != nil {
		l.guard(func() { l.opts.OnChange(e) })
	}
}

// guard calls a function of the caller's, whose panic must not end the watch.
func (l *Levels) guard(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			l.mu.Lock()
			l.counts.Panics++
			l.mu.Unlock()
			if l.opts.Logger != nil {
				l.opts.Logger.Error("backpressure: a function of the options panicked", "panic", fmt.Sprintf("%T", p))
			}
		}
	}()
	fn()
}

// clock keeps time from going back.
func (l *Levels) clock(now time.Time) time.Time {
	if now.Before(l.last) {
		return l.last
	}
	l.last = now
	return now
}

// LevelsStats are what a [Levels] has counted since it was made, and its state.
type LevelsStats struct {
	Level   int
	Changes uint64
	// Refused counts verdicts that refused.
	Refused uint64
	// Invalid counts values that made no sense, GaugeErrors gauges without a value,
	// Panics those of gauges and handlers.
	Invalid, GaugeErrors, Panics uint64
	// Signals are the values by name; NaN for one that was never told.
	Signals map[string]float64
	// Stale are the signals that were told nothing for longer than the option says.
	Stale []string
}

// Stats returns a snapshot.
func (l *Levels) Stats() LevelsStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.counts
	s.Level, s.Signals = l.Level(), make(map[string]float64, len(l.signals))
	now := l.clock(l.opts.Now())
	for i := range l.opts.Signals {
		sig := l.signals[l.opts.Signals[i].Name]
		s.Signals[sig.Name] = math.NaN()
		if sig.told {
			s.Signals[sig.Name] = sig.value
			if now.Sub(sig.at) > l.opts.Stale {
				s.Stale = append(s.Stale, sig.Name)
			}
		}
	}
	return s
}
