package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/authz"
)

// Errors that a caller branches on. A store returns ErrStale, ErrEnded, ErrNotFound,
// ErrChanged and ErrFull; the others are made here.
var (
	// ErrStarted says that somebody else is at work on the operation.
	ErrStarted = errors.New("reconcile: in flight")
	// ErrAccepted says that the remote took the operation and its outcome is pending.
	ErrAccepted = errors.New("reconcile: accepted, not confirmed")
	// ErrFailed says that the operation certainly did not happen.
	ErrFailed = errors.New("reconcile: failed")
	// ErrUnknown says that the operation may have happened or not.
	ErrUnknown = errors.New("reconcile: the outcome is unknown")
	// ErrConflict says that the key is known with another fingerprint.
	ErrConflict = errors.New("reconcile: another operation has this key")

	// ErrStale says that the operation is no longer the caller's: its lease lapsed and
	// another took over, or a person decided. Nothing was changed.
	ErrStale = errors.New("reconcile: stale")
	// ErrEnded says that the operation has ended otherwise. It is what an [*EndedError] wraps.
	ErrEnded = errors.New("reconcile: the operation has ended otherwise")
	// ErrNotFound says that there is no such operation. A receipt may come before the
	// record of its operation is visible: keep it, and hand it over again later.
	ErrNotFound = errors.New("reconcile: no such operation")
	// ErrChanged says that the operation has changed since the caller saw it. Nothing was
	// changed: look again.
	ErrChanged = errors.New("reconcile: it was changed meanwhile")
	// ErrNotOpen says that there is nothing to do about a finding any more, or not yet.
	// Nothing was changed.
	ErrNotOpen = errors.New("reconcile: the finding is not open")
	// ErrFull says that a store has no room for another operation. Nothing was recorded
	// and nothing was sent.
	ErrFull = errors.New("reconcile: no room for another operation")
	// ErrUnavailable says that the store gave no answer: the step may have been applied
	// or not.
	ErrUnavailable = errors.New("reconcile: the store gave no answer")
	// ErrInvalid says that an argument is outside its range. Nothing was changed.
	ErrInvalid = errors.New("reconcile: invalid argument")
	// ErrUnauthorized says that Options.Authorize refused, failed, panicked or named nobody.
	ErrUnauthorized = authz.ErrUnauthorized
	// ErrDraining is the cause with which a call is cancelled when Run ends.
	ErrDraining = errors.New("reconcile: draining")
	// ErrAbandoned is what Run returns when a call has not returned after its context
	// had ended.
	ErrAbandoned = errors.New("reconcile: calls did not return")
	// ErrAtRisk is what Check of a store returns when the store works but is set up so
	// that it can lose operations, with the reasons.
	ErrAtRisk = errors.New("reconcile: the store can lose operations")
	// ErrUnchecked is what Check of a store returns when the server would not say how it
	// is set up. It never means that all is well.
	ErrUnchecked = errors.New("reconcile: the store's settings could not be checked")
)

// A StateError is what Do returns when the operation is not Confirmed. It wraps one of
// ErrStarted, ErrAccepted, ErrFailed and ErrUnknown, and what the call or the probe of
// this Do returned.
type StateError struct {
	State State
	Key   string
	// Wait is until when the operation is left alone: until a lease or a quiet period
	// ends. Zero: not known, or not waited for.
	Wait time.Duration
	// Review is why a person has to resolve it; empty: nobody has to.
	Review string
	// Again says of a failed operation that another Do sends it again.
	Again bool
	Age   time.Duration
	Cause error
}

func (e *StateError) Error() string {
	s := fmt.Sprintf("%v: %s", e.sentinel(), short(e.Key))
	switch {
	case e.Review != "":
		s += "; a person has to resolve it: " + e.Review
	case e.State == Failed && e.Again:
		s += "; it did not happen, and may be sent again"
	case e.State == Failed:
		s += "; it did not happen, and is not sent again"
	case e.Wait > 0:
		s += fmt.Sprintf("; not sent again, looked at in %v", e.Wait.Round(time.Millisecond))
	default:
		s += "; not sent again before it was looked for"
	}
	if e.Cause != nil {
		s += fmt.Sprintf(": %v", e.Cause) // whose Error may panic
	}
	return s
}

// Unwrap returns the sentinel for the state, and the cause.
func (e *StateError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.sentinel()}
	}
	return []error{e.sentinel(), e.Cause}
}

func (e *StateError) sentinel() error {
	switch e.State {
	case Started:
		return ErrStarted
	case Accepted:
		return ErrAccepted
	case Failed:
		return ErrFailed
	}
	return ErrUnknown
}

// An EndedError says that an operation has ended, and how. It wraps ErrEnded.
type EndedError struct{ State State }

func (e *EndedError) Error() string {
	return fmt.Sprintf("%v: it is %v; nothing else was changed", ErrEnded, e.State)
}

// Unwrap returns ErrEnded.
func (e *EndedError) Unwrap() error { return ErrEnded }

// A ResultSizeError says that an operation was confirmed or accepted with a result
// that is larger than Options.ResultSize and was not stored.
type ResultSizeError struct{ Size, Limit int }

func (e *ResultSizeError) Error() string {
	return fmt.Sprintf("reconcile: result of %d bytes, at most %d can be stored", e.Size, e.Limit)
}

// final says that sending a settlement again would not change its answer.
func final(err error) bool {
	for _, e := range []error{ErrStale, ErrEnded, ErrNotFound, ErrChanged, ErrInvalid} {
		if errors.Is(err, e) {
			return true
		}
	}
	return err == nil
}

// unavailable names a step, and says that the store gave no answer, unless it did.
func unavailable(step string, err error) error {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w (%s)", err, step)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, ask again", ErrUnavailable, step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how keys appear in errors and logs: they are personal data, so a hash
// stands for them.
func short(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}
