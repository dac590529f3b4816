package dedup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Errors that a caller branches on. A store returns ErrStale, ErrFull, ErrAtRisk
// and ErrUnchecked; the others are the guard's.
var (
	// ErrStale says that the claim is no longer the caller's: its lease lapsed and
	// another owner took over, or it was settled another way, or its record is
	// gone. Nothing was changed.
	ErrStale = errors.New("dedup: stale claim")
	// ErrInFlight says that another owner is at work on the message.
	ErrInFlight = errors.New("dedup: in flight")
	// ErrHeld says that an owner vanished, or failed without knowing, and nobody
	// may run the effect until a settlement says what happened.
	ErrHeld = errors.New("dedup: held, the outcome is unknown")
	// ErrConflict says that the ID is known with another fingerprint.
	ErrConflict = errors.New("dedup: another message has this ID")
	// ErrUnavailable says that the store gave no answer: the step may have been
	// applied or not. It wraps the cause, which may be one that does not pass by
	// itself: a missing table, a missing right. A caller whose own context ends
	// first gets the context's error instead.
	ErrUnavailable = errors.New("dedup: the store gave no answer")
	// ErrFull says that a store has no room for another ID. Nothing was claimed and
	// nothing was dropped to make room.
	ErrFull = errors.New("dedup: no room for another ID")
	// ErrInvalid says that an argument is outside its range. Nothing was changed.
	ErrInvalid = errors.New("dedup: invalid argument")
	// ErrResult says that the effect has happened but its result could not be
	// stored, or a stored result could not be decoded.
	ErrResult = errors.New("dedup: result not usable")
	// ErrAtRisk is what Check of a store returns when the store works but its
	// server is set up so that it can lose claims, with the reasons.
	ErrAtRisk = errors.New("dedup: the store can lose claims")
	// ErrUnchecked is what Check of a store returns when the server would not say
	// how it is set up. It never means that all is well.
	ErrUnchecked = errors.New("dedup: could not check the store")
)

// A ClaimError is what Do returns when it did not run the effect. It wraps
// ErrInFlight, ErrHeld or ErrConflict.
type ClaimError struct {
	Claim Claim // Left says for how long an owner's lease still runs
}

func (e *ClaimError) Error() string {
	c := e.Claim
	switch c.State {
	case InFlight:
		if c.Left == 0 {
			return fmt.Sprintf("%v: %s, for how long is not known; not run here, ask again later", ErrInFlight, short(c.ID))
		}
		return fmt.Sprintf("%v: %s, attempt %d, lease ends in %v; not run here, ask again later",
			ErrInFlight, short(c.ID), c.Attempt, c.Left.Round(time.Millisecond))
	case Unknown:
		return fmt.Sprintf("%v: %s, attempt %d, for %v; not run, settle it first",
			ErrHeld, short(c.ID), c.Attempt, c.Age.Round(time.Millisecond))
	}
	return fmt.Sprintf("%v: %s, with another fingerprint; not run", ErrConflict, short(c.ID))
}

// Unwrap returns the sentinel for the claim's state.
func (e *ClaimError) Unwrap() error {
	switch e.Claim.State {
	case InFlight:
		return ErrInFlight
	case Unknown:
		return ErrHeld
	}
	return ErrConflict
}

// A SettleError is the failure of one settlement of a call.
type SettleError struct {
	Index int // in the arguments of Settle
	Err   error
}

func (e *SettleError) Error() string {
	return fmt.Sprintf("dedup: settlement %d: %v", e.Index+1, e.Err)
}

// Unwrap returns the reason.
func (e *SettleError) Unwrap() error { return e.Err }

// A ResultSizeError says that a result is larger than Options.ResultSize.
type ResultSizeError struct {
	Size, Limit int // bytes
}

func (e *ResultSizeError) Error() string {
	return fmt.Sprintf("dedup: result of %d bytes, at most %d can be stored", e.Size, e.Limit)
}

// unavailable names a step and its key, and says that the store gave no answer,
// unless it did.
func unavailable(step string, err error) error {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrFull), errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w (%s)", err, step)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, ask again", ErrUnavailable, step, err)
}

// gaveUp is unavailable, except that a caller whose context has ended is told
// just that.
func gaveUp(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("dedup: %s: given up: %w", step, err)
	}
	return unavailable(step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how IDs appear in errors and logs: they are personal data, so a hash
// stands for them.
func short(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:6])
}
