package seqgen

import (
	"cmp"
	"fmt"
	"time"
)

// A Position is one number of one epoch of a key. Both begin at 1; the zero
// Position is none. Positions of one key are in order by epoch, then by number.
type Position struct {
	Epoch, Number uint64
}

// Compare returns -1 if p is before q, 1 if it is behind, 0 if the two are equal.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Epoch, q.Epoch); c != 0 {
		return c
	}
	return cmp.Compare(p.Number, q.Number)
}

func higher(p, q Position) Position {
	if p.Compare(q) < 0 {
		return q
	}
	return p
}

// String returns "epoch/number".
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Epoch, p.Number) }

// Mode says how the numbers of a key are assigned; the package comment says what
// each mode promises and costs.
type Mode uint8

const (
	// Single makes one durable step for each number; concurrent calls share it.
	Single Mode = iota + 1
	// Block reserves many numbers ahead for the one process that owns the key.
	Block
	// Gapless assigns numbers in the caller's transaction: [Generator.NextTx].
	Gapless
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Single:
		return "single"
	case Block:
		return "block"
	case Gapless:
		return "gapless"
	}
	return "no mode"
}

// A Range is the numbers Lo to Hi of an epoch, both included. The zero Range is
// none.
type Range struct {
	Epoch, Lo, Hi uint64
}

// Len returns how many numbers the range has.
func (r Range) Len() uint64 {
	if r.Lo == 0 {
		return 0
	}
	return r.Hi - r.Lo + 1
}

// A Void is a range of numbers that no message has, or may not have. Whoever
// waits for one of them can stop: at once if the void is certain, after a while
// without an arrival inside it if it is orphaned.
type Void struct {
	Key           string
	Epoch, Lo, Hi uint64 // both included
	Kind          VoidKind
	Reason        Reason
	At            time.Time // when it became void, by the store's clock, in microseconds
}

// VoidKind says how much is known of a [Void].
type VoidKind uint8

const (
	// Certain: the numbers were never used, and never will be.
	Certain VoidKind = iota + 1
	// Orphaned: they were reserved for an owner that lost its key. It handed out
	// some of them, all, or none, and may still hand out more.
	Orphaned
)

// String returns the kind's name in lower case.
func (k VoidKind) String() string {
	switch k {
	case Certain:
		return "certain"
	case Orphaned:
		return "orphaned"
	}
	return "no kind"
}

// Reason says why numbers are void.
type Reason uint8

const (
	// Returned: their owner gave them back, after another had taken the key.
	Returned Reason = iota + 1
	// GaveUp: the caller they were for had given up.
	GaveUp
	// Abandoned: the store's answer did not arrive, and nobody got them.
	Abandoned
	// Unwitnessed: the witness did not answer, so they were not handed out.
	Unwitnessed
	// TakenOver: another process took the key while they were reserved.
	TakenOver
	// Bumped: a new epoch was opened while they were reserved.
	Bumped
)

// String returns the reason in lower case.
func (r Reason) String() string {
	switch r {
	case Returned:
		return "returned"
	case GaveUp:
		return "caller gave up"
	case Abandoned:
		return "answer lost"
	case Unwitnessed:
		return "not witnessed"
	case TakenOver:
		return "taken over"
	case Bumped:
		return "epoch bumped"
	}
	return "no reason"
}
