package reconcile

import (
	"context"
	"time"
)

// A TimelineStore keeps the observations of a [Timeline]. Implement it to bring your own
// database; run [github.com/pawl-go/pawl/reconcile/reconciletest.RunTimeline] against it
// before you trust it. The comments here are the specification.
//
// Every method is safe for concurrent use, and may be sent twice: an observation is known
// by its event ID. Time is the store's own, in microseconds. The timeline has validated
// the arguments. A store does not retain slices, and what it returns is the caller's to
// keep. When its context has ended, a method returns the context's error.
type TimelineStore interface {
	// Append stores observations and returns one answer for each, in order, as if each
	// had been sent alone. The first rule that fits:
	//
	//  1. An observation of the kind with the same Event is kept: Repeated if its Digest is
	//     the same, otherwise Differs. Nothing changes: the first one stays.
	//  2. Its subject has p.Most observations: Overflow. Nothing is stored, and the subject's
	//     Dropped grows by one, unless the last that was dropped there had the same Event. The
	//     subject is the Message or, without one, the Own.
	//  3. Otherwise Appended. Received is now. If Said lies more than p.Ahead after now, or more
	//     than p.Behind before it, or is zero, At is now and Absurd is true; otherwise At is Said.
	//
	// An observation may be forgotten when its subject had none for p.Retention, and not
	// before.
	Append(ctx context.Context, p TimelineParams, o []Observation) ([]Appending, error)

	// Read returns what belongs to one reference, in the order of (Received, Event): for
	// an Event the same as for its observation's Message or, without one, its Own; for a
	// Message its own observations, and those without Message whose Own is one of theirs;
	// for an Own those with it, and those of their Messages. Only the first field of ref that
	// is not empty counts, in the order Event, Message, Own. Nothing found is no error. Of more
	// than [MaxHistory] the first are returned, and More is true.
	Read(ctx context.Context, p TimelineParams, ref Ref) (History, error)
}

// A TimelineForgetter is a [TimelineStore] that can erase a message: what Read returns of a
// reference, and that there was anything; the event IDs are new again. Of more than
// MaxHistory observations it erases at least as many as Read returns. It says how many it
// erased. Sent twice, it erases nothing more.
type TimelineForgetter interface {
	Forget(ctx context.Context, p TimelineParams, ref Ref) (n int, err error)
}

// TimelineParams are what a timeline tells its store with every call.
type TimelineParams struct {
	Kind          string
	Ahead, Behind time.Duration
	Most          int // of observations of a subject
	Retention     time.Duration
}

// A Ref names a message in one of three ways. A customer's phone number is none of them:
// it is shared by all messages of a customer, changes hands, and is personal data.
type Ref struct {
	Event   string // the provider's event ID
	Message string // the message ID, the provider's or WhatsApp's
	Own     string // the caller's own ID (an order, a ticket), sent along as externalId, say
}

// An Observation is what somebody said about a message, once. It is never changed.
type Observation struct {
	Ref
	// Status is what is said: "delivered". 1 to 64 bytes.
	Status string
	// Participant tells the members of a group apart: an ID of yours, or a hash; not a
	// phone number. Empty: the message has one recipient.
	Participant string
	// Source is who says so: "webhook", "lookup". At most 64 bytes.
	Source string
	// Code is why, for a failure. At most 64 bytes.
	Code string
	// Said is when it happened, as the source says.
	Said time.Time

	// The store sets the rest.
	Received time.Time
	At       time.Time // Said, or Received if that is absurd
	Absurd   bool
	Digest   [32]byte // of what is said, set by the timeline
}

// Appending says what became of an observation.
type Appending uint8

const (
	// Appended: it is kept.
	Appended Appending = iota + 1
	// Repeated: it was known.
	Repeated
	// Differs: its event ID is known, and said something else, which stays.
	Differs
	// Overflow: there are too many of the message; it is counted, and not kept.
	Overflow
)

// String returns the name in lower case.
func (a Appending) String() string {
	return name(a, "no answer", "appended", "repeated", "differs", "overflow")
}

// A History is all that is known of a message.
type History struct {
	Observations []Observation
	Dropped      int  // by Overflow
	More         bool // there are more observations than MaxHistory, which are not here
}

// MaxHistory is how many observations one reading returns. Only an Own ID that very many
// messages share has more.
const MaxHistory = 10_000
