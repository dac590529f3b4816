package watchdog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// DefaultWindow is how long a new worker is isolated at least.
const DefaultWindow = 3 * time.Minute

// WarmupOptions set up a [Warmup]. The zero value of each field is a working default.
type WarmupOptions struct {
	// Window is how long the worker has to be without an abnormal result before it
	// joins. Zero means 3 minutes; it is 1 ms to 24 hours.
	Window time.Duration
	// Checks are what must pass as well: that the database answers, that the policy was
	// synchronised. They run one after another, at the start, every Every, and at the
	// end of the window. At most 100.
	Checks []Check
	// Every is the time between two runs of the checks. Zero means 5 s; it is 1 ms to 1
	// hour.
	Every time.Duration
	// CheckTimeout is how long one check may take. Zero means 5 s; it is 1 ms to 1 hour.
	CheckTimeout time.Duration

	Logger *slog.Logger // nil: nothing is logged
	Hooks  *WarmupHooks
}

// A Check is one condition for joining.
type Check struct {
	Name string // 1 to 64 bytes of printable ASCII; it is shown by the readiness handler
	// Run returns nil if the condition holds. It must heed its context. One that panics,
	// takes too long, or still hangs from an earlier run, has failed.
	Run func(ctx context.Context) error
}

// WarmupHooks are functions that a warm-up calls outside of its locks; they must not
// block. Each may be nil. Fields may be added.
type WarmupHooks struct {
	// Changed is called when the phase changes, and when the window begins again, with
	// why: "abnormal result", "check failed", "reset" or "".
	Changed func(p Phase, why string)
}

// A Phase is how far a warm-up is.
type Phase uint8

const (
	// Isolated has not begun: Run does not run, or has ended. It is the zero Phase.
	Isolated Phase = iota
	// Failing has had a check that failed in the last run of the checks.
	Failing
	// Observing waits until the window has passed.
	Observing
	// Joined is ready.
	Joined
)

// String returns the phase's name.
func (p Phase) String() string {
	switch p {
	case Isolated:
		return "isolated"
	case Failing:
		return "failing"
	case Observing:
		return "observing"
	case Joined:
		return "joined"
	}
	return fmt.Sprintf("phase %d", uint8(p))
}

// A Warmup keeps a new worker isolated: it is not ready and claims nothing until it
// has been without an abnormal result for Options.Window and all checks pass. What it
// is observed with in that time is its own affair: the checks, or traffic that is
// mirrored to it and whose effects are thrown away, whose results go to
// [Warmup.Observe].
//
// Each abnormal result and each failed check begins the window again. After joining
// they are counted and isolate nobody: a worker that turns bad is the watchdog's
// affair, and [Warmup.Reset], from the restart hook for example, isolates it again.
//
// Time is the process's monotonic clock, which nobody can set. It is safe for
// concurrent use.
type Warmup struct {
	o WarmupOptions

	mu      sync.Mutex
	running bool
	phase   Phase
	since   time.Time     // the window began
	epoch   uint64        // of the window: one that has begun again makes older runs of the checks void
	ready   chan struct{} // closed when joined
	kick    chan struct{} // the loop has to plan again
	results []checkResult
	counts  WarmupStats
}

type checkResult struct {
	ran, ok bool
	hangs   bool // an earlier run has not returned
}

// NewWarmup returns a warm-up that is isolated until [Warmup.Run] runs. Nil options
// mean defaults. It fails on options outside their range.
func NewWarmup(opts *WarmupOptions) (*Warmup, error) {
	var o WarmupOptions
	if opts != nil {
		o = *opts
	}
	if o.Hooks != nil {
		hooks := *o.Hooks
		o.Hooks = &hooks
	}
	o.Checks = append([]Check(nil), o.Checks...)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.CheckTimeout = cmp.Or(o.CheckTimeout, 5*time.Second)
	switch {
	case o.Window < time.Millisecond || o.Window > 24*time.Hour:
		return nil, invalid("window of %v, not 1 ms to 24 h", o.Window)
	case o.Every < time.Millisecond || o.Every > time.Hour:
		return nil, invalid("checks every %v, not 1 ms to 1 h", o.Every)
	case o.CheckTimeout < time.Millisecond || o.CheckTimeout > time.Hour:
		return nil, invalid("a check may take %v, not 1 ms to 1 h", o.CheckTimeout)
	case len(o.Checks) > 100:
		return nil, invalid("%d checks, at most 100", len(o.Checks))
	}
	names := map[string]bool{}
	for i, c := range o.Checks {
		switch {
		case c.Run == nil:
			return nil, invalid("check %d has no function", i)
		case !printable(c.Name) || names[c.Name]:
			return nil, invalid("check %d needs a name of its own, 1 to 64 bytes of printable ASCII", i)
		}
		names[c.Name] = true
	}
	return &Warmup{o: o, ready: make(chan struct{}), kick: make(chan struct{}, 1), results: make([]checkResult, len(o.Checks))}, nil
}

func printable(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 64
}

// Ready says whether the worker may claim. It is what a claiming loop asks before
// each claim.
func (w *Warmup) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase == Joined
}

// Wait waits until the worker may claim, and returns nil; or until ctx ends, and
// returns its cause. A worker that is ready may be isolated again at any time.
func (w *Warmup) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		phase, ready := w.phase, w.ready
		w.mu.Unlock()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if phase == Joined {
			return nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Observe reports the result of something that the worker did or saw. An error is an
// abnormal result and begins the window again; nil only counts.
func (w *Warmup) Observe(err error) {
	w.mu.Lock()
	if err == nil {
		w.counts.Normal++
		w.mu.Unlock()
		return
	}
	w.counts.Abnormal++
	if w.phase != Observing && w.phase != Failing {
		w.mu.Unlock()
		return
	}
	w.again(w.phase)
	w.mu.Unlock()
	w.told(w.Phase(), "abnormal result")
}

// Reset isolates the worker again, whatever it was, and begins a new window. A restart
// hook calls it.
func (w *Warmup) Reset() {
	w.mu.Lock()
	w.counts.Resets++
	phase := Observing
	if !w.running {
		phase = Isolated
	}
	w.again(phase)
	w.mu.Unlock()
	w.told(phase, "reset")
}

// Phase returns how far the warm-up is.
func (w *Warmup) Phase() Phase {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase
}

// again begins the window again. The caller has the lock.
func (w *Warmup) again(p Phase) {
	if w.phase == Joined {
		w.ready = make(chan struct{})
	}
	w.phase, w.since = p, time.Now()
	w.epoch++
	w.counts.Windows++
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// left is how much of the window is left. The caller has the lock.
func (w *Warmup) left() time.Duration {
	switch w.phase {
	case Joined:
		return 0
	case Isolated:
		return w.o.Window
	}
	return max(w.o.Window-time.Since(w.since), 0)
}

// told calls the hook and logs.
func (w *Warmup) told(p Phase, why string) {
	if w.o.Logger != nil {
		w.o.Logger.Info("watchdog: warm-up is "+p.String(), "why", why)
	}
	if h := w.o.Hooks; h != nil && h.Changed != nil {
		if guarded(func() error { h.Changed(p, why); return nil }) != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts.Panics++
		}
	}
}

// WarmupStats are what a warm-up has counted since NewWarmup.
type WarmupStats struct {
	Phase            Phase
	Left             time.Duration // of the window
	Normal, Abnormal uint64        // results that were observed
	CheckRuns        uint64
	CheckFailures    uint64 // checks that failed
	Windows          uint64 // that have begun
	Joins, Resets    uint64
	Panics           uint64 // of hooks and checks
}

// Stats returns a snapshot.
func (w *Warmup) Stats() WarmupStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.counts
	s.Phase, s.Left = w.phase, w.left()
	return s
}
