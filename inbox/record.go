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
	// Received is when the record was stored, by the store's clock, and Age the
	// time since then.
	Received time.Time
	Age      time.Duration
	// Next is when a pending record that failed is due again.
	Next time.Time
	// Settled is when the record ended, Expires when it may be removed. Both are
	// zero while it is pending.
	Settled, Expires time.Time
	// Deleted is when payload and context were erased. It is zero: nothing erases
	// those of a single event yet.
	Deleted time.Time
}

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
