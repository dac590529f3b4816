package inbox

import (
	"strings"
	"time"
)

// A Record is an event in one stream, as it is stored.
type Record struct {
	Event
	// Seq is the record's place in the order of acceptance.
	Seq uint64
	// Stream is what works the record: [DefaultStream], unless Options.Streams says
	// otherwise; empty for a record that is never worked.
	Stream string
	State  State
	// Attempts counts how often the record was handed to a handler, the running
	// attempt included. It is written before the handler runs, so a handler that
	// kills its process is counted too.
	Attempts int
	// LastError is what the last failed attempt said, or why the record is in
	// quarantine. It is at most [MaxError] bytes long, and personal data if the
	// handler's errors are.
	LastError string
	// Failures are the attempts that failed, the oldest first: the first of all and
	// the last ones, at most [MaxFailures]. An attempt that was interrupted left
	// none; the numbers show where one is missing.
	Failures []Failure
	// Actions is what persons did about the record, the oldest first, at most the
	// last [MaxActions].
	Actions []Action
	// Form says how the store keeps Payload and Context. In what a box returns they are
	// opened, and Form is zero; otherwise they are empty, and it says why: the body
	// was redacted, or is sealed or outside and could not be had.
	Form Form
	// Received is when the record was stored, by the store's clock, and Age the
	// time since then, or since it was replayed.
	Received time.Time
	Age      time.Duration
	// Next is when a pending record that failed is due again.
	Next time.Time
	// Settled is when the record ended, Expires when it may be removed, Erases when
	// its body may be redacted, which is not later. All are zero while it is pending;
	// the last two also in StateUnknown.
	Settled, Expires, Erases time.Time
	// Deleted is when payload and context were redacted; zero if they were not.
	Deleted time.Time
}

// A Failure is an attempt that failed.
type Failure struct {
	Attempt int
	At      time.Time // by the worker's clock, for a person to read
	Error   string    // at most MaxError bytes
}

// An Action is what a person did about a record.
type Action struct {
	Kind          ChangeKind
	At            time.Time
	Actor, Reason string
}

const (
	// MaxFailures is how many failures a record keeps: the first and the last seven.
	MaxFailures = 8
	// MaxActions is how many actions a record keeps: the last.
	MaxActions = 16
)

// Form says what a store keeps as the body of a record: payload and context as
// they are, or any of the following.
type Form uint8

// The forms, which are bits.
const (
	// FormSealed: payload and context are encrypted ([Options].Keys).
	FormSealed Form = 1 << iota
	// FormOutside: the payload is a reference into [Options].Payloads.
	FormOutside
	// FormRedacted: there is no body any more.
	FormRedacted
)

// MaxError is the length in bytes to which a stored error is cut.
const MaxError = 1024

// State is what has become of a [Record].
type State uint8

const (
	// StatePending: the record waits for a worker, or is being worked.
	StatePending State = iota + 1
	// StateDone: a handler has answered [Done].
	StateDone
	// StateDead: it was given up, after WorkOptions.MaxAttempts attempts or because
	// the handler answered [Dead].
	StateDead
	// StateQuarantined: it was not understood, either by its source, which could not
	// decode the body, or by the handler, which answered [Quarantine].
	StateQuarantined
	// StateConflict: its ID was known with another payload.
	StateConflict
	// StateUnknown: the handler could not tell whether the effect happened, and
	// answered [Unknown]. It is kept until a person replays or resolves it.
	StateUnknown
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case StatePending:
		return "pending"
	case StateDone:
		return "done"
	case StateDead:
		return "dead"
	case StateQuarantined:
		return "quarantined"
	case StateConflict:
		return "conflict"
	case StateUnknown:
		return "unknown"
	}
	return "none"
}

// An Answer says what became of an event that arrived. Each of them means that
// nothing is lost, and is answered to the provider with success.
type Answer uint8

const (
	// Accepted: the event is new, is stored, and will be worked.
	Accepted Answer = iota + 1
	// Duplicate: the event was stored before.
	Duplicate
	// Conflict: an event with the same ID and another payload was stored before.
	// This one is kept beside it and not worked; list such events with [Box.List].
	Conflict
	// Quarantined: the body could not be decoded, and is kept as it is.
	Quarantined
)

// String returns the answer's name in lower case.
func (a Answer) String() string {
	switch a {
	case Accepted:
		return "accepted"
	case Duplicate:
		return "duplicate"
	case Conflict:
		return "conflict"
	case Quarantined:
		return "quarantined"
	}
	return "no answer"
}

// cut shortens an error's text to what is stored, and makes it valid UTF-8
// without NUL.
func cut(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > MaxError {
		text = strings.ToValidUTF8(text[:MaxError], "")
	}
	return text
}
