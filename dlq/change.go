package dlq

import "time"

// A Change is what a person decided about a letter. The nonce is as in [Put].
type Change struct {
	Kind          ChangeKind
	Nonce         [16]byte
	Stream, ID    string
	Seq           uint64
	Body          []byte   // ChangeEdit
	Before, After [32]byte // Before: what the person saw; After: ChangeEdit
	Job           string   // ChangeApprove, ChangeNote
	Verb          string   // ChangeNote: what was done, 1 to 64 bytes
	Actor         string   // who, 1 to 256 bytes
	Reason        string   // why, at most MaxReason bytes
}

// ChangeKind is the kind of a [Change].
type ChangeKind uint8

// The kinds of change.
const (
	ChangeEdit ChangeKind = iota + 1
	ChangeApprove
	ChangeReject
	ChangeDiscard
	ChangeSkip
	ChangeForget
	ChangeNote
)

// String returns the kind's name in lower case.
func (k ChangeKind) String() string {
	switch k {
	case ChangeEdit:
		return "edit"
	case ChangeApprove:
		return "approve"
	case ChangeReject:
		return "reject"
	case ChangeDiscard:
		return "discard"
	case ChangeSkip:
		return "skip"
	case ChangeForget:
		return "forget"
	case ChangeNote:
		return "note"
	}
	return "none"
}

// An Entry is one line of the audit: what a person did, and nothing changes it.
type Entry struct {
	Stream string
	Seq    uint64 // rises in the order in which entries of the stream were appended
	At     time.Time
	Verb   string // the kind's name, or Change.Verb
	ID     string // of the letter; empty: of none
	Letter uint64 // its Seq
	Job    string
	Actor  string
	Reason string
	// Before and After are digests of the letter's body. They differ for an edit;
	// After is zero when the letter was forgotten, both when there was no letter.
	Before, After [32]byte
}

// A Job is a redrive job as a store keeps it.
//
// The store counts the letters that were approved with the job's ID: each in Released,
// and the first that becomes of it then in one of the others: Passed if it is
// resolved, Failed if a try of it fails (KindRetry or KindReview), Moved if it is
// changed, other than by a note, or approved once more, also under the same job. A job
// that is made anew after one of its ID was forgotten counts what becomes of that one's
// letters, too.
type Job struct {
	Stream, ID       string
	Nonce            [16]byte // of the save
	Version          uint64
	Data             []byte // as the queue encoded it, at most MaxJob bytes
	Ended            bool
	Created, Updated time.Time

	Released, Passed, Failed, Moved int
}

// An Alarm is a failure that somebody may have to be told of. The nonce is as in
// [Put].
type Alarm struct {
	Nonce               [16]byte
	Stream, Fingerprint string
	Window              time.Duration // positive
}
