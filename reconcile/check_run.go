package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Run does all checks until ctx ends, each in a goroutine of its own and every so often, and
// writes down what was counted. What fails is said to the logger and the hook, and tried
// again with the next pass; a panic of a function is a failure of its pass. It returns nil
// when ctx has ended and all have stopped; a function that does not obey its context holds
// it up.
func (c *Checks) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	every := func(d time.Duration, f func()) {
		wg.Go(func() {
			for ctx.Err() == nil {
				f()
				timer := time.NewTimer(d)
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
			}
		})
	}
	for _, k := range c.checks {
		every(k.Every, func() { c.said(ctx, k.Name, c.pass(ctx, k)) })
	}
	every(c.opts.Flush, func() { c.said(ctx, "flush", c.flush(ctx)) })
	every(refreshEvery, func() { c.said(ctx, "open", c.refresh(ctx)) })
	wg.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Timeout)
	defer cancel()
	c.said(last, "flush", c.flush(last))
	return nil
}

// Once does all checks once, one after the other, and returns what failed, joined. It is
// for tests, and for those who have a scheduler of their own.
func (c *Checks) Once(ctx context.Context) error {
	errs := []error{c.flush(ctx)}
	for _, k := range c.checks {
		errs = append(errs, c.pass(ctx, k))
	}
	return errors.Join(append(errs, c.refresh(ctx))...)
}

// refreshEvery is how often Run reads what is open, for Stats.
const refreshEvery = 30 * time.Second

// pageSize is how many findings are read, claimed or reported at once, and perPass how many
// of a check are looked at again in one pass.
const (
	pageSize = 100
	perPass  = 5_000
)

// pass is one pass of a check.
func (c *Checks) pass(ctx context.Context, k *runningCheck) error {
	k.passing.Lock()
	defer k.passing.Unlock()
	c.counts.passes.Add(1)
	var found error
	if k.Find != nil {
		seen := k.unwritten // by the pass before
		found = guarded("Find of "+k.Name, func() error {
			return k.Find(ctx, func(ss ...Sighting) (err error) {
				if seen = append(seen, ss...); len(seen) >= pageSize {
					seen, err = c.sight(ctx, k, seen)
				}
				return err
			})
		})
		seen, err := c.sight(ctx, k, seen) // also what was seen before a failure
		if lost := len(seen) - maxUnwritten; lost > 0 {
			c.counts.lost.Add(uint64(lost))
			seen = seen[:maxUnwritten]
		}
		k.unwritten = slices.Clone(seen)
		if found = errors.Join(found, err); found != nil {
			found = fmt.Errorf("reconcile: check %s: %w", k.Name, found)
		}
	}
	if k.Holds == nil {
		return found
	}
	return errors.Join(found, c.lookAgain(ctx, k))
}

// maxUnwritten is how many sightings of a check are kept while the store is away.
const maxUnwritten = 10_000

// sight reports what Find sees, where that is news. It returns what the store did not take,
// to be reported with the next pass; what is invalid is an error, and holds up no other.
func (c *Checks) sight(ctx context.Context, k *runningCheck, ss []Sighting) (left []Sighting, err error) {
	now := time.Now()
	var fresh []Sighting
	for _, s := range ss {
		if bad := s.validate(k.Name); bad != nil {
			err = bad
		} else if k.fresh(s, now) {
			fresh = append(fresh, s)
		}
	}
	for len(fresh) > 0 {
		rs := make([]Report, min(len(fresh), pageSize))
		for i := range rs {
			rs[i] = c.sighting(ReportRaise, k, fresh[i])
		}
		os, failed := c.report(ctx, rs)
		if failed != nil {
			return fresh, errors.Join(err, failed)
		}
		for i, o := range os {
			if o != TooMany {
				k.wrote(fresh[i], now, c.opts.Most)
			}
		}
		fresh = fresh[len(rs):]
	}
	return nil, err
}

func (c *Checks) sighting(v ReportVerb, k *runningCheck, s Sighting) Report {
	return Report{Verb: v, Check: k.Name, Subject: s.Subject, Nonce: newNonce(), N: max(s.N, 1), Delay: k.Recheck,
		Account: s.Account, Detail: note(s.Detail)}
}

// lookAgain asks about the findings that are due.
func (c *Checks) lookAgain(ctx context.Context, k *runningCheck) error {
	var failed error
	hold := max(k.Every, 10*c.opts.Timeout) // a page of slow answers is not claimed twice
	for looked := 0; looked < perPass; {
		fs, err := c.claim(ctx, k.Name, hold)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, f := range fs {
			if ctx.Err() != nil {
				return errors.Join(failed, ctx.Err())
			}
			if err := c.look(ctx, k, f); err != nil {
				failed = err // the last one stands for all; each is due again
				c.counts.unclear.Add(1)
			}
		}
		if looked += len(fs); len(fs) < pageSize {
			break
		}
	}
	return failed
}

// look asks about one finding.
func (c *Checks) look(ctx context.Context, k *runningCheck, f Finding) error {
	var v Verdict
	err := guarded("Holds of "+k.Name, func() (err error) {
		limited, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		v, err = k.Holds(limited, f)
		return err
	})
	r := Report{Check: k.Name, Subject: f.Subject, Nonce: newNonce(), Version: f.Version}
	if err != nil {
		r.Verb, r.Delay = ReportWait, k.Every
		_, again := c.report(ctx, []Report{r}) // or after the hold
		return errors.Join(fmt.Errorf("reconcile: check %s of %s: %w", k.Name, short(f.Subject), err), again)
	}
	switch {
	case v.Gone:
		r.Verb, r.Note = ReportClear, note(v.Note)
		k.resolved(f.Subject)
	case v.Wait > 0:
		r.Verb, r.Delay = ReportWait, min(v.Wait, MaxDuration)
	default:
		r.Verb, r.N, r.Delay, r.Account, r.Detail = ReportRaise, 1, k.Recheck, f.Account, f.Detail
		if v.Detail != "" {
			r.Detail = note(v.Detail)
		}
	}
	os, err := c.report(ctx, []Report{r})
	if err == nil && v.Gone && os[0] == Applied && f.State != Suspected {
		c.gone(ctx, f, r)
	}
	return err
}

// claim takes what is due of a check.
func (c *Checks) claim(ctx context.Context, check string, hold time.Duration) ([]Finding, error) {
	limited, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	fs, err := c.store.Claim(limited, c.params(), check, pageSize, hold)
	if err != nil {
		c.counts.errors.Add(1)
		return nil, unavailable("look for what is due of check "+check, err)
	}
	return fs, nil
}

// report sends reports, once more if no answer came, and tells of what was raised.
func (c *Checks) report(ctx context.Context, rs []Report) ([]Outcome, error) {
	send := func() ([]Outcome, error) {
		limited, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		os, err := c.store.Report(limited, c.params(), rs)
		if err == nil && len(os) != len(rs) {
			err = fmt.Errorf("the store answered %d of %d reports", len(os), len(rs))
		}
		return os, err
	}
	os, err := send()
	if err != nil && ctx.Err() == nil {
		c.counts.errors.Add(1)
		os, err = send()
	}
	if err != nil {
		c.counts.errors.Add(1)
		return nil, unavailable(fmt.Sprintf("report %d findings", len(rs)), err)
	}
	for i, o := range os {
		c.tell(ctx, rs[i], o)
	}
	return os, nil
}
