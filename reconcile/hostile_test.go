package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

type cyclic struct{ next error }

func (*cyclic) Error() string   { return "round and round" }
func (c *cyclic) Unwrap() error { return c.next }

type panicking struct{}

func (panicking) Error() string { panic("in Error") }
func (panicking) Unwrap() error { panic("in Unwrap") }
func (panicking) Is(error) bool { panic("in Is") }
func (panicking) As(any) bool   { panic("in As") }

// incomparable cannot be compared with ==.
type incomparable []error

func (incomparable) Error() string     { return "many" }
func (i incomparable) Unwrap() []error { return i }

func circle() error {
	a, b := &cyclic{}, &cyclic{}
	a.next, b.next = b, a
	return a
}

// Whatever error a call returns, the operation is Unknown, unless the error says otherwise
// near its surface, and Run goes on.
func TestHostileErrors(t *testing.T) {
	deep := reconcile.NotDone(errLost)
	for range 1000 {
		deep = fmt.Errorf("%w", deep)
	}
	for name, c := range map[string]struct {
		err  error
		want reconcile.State
	}{
		"cyclic":                  {circle(), reconcile.Unknown},
		"panicking":               {panicking{}, reconcile.Unknown},
		"typed nil":               {(*cyclic)(nil), reconcile.Unknown},
		"incomparable":            {incomparable{errLost, nil}, reconcile.Unknown},
		"a mark among them":       {incomparable{panicking{}, fmt.Errorf("x: %w", reconcile.NotDone(errLost)), circle()}, reconcile.Failed},
		"a mark around them":      {reconcile.NotDone(circle()), reconcile.Failed},
		"a mark that is too deep": {deep, reconcile.Unknown},
		"accepted among them":     {errors.Join(panicking{}, reconcile.ErrAccepted), reconcile.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLedger(t, reconcile.NewMemory(), nil)
				call := func(context.Context, reconcile.Op) ([]byte, error) { return nil, c.err }
				err := l.Do(t.Context(), reconcile.Op{Key: "k"}, call, nil)
				if e, ok := err.(*reconcile.StateError); !ok || e.State != c.want {
					t.Fatalf("%T, want a StateError that says %v", err, c.want)
				}
				_ = err.Error()
				if err := l.Record(t.Context(), reconcile.Op{Key: "queued"}); err != nil {
					t.Fatal(err)
				}
				stop := run(t, l, call, nil)
				time.Sleep(time.Minute)
				stop()
				if e := want(t, l, "queued", c.want); e.Attempts == 0 {
					t.Fatal("it was not sent")
				}
			})
		})
	}
}

// Of several marks the first counts, as errors.As finds it.
func TestTheFirstMarkCounts(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"outside":              {reconcile.NotDone(reconcile.Refused(errLost)), true},
		"first":                {errors.Join(reconcile.Refused(errLost), reconcile.NotDone(errLost)), false},
		"first, though deeper": {errors.Join(fmt.Errorf("x: %w", reconcile.Refused(errLost)), reconcile.NotDone(errLost)), false},
	} {
		l := newLedger(t, reconcile.NewMemory(), nil)
		err := l.Do(t.Context(), reconcile.Op{Key: "k"}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, c.err }, nil)
		if e := stateOf(t, err); e.State != reconcile.Failed || e.Again != c.again {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// So with a provider's errors, and those of a check.
func TestHostileErrorsOfChecks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLedger(t, reconcile.NewMemory(), &reconcile.Options{Receipt: true})
		accept(t, l, "k")
		for _, err := range []error{circle(), panicking{}, incomparable{errLost}} {
			c := newChecks(t, reconcile.NewCheckMemory(), &reconcile.CheckOptions{Compare: []reconcile.Comparison{{
				Source:   reconcile.InLedger(l, func(e reconcile.Entry) (reconcile.Ref, string) { return reconcile.Ref{Own: e.Key}, e.Key }),
				Timeline: newTimeline(t, nil), Provider: &fakeProvider{err: err},
				Select: func(reconcile.Expected, reconcile.Projected) bool { return true },
			}}, Own: []reconcile.Check{{Name: "own", Find: func(context.Context, func(...reconcile.Sighting) error) error { return err }}}})
			stop := runChecks(t, c)
			time.Sleep(time.Hour)
			stop()
			if s := c.Stats(); s.Failures < 60 || s.Raised != 0 {
				t.Fatalf("stats %+v", s)
			}
		}
	})
}
