package dlq

import (
	"slices"
	"time"
)

// A Record is a letter as a store keeps it. What a handler or a reviewer gets is
// a [Letter], which a [Queue] makes of it.
type Record struct {
	// Stream and ID are the identity of what failed: the stream is what works it, the
	// ID is the original one, under which the guards of its effects know it.
	Stream, ID string
	// Key is the ordering key; empty: the letter is in order with no other.
	Key string
	// Seq is the letter's number in its stream. It is never used again.
	Seq   uint64
	State State
	// Aside says that a person skipped the letter: it no longer holds up its key.
	Aside bool
	// Body is the payload with its headers, as the queue encoded it, perhaps sealed: a
	// store does not look into it. Digest is the queue's digest of it.
	Body   []byte
	Digest [32]byte
	// Original is the body before the first edit; nil if there was none.
	Original []byte
	// Log is what went wrong, and Fingerprint that of its last failure; empty if the
	// letter was parked behind another and has not been tried.
	Log         Log
	Fingerprint string
	// Tries counts how often the letter was handed to a handler since it was put or
	// approved, the running try included. It is written before the handler runs, so a
	// handler that kills its process is counted too. Tries that ended are failures.
	Tries int
	// Job is the redrive job that last released the letter.
	Job string
	// Put is when the letter was stored, by the store's clock.
	Put time.Time
	// Next is when a letter in StateWaiting is due.
	Next time.Time
	// Settled is when the letter ended, Expires when it may be forgotten; zero before.
	Settled, Expires time.Time
}

// Lane is what is worked one at a time and in order: the letters of a key, or a
// letter alone that has no key or was skipped. It is 2 to 513 bytes long.
func (r *Record) Lane() string { return LaneOf(r.ID, r.Key, r.Aside) }

// LaneOf is the lane of a letter.
func LaneOf(id, key string, aside bool) string {
	if key == "" || aside {
		return "i" + id
	}
	return "k" + key
}

// State is what has become of a letter.
type State uint8

const (
	// StateWaiting: the letter is tried when it is due and the first of its lane, or is
	// being tried.
	StateWaiting State = iota + 1
	// StateReview: it failed too often, or was skipped, and waits for a person.
	StateReview
	// StateResolved: a handler has succeeded.
	StateResolved
	// StateDiscarded: a person has decided that it is not wanted.
	StateDiscarded
	// StateRejected: a person has decided that it must not be worked.
	StateRejected
)

// Unresolved says that something still has to become of the letter. An unresolved
// letter is never forgotten.
func (s State) Unresolved() bool { return s == StateWaiting || s == StateReview }

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case StateWaiting:
		return "waiting"
	case StateReview:
		return "review"
	case StateResolved:
		return "resolved"
	case StateDiscarded:
		return "discarded"
	case StateRejected:
		return "rejected"
	}
	return "none"
}

// A Failure is one try that failed, as a store keeps it.
type Failure struct {
	At          time.Time // by the clock of whoever noticed, for a person to read; to the microsecond
	Fingerprint string    // 1 to 64 bytes of [0-9a-f]; tells kinds of failure apart
	Detail      []byte    // as the queue encoded it, at most MaxDetail bytes
}

// A Log is what is kept of a letter's failures: the first and the last [LogLast] as
// they are, and of those in between how many there were of each kind.
type Log struct {
	First Failure   // zero if nothing failed
	Last  []Failure // the oldest first, without the first of all
	Folds []Fold    // in the order in which they began, at most LogFolds
	// Others counts the failures for which there was no room in Folds.
	Others int
}

// A Fold is the failures with one fingerprint that are only counted.
type Fold struct {
	Fingerprint string
	Count       int
	First, Last time.Time // Failure.At of the first and the last of them
}

const (
	// LogLast is how many of the last failures a letter keeps as they are.
	LogLast = 4
	// LogFolds is how many kinds of failure are counted apart.
	LogFolds = 16
	// MaxDetail is the length in bytes of the longest Failure.Detail.
	MaxDetail = 32 << 10
)

// Add adds a failure behind all others. A store calls it in the step that records
// the failure, or does the same. It does not change what copies of the log share.
func (l *Log) Add(f Failure) {
	if l.First.Fingerprint == "" {
		l.First = f
		return
	}
	l.Last = append(slices.Clone(l.Last), f)
	if len(l.Last) <= LogLast {
		return
	}
	out := l.Last[0]
	l.Last = slices.Clone(l.Last[1:])
	for i, fold := range l.Folds {
		if fold.Fingerprint == out.Fingerprint {
			l.Folds = slices.Clone(l.Folds)
			l.Folds[i].Count++
			l.Folds[i].Last = out.At
			return
		}
	}
	if len(l.Folds) < LogFolds {
		l.Folds = append(slices.Clone(l.Folds), Fold{out.Fingerprint, 1, out.At, out.At})
		return
	}
	l.Others++
}

// Total is how many failures were added.
func (l Log) Total() int {
	n := len(l.Last) + l.Others
	if l.First.Fingerprint != "" {
		n++
	}
	for _, f := range l.Folds {
		n += f.Count
	}
	return n
}
