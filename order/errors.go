package order

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Errors that a caller branches on, beside [ErrStale], [ErrNotFound] and
// [ErrTooFar], which stores return.
var (
	// ErrUnavailable says that the store gave no answer: the step may have been
	// applied or not. It wraps the cause, which may be one that does not pass by
	// itself: a missing table, a missing right. A caller whose own context ends
	// first gets the context's error instead.
	ErrUnavailable = errors.New("order: the store gave no answer")
	// ErrInvalid says that an argument is outside its range. Nothing was changed.
	ErrInvalid = errors.New("order: invalid argument")
	// ErrDraining is the cause with which the context of a handler ends that still
	// runs when the grace of a drain has passed.
	ErrDraining = errors.New("order: draining")
	// ErrAbandoned is what Run returns when handlers did not return although their
	// contexts had ended.
	ErrAbandoned = errors.New("order: handlers did not return")
	// ErrAtRisk is what Check of a store returns when the store works but is set up
	// so that it can lose messages or cursors, with the reasons.
	ErrAtRisk = errors.New("order: the store can lose messages")
	// ErrUnchecked is what Check of a store returns when the server would not say
	// how it is set up. It never means that all is well.
	ErrUnchecked = errors.New("order: could not check the store")
)

// Why a message failed whose handler did not return an error.
var (
	errPanic  = errors.New("order: the handler panicked")
	errExited = errors.New("order: the handler ended its goroutine")
	errLost   = errors.New("order: the handler did not return, or was interrupted")
)

// unavailable wraps an error of the store. What the caller did itself stays
// recognisable: a context that ended, an invalid argument.
func unavailable(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable):
		return err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("order: %s: given up: %w", step, err)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, repeating it is harmless", ErrUnavailable, step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how keys and IDs appear in errors and logs: they are personal data, so
// a hash stands for them.
func short(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

// text is an error as it is stored: at most maxText bytes of UTF-8 without NUL.
func text(err error) (s string) {
	if err == nil {
		return "the handler gave no reason"
	}
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("an error of type %T whose text cannot be had", err)
		}
	}()
	s = strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// maxText is the longest error, actor and note that is stored, in bytes.
const maxText = 1024
