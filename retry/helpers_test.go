package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/retry"
)

var (
	err1        = errors.New("e1")
	err2        = errors.New("e2")
	err3        = errors.New("e3")
	errShutdown = errors.New("shutdown")
)

// policy fails the test on invalid options. A zero backoff becomes one second, to
// be exact about time.
func policy(t testing.TB, o retry.Options) *retry.Policy {
	t.Helper()
	if o.Backoff.IsZero() {
		o.Backoff = retry.Constant(time.Second)
	}
	p, err := retry.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func budget(t testing.TB, o retry.BudgetOptions) *retry.Budget {
	t.Helper()
	b, err := retry.NewBudget(&o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// failing returns a function that fails with each error in turn and with the last
// of them from then on; nil is success. calls counts.
func failing(calls *int, errs ...error) func(context.Context) error {
	return func(context.Context) error {
		*calls++
		return errs[min(*calls, len(errs))-1]
	}
}

// stopped is the error that Do returns on every exit.
func stopped(t testing.TB, err error) *retry.Error {
	t.Helper()
	e, ok := errors.AsType[*retry.Error](err)
	if !ok {
		t.Fatalf("%v (%T), want an *Error", err, err)
	}
	return e
}
