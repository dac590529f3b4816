package seqgen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Errors that a caller branches on. With each of them no number was assigned. A
// store returns ErrStale, ErrMode, ErrRolledBack, ErrExhausted, ErrFull, ErrAtRisk
// and ErrUnchecked; the others are the generator's.
var (
	// ErrStale says that the key belongs to another process now, or has a new
	// epoch. [Generator.Open] takes it back.
	ErrStale = errors.New("seqgen: the key was taken over")
	// ErrMode says that the key's numbers are assigned in another mode. It comes as
	// a [*ModeError].
	ErrMode = errors.New("seqgen: the key is used in another mode")
	// ErrRolledBack says that the store has gone back behind numbers that were
	// assigned. It comes as a [*RolledBackError].
	ErrRolledBack = errors.New("seqgen: the store has gone back")
	// ErrExhausted says that an epoch has no number left, or a key no epoch.
	ErrExhausted = errors.New("seqgen: no number left")
	// ErrUnavailable says that the store, or the witness, gave no answer. It wraps
	// the cause, which may be one that does not pass by itself: a missing table, a
	// missing right. A caller whose own context ends first gets the context's error
	// instead.
	ErrUnavailable = errors.New("seqgen: the store gave no answer")
	// ErrFull says that there is no room for another key.
	ErrFull = errors.New("seqgen: no room for another key")
	// ErrInvalid says that an argument is outside its range, or a call is not one
	// for this generator. Nothing was changed.
	ErrInvalid = errors.New("seqgen: invalid argument")
	// ErrClosed says that the sequence or its generator was closed.
	ErrClosed = errors.New("seqgen: closed")
	// ErrAtRisk is what Check of a store returns when the store works but its
	// server is set up so that it can lose numbers, with the reasons.
	ErrAtRisk = errors.New("seqgen: the store can lose numbers")
	// ErrUnchecked is what Check of a store returns when the server would not say
	// how it is set up. It never means that all is well.
	ErrUnchecked = errors.New("seqgen: could not check the store")
)

// A ModeError says that the epoch of a key began in another mode. It wraps
// ErrMode.
type ModeError struct {
	Key           string
	Asked, Stored Mode
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("%v: %s, %s in this epoch, not %s; nothing was assigned; Bump opens an epoch that may have another mode",
		ErrMode, short(e.Key), e.Stored, e.Asked)
}

// Unwrap returns ErrMode.
func (e *ModeError) Unwrap() error { return ErrMode }

// A RolledBackError says how far a store has gone back: numbers behind Stored, up
// to Seen, were reserved before. It wraps ErrRolledBack.
type RolledBackError struct {
	Key          string
	Stored, Seen Position
}

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("%v: %s is at %v there, and %v was reserved; nothing was assigned; Bump opens an epoch above both",
		ErrRolledBack, short(e.Key), e.Stored, e.Seen)
}

// Unwrap returns ErrRolledBack.
func (e *RolledBackError) Unwrap() error { return ErrRolledBack }

// final says that sending a step again would not change its answer.
func final(err error) bool {
	if errors.Is(err, errUnasked) { // whatever the witness returned
		return false
	}
	for _, answer := range []error{ErrStale, ErrMode, ErrRolledBack, ErrExhausted, ErrFull, ErrInvalid} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return err == nil
}

// unavailable names a step and its key, and says that the store gave no answer,
// unless it did.
func unavailable(step string, err error) error {
	if final(err) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w (%s)", err, step)
	}
	return fmt.Errorf("%w: %s: %w; no number was assigned", ErrUnavailable, step, err)
}

// gaveUp is unavailable, except that a caller whose context has ended is told
// just that.
func gaveUp(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("seqgen: %s: given up: %w", step, err)
	}
	return unavailable(step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how keys appear in errors and logs: they can be personal data, so a
// hash stands for them.
func short(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}
