package reconcile

import (
	"context"
	"errors"
	"time"
)

// A Source lists messages of which something is expected. [InLedger] makes one of a
// ledger; write one over your own records.
type Source struct {
	// Page returns at most n of them by ascending Subject, beginning behind after. None
	// means that there are no more.
	Page func(ctx context.Context, after string, n int) ([]Expected, error)
	// One returns the one with a subject, for a finding that is looked at again; ok is false
	// if nothing is expected of it any more.
	One func(ctx context.Context, subject string) (e Expected, ok bool, err error)
}

// Expected is a message of which something should be said.
type Expected struct {
	// Subject is its name in a finding: 1 to MaxSubject bytes of UTF-8 without NUL.
	Subject string
	Account string
	// Ref is what the timeline knows it by.
	Ref Ref
	// Lookup is the ID that the provider is asked with. Empty means Ref.Message; if that is
	// empty, too, the provider is not asked.
	Lookup string
	// Age is how long ago it was accepted.
	Age time.Duration
}

// InLedger is the source of the operations that are Accepted in a ledger. The function says
// what the timeline and the provider know an operation by; nil means its key as the caller's
// own ID. A message whose operation ends is expected no more.
func InLedger(l *Ledger, of func(Entry) (Ref, string)) Source {
	if of == nil {
		of = func(e Entry) (Ref, string) { return Ref{Own: e.Key}, "" }
	}
	expected := func(e Entry) Expected {
		x := Expected{Subject: e.Key, Account: e.Account, Age: e.Read.Sub(e.Sent)}
		x.Ref, x.Lookup = of(e)
		return x
	}
	return Source{
		Page: func(ctx context.Context, after string, n int) ([]Expected, error) {
			es, err := l.List(ctx, Query{State: Accepted, After: after, N: n})
			xs := make([]Expected, len(es))
			for i, e := range es {
				xs[i] = expected(e)
			}
			return xs, err
		},
		One: func(ctx context.Context, subject string) (Expected, bool, error) {
			e, err := l.Lookup(ctx, subject)
			if errors.Is(err, ErrNotFound) || err == nil && e.State != Accepted {
				return Expected{}, false, nil
			}
			return expected(e), err == nil, err
		},
	}
}

// perSweep is how many messages or operations one pass looks at; the next one goes on there.
const perSweep = 10_000

// each pages through a source, beginning behind after. It returns where to go on with the
// next pass: at the beginning once the end was reached, behind the last one that was done
// when do returned errEnough or an error, or when perSweep have been looked at.
func (s *Source) each(ctx context.Context, after string, do func(Expected) error) (next string, err error) {
	for looked := 0; looked < perSweep; {
		xs, err := s.Page(ctx, after, pageSize)
		if err != nil {
			return after, err
		}
		if len(xs) == 0 {
			return "", nil
		}
		looked += len(xs)
		for _, x := range xs {
			if x.Subject <= after {
				return "", errors.New("the source's subjects do not ascend")
			}
			switch err := do(x); {
			case isError(err, errEnough):
				return after, nil
			case err != nil:
				return x.Subject, err // one that fails does not hold up the others
			}
			after = x.Subject
		}
	}
	return after, nil
}

// errEnough ends a pass before the one that it is returned for.
var errEnough = errors.New("enough for this pass")
