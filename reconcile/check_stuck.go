package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Stuck looks for operations that began and did not end: Started, Accepted or Unknown, to be
// sent again, or waiting for a person.
//
// The subject is "operation:" and the key. An outage of the remote is one finding with the
// subject "outage", and not one for each operation: while [Stats].Outage of the ledger says so, operations are not reported. It is
// seen by the process in which the ledger sends, or in which its Run works.
type Stuck struct {
	// Name of the check. Empty means "stuck".
	Name string
	// Ledger whose operations are looked at. Required.
	Ledger *Ledger
	// After is how long an operation may take, from its recording to its end. Zero means 1 hour.
	After time.Duration
	// Every is the time between two passes. Zero means 1 minute.
	Every time.Duration
}

// The subjects of the check: "outage", and "operation:" with a key.
const (
	outageSubject    = "outage"
	operationSubject = "operation:"
)

func (s Stuck) check() (Check, error) {
	s.Name = cmp.Or(s.Name, "stuck")
	s.After = cmp.Or(s.After, time.Hour)
	switch {
	case s.Ledger == nil:
		return Check{}, invalid("check %q without ledger", s.Name)
	case s.After < minLease || s.After > MaxDuration:
		return Check{}, invalid("check %q after %v, not %v to %v", s.Name, s.After, minLease, MaxDuration)
	}
	k := &stuck{Stuck: s}
	return Check{Name: s.Name, Every: s.Every, Find: k.find, Holds: k.holds}, nil
}

// stuck is the check, with when it last saw an outage. Its passes follow each other.
type stuck struct {
	Stuck
	outage time.Time
	after  string // where the last pass ended
}

func (s *stuck) find(ctx context.Context, report func(...Sighting) error) error {
	if out := s.Ledger.Stats().Outage; out > 0 {
		s.outage = time.Now()
		return report(Sighting{Subject: outageSubject, Detail: "the remote of " + s.Ledger.opts.Kind + " gives no answer; operations wait"})
	}
	if !s.outage.IsZero() && time.Since(s.outage) <= s.After {
		return nil
	}
	for looked := 0; looked < perSweep; {
		es, err := s.Ledger.List(ctx, Query{Open: true, After: s.after, N: pageSize})
		if err != nil {
			return err
		}
		if len(es) == 0 {
			s.after = ""
			return nil
		}
		looked += len(es)
		for _, e := range es {
			if e.Age() > s.After {
				if err := report(Sighting{Subject: operationSubject + e.Key, Account: e.Account, Detail: s.detail(&e)}); err != nil {
					return err
				}
			}
			s.after = e.Key
		}
	}
	return nil
}

func (s *stuck) detail(e *Entry) string {
	switch {
	case e.Review != "":
		return "waits for a person: " + e.Review
	case e.State == Failed && e.Attempts == 0:
		return "recorded, and not sent yet"
	case e.State == Failed:
		return "failed, and to be sent again"
	}
	return fmt.Sprintf("%v for more than %v", e.State, s.After)
}

func (s *stuck) holds(ctx context.Context, f Finding) (Verdict, error) {
	out := s.Ledger.Stats().Outage
	if f.Subject == outageSubject {
		return Verdict{Gone: out == 0, Note: "the remote answers"}, nil
	}
	key, ok := strings.CutPrefix(f.Subject, operationSubject)
	if !ok {
		return Verdict{Gone: true, Note: "it is no operation"}, nil
	}
	e, err := s.Ledger.Lookup(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return Verdict{Gone: true, Note: "it is not recorded any more"}, nil
	case err != nil:
		return Verdict{}, err
	case !e.Open():
		return Verdict{Gone: true, Note: "it is " + e.State.String()}, nil
	}
	return Verdict{Detail: s.detail(&e)}, nil
}
