package backpressure

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// A Shaper admits calls at the rates of its lines. Make it with [NewShaper]. Its
// methods and those of its lines are safe for concurrent use, and all state is in
// memory: for one rate over many processes see [Shared].
//
// A line is short when its own tokens do not suffice. It then takes tokens of
// lesser lines, the least important first, down to their floors. As long as callers
// of a short line wait, lesser lines have their floors only; for a second after it
// was last short, they leave it half of their buckets.
type Shaper struct {
	opts  ShaperOptions
	lines map[string]*Line
	start time.Time

	short atomic.Int64 // until when some line is short, as nanoseconds from start
	waits atomic.Int64 // callers that wait, in all lines

	mu    sync.Mutex // guards the queues of all lines; taken before Line.mu
	order []*Line    // by importance, the greatest first
	heads []*Line    // scratch space of pump
	timer *time.Timer
}

// ShaperOptions set up a [Shaper].
type ShaperOptions struct {
	// Lines are the lines of business, at least one and at most 64.
	Lines []LineOptions

	// MaxWaiters is how many callers of a line may wait. Zero means 1,000.
	MaxWaiters int

	// Age is how long a caller waits before it counts as more important by one, and
	// so on. All age alike, so it goes before a caller that is more important by n and
	// came n times Age later: no line is starved for ever. Zero means one second; it
	// is at least a millisecond.
	Age time.Duration

	// Hooks are called at the events they name. Nil: none are.
	Hooks *ShaperHooks

	// Now reads the clock, for Allow. Nil means the process's monotonic clock; a
	// simulation has its own. A time before the last one counts as the last one.
	// Wait needs the process's clock, whose timers wake it: with another it fails
	// with ErrInvalid.
	Now func() time.Time
}

// LineOptions set up one line.
type LineOptions struct {
	// Name is how the line is asked for; not empty.
	Name string

	// Rate is how many tokens the line gets in a second: above 0, at most 1e9.
	Rate float64

	// Burst is how many tokens it can save up, and so the greatest cost of a call. It
	// is at most 5 times the rate, or 1 where that is less. Zero means the rate,
	// rounded up.
	//
	// The most that any second admits is Burst + Rate: a line of 100/s with a burst
	// of 500 can admit 600 in the second after it was idle.
	Burst int

	// Importance says whose tokens the line may take: those of lines with a smaller
	// one. The zero value is as good as any other; from -1,000 to 1,000.
	Importance int

	// Floor is the part of Rate that no other line can take. It needs a Burst of at
	// least 2. Zero: more important lines can take everything.
	Floor float64
}

// FloorBurst is the part of Burst that no other line can take: as large as Floor's
// part of Rate, but leaving at least one token on each side. It is for stores.
func (o *LineOptions) FloorBurst() int {
	switch {
	case o.Floor <= 0:
		return 0
	case o.Floor >= o.Rate: // nothing to take
		return o.Burst
	}
	return min(max(int(math.Round(float64(o.Burst)*o.Floor/o.Rate)), 1), o.Burst-1)
}

// NewShaper returns a shaper. It fails with an [*OptionError] on options outside
// their range. The options are copied.
func NewShaper(opts *ShaperOptions) (*Shaper, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Shaper{opts: o, lines: make(map[string]*Line, len(o.Lines)), start: time.Now()}
	if o.Now != nil {
		s.start = o.Now()
	}
	for _, lo := range o.Lines {
		l := newLine(s, lo)
		s.lines[lo.Name] = l
		s.order = append(s.order, l)
	}
	slices.SortStableFunc(s.order, func(a, b *Line) int { return cmp.Compare(b.opts.Importance, a.opts.Importance) })
	for i, l := range s.order {
		for j := len(s.order) - 1; j > i; j-- {
			if lesser := s.order[j]; lesser.opts.Importance < l.opts.Importance {
				l.lesser = append(l.lesser, lesser)
			}
		}
		for _, greater := range s.order[:i] {
			if greater.opts.Importance > l.opts.Importance {
				l.greater = append(l.greater, greater)
			}
		}
	}
	return s, nil
}

// Line returns the line of that name, or an [*UnknownError]. Ask once and keep it.
func (s *Shaper) Line(name string) (*Line, error) {
	l, ok := s.lines[name]
	if !ok {
		return nil, &UnknownError{"line", name}
	}
	return l, nil
}

// A Line is one line of business of a [Shaper].
type Line struct {
	s       *Shaper
	opts    LineOptions
	lesser  []*Line // whose tokens it may take, the least important first
	greater []*Line

	shortUntil atomic.Int64 // nanoseconds from Shaper.start
	oldest     atomic.Int64 // when the first waiter came, as nanoseconds from start, at least 1; 0: nobody waits
	queue      []*waiter    // guarded by Shaper.mu
	empty      atomic.Int64 // until then there is not one token, as nanoseconds from start

	_ [64]byte // what is written at each call does not disturb what is read at each

	mu     sync.Mutex
	rest   *rate.Limiter // what other lines may take
	floor  *rate.Limiter // what they may not; nil if there is no floor
	keep   int           // half of rest's burst, rounded up
	last   time.Duration // of the last look at the clock, from Shaper.start: it does not go back
	counts LineStats     // Waiting is guarded by Shaper.mu

	refusals counter
}

func newLine(s *Shaper, o LineOptions) *Line {
	l := &Line{s: s, opts: o}
	floor := o.FloorBurst()
	if floor > 0 {
		l.floor = rate.NewLimiter(rate.Limit(o.Floor), floor)
	}
	l.rest = rate.NewLimiter(rate.Limit(o.Rate-o.Floor), o.Burst-floor)
	l.keep = (o.Burst - floor + 1) / 2
	return l
}

// Allow asks for the tokens of a call of that cost, now: 1 or more, and at most
// the line's burst. When it refuses, nothing was taken. It does not overtake
// callers of the line that wait.
func (l *Line) Allow(cost int) Verdict {
	v := l.allow(l.s.now(), cost)
	if !v.Admit {
		l.refused(cost, v)
	}
	return v
}

// allow is Allow at a given time, without counting a refusal.
func (l *Line) allow(at time.Duration, cost int) Verdict {
	if cost < 1 || cost > l.opts.Burst {
		return Verdict{Reason: CostInvalid}
	}
	if l.oldest.Load() != 0 {
		return Verdict{Reason: Queued, RetryAfter: l.until(at, cost)}
	}
	k := l.keeps(at)
	ok, wait := l.take(at, cost, k)
	if ok || len(l.lesser) > 0 && l.borrow(at, cost, k, l.opts.Importance) {
		return Verdict{Admit: true}
	}
	return Verdict{Reason: NoTokens, RetryAfter: wait}
}

// now is the time since the start by the monotonic clock, which no step of the wall
// clock moves. All times of a shaper are such.
func (s *Shaper) now() time.Duration {
	if s.opts.Now != nil {
		return s.opts.Now().Sub(s.start)
	}
	return time.Since(s.start)
}

func (o *ShaperOptions) withDefaults() (ShaperOptions, error) {
	var c ShaperOptions
	if o != nil {
		c = *o
	}
	c.Lines = slices.Clone(c.Lines)
	if c.Hooks != nil {
		hooks := *c.Hooks
		c.Hooks = &hooks
	}
	c.MaxWaiters = cmp.Or(c.MaxWaiters, 1000)
	c.Age = cmp.Or(c.Age, time.Second)
	switch {
	case len(c.Lines) == 0 || len(c.Lines) > maxLines:
		return c, badOption("shaper", "Lines", "has %d, not 1 to %d", len(c.Lines), maxLines)
	case c.MaxWaiters < 0:
		return c, badOption("shaper", "MaxWaiters", "is %d, below zero", c.MaxWaiters)
	case c.Age < time.Millisecond:
		return c, badOption("shaper", "Age", "is %v, below a millisecond", c.Age)
	}
	names := make(map[string]bool)
	for i := range c.Lines {
		l := &c.Lines[i]
		if names[l.Name] {
			return c, badOption("line "+l.Name, "Name", "is there twice")
		}
		names[l.Name] = true
		if err := l.complete(); err != nil {
			return c, err
		}
	}
	return c, nil
}

const (
	maxLines      = 64
	maxImportance = 1000
	minRate       = 1e-6
	maxRate       = 1e9
	maxBurstRatio = 5
)

// complete sets the defaults of a line and validates it.
func (o *LineOptions) complete() error {
	of := "line " + o.Name
	if o.Name == "" || len(o.Name) > MaxKey {
		return badOption("line", "Name", "has %d bytes, not 1 to %d", len(o.Name), MaxKey)
	}
	burst, err := bucket(of, o.Rate, o.Burst)
	if err != nil {
		return err
	}
	o.Burst = burst
	switch {
	case o.Importance < -maxImportance || o.Importance > maxImportance:
		return badOption(of, "Importance", "is %d, not %d to %d", o.Importance, -maxImportance, maxImportance)
	case !(o.Floor >= 0 && o.Floor <= o.Rate):
		return badOption(of, "Floor", "is %v, not 0 to the rate of %v", o.Floor, o.Rate)
	case o.Floor > 0 && o.Floor < o.Rate && o.Burst < 2:
		return badOption(of, "Floor", "needs a Burst of at least 2")
	}
	return nil
}

// bucket validates a rate and a burst, and returns the burst with its default.
func bucket(of string, perSecond float64, burst int) (int, error) {
	if !(perSecond >= minRate && perSecond <= maxRate) {
		return 0, badOption(of, "Rate", "is %v, not %v to %v", perSecond, minRate, maxRate)
	}
	most := max(int(maxBurstRatio*perSecond), 1)
	if burst == 0 {
		burst = int(math.Ceil(perSecond))
	}
	if burst < 1 || burst > most {
		return 0, badOption(of, "Burst", "is %d, not 1 to %d, which is %d times the rate", burst, most, maxBurstRatio)
	}
	return burst, nil
}
