package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Silent looks for messages that were accepted, and of which nothing was said for too long:
// no observation in the timeline but that it was accepted. An observation, or that nothing is expected any more,
// resolves a finding.
type Silent struct {
	// Name of the check. Empty means "silent".
	Name string
	// Source lists what was accepted: [InLedger], say. Required.
	Source Source
	// Timeline is where something should have been said. Required.
	Timeline *Timeline
	// After is how long nothing may be said. Zero means 15 minutes.
	After time.Duration
	// Heard says whether an observation is a sign of life. Nil: any whose status is not
	// "accepted" is.
	Heard func(Observation) bool
	// Every is the time between two passes. Zero means 1 minute.
	Every time.Duration
}

func (s Silent) check() (Check, error) {
	s.Name = cmp.Or(s.Name, "silent")
	s.After = cmp.Or(s.After, 15*time.Minute)
	if s.Heard == nil {
		s.Heard = func(o Observation) bool { return o.Status != "accepted" }
	}
	switch {
	case s.Source.Page == nil || s.Source.One == nil || s.Timeline == nil:
		return Check{}, invalid("check %q without source or timeline", s.Name)
	case s.After < minLease || s.After > MaxDuration:
		return Check{}, invalid("check %q after %v, not %v to %v", s.Name, s.After, minLease, MaxDuration)
	}
	k := &silent{Silent: s, known: map[string]struct{}{}}
	return Check{Name: s.Name, Every: s.Every, Find: k.find, Holds: k.holds}, nil
}

// silent is the check, with the messages that it knows were heard of, so that the timeline
// is not read for them again. Its passes follow each other.
type silent struct {
	Silent
	known map[string]struct{}
	after string // where the last pass ended
}

// maxKnown bounds them; all are then read once more.
const maxKnown = 100_000

func (s *silent) find(ctx context.Context, report func(...Sighting) error) (err error) {
	s.after, err = s.Source.each(ctx, s.after, func(x Expected) error {
		if _, ok := s.known[x.Subject]; ok || x.Age <= s.After {
			return nil
		}
		switch status, err := s.heard(ctx, x.Ref); {
		case err != nil:
			return err
		case status != "":
			if len(s.known) >= maxKnown {
				clear(s.known)
			}
			s.known[strings.Clone(x.Subject)] = struct{}{}
			return nil
		}
		return report(Sighting{Subject: x.Subject, Account: x.Account, Detail: fmt.Sprintf("accepted, and nothing was said of it for more than %v", s.After)})
	})
	return err
}

func (s *silent) holds(ctx context.Context, f Finding) (Verdict, error) {
	x, ok, err := s.Source.One(ctx, f.Subject)
	if err != nil || !ok {
		return Verdict{Gone: !ok, Note: "nothing is expected of it any more"}, err
	}
	status, err := s.heard(ctx, x.Ref)
	return Verdict{Gone: status != "", Note: "it was said to be " + status}, err
}

// heard returns the first status that is a sign of life, or nothing.
func (s *silent) heard(ctx context.Context, ref Ref) (status string, err error) {
	h, err := s.Timeline.Read(ctx, ref)
	if err != nil {
		return "", err
	}
	for _, o := range h.Observations {
		if s.Heard(o) {
			return o.Status, nil
		}
	}
	return "", nil
}
