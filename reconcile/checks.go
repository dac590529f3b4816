package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// Checks compare what a service believes with what it can see, and keep a [Finding] of
// each thing that is not as it should be: raised once, updated while it holds, resolved by
// itself when it has gone, or by a person. A finding that comes again is opened again.
//
// [Checks.Run] looks, in the background; [Checks.Once] does it once, for a test or a cron job.
// [Checks.Stray], [Checks.Arrived] and [Checks.UnknownType] are told what the webhooks bring.
// Any number of processes may run the same checks: a finding is raised once.
//
// What is not guaranteed: that all is well when nothing is found. A check sees what its
// source shows, when it looks. The hook of a finding is called at most once each time it is
// raised, and not at all when the store's answer was lost twice: List is the truth.
//
// Thresholds are yours to set, and no promise of any provider. Checks are safe for
// concurrent use.
type Checks struct {
	opts   CheckOptions
	store  CheckStore
	checks []*runningCheck
	names  map[string]*runningCheck
	counts checkCounts
	volume *volumeCheck // nil: not counted
	types  typeCounts
	open   openCounts
}

// CheckOptions set up [Checks]. What is nil or empty is not checked.
type CheckOptions struct {
	// Kind separates these findings from others in the same store:
	// [A-Za-z0-9._-]{1,64}. Empty means "default".
	Kind string

	// Silent are messages that were accepted, and of which nothing was said since.
	Silent []Silent
	// Stray are statuses of messages that nobody knows, told to [Checks.Stray].
	Stray *Stray
	// Stuck are operations that began and did not end.
	Stuck []Stuck
	// Volume drops, of what [Checks.Arrived] counted, against the same hour of the weeks before.
	Volume *Rhythm
	// Types are events that the consumer does not know, told to [Checks.UnknownType].
	Types *Types
	// Compare are messages of which the provider may say something else than we believe.
	Compare []Comparison
	// Own are checks of yours.
	Own []Check

	// Most is how many unresolved findings of a check are kept; more are counted in
	// CheckStats.TooMany, logged, and found again once there is room. Zero means 10,000.
	Most int

	// Lull is for how long a finding must not have been seen, after a person resolved it, before
	// it counts as a new one. Until then it is counted, and stays resolved. Zero
	// means 24 hours; it must exceed every check's Recheck.
	Lull time.Duration

	// Retention is for how long a resolved finding is kept. Zero means 90 days. It must
	// exceed Lull.
	Retention time.Duration

	// Flush is how often Run writes down what was counted in memory: what was counted since
	// then is lost with the process. Zero means 10 seconds.
	Flush time.Duration

	// Timeout bounds a call of the store, and of a check's Holds. What Find calls, sources and
	// providers, has to bound itself. Zero means 30 seconds.
	Timeout time.Duration

	// Authorize says who acts, before a person's action is begun, or refuses. Nil: nobody
	// may do any.
	Authorize func(ctx context.Context, a Action) (actor string, err error)

	// Logger receives what an operator should look at. Nil: nothing is logged. Subjects are
	// shortened hashes there, and of errors of the functions of the checks only the types are
	// logged: CheckHooks.Failed has the errors.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *CheckHooks
}

// NewChecks returns checks over a store. Nil options mean none, which findings can be
// listed and resolved with. It fails with [ErrInvalid] on a nil store and on an option
// outside its range. It does no I/O and starts no goroutine.
func NewChecks(s CheckStore, opts *CheckOptions) (*Checks, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	var o CheckOptions
	if opts != nil {
		o = *opts
	}
	if o.Hooks != nil {
		hooks := *o.Hooks
		o.Hooks = &hooks
	}
	o.Kind = cmp.Or(o.Kind, "default")
	o.Most = cmp.Or(o.Most, 10_000)
	o.Lull = cmp.Or(o.Lull, 24*time.Hour)
	o.Retention = cmp.Or(o.Retention, 90*24*time.Hour)
	o.Flush = cmp.Or(o.Flush, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	switch {
	case !validKind(o.Kind):
		return nil, invalid("kind of %d bytes, not [A-Za-z0-9._-]{1,64}", len(o.Kind))
	case o.Most < 1 || o.Most > 1_000_000:
		return nil, invalid("at most %d findings of a check, not 1 to 1000000", o.Most)
	case o.Lull < minLease || o.Retention <= o.Lull || o.Retention > MaxDuration:
		return nil, invalid("retention %v, which must exceed the lull %v: a person's decision would be forgotten while it counts", o.Retention, o.Lull)
	case o.Flush < minLease || o.Flush > time.Hour || o.Timeout < minLease || o.Timeout > time.Hour:
		return nil, invalid("flush %v or timeout %v, not %v to 1h", o.Flush, o.Timeout, minLease)
	}
	c := &Checks{opts: o, store: s, names: map[string]*runningCheck{}}
	c.counts.outcomes = map[string]*outcomes{}
	if err := c.setUp(); err != nil {
		return nil, err
	}
	return c, nil
}

// setUp makes the checks that the options ask for.
func (c *Checks) setUp() error {
	o := &c.opts
	var all []Check
	add := func(k Check, err error) error {
		all = append(all, k)
		return err
	}
	for _, s := range o.Silent {
		if err := add(s.check()); err != nil {
			return err
		}
	}
	if o.Stray != nil {
		if err := add(o.Stray.check()); err != nil {
			return err
		}
	}
	for _, s := range o.Stuck {
		if err := add(s.check()); err != nil {
			return err
		}
	}
	if o.Volume != nil {
		v, err := newVolumeCheck(*o.Volume, c)
		if err != nil {
			return err
		}
		c.volume = v
		all = append(all, v.check())
	}
	if o.Types != nil {
		if err := add(o.Types.check()); err != nil {
			return err
		}
	}
	for _, d := range o.Compare {
		if err := add(d.check()); err != nil {
			return err
		}
	}
	for _, k := range slices.Concat(all, o.Own) {
		r, err := newRunningCheck(k, o)
		switch {
		case err != nil:
			return err
		case c.names[r.Name] != nil:
			return invalid("two checks are named %q", r.Name)
		}
		c.names[r.Name] = r
		c.counts.outcomes[r.Name] = &outcomes{}
		c.checks = append(c.checks, r)
	}
	return nil
}

func (c *Checks) params() CheckParams {
	keep := 7 * 24 * time.Hour
	if c.volume != nil {
		keep = c.volume.keep()
	}
	return CheckParams{Kind: c.opts.Kind, Most: c.opts.Most, Lull: c.opts.Lull, Retention: c.opts.Retention, Keep: keep}
}
