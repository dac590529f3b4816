package reconcile

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Stray is about statuses of messages that nobody here knows: sent by somebody else under
// the same account, or lost on our side. A status may come before our own record of the
// message is there, so it is a suspicion first, which is kept in the store; after a while
// Known is asked, and only if the answer is no a finding is raised. A message that turns up
// in time leaves nothing behind; later it resolves the finding.
type Stray struct {
	// Name of the check. Empty means "stray".
	Name string
	// Known says whether a message is ours. Required.
	Known func(ctx context.Context, ref Ref) (bool, error)
	// After is how long a message may be unknown. Zero means 10 minutes.
	After time.Duration
	// Every is the time between two passes. Zero means 1 minute.
	Every time.Duration
}

func (s Stray) check() (Check, error) {
	s.Name = cmp.Or(s.Name, "stray")
	s.After = cmp.Or(s.After, 10*time.Minute)
	switch {
	case s.Known == nil:
		return Check{}, invalid("check %q without Known", s.Name)
	case s.After < minLease || s.After > MaxDuration:
		return Check{}, invalid("check %q after %v, not %v to %v", s.Name, s.After, minLease, MaxDuration)
	}
	return Check{Name: s.Name, Every: s.Every, Holds: s.holds}, nil
}

func (s Stray) holds(ctx context.Context, f Finding) (Verdict, error) {
	ref, ok := parseRef(f.Subject)
	if !ok {
		return Verdict{Gone: true, Note: "it is no reference"}, nil
	}
	known, err := s.Known(ctx, ref)
	return Verdict{Gone: known, Note: "the message is known"}, err
}

// Stray tells that something was said of a message that is not known, as yet; account is
// whose webhook it was. The reference counts by its first field that is not empty, of
// Message, Own and Event. It may be told again: that is counted. [ErrInvalid]: there is no
// such check, or no such reference. [ErrUnavailable]: tell it again.
func (c *Checks) Stray(ctx context.Context, ref Ref, account string) error {
	if c.opts.Stray == nil {
		return invalid("CheckOptions.Stray is nil; nothing was kept")
	}
	if err := ref.validate(); err != nil {
		return err
	}
	k := c.names[cmp.Or(c.opts.Stray.Name, "stray")]
	s := Sighting{Subject: refSubject(ref), Account: account, Detail: "a status of a message that is not known"}
	if s.Subject == "" {
		return invalid("empty reference; nothing was kept")
	}
	if err := s.validate(k.Name); err != nil {
		return err
	}
	r := c.sighting(ReportSuspect, k, s)
	r.Delay = cmp.Or(c.opts.Stray.After, 10*time.Minute)
	_, err := c.report(ctx, []Report{r})
	return err
}

// refSubject and parseRef write a reference as a subject: what kind of ID it is, and the ID.
func refSubject(r Ref) string {
	switch {
	case r.Message != "":
		return "message:" + r.Message
	case r.Own != "":
		return "own:" + r.Own
	case r.Event != "":
		return "event:" + r.Event
	}
	return ""
}

func parseRef(subject string) (r Ref, ok bool) {
	what, id, _ := strings.Cut(subject, ":")
	switch what {
	case "message":
		r.Message = id
	case "own":
		r.Own = id
	case "event":
		r.Event = id
	}
	return r, r != Ref{}
}
