package watchdog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Errors that a caller branches on.
var (
	// ErrFenced says that another instance has taken this worker's name. What this
	// one still does, it does beside the other: stop it.
	ErrFenced = errors.New("watchdog: another instance has taken the name")
	// ErrFull says that the scope has as many workers as it may have. The worker is
	// not watched.
	ErrFull = errors.New("watchdog: no room for another worker in the scope")
	// ErrGone says that there is no such worker. A restart hook returns it, wrapped or
	// not, when the worker will not come back, and the watchdog forgets the worker.
	ErrGone = errors.New("watchdog: no such worker")
	// ErrInvalid says that an option or an argument is outside its range. Nothing was
	// changed.
	ErrInvalid = errors.New("watchdog: invalid argument")
	// ErrUnavailable says that the store gave no answer. It wraps the cause.
	ErrUnavailable = errors.New("watchdog: the store gave no answer")
	// ErrUnhealthy says that a watchdog does not watch: see [Watchdog.Healthy].
	ErrUnhealthy = errors.New("watchdog: not watching")
	// ErrPanic says that a function of the caller panicked. The error has no more than
	// the type of what it panicked with.
	ErrPanic = errors.New("watchdog: panic")

	// ErrAtRisk is what Check of a store returns when the store works but its server
	// is set up so that it can lose records, with the reasons.
	ErrAtRisk = errors.New("watchdog: the store can lose records")
	// ErrUnchecked is what Check of a store returns when the server would not say how
	// it is set up. It never means that all is well.
	ErrUnchecked = errors.New("watchdog: could not check the store")
)

// Answers of a store to a watchdog, which acts on them itself.
var (
	// ErrChanged says that the record is not what the action supposes any more.
	ErrChanged = errors.New("watchdog: the worker is not as it was seen")
	// ErrBusy says that an attempt is under way, or that it is too early for the next.
	ErrBusy = errors.New("watchdog: a restart is under way or not due yet")
	// ErrGivenUp says that the worker is not restarted any more.
	ErrGivenUp = errors.New("watchdog: the worker was given up")
)

func unavailable(step string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how names appear in errors and logs: they can hold an account's number,
// so a hash stands for them.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}

// guarded calls f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: of type %T", ErrPanic, p)
		}
	}()
	return f()
}

// isGone says whether a hook returned ErrGone. The methods of its error may panic.
func isGone(err error) (gone bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, ErrGone)
}

// outcomeOf is what may be logged of what a hook returned: the text of its error may hold
// anything, so an error is known by its type.
func outcomeOf(err error) (outcome string) {
	defer func() {
		if recover() != nil {
			outcome = fmt.Sprintf("%T", err)
		}
	}()
	switch {
	case err == nil:
		return "restarted"
	case isGone(err):
		return "the worker is gone"
	case errors.Is(err, context.DeadlineExceeded):
		return "its time was up"
	}
	return fmt.Sprintf("%T", err)
}
