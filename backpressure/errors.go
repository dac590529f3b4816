package backpressure

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that a caller branches on.
var (
	// ErrInvalid says that an option or an argument is outside its range.
	ErrInvalid = errors.New("backpressure: invalid argument")
	// ErrRefused says that a call was not admitted. No token was taken for it.
	ErrRefused = errors.New("backpressure: refused")
)

// An OptionError says which option is outside its range. It wraps [ErrInvalid].
type OptionError struct {
	Of     string // the line, signal or type that it belongs to
	Option string
	Why    string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%v: %s: %s %s", ErrInvalid, e.Of, e.Option, e.Why)
}

// Unwrap returns [ErrInvalid].
func (e *OptionError) Unwrap() error { return ErrInvalid }

// An UnknownError says that there is no line or signal of that name. It wraps
// [ErrInvalid].
type UnknownError struct {
	Kind string // "line" or "signal"
	Name string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v: no %s %q; name it in the options", ErrInvalid, e.Kind, e.Name)
}

// Unwrap returns [ErrInvalid].
func (e *UnknownError) Unwrap() error { return ErrInvalid }

// A RefusedError is a verdict as an error. It wraps [ErrRefused]; also
// context.DeadlineExceeded where the reason is [Expired], context.Canceled where it
// is [GivenUp], and [ErrInvalid] where the cost or key is.
type RefusedError struct{ Verdict Verdict }

func (e *RefusedError) Error() string {
	if e.Verdict.RetryAfter > 0 {
		return fmt.Sprintf("%v: %v; ask again in %v", ErrRefused, e.Verdict.Reason, e.Verdict.RetryAfter.Round(time.Millisecond))
	}
	return fmt.Sprintf("%v: %v", ErrRefused, e.Verdict.Reason)
}

// Unwrap returns [ErrRefused] and what else the reason stands for.
func (e *RefusedError) Unwrap() []error {
	switch e.Verdict.Reason {
	case Expired:
		return []error{ErrRefused, context.DeadlineExceeded}
	case GivenUp:
		return []error{ErrRefused, context.Canceled}
	case CostInvalid, KeyInvalid:
		return []error{ErrRefused, ErrInvalid}
	}
	return []error{ErrRefused}
}

func badOption(of, option, format string, args ...any) error {
	return &OptionError{of, option, fmt.Sprintf(format, args...)}
}

// ended is the verdict for a caller whose context has ended.
func ended(ctx context.Context) Verdict {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Verdict{Reason: Expired}
	}
	return Verdict{Reason: GivenUp}
}
