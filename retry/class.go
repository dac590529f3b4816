package retry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// A Class says what a failure means for the next attempt.
type Class uint8

const (
	// ClassUnknown: nothing is known. It is tried again as a transient one.
	ClassUnknown Class = iota
	// ClassTransient: it passes by itself, and soon.
	ClassTransient
	// ClassThrottled: the other side has too much to do, or this caller asked too
	// often. It is tried again more slowly.
	ClassThrottled
	// ClassPermanent: the same call would fail again. It is not tried again.
	ClassPermanent
)

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case ClassUnknown:
		return "unknown"
	case ClassTransient:
		return "transient"
	case ClassThrottled:
		return "throttled"
	case ClassPermanent:
		return "permanent"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Errors for what no library has an error of its own for. [Classify] calls them
// permanent: wrap them where a message is decoded.
var (
	// ErrPayload says that a message cannot be understood.
	ErrPayload = errors.New("retry: invalid payload")
	// ErrSchema says that a message is of a form or version that is not known here.
	ErrSchema = errors.New("retry: unknown schema")
)

// Permanent marks an error that must not be tried again. Nil stays nil.
//
// A mark holds through any wrapping and whatever Options.Classify says; with
// several, the outermost does. It does not change the error's text, errors.Is or
// errors.As.
func Permanent(err error) error { return mark(err, ClassPermanent) }

// Transient marks an error as one that passes soon. See [Permanent].
func Transient(err error) error { return mark(err, ClassTransient) }

// Throttled marks an error as one to try again slowly. See [Permanent].
func Throttled(err error) error { return mark(err, ClassThrottled) }

// Classify says of what class an error is. It is the rule of a policy that has no
// other:
//
//   - A mark of [Permanent], [Transient] or [Throttled] holds before all else.
//   - Transient: whatever has a method Timeout that answers true, and so
//     context.DeadlineExceeded; connections that were reset, refused, aborted or
//     broken; io.ErrUnexpectedEOF; and HTTP by [StatusClass].
//   - Throttled: HTTP 429, and any unknown error with an [After].
//   - Permanent: [ErrPayload], [ErrSchema], JSON that does not decode; HTTP 401, 403
//     and most other 4xx; context.Canceled, since somebody decided to stop.
//   - An [*Error] of another Do has the class of its last attempt.
//   - Unknown: everything else, nil included.
//
// It looks through wrapped and joined errors, the outer before the inner.
// Answers to HTTP requests are known by [Status] alone.
func Classify(err error) Class { return inspect(err).class }

// StatusClass says of what class an HTTP answer is. Transient: 408, 425, 502, 503
// and 504. Throttled: 429. Permanent: 501, 505 and the rest of 4xx, except 409 and
// 423, where another call is in the way. Everything else is unknown.
func StatusClass(code int) Class {
	switch code {
	case 408, 425, 502, 503, 504:
		return ClassTransient
	case 429:
		return ClassThrottled
	case 501, 505:
		return ClassPermanent
	case 409, 423:
		return ClassUnknown
	}
	if code >= 400 && code <= 499 {
		return ClassPermanent
	}
	return ClassUnknown
}

type markError struct {
	error
	class Class
}

func (m *markError) Unwrap() error { return m.error }

func mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &markError{err, c}
}

// bare returns an error without the marks around it.
func bare(err error) error {
	for {
		switch e := err.(type) {
		case *markError:
			err = e.error
		case *afterError:
			err = e.error
		default:
			return err
		}
	}
}

// finding is what an error's tree says.
type finding struct {
	class  Class
	marked bool          // the class is not a guess
	after  time.Duration // the longest that a server asked for
}

func inspect(err error) finding {
	var f finding
	f.walk(err)
	return f.orThrottled()
}

// orThrottled: who asks to wait has too much to do, if nothing else is known.
func (f finding) orThrottled() finding {
	if f.class == ClassUnknown && f.after > 0 {
		f.class = ClassThrottled
	}
	return f
}

func (f *finding) guess(c Class) {
	if f.class == ClassUnknown {
		f.class = c
	}
}

// walk goes through an error's tree by hand and once: errors.As would go through
// it for each kind of error, on every failure.
func (f *finding) walk(err error) {
	for err != nil {
		switch e := err.(type) {
		case *markError:
			if !f.marked {
				f.class, f.marked = e.class, true
			}
		case *afterError:
			f.after = max(f.after, e.after)
		case *StatusError:
			f.after = max(f.after, e.After)
			f.guess(StatusClass(e.Code))
		case *Error:
			f.nested(e)
			return
		default:
			f.guess(classOf(err))
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				f.walk(err)
			}
			return
		default:
			return
		}
	}
}

// nested is walk for the error of another Do, which knows best.
func (f *finding) nested(e *Error) {
	var last Attempt
	if len(e.Attempts) > 0 {
		last = e.Attempts[len(e.Attempts)-1]
	}
	f.after = max(f.after, last.After)
	switch e.Reason {
	case StopPermanent:
		if !f.marked {
			f.class, f.marked = ClassPermanent, true
		}
	case StopCancelled:
		f.guess(ClassPermanent)
	case StopDeadline:
		f.guess(ClassTransient)
	}
	f.guess(last.Class)
}

// classOf looks at one error, without what it wraps.
func classOf(err error) Class {
	switch e := err.(type) {
	case syscall.Errno:
		switch e {
		case syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE,
			10053, 10054, 10061: // aborted, reset and refused, as Windows says it
			return ClassTransient
		}
	case *json.SyntaxError, *json.UnmarshalTypeError:
		return ClassPermanent
	}
	switch err {
	case context.Canceled, ErrPayload, ErrSchema:
		return ClassPermanent
	case io.ErrUnexpectedEOF:
		return ClassTransient
	}
	if e, ok := err.(interface{ Timeout() bool }); ok && e.Timeout() {
		return ClassTransient
	}
	if e, ok := err.(interface{ Is(error) bool }); ok {
		switch {
		case e.Is(context.Canceled), e.Is(ErrPayload), e.Is(ErrSchema):
			return ClassPermanent
		case e.Is(context.DeadlineExceeded), e.Is(io.ErrUnexpectedEOF):
			return ClassTransient
		}
	}
	return ClassUnknown
}
