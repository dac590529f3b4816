package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/internal/authz"
)

// Errors that a caller branches on, beside those of a [Store].
var (
	// ErrUnavailable says that the store gave no answer: the step may have been applied
	// or not.
	ErrUnavailable = errors.New("dlq: the store gave no answer")
	// ErrInvalid says that an argument is outside its range. Nothing was stored.
	ErrInvalid = errors.New("dlq: invalid argument")
	// ErrFull says that letters were not stored, since the stream has as many unresolved
	// ones as Options.Capacity allows, or the store has no room. They are still the
	// caller's.
	ErrFull = errors.New("dlq: no room for more letters")
	// ErrSealed says that a body cannot be opened: its key is not in Options.Keys, or it
	// was changed, or it belongs to another letter. The letter is kept.
	ErrSealed = errors.New("dlq: the body cannot be opened")
	// ErrUnauthorized says that Authorize refused. Nothing was read or changed.
	ErrUnauthorized = authz.ErrUnauthorized
	// ErrDraining is the cause with which the context of a handler ends that still runs
	// when the grace of a drain has passed.
	ErrDraining = errors.New("dlq: draining")
	// ErrAbandoned is what Run returns when handlers did not return although their
	// contexts had ended.
	ErrAbandoned = errors.New("dlq: handlers did not return")
	// ErrAtRisk is what Check of a store returns when the store works but is set up so
	// that it can lose letters, with the reasons.
	ErrAtRisk = errors.New("dlq: the store can lose letters")
	// ErrUnchecked is what Check of a store returns when the server would not say how it
	// is set up. It never means that all is well.
	ErrUnchecked = errors.New("dlq: the store's settings could not be checked")
)

// A SizeError says that a message is larger than the options allow. Nothing was
// stored. It is [ErrInvalid].
type SizeError struct {
	What       string // "payload", "headers"
	Size, Most int    // bytes, or entries for "header entries"
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%v: %s of %d, at most %d; the letter was not stored", ErrInvalid, e.What, e.Size, e.Most)
}

// Is reports whether target is [ErrInvalid].
func (e *SizeError) Is(target error) bool { return target == ErrInvalid }

// unavailable wraps an error of the store. What the caller did itself stays
// recognisable: a context that ended, an invalid argument.
func unavailable(ctx context.Context, step string, err error) error {
	for _, known := range []error{ErrInvalid, ErrUnavailable, ErrNotFound, ErrState, ErrChanged, ErrStale} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("dlq: %s: given up: %w", step, err)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, repeating it is harmless", ErrUnavailable, step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how IDs and keys appear in errors and logs: they are personal data, so a
// hash stands for them.
func short(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:6])
}

const maxID = 512

func validID(what, id string) error {
	switch {
	case id == "":
		return invalid("empty %s", what)
	case len(id) > maxID:
		return invalid("%s of %d bytes, at most %d", what, len(id), maxID)
	case strings.IndexByte(id, 0) >= 0:
		return invalid("%s %s has a NUL byte", what, short(id))
	case !utf8.ValidString(id):
		return invalid("%s %s is not valid UTF-8", what, short(id))
	}
	return nil
}

// validName checks the names of streams and jobs.
func validName(what, s string) error {
	ok := len(s) >= 1 && len(s) <= 64
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return invalid("%s of %d bytes, not [A-Za-z0-9._-]{1,64}", what, len(s))
	}
	return nil
}

func validPrint(s string) error {
	ok := len(s) <= 64
	for _, c := range []byte(s) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	if !ok {
		return invalid("fingerprint of %d bytes, not [0-9a-f]{1,64}", len(s))
	}
	return nil
}

func validReason(reason string) error {
	if reason == "" || len(reason) > MaxReason || !utf8.ValidString(reason) || strings.IndexByte(reason, 0) >= 0 {
		return invalid("reason of %d bytes, not 1 to %d bytes of UTF-8 without NUL", len(reason), MaxReason)
	}
	return nil
}

// validAfter checks where a list by name goes on.
func validAfter(what, after string) error {
	if after == "" {
		return nil
	}
	return validName(what, after)
}

// validTime checks a time that a list is to begin or end at: every store can hold it.
func validTime(what string, t time.Time) error {
	if !t.IsZero() && (t.Year() < 1 || t.Year() > 9999) {
		return invalid("%s is in the year %d, not 1 to 9999", what, t.Year())
	}
	return nil
}

func validPage(n int) error {
	if n < 1 || n > maxPage {
		return invalid("page of %d, not 1 to %d", n, maxPage)
	}
	return nil
}

const maxPage = 1000

// isNil finds a nil pointer in an interface, too, so that a forgotten error check
// shows at construction and not in the first call.
func isNil(x any) bool {
	if x == nil {
		return true
	}
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
