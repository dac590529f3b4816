package dedup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"
)

// Errors that a caller branches on, beside [ErrStale].
var (
	// ErrInFlight says that another owner is at work on the message.
	ErrInFlight = errors.New("dedup: in flight")
	// ErrHeld says that an owner vanished, or failed without knowing, and nobody
	// may run the effect until a settlement says what happened.
	ErrHeld = errors.New("dedup: held, the outcome is unknown")
	// ErrConflict says that the ID is known with another fingerprint.
	ErrConflict = errors.New("dedup: another message has this ID")
	// ErrUnavailable says that the store gave no answer: the step may have been
	// applied or not.
	ErrUnavailable = errors.New("dedup: the store gave no answer")
	// ErrInvalid says that an argument is outside its range. Nothing was sent.
	ErrInvalid = errors.New("dedup: invalid argument")
	// ErrResult says that the effect has happened but its result could not be
	// stored, or a stored result could not be decoded.
	ErrResult = errors.New("dedup: result not usable")
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

// unavailable wraps an error of the store. What the caller did itself stays
// recognisable: a context that ended, an invalid argument, a stale claim.
func unavailable(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrFull), errors.Is(err, ErrUnavailable):
		return err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("dedup: %s: given up: %w", step, err)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, ask again", ErrUnavailable, step, err)
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

func (r *Request) validate() error {
	switch n := len(r.ID); {
	case n == 0:
		return invalid("empty ID")
	case n > MaxID:
		return invalid("ID of %d bytes, at most %d", n, MaxID)
	}
	for i := range len(r.ID) {
		if r.ID[i] == 0 {
			return invalid("ID %s has a NUL byte at %d", short(r.ID), i)
		}
	}
	if !utf8.ValidString(r.ID) {
		return invalid("ID %s is not valid UTF-8", short(r.ID))
	}
	return nil
}

// MaxID is the length of the longest ID in bytes.
const MaxID = 512

func (s *Settlement) validate(resultSize int) error {
	r := Request{ID: s.ID}
	if err := r.validate(); err != nil {
		return err
	}
	switch s.Kind {
	case KindComplete:
		if len(s.Result) > resultSize {
			return &ResultSizeError{Size: len(s.Result), Limit: resultSize}
		}
	case KindExtend:
		if s.Lease < minLease || s.Lease > MaxDuration {
			return invalid("extension by %v, not %v to %v", s.Lease, minLease, MaxDuration)
		}
	case KindRelease, KindHold:
	case KindForget:
		return nil
	default:
		return invalid("settlement without a kind")
	}
	if s.Token == 0 {
		return invalid("%s of %s without a token: only an acquired or unknown claim can be settled", s.Kind, short(s.ID))
	}
	return nil
}

const (
	minLease      = time.Millisecond
	maxResultSize = 16 << 20
)

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Scope = or(c.Scope, "default")
	c.Lease = or(c.Lease, 30*time.Second)
	c.Retention = or(c.Retention, 8*24*time.Hour)
	c.ResultSize = or(c.ResultSize, 64<<10)
	c.SettleTimeout = or(c.SettleTimeout, 5*time.Second)
	switch {
	case !validScope(c.Scope):
		return c, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Scope))
	case c.OnLapse > Hold:
		return c, invalid("policy %d", c.OnLapse)
	case c.Lease < minLease || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, minLease, MaxDuration)
	case c.Retention < minLease || c.Retention > MaxDuration:
		return c, invalid("retention %v, not %v to %v", c.Retention, minLease, MaxDuration)
	case c.Horizon < 0 || c.Wait < 0 || c.SettleTimeout < 0:
		return c, invalid("negative horizon %v, wait %v or settle timeout %v", c.Horizon, c.Wait, c.SettleTimeout)
	case c.Horizon > 0 && c.Retention <= c.Horizon:
		return c, invalid("retention %v does not exceed the horizon %v: a message re-sent late would run again", c.Retention, c.Horizon)
	case c.ResultSize < 0 || c.ResultSize > maxResultSize:
		return c, invalid("result size %d, not 1 to %d", c.ResultSize, maxResultSize)
	}
	return c, nil
}

func or[T comparable](value, fallback T) T {
	var none T
	if value == none {
		return fallback
	}
	return value
}

func validScope(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// isNil finds a nil pointer in an interface, too, so that a forgotten error check
// shows in New and not in the first claim.
func isNil(s Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
