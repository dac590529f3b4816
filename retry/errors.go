package retry

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInvalid says that an argument is outside its range. Nothing was called.
var ErrInvalid = errors.New("retry: invalid argument")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// MaxKept is how many attempts an [Error] keeps: the first half and the last half
// of them, when there were more.
const MaxKept = 16

// An Error is what [Do] returns when it stops without success.
//
// errors.Is and errors.As find the error of the last attempt; of the one before,
// too, if the last one's is only that the context had ended. Where the context has
// ended, or its deadline is the reason, they find its error, and its cause. What
// earlier attempts failed with is in Attempts alone, so that a caller does not
// branch on what has passed. Its text has the texts of the errors it wraps, as
// they are: keep personal data out of what the function returns.
type Error struct {
	// Reason says why there was no further attempt.
	Reason StopReason
	// Made is the number of attempts. Zero: the context had ended before the first.
	Made int
	// Attempts are those that were kept, oldest first; at most MaxKept.
	Attempts []Attempt
	// Elapsed is the time from the first failure to the last.
	Elapsed time.Duration
	// Next is how long after the last failure another attempt would have begun, for
	// those who go on by other means: never less than the server asked for. Zero
	// after a permanent failure.
	Next time.Duration

	ctxErr, ctxCause error
}

// An Attempt is one that failed.
type Attempt struct {
	Number int           // 1 for the first
	At     time.Time     // when it failed
	Err    error         // what the function returned, without the marks of this package around it
	Class  Class         // of Err
	After  time.Duration // what the server asked to wait, zero if it did not
	Wait   time.Duration // for the next attempt, zero if none was to follow
}

// Error says why the attempts ended, and what the last of them failed with.
func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "retry: %v", e.Reason)
	switch {
	case e.Made == 0:
		s.WriteString("; not tried at all")
	case e.Made == 1:
		s.WriteString("; tried once")
	default:
		fmt.Fprintf(&s, "; tried %d times in %v", e.Made, e.Elapsed.Round(time.Millisecond))
	}
	if e.Next > 0 {
		fmt.Fprintf(&s, ", not to be tried again for %v", e.Next.Round(time.Millisecond))
	}
	for _, err := range e.Unwrap() {
		fmt.Fprintf(&s, ": %v", err)
	}
	return s.String()
}

// Unwrap returns the last cause and, where the context had its part, the
// context's error and its cause.
func (e *Error) Unwrap() []error {
	var errs []error
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		err := e.Attempts[i].Err
		errs = append(errs, err)
		if e.ctxErr == nil || !errors.Is(err, e.ctxErr) {
			break
		}
	}
	if e.ctxErr != nil {
		errs = append(errs, e.ctxErr)
	}
	if e.ctxCause != nil && e.ctxCause != e.ctxErr {
		errs = append(errs, e.ctxCause)
	}
	return errs
}

// A StopReason says why there was no further attempt.
type StopReason uint8

const (
	// StopPermanent: the failure will not pass by itself.
	StopPermanent StopReason = iota + 1
	// StopAttempts: there were as many as MaxAttempts.
	StopAttempts
	// StopElapsed: the next attempt would have begun after MaxElapsed.
	StopElapsed
	// StopDeadline: the context's deadline has passed, or would have before the
	// next attempt. The error matches context.DeadlineExceeded in both cases.
	StopDeadline
	// StopCancelled: the context was cancelled.
	StopCancelled
	// StopBudget: the budget allows no retry at present.
	StopBudget
	// StopServerWait: the server asks to wait for longer than MaxServerWait. Put
	// the work aside for as long as Error.Next says.
	StopServerWait
	// StopNested: the call is part of another Do's retry, which goes on trying.
	StopNested
)

// String says the reason in words.
func (r StopReason) String() string {
	switch r {
	case StopPermanent:
		return "the failure is permanent"
	case StopAttempts:
		return "out of attempts"
	case StopElapsed:
		return "out of time for retries"
	case StopDeadline:
		return "no time left before the deadline"
	case StopCancelled:
		return "cancelled"
	case StopBudget:
		return "the retry budget is used up"
	case StopServerWait:
		return "the server asks for too long a wait"
	case StopNested:
		return "left to the caller that is retrying"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
