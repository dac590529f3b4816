package watchdog

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// Defaults of options.
const (
	DefaultScope    = "default"
	DefaultInterval = 15 * time.Second // between two heartbeats
	MaxWorkers      = 10_000           // of a scope
)

// Options set up a [Watchdog]. The zero value of each field is a working default.
type Options struct {
	// Scope is what the watchdog watches: see [ReporterOptions]. Empty means "default".
	Scope string
	// Every is the time between two rounds. Zero means 5 s; it is 10 ms to 10 minutes.
	Every time.Duration
	// Missed is how many heartbeats a worker may miss; with one more it is stuck. Zero
	// means 3; it is 1 to 100.
	Missed int
	// Zombie is how long a worker with work may stay at one position; after that it is
	// a zombie. Zero means 10 minutes.
	Zombie time.Duration
	// HandlerLimit is how long a handler may run before the state says so. Zero means
	// one minute.
	HandlerLimit time.Duration

	// Restart restarts the worker of an incident: kill the process, ask the
	// orchestrator, cancel the loop's context. It returns nil when the restart is under
	// way; the worker's next instance shows whether it worked. An error counts as an
	// attempt as well. [ErrGone] says that the worker will not come back. It is called
	// in a goroutine of its own, never twice at a time for one worker and one attempt,
	// and has to return when its context ends. Nil: nothing is restarted, the
	// watchdog reports only.
	Restart func(ctx context.Context, i Incident) error
	// RestartTimeout is how long Restart may take. Zero means one minute.
	RestartTimeout time.Duration
	// Backoff says how long to wait after attempt n before the next. A worker has to be
	// able to start in that time. The zero Backoff waits for 1, 2, 4, 8 and then 10
	// minutes.
	Backoff retry.Backoff
	// MaxRestarts is how many restarts an incident has; when they have not helped the
	// worker is given up. Zero means 5; it is 1 to 1000.
	MaxRestarts int
	// Stable is how long a worker has to do without a restart until its attempts are
	// forgotten, and a worker that was given up is restarted again. Zero means three
	// times Zombie; it is longer than Zombie.
	Stable time.Duration
	// Parallel is how many restarts run at a time in this watchdog. Zero means 4; it is
	// 1 to 100.
	Parallel int

	// KeepGone is how long a worker that said goodbye is listed. Zero means 1 hour.
	KeepGone time.Duration
	// KeepSilent is how long a worker that says nothing is listed, also one that was
	// given up; it was watched for at least Stable. Zero means 7 days; it is longer than
	// Stable.
	KeepSilent time.Duration

	// Self, if it is not nil, is polled with every round: a reporter that the program
	// runs, so that another watchdog notices when this one stops.
	Self *Reporter

	Logger *slog.Logger // nil: nothing is logged
	Hooks  *Hooks
}

// A Watchdog watches the workers of one scope. Any number may watch the same scope,
// in any process; one of them acts for each attempt to restart a worker. It is safe for
// concurrent use.
type Watchdog struct {
	store Store
	o     Options
	rules rules

	mu       sync.Mutex
	running  bool // Run does
	watch    watch
	round    uint64
	verdicts map[string]verdict // of the last round
	last     lastRound
	counts   Stats
	restarts map[string]restarting // hooks that have not returned
	active   int                   // restarts that are not reported yet

	turn  chan struct{} // one round at a time
	ended chan struct{} // a restart was reported
}

type verdict struct {
	Verdict
	State
}

// New returns a watchdog. It does no I/O and starts nothing: see [Watchdog.Run]. Nil
// options mean defaults. It fails on a nil store and on options outside their range.
func New(s Store, opts *Options) (*Watchdog, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Watchdog{
		store: s, o: o, rules: rules{missed: o.Missed, zombie: o.Zombie, handler: o.HandlerLimit},
		verdicts: map[string]verdict{}, restarts: map[string]restarting{},
		turn: make(chan struct{}, 1), ended: make(chan struct{}, 1),
	}, nil
}

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Hooks != nil {
		hooks := *c.Hooks
		c.Hooks = &hooks
	}
	c.Scope = cmp.Or(c.Scope, DefaultScope)
	c.Every = cmp.Or(c.Every, 5*time.Second)
	c.Missed = cmp.Or(c.Missed, 3)
	c.Zombie = cmp.Or(c.Zombie, 10*time.Minute)
	c.HandlerLimit = cmp.Or(c.HandlerLimit, time.Minute)
	c.RestartTimeout = cmp.Or(c.RestartTimeout, time.Minute)
	if c.Backoff.IsZero() {
		c.Backoff = retry.Exponential(time.Minute, 10*time.Minute, retry.NoJitter)
	}
	c.MaxRestarts = cmp.Or(c.MaxRestarts, 5)
	if c.Stable == 0 && c.Zombie <= MaxDuration/3 {
		c.Stable = 3 * c.Zombie
	}
	c.Parallel = cmp.Or(c.Parallel, 4)
	c.KeepGone = cmp.Or(c.KeepGone, time.Hour)
	c.KeepSilent = cmp.Or(c.KeepSilent, 7*24*time.Hour)
	if err := c.Backoff.Validate(); err != nil {
		return c, invalid("%v", err)
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"Every", c.Every, 10 * time.Millisecond, 10 * time.Minute},
		{"Zombie", c.Zombie, 10 * time.Millisecond, MaxDuration / 3},
		{"HandlerLimit", c.HandlerLimit, time.Millisecond, MaxDuration},
		{"RestartTimeout", c.RestartTimeout, 10 * time.Millisecond, 24 * time.Hour},
		{"Stable", c.Stable, c.Zombie + 1, MaxDuration},
		{"KeepGone", c.KeepGone, time.Millisecond, MaxDuration},
		{"KeepSilent", c.KeepSilent, c.Stable + 1, MaxDuration},
	} {
		if d.value < d.least || d.value > d.most {
			return c, invalid("%s is %v, not %v to %v", d.name, d.value, d.least, d.most)
		}
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{{"Missed", c.Missed, 100}, {"MaxRestarts", c.MaxRestarts, 1000}, {"Parallel", c.Parallel, 100}} {
		if n.value < 1 || n.value > n.most {
			return c, invalid("%s is %d, not 1 to %d", n.name, n.value, n.most)
		}
	}
	if !validScope(c.Scope) {
		return c, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Scope))
	}
	return c, nil
}
