package reconcile

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// CheckHooks are called at the events they name, from the goroutines of Run and of
// callers, after the event. They must not block. Fields may be added. Subjects are personal
// data where IDs are: see what you log.
type CheckHooks struct {
	// Raised is called for a finding that was opened, by the process that opened it; again
	// says that it had been resolved before.
	Raised func(ctx context.Context, check string, s Sighting, again bool)
	// Gone is called for a finding that was resolved by itself; f is as it was before.
	Gone func(ctx context.Context, f Finding, note string)
	// Failed is called when a pass, or the writing of what was counted, has failed; it is
	// tried again. Check is its name, or "flush" or "open".
	Failed func(ctx context.Context, check string, err error)
}

// CheckStats are what checks have counted since they were made, and what is open.
type CheckStats struct {
	// Passes of all checks, Failures of them, Unclear findings of which Holds could say
	// nothing, and Errors of the store.
	Passes, Failures, Unclear, Errors uint64
	// Raised and Reopened findings, by this process; Gone are those that resolved
	// themselves, Resolved those that persons did, Refused what persons may not do.
	Raised, Reopened, Gone, Resolved, Refused uint64
	// TooMany counts sightings for which there was no room.
	TooMany uint64
	// Lost counts what was to be counted or reported, and was not, because too many different
	// series or types came, or the store was away for too long.
	Lost uint64
	// Pending are the cells and types that were counted, and are not written down yet.
	Pending int

	// Open are the unresolved findings by check, with the age of the oldest, as of At, which is
	// when Run or Once last read them; zero: never.
	Open []OpenFindings
	At   time.Time
}

type checkCounts struct {
	passes, failures, unclear, errors         atomic.Uint64
	raised, reopened, gone, resolved, refused atomic.Uint64
	tooMany, lost                             atomic.Uint64
	outcomes                                  map[string]*outcomes // by check; made once
}

// outcomes of a check keep the logger from saying the same for each finding.
type outcomes struct{ full atomic.Bool }

type openCounts struct {
	mu   sync.Mutex
	of   []OpenFindings
	asOf time.Time
}

// Stats returns a snapshot.
func (c *Checks) Stats() CheckStats {
	n := &c.counts
	s := CheckStats{
		Passes: n.passes.Load(), Failures: n.failures.Load(), Unclear: n.unclear.Load(), Errors: n.errors.Load(),
		Raised: n.raised.Load(), Reopened: n.reopened.Load(), Gone: n.gone.Load(), Resolved: n.resolved.Load(), Refused: n.refused.Load(),
		TooMany: n.tooMany.Load(), Lost: n.lost.Load(), Pending: c.types.len(),
	}
	if c.volume != nil {
		s.Pending += c.volume.len()
	}
	c.open.mu.Lock()
	defer c.open.mu.Unlock()
	s.Open, s.At = slices.Clone(c.open.of), c.open.asOf
	return s
}

// refresh reads what is open.
func (c *Checks) refresh(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	of, err := c.store.Open(limited, c.opts.Kind)
	if err != nil {
		c.counts.errors.Add(1)
		return unavailable("count open findings", err)
	}
	c.open.mu.Lock()
	defer c.open.mu.Unlock()
	c.open.of, c.open.asOf = of, time.Now()
	return nil
}

// tell counts the outcome of a report, and says what is new.
func (c *Checks) tell(ctx context.Context, r Report, o Outcome) {
	said := c.counts.outcomes[r.Check]
	switch o {
	case Raised:
		c.counts.raised.Add(1)
	case Reopened:
		c.counts.reopened.Add(1)
	case TooMany:
		c.counts.tooMany.Add(1)
		if c.opts.Logger != nil && (said == nil || !said.full.Swap(true)) {
			c.opts.Logger.WarnContext(ctx, "reconcile: too many findings; more are not kept until some are resolved", "kind", c.opts.Kind, "check", r.Check, "most", c.opts.Most)
		}
		return
	default:
		return
	}
	if said != nil {
		said.full.Store(false)
	}
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "reconcile: found", "kind", c.opts.Kind, "check", r.Check, "subject", short(r.Subject), "again", o == Reopened)
	}
	if h := c.opts.Hooks; h != nil && h.Raised != nil {
		h.Raised(ctx, r.Check, Sighting{Subject: r.Subject, Account: r.Account, Detail: r.Detail, N: r.N}, o == Reopened)
	}
}

// gone tells of a finding that resolved itself.
func (c *Checks) gone(ctx context.Context, f Finding, r Report) {
	c.counts.gone.Add(1)
	if c.opts.Logger != nil {
		c.opts.Logger.InfoContext(ctx, "reconcile: gone", "kind", c.opts.Kind, "check", f.Check, "subject", short(f.Subject))
	}
	if h := c.opts.Hooks; h != nil && h.Gone != nil {
		h.Gone(ctx, f, r.Note)
	}
}

// said tells of a failure of Run, unless it is that ctx has ended.
func (c *Checks) said(ctx context.Context, check string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	c.counts.failures.Add(1)
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "reconcile: a check failed and is tried again", "kind", c.opts.Kind, "check", check, "cause", cause(err))
	}
	if h := c.opts.Hooks; h != nil && h.Failed != nil {
		h.Failed(ctx, check, err)
	}
}
