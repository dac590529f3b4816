package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Comparison asks the provider for selected messages, and finds those of which it says
// something else than we believe: that what it says would change what the timeline projects,
// or contradicts it, or that it does not have the message.
//
// What it says is appended to the timeline, as observations with the source "lookup". That
// fills the gap which a lost webhook left, and resolves the finding, whose log says so; a
// contradiction stays until it has gone or a person has seen to it. A process that dies
// between the two leaves the answer in the timeline and no finding.
//
// Asking is for gaps, stale statuses and messages that matter, and no substitute for
// webhooks: Select decides, Limit bounds.
type Comparison struct {
	// Name of the check. Empty means "differs".
	Name string
	// Source lists the messages that may be asked for: [InLedger], say. Required.
	Source Source
	// Timeline has what we believe. Required.
	Timeline *Timeline
	// Provider is asked. Required.
	Provider Provider
	// Select decides whether to ask for a message, of which the timeline projects local. Nil
	// means gaps, of which nothing was said for 15 minutes, and those that are not Settled
	// after 24 hours: SelectStale(15*time.Minute, 24*time.Hour).
	Select func(e Expected, local Projected) bool
	// Again is how long a message is left alone after it was asked for, by this process. Zero
	// means 1 hour.
	Again time.Duration
	// Limit is called before each question, and may wait: a rate limiter's Wait, say. Its
	// error ends the pass. Nil: nothing bounds the rate.
	Limit func(ctx context.Context) error
	// PerPass is how many questions one pass asks at most. Zero means 100.
	PerPass int
	// Every is the time between two passes. Zero means 5 minutes.
	Every time.Duration
}

// ErrNoMessage says that a provider does not have a message.
var ErrNoMessage = errors.New("reconcile: the provider has no such message")

// SelectStale asks for messages of which nothing was said for gap after they were
// accepted, and for those that are not Settled after stale.
func SelectStale(gap, stale time.Duration) func(Expected, Projected) bool {
	return func(e Expected, local Projected) bool {
		return e.Age > gap && local.Status == "" || e.Age > stale && !local.Settled
	}
}

func (d Comparison) check() (Check, error) {
	d.Name = cmp.Or(d.Name, "differs")
	d.Again = cmp.Or(d.Again, time.Hour)
	d.PerPass = cmp.Or(d.PerPass, 100)
	d.Every = cmp.Or(d.Every, 5*time.Minute)
	if d.Select == nil {
		d.Select = SelectStale(15*time.Minute, 24*time.Hour)
	}
	switch {
	case d.Source.Page == nil || d.Source.One == nil || d.Timeline == nil || isNil(d.Provider):
		return Check{}, invalid("check %q without source, timeline or provider", d.Name)
	case d.Again < minLease || d.Again > MaxDuration || d.PerPass < 1 || d.PerPass > 1_000_000:
		return Check{}, invalid("check %q again after %v, %d questions in a pass", d.Name, d.Again, d.PerPass)
	}
	a := &asking{Comparison: d, asked: map[string]time.Time{}}
	return Check{Name: d.Name, Every: d.Every, Recheck: max(d.Every, time.Minute), Find: a.find, Holds: a.holds}, nil
}

// asking is the check, with what was asked lately. Its passes follow each other.
type asking struct {
	Comparison
	asked map[string]time.Time // when it may be asked again
	after string               // where the last pass ended; empty: at the end
}

// The details of findings, which say what to look at again.
const (
	detailNone     = "the provider does not have it"
	detailConflict = "the provider contradicts what was said before: "
	detailChange   = "the provider says more than was known here: "
)

func (a *asking) find(ctx context.Context, report func(...Sighting) error) error {
	now, asked := time.Now(), 0
	for subject, until := range a.asked {
		if !now.Before(until) {
			delete(a.asked, subject)
		}
	}
	var err error
	a.after, err = a.Source.each(ctx, a.after, func(x Expected) error {
		if asked >= a.PerPass || len(a.asked) >= maxAsked {
			return errEnough
		}
		if until, ok := a.asked[x.Subject]; ok && now.Before(until) || cmp.Or(x.Lookup, x.Ref.Message) == "" {
			return nil
		}
		local, err := a.Timeline.Project(ctx, x.Ref)
		if err != nil || !a.Select(x, local) {
			return err
		}
		asked++
		detail, err := a.ask(ctx, x, local)
		if err != nil {
			return err
		}
		a.asked[x.Subject] = now.Add(a.Again)
		if detail == "" {
			return nil
		}
		return report(Sighting{Subject: x.Subject, Account: x.Account, Detail: detail, N: 1})
	})
	return err
}

// maxAsked bounds what is remembered of what was asked.
const maxAsked = 100_000

// ask asks for one message, appends what it hears, and says what differs; nothing if nothing
// does.
func (a *asking) ask(ctx context.Context, x Expected, local Projected) (detail string, err error) {
	if a.Limit != nil {
		if err := a.Limit(ctx); err != nil {
			return "", fmt.Errorf("the limit on questions: %w", err)
		}
	}
	said, err := a.Provider.Lookup(ctx, cmp.Or(x.Lookup, x.Ref.Message))
	switch {
	case isError(err, ErrNoMessage):
		return detailNone, nil
	case err != nil:
		return "", fmt.Errorf("ask the provider: %w", err)
	case len(said) == 0:
		return "", nil
	}
	for i := range said {
		o := &said[i]
		o.Source = SourceLookup
		o.Message, o.Own = cmp.Or(x.Ref.Message, o.Message), cmp.Or(x.Ref.Own, o.Own)
	}
	if _, err := a.Timeline.Append(ctx, said...); err != nil {
		return "", err
	}
	both, err := a.Timeline.Project(ctx, x.Ref)
	switch {
	case err != nil:
		return "", err
	case len(both.Contradicting) > len(local.Contradicting):
		return detailConflict + both.Status, nil
	case both.Status != local.Status:
		return detailChange + fmt.Sprintf("%s, and not %s", both.Status, cmp.Or(local.Status, "nothing")), nil
	}
	return "", nil
}

func (a *asking) holds(ctx context.Context, f Finding) (Verdict, error) {
	x, ok, err := a.Source.One(ctx, f.Subject)
	if err != nil || !ok {
		return Verdict{Gone: !ok, Note: "nothing is expected of it any more"}, err
	}
	local, err := a.Timeline.Project(ctx, x.Ref)
	switch {
	case err != nil:
		return Verdict{}, err
	case len(local.Contradicting) > 0:
		return Verdict{}, nil
	case f.Detail != detailNone:
		return Verdict{Gone: true, Note: "the timeline has it, and nothing contradicts"}, nil
	}
	switch detail, err := a.ask(ctx, x, local); {
	case err != nil || detail == detailNone:
		return Verdict{Wait: a.Again}, err
	case strings.HasPrefix(detail, detailConflict): // nobody would see it again: the timeline has it now
		return Verdict{Detail: detail}, nil
	}
	return Verdict{Gone: true, Note: "the provider has it"}, nil
}
