package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Check looks for one kind of thing that is not as it should be. Those of [CheckOptions]
// are made of it, and so can yours be.
type Check struct {
	// Name is the check's name in its findings: [A-Za-z0-9._-]{1,64}.
	Name string

	// Every is the time between two passes. Zero means 1 minute. In a pass, Find looks for
	// what is new, and then Holds is asked about the findings that are due.
	Every time.Duration

	// Recheck is how long after a finding was seen Holds is asked about it. Zero means 10
	// times Every.
	Recheck time.Duration

	// Find calls report with what is wrong now, whether that was reported before or not;
	// what was reported within half of Recheck is not written again. Sightings are written
	// together, the last ones when Find has returned. Its error is said, and it is called
	// again after Every. Nil: what is found is told from
	// outside, or not at all.
	Find func(ctx context.Context, report func(...Sighting) error) error

	// Holds says whether a finding that is suspected or open still holds. Its error means that it
	// cannot be told, and it is asked again after Every. Nil: nothing is resolved by itself.
	Holds func(ctx context.Context, f Finding) (Verdict, error)
}

// A Sighting is something wrong.
type Sighting struct {
	// Subject is what it is about, the same each time: 1 to MaxSubject bytes of UTF-8 without NUL.
	Subject string
	// Account is whose it is: at most MaxKey bytes.
	Account string
	// Detail says what is wrong, in at most MaxNote bytes; what is longer is cut. No personal data.
	Detail string
	// N is how often it was seen. Zero means once.
	N int64
}

// A Verdict is what became of a finding.
type Verdict struct {
	// Gone: it holds no more, and Note says why.
	Gone bool
	Note string
	// Wait: it cannot be told yet, and is looked at again after that. Nothing changes.
	Wait time.Duration
	// Detail of what holds, in place of the one before; empty: it stays.
	Detail string
}

// A runningCheck is a check with its defaults, and what it reported lately.
type runningCheck struct {
	Check
	passing   sync.Mutex // passes of a check follow each other
	unwritten []Sighting // which the store did not take; guarded by passing
	mu        sync.Mutex
	recent    map[string]recently
}

type recently struct {
	detail string
	until  time.Time
}

func newRunningCheck(k Check, o *CheckOptions) (*runningCheck, error) {
	k.Every = cmp.Or(k.Every, time.Minute)
	if k.Recheck == 0 {
		k.Recheck = 10 * k.Every
	}
	switch {
	case !validKind(k.Name):
		return nil, invalid("check with a name of %d bytes, not [A-Za-z0-9._-]{1,64}", len(k.Name))
	case k.Find == nil && k.Holds == nil:
		return nil, invalid("check %q looks for nothing", k.Name)
	case k.Every < minLease || k.Every > MaxDuration || k.Recheck < minLease || k.Recheck > MaxDuration:
		return nil, invalid("check %q every %v, again after %v: not %v to %v", k.Name, k.Every, k.Recheck, minLease, MaxDuration)
	case k.Recheck >= o.Lull:
		return nil, invalid("check %q looks again after %v, and the lull is %v: what a person resolved would be raised again although it never went", k.Name, k.Recheck, o.Lull)
	}
	return &runningCheck{Check: k, recent: map[string]recently{}}, nil
}

// fresh says that a sighting has to be written: it was not, lately, or says something else.
func (r *runningCheck) fresh(s Sighting, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.recent[s.Subject]
	return !ok || s.N > 0 || last.detail != s.Detail || !now.Before(last.until)
}

// wrote notes what was written. The notes are bounded by the findings that a store keeps.
func (r *runningCheck) wrote(s Sighting, now time.Time, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) >= most {
		for subject, last := range r.recent {
			if !now.Before(last.until) {
				delete(r.recent, subject)
			}
		}
		if len(r.recent) >= most {
			clear(r.recent) // all are written once more
		}
	}
	r.recent[strings.Clone(s.Subject)] = recently{strings.Clone(s.Detail), now.Add(r.Recheck / 2)}
}

// resolved forgets what was written, so that it is written at once when it comes again.
func (r *runningCheck) resolved(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.recent, subject)
}

func (s *Sighting) validate(check string) error {
	switch {
	case s.Subject == "" || !validText(s.Subject, MaxSubject):
		return invalid("subject of %d bytes in a sighting of %q, not 1 to %d of UTF-8 without NUL", len(s.Subject), check, MaxSubject)
	case !validText(s.Account, MaxKey):
		return invalid("account of %d bytes in a sighting of %q, not 0 to %d of UTF-8 without NUL", len(s.Account), check, MaxKey)
	case s.N < 0:
		return invalid("a sighting of %q that was seen %d times", check, s.N)
	}
	return nil
}

// guarded runs a function of the caller. What a panic says may hold anything, and is left
// out; an error that it returns is marked as theirs.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("reconcile: %s panicked", what)
		}
	}()
	if err := f(); err != nil {
		return &theirs{err}
	}
	return nil
}

// theirs is an error of a function of the caller, whose text may hold personal data.
type theirs struct{ err error }

func (t *theirs) Error() string { return t.err.Error() }
func (t *theirs) Unwrap() error { return t.err }

// cause is what may be logged of an error: its text if it is all ours, and otherwise the
// types of the error that is not.
func cause(err error) string {
	text := ""
	wraps(err, func(e error) bool {
		t, ok := e.(*theirs)
		if !ok {
			return false
		}
		n := 0
		wraps(t.err, func(e error) bool {
			if n++; n > 1 {
				text += ": "
			}
			text += fmt.Sprintf("%T", e)
			return n == 8
		})
		return true
	})
	if text == "" {
		return err.Error()
	}
	return text
}
