package backpressure

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MaxLevel is the highest level of a [Levels].
const MaxLevel = 3

// Levels turns work down in steps as a backlog grows. Make it with [NewLevels]. It
// is safe for concurrent use; it starts no goroutine.
//
//	level  backlog              what is added
//	0      below 100,000        nothing
//	1      from 100,000         ScaleOut is called; SlowClients
//	2      from 1,000,000       ShrinkMedia
//	3      above 5,000,000      RefuseNonCore
//
// A level has all of the levels below it, too. It is entered as soon as one signal
// is at its mark; several at once, if need be, in one event. It is left when all
// signals have been below its leave mark for the dwell, and what it added is undone.
type Levels struct {
	opts LevelsOptions

	current atomic.Int32 // the level; read without a lock

	mu      sync.Mutex
	signals map[string]*signalState
	below   [MaxLevel]time.Time // since when all signals are below the leave mark of level i+1
	raised  int                 // by Raise
	until   time.Time           // when that ends
	last    time.Time           // of the last look at the clock
	events  []Event             // to be told
	telling bool
	counts  LevelsStats
}

// LevelsOptions set up a [Levels].
type LevelsOptions struct {
	// Signals are what is watched, at least one and at most 64.
	Signals []Signal

	// Dwell is how long all signals have to be below a leave mark before the level is
	// left. Zero means 30 seconds.
	Dwell time.Duration

	// Stale is how long after it was last told a signal stands in Stats as stale. Its
	// last value goes on to count: a gauge that fails is no sign that the backlog is
	// gone. Zero means one minute.
	Stale time.Duration

	// Every is how often Run asks the gauges. Zero means 5 seconds.
	Every time.Duration

	// ScaleOut is called when level 1 is entered from below: add capacity. Nil:
	// nobody is.
	ScaleOut func(Advice)

	// OnChange is called for every change of the level, in order and one at a time,
	// outside of locks. Nil: nobody is. A panic of it, or of ScaleOut, is counted and
	// logged, and the level stands.
	OnChange func(Event)

	// Logger receives every change, gauges that fail, and panics. Nil: nothing is
	// logged.
	Logger *slog.Logger

	// Now reads the clock. Nil means time.Now; a simulation has its own. A time
	// before the last one counts as the last one. Run asks by the process's clock,
	// whatever Now says.
	Now func() time.Time
}

// A Signal is one number that is watched: the backlog of a queue, the age of its
// oldest message.
type Signal struct {
	// Name is how it is told by; not empty.
	Name string

	// Gauge reads it, for Run. Nil: it is told by Observe alone.
	Gauge func(ctx context.Context) (float64, error)

	// Enter are the values from which each level is entered, rising. Zero means the
	// default of each: 100,000, 1,000,000 and whatever is above 5,000,000.
	Enter [MaxLevel]float64

	// Leave is the part of its mark that a signal has to be below before a level is
	// left. Zero means 0.8; above 0 and at most 0.99.
	Leave float64
}

// defaultMarks are the values from which each level is entered. A backlog of exactly
// 5,000,000 is of level 2.
var defaultMarks = [MaxLevel]float64{100_000, 1_000_000, math.Nextafter(5_000_000, math.Inf(1))}

// An Event is one change of the level.
type Event struct {
	From, To int
	At       time.Time
	Signal   string  // that decided: the highest, or of a level that is left the last to clear
	Value    float64 // of that signal
	Mark     float64 // that it reached, or is below
	Reason   string  // in words, for a log
	// Added and Removed are what changed of what calls have to do without.
	Added, Removed Degrade
}

// Advice is what ScaleOut is told.
type Advice struct {
	Signal string
	Value  float64
	Mark   float64 // that it reached
	Scale  float64 // share of the capacity to add: 0.3 to 0.5, the farther above the mark the more
}

// NewLevels returns levels over signals, at level 0. It fails with an
// [*OptionError] on options outside their range. The options are copied.
func NewLevels(opts *LevelsOptions) (*Levels, error) {
	var o LevelsOptions
	if opts != nil {
		o = *opts
	}
	o.Signals = slices.Clone(o.Signals)
	o.Dwell = cmp.Or(o.Dwell, 30*time.Second)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.Stale = cmp.Or(o.Stale, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case len(o.Signals) == 0 || len(o.Signals) > maxLines:
		return nil, badOption("levels", "Signals", "has %d, not 1 to %d", len(o.Signals), maxLines)
	case o.Dwell < 0:
		return nil, badOption("levels", "Dwell", "is %v, below zero", o.Dwell)
	case o.Stale < 0:
		return nil, badOption("levels", "Stale", "is %v, below zero", o.Stale)
	case o.Every < time.Millisecond:
		return nil, badOption("levels", "Every", "is %v, below a millisecond", o.Every)
	}
	l := &Levels{opts: o, signals: make(map[string]*signalState)}
	for i := range o.Signals {
		s := &o.Signals[i]
		if err := s.complete(); err != nil {
			return nil, err
		}
		if l.signals[s.Name] != nil {
			return nil, badOption("signal "+s.Name, "Name", "is there twice")
		}
		l.signals[s.Name] = &signalState{Signal: s}
	}
	return l, nil
}

func (s *Signal) complete() error {
	of := "signal " + s.Name
	if s.Name == "" || len(s.Name) > MaxKey {
		return badOption("signal", "Name", "has %d bytes, not 1 to %d", len(s.Name), MaxKey)
	}
	for i, mark := range s.Enter {
		if mark == 0 {
			s.Enter[i] = defaultMarks[i]
		} else if !(mark > 0) || math.IsInf(mark, 1) {
			return badOption(of, "Enter", "has %v for level %d, not a finite number above 0", mark, i+1)
		}
	}
	s.Leave = cmp.Or(s.Leave, 0.8)
	switch {
	case s.Enter[0] >= s.Enter[1] || s.Enter[1] >= s.Enter[2]:
		return badOption(of, "Enter", "is %v, not rising", s.Enter)
	case !(s.Leave > 0 && s.Leave <= 0.99):
		return badOption(of, "Leave", "is %v, not above 0 and at most 0.99", s.Leave)
	}
	return nil
}

// Level returns the level, 0 to MaxLevel. It takes no lock.
func (l *Levels) Level() int { return int(l.current.Load()) }

// Degrade returns what calls have to do without at the level. It takes no lock.
func (l *Levels) Degrade() Degrade { return degradeOf(l.Level()) }

// Verdict is what the level says of a call: it refuses writes that are not the
// core's at level 3, and nothing else.
func (l *Levels) Verdict(coreOrRead bool) Verdict {
	level := l.Level()
	v := Verdict{Admit: true, Level: level, Degrade: degradeOf(level)}
	if v.Degrade.Has(RefuseNonCore) && !coreOrRead {
		v.Admit, v.Reason, v.RetryAfter = false, NonCore, l.opts.Dwell
		l.mu.Lock()
		l.counts.Refused++
		l.mu.Unlock()
	}
	return v
}

func degradeOf(level int) Degrade { return 1<<level - 1 }

type signalState struct {
	*Signal
	value float64
	told  bool
	at    time.Time
}

// enters is the level that the signal's value asks for.
func (s *signalState) enters() int {
	level := 0
	for level < MaxLevel && s.told && s.value >= s.Enter[level] {
		level++
	}
	return level
}

func (e Event) describe() string {
	if e.To > e.From {
		return fmt.Sprintf("%s is %.6g, at or above the mark %.6g of level %d", e.Signal, e.Value, e.Mark, e.To)
	}
	return fmt.Sprintf("%s is %.6g, the last below the leave mark %.6g of level %d", e.Signal, e.Value, e.Mark, e.To+1)
}
