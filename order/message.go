package order

import "time"

// A Position is a place in the sequence of a key. Epochs are ordered before
// numbers: (1, 900) comes before (2, 1).
type Position struct {
	Epoch  uint64 // one incarnation of the sequence; 0 where the sender has none
	Number uint64 // 1 to [MaxNumber]
}

// Compare returns -1, 0 or +1 as p is before q, the same, or behind it.
func (p Position) Compare(q Position) int {
	switch {
	case p.Epoch < q.Epoch, p.Epoch == q.Epoch && p.Number < q.Number:
		return -1
	case p == q:
		return 0
	}
	return 1
}

// A Message is what a sender numbered.
type Message struct {
	Key      string // the ordering key: 1 to 512 bytes of UTF-8 without NUL
	Position Position
	ID       string // the message ID, if it has one: as the key, or empty
	Payload  []byte
	Context  []byte // travels with the message: trace context; at most 4 KiB

	// What follows is the store's, and ignored by Push.

	Attempt int           // how often it was begun, this time included
	Age     time.Duration // since it was pushed
	Late    bool          // it came after its number had been skipped
	Gap     *Gap          // for Options.OnLate: the record of the gap it belonged to, while that is kept
	Error   string        // of the last failed attempt
}

// An Answer says what became of one pushed message.
type Answer struct {
	State      Arrived
	Key        string // where the message is; it differs from what was asked only for an assigned one
	Position   Position
	Unverified bool  // Duplicate: the content can no longer be compared
	Err        error // in batches: this message has no answer
}

// Taken says that the message is taken care of, and may be acknowledged to its sender:
// it was answered Buffered, Duplicate, Late or Unordered, without an error. Of the
// others, Full is to be sent again later, and so is one with an error; Conflict,
// StaleEpoch and TooFar are not stored and never will be, and somebody should look at
// what the sender does.
func (a Answer) Taken() bool {
	if a.Err != nil {
		return false
	}
	switch a.State {
	case Buffered, Duplicate, Late, Unordered:
		return true
	}
	return false
}

// Arrived is what a push found.
type Arrived uint8

// What a push found.
const (
	// Buffered: stored, and delivered when its turn comes.
	Buffered Arrived = iota + 1

	// Duplicate: known already. Acknowledge it.
	Duplicate

	// Conflict: its position is taken by a message with other content. The first
	// stays, this one is not stored.
	Conflict

	// Late: its position had been skipped or was void. It is handed to OnLate if
	// there is one; the cursor does not go back.
	Late

	// StaleEpoch: its epoch has ended, or its number is before the first of the
	// epoch. It is not stored. A sender that once names an epoch too high makes all
	// lower ones stale, the true one included, as soon as they have ended: then only
	// a still higher epoch helps, or Buffer.Forget.
	StaleEpoch

	// Full: the key holds as many messages as it may. It is not stored: send it again
	// later.
	Full

	// TooFar: its number is too far above the cursor to be true. It is not stored.
	TooFar

	// Unordered: the store did not answer, and Options.OnUnavailable took the
	// message. It is not stored.
	Unordered
)

// State is the state of one number.
type State uint8

// The states of a number. Those below the cursor come first.
const (
	StateUnknown   State = iota // no such key or epoch, or beyond the head
	StateDelivered              // in order, or outside of the buffer before the cursor came
	StateVoid                   // never used, or not known to have been
	StateSkipped                // given up on
	StateLate                   // it came after it had been skipped, or void
	StateSettled                // ended; how is forgotten
	StateBuffered
	StateParked
	StateUnordered // delivered outside of the buffer; the cursor has not come there yet
	StateMissing
)

// Found says where one message or number is.
type Found struct {
	State    State
	Key      string
	Position Position
	Message  *Message // while it is remembered; Payload while that is
	Gap      *Gap     // the record of a skipped number, while it is kept
}

// A Gap is a range of numbers that did not come: an open one, which holds its key
// up, or the record of one that was skipped.
type Gap struct {
	Key      string
	Epoch    uint64
	From, To uint64        // To is not included
	Age      time.Duration // since it opened
	Since    time.Duration // open: since the cursor came to its first number
	Open     bool
	Old      bool // open, and a higher epoch of the key waits
	Alerted  bool // somebody was told
	Asked    int  // how often a re-send was asked for

	// What follows is of a record.

	Reason     Reason
	Arrived    uint64 // numbers of it that came late
	Resolution Resolution
	Actor      string
	Note       string
}

// Reason is why numbers were skipped.
type Reason uint8

// Why numbers were skipped.
const (
	ReasonTimeout   Reason = iota + 1 // they did not come in time
	ReasonDropped                     // a person dropped a parked message
	ReasonAbandoned                   // a new epoch began
	ReasonResolved                    // a person said that they will not come
)

// Resolution is what a person made of a gap.
type Resolution uint8

// What a person made of a gap.
const (
	ResolutionResent Resolution = iota + 1 // the sender sends them again
	ResolutionLost                         // they are lost
	ResolutionIgnore                       // it does not matter
)

// A Ledger accounts for the numbers of one epoch of a key. Below the cursor,
// Delivered + Void + Skipped + Late = Cursor - Base. From there on,
// Buffered + Parked + Unordered + VoidAhead + Missing = Head - Cursor.
type Ledger struct {
	Epoch              uint64
	Base, Cursor, Head uint64
	Ended              bool

	Delivered, Void, Skipped, Late                  uint64
	Buffered, Parked, Unordered, VoidAhead, Missing uint64

	OutOfOrder uint64 // of Delivered and Late: reported as delivered outside of the buffer
}

// Arrivals count what was pushed. Pushed is the sum of all others.
type Arrivals struct {
	Pushed, Accepted, Duplicate, Conflict, Late, Stale, Full, TooFar uint64
}

// An Account is all that is known of a key.
type Account struct {
	Key      string
	Ledgers  []Ledger // see [Store.Account]
	Arrivals Arrivals

	// Oldest is the age of the message to be delivered next: the buffered or parked
	// one with the lowest number in the active epoch or, if that has none, in the
	// lowest epoch that waits and has one. Zero: nothing is buffered or parked.
	Oldest time.Duration

	LateWaiting int  // late messages that are still to be handed over, parked ones included
	Parked      bool // the message at the cursor is parked
	Claimed     bool // a worker holds the key
}

// Totals count over all keys of a scope.
type Totals struct {
	Keys, Buffered, Parked, LateWaiting, OpenGaps, Unresolved int

	// Oldest is the largest Account.Oldest of all keys.
	Oldest time.Duration
}
