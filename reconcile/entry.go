package reconcile

import "time"

// State is what is known of an operation.
type State uint8

const (
	// Started: it was recorded and is being sent. If nobody is at work any more
	// (Entry.Left is zero), it is as good as Unknown.
	Started State = iota + 1
	// Accepted: the remote took it, and its outcome is pending.
	Accepted
	// Confirmed: it has happened.
	Confirmed
	// Failed: it certainly did not happen.
	Failed
	// Unknown: it may have happened or not.
	Unknown
)

// String returns the state's name in lower case.
func (s State) String() string {
	return name(s, "none", "started", "accepted", "confirmed", "failed", "unknown")
}

// Ended says that nothing is open any more: Confirmed or Failed.
func (s State) Ended() bool { return s == Confirmed || s == Failed }

// An Op is one external effect.
type Op struct {
	// Key is its identity within the ledger's kind, and what the remote is sent on every
	// attempt: the original message ID, say. 1 to 512 bytes of UTF-8 without NUL.
	Key string
	// Account is whose operation it is, for counts: 0 to 512 bytes of UTF-8 without NUL.
	Account string
	// Fingerprint is a digest of what is asked of the remote, to tell a repetition from
	// another operation under the same key. Zero is not compared.
	Fingerprint [32]byte
	// Payload is what [Ledger.Run] needs to send it again, at most Options.PayloadSize
	// bytes. It is personal data: see Options.Keys.
	Payload []byte
}

// An Entry is an operation as a store has it. Times are the store's.
type Entry struct {
	Op
	Kind     string
	State    State
	Token    uint64 // rises with everyone who is granted the operation
	Attempts int    // how often it was sent, or may have been
	Looks    int    // how often the remote was asked for it and answered, without news

	Review string // why a person has to resolve it; empty: nobody has to
	Again  bool   // Failed: it may be sent again
	Result []byte // what the remote answered
	Note   string // the note of the last transition

	Read    time.Time // now, by the store's clock
	Created time.Time
	First   time.Time // of the sends that may have reached the remote
	Sent    time.Time // the last of them
	Fenced  time.Time // when the token moved after the last send; zero: it did not yet
	Due     time.Time // when the compensation queue has a look; zero: never
	Left    time.Duration
	Expires time.Time // zero: it does not

	Log     []Transition
	Dropped int // transitions between the first and the last of Log

	// Err is set by the ledger if payload or result cannot be opened, and wraps
	// [ErrSealed]. They are nil then, and still in the store.
	Err error
}

// Age is how long ago the operation was recorded.
func (e *Entry) Age() time.Duration { return e.Read.Sub(e.Created) }

// Open says that the operation is neither Confirmed nor Failed, or that there is still
// something to do about it.
func (e *Entry) Open() bool { return !e.State.Ended() || e.Review != "" || !e.Due.IsZero() }

// A Transition is one line of an operation's history.
type Transition struct {
	At    time.Time
	Verb  Verb
	State State // after it
	Token uint64
	By    string
	Note  string
}
