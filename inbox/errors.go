package inbox

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
)

// Errors that a caller branches on, beside [ErrStale] and [ErrRejected].
var (
	// ErrUnavailable says that the store gave no answer: the step may have been
	// applied or not.
	ErrUnavailable = errors.New("inbox: the store gave no answer")
	// ErrInvalid says that an argument is outside its range. Nothing was stored.
	ErrInvalid = errors.New("inbox: invalid argument")
	// ErrDraining is the cause with which the context of a handler ends that still
	// runs when the grace of a drain has passed.
	ErrDraining = errors.New("inbox: draining")
	// ErrAbandoned is what Work returns when handlers did not return although their
	// contexts had ended.
	ErrAbandoned = errors.New("inbox: handlers did not return")

	// ErrAtRisk is what Check of a store returns when the store works but is set up
	// so that it can lose events, with the reasons.
	ErrAtRisk = errors.New("inbox: the store can lose events")
	// ErrUnchecked is what Check of a store returns when the server would not say how
	// it is set up. It never means that all is well.
	ErrUnchecked = errors.New("inbox: could not check the store")
)

// errPanic is why an event whose handler panicked has failed.
var errPanic = errors.New("inbox: the handler panicked")

// unavailable wraps an error of the store. What the caller did itself stays
// recognisable: a context that ended, an invalid argument.
func unavailable(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrFull), errors.Is(err, ErrUnavailable):
		return err
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("inbox: %s: given up: %w", step, err)
	}
	return fmt.Errorf("%w: %s: %w; it may have been applied, repeating it is harmless", ErrUnavailable, step, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// short is how IDs and keys appear in errors and logs: they are personal data, so
// a hash stands for them.
func short(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:6])
}

const (
	maxID      = 512
	maxField   = 1024
	maxPayload = 16 << 20 // of payload and of context
)

// validate says what is wrong with an event that a source or a caller made.
func (e *Event) validate() error {
	if !validName(e.Provider) {
		return invalid("provider of %d bytes, not [A-Za-z0-9._-]{1,64}", len(e.Provider))
	}
	if err := validID("ID", e.ID); err != nil {
		return err
	}
	if !strings.HasPrefix(e.ID, e.Provider+"/") {
		return invalid("ID %s does not begin with the provider and a slash", short(e.ID))
	}
	if e.Key != "" {
		if err := validID("key", e.Key); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, value string }{
		{"type", e.Type}, {"version", e.Version}, {"account", e.Account}, {"phone", e.Phone},
		{"message ID", e.MessageID}, {"external ID", e.ExternalID}, {"trace", e.Trace},
	} {
		if !validText(f.value, maxField) {
			return invalid("%s of %d bytes in event %s, not at most %d bytes of UTF-8 without NUL", f.name, len(f.value), short(e.ID), maxField)
		}
	}
	if y := e.Occurred.UTC().Year(); y < 1 || y > 9999 {
		return invalid("event %s occurred outside the years 1 to 9999", short(e.ID))
	}
	if len(e.Payload) > maxPayload || len(e.Context) > maxPayload {
		return invalid("payload of %d and context of %d bytes in event %s, at most %d each", len(e.Payload), len(e.Context), short(e.ID), maxPayload)
	}
	return nil
}

func validText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// validField checks what records are found by.
func validField(what, s string) error {
	if s == "" || !validText(s, maxField) {
		return invalid("%s of %d bytes, not 1 to %d bytes of UTF-8 without NUL", what, len(s), maxField)
	}
	return nil
}

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

// validName checks the names of providers and streams.
func validName(s string) bool {
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

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Retention = or(c.Retention, 8*day)
	c.Keep = or(c.Keep, max(90*day, c.Retention))
	c.StoreTimeout = or(c.StoreTimeout, 5*time.Second)
	switch {
	case c.Retention < time.Millisecond || c.Retention > MaxDuration:
		return c, invalid("retention %v, not %v to %v", c.Retention, time.Millisecond, MaxDuration)
	case c.Keep < c.Retention || c.Keep > MaxDuration:
		return c, invalid("keep %v, not %v (the retention) to %v", c.Keep, c.Retention, MaxDuration)
	case c.BodyRetention != 0 && (c.BodyRetention < time.Millisecond || c.BodyRetention > c.Retention):
		return c, invalid("body retention %v, not %v to %v (the retention)", c.BodyRetention, time.Millisecond, c.Retention)
	case c.Payloads != nil && isNil(c.Payloads):
		return c, invalid("nil pointer as payload store")
	case c.OutsideOver < 0:
		return c, invalid("bodies of more than %d bytes outside", c.OutsideOver)
	case c.StoreTimeout < 0:
		return c, invalid("store timeout %v", c.StoreTimeout)
	}
	return c, nil
}

const day = 24 * time.Hour

func or[T comparable](value, fallback T) T {
	var none T
	if value == none {
		return fallback
	}
	return value
}

// isNil finds a nil pointer in an interface, too, so that a forgotten error check
// shows at construction and not in the first call.
func isNil(x any) bool {
	if x == nil {
		return true
	}
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
