package lww

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// A Register is one write: a value with its stamp, or a tombstone. The zero
// Register is that of a key that was never written. It can stand for itself, in a
// row of the caller's own, say: read it, Set, Delete or Merge, and store the result.
// In a [Map] each key has one.
//
// Registers do not change: each method returns a new one. A Register is safe for
// concurrent use as long as nobody writes into what Value returns.
type Register struct {
	stamp  Stamp
	state  State
	digest [32]byte
	salt   [16]byte // of the digest; only where the value is
	seen   Vector
	value  []byte
}

// A State says what a key has.
type State uint8

const (
	// Absent: it was never written, or its tombstone has been collected.
	Absent State = iota
	// Present: it has a value, which is here.
	Present
	// Deleted: it has a tombstone.
	Deleted
	// Remote: it has a value, which is kept in another region. See Options.Residency.
	Remote
)

// String says the state in a word.
func (s State) String() string {
	switch s {
	case Absent:
		return "absent"
	case Present:
		return "present"
	case Deleted:
		return "deleted"
	case Remote:
		return "remote"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Stamp is when it was written; zero if it never was.
func (r Register) Stamp() Stamp { return r.stamp }

// State says what it holds.
func (r Register) State() State { return r.state }

// Value is what was written, nil unless it is Present. It must not be written into.
func (r Register) Value() []byte { return r.value }

// Seen is what the region that wrote it had seen of others' writes to this key.
func (r Register) Seen() Vector { return r.seen }

// Digest identifies the write: two writes have different digests also where all
// else is the same. It commits to the value and says nothing about it: it is a
// SHA-256 over stamp, value and 16 random bytes, which go where the value goes.
func (r Register) Digest() [32]byte { return r.digest }

// Stub returns the write without its value: what a region gets to know of a value
// that stays in another. It is Remote if r is Present, and otherwise r itself.
func (r Register) Stub() Register {
	if r.state == Present {
		r.state, r.value, r.salt = Remote, nil, [16]byte{}
	}
	return r
}

// Set returns a write of the value by a region that has seen r, stamped one above
// it. The value is copied. ErrOverflow: there is no Lamport above r's.
func (r Register) Set(region uint8, value []byte) (Register, error) {
	s, err := r.next(region)
	if err != nil {
		return Register{}, err
	}
	return newBody(value).written(s, r.seen.with(r.stamp)), nil
}

// Delete returns a tombstone by a region that has seen r, stamped one above it.
// ErrOverflow: there is no Lamport above r's.
func (r Register) Delete(region uint8) (Register, error) {
	s, err := r.next(region)
	if err != nil {
		return Register{}, err
	}
	return erased(s, r.seen.with(r.stamp)), nil
}

func (r Register) next(region uint8) (Stamp, error) {
	if r.stamp.Lamport == math.MaxUint64 {
		return Stamp{}, fmt.Errorf("%w: the register has the last stamp, %v; not written", ErrOverflow, r.stamp)
	}
	return Stamp{r.stamp.Lamport + 1, region}, nil
}

// Merge says which of two writes to one key stays, and returns the other as lost.
// Change.Now is the same whichever is merged into which, in whatever order, and
// however often.
//
// The greater stamp stays. Where two writes have one stamp, which happens only if
// their region stamped twice, a tombstone stays before a value, then the greater
// digest; Change.Clash says so. A write that is here without its value takes the
// value from the same write with it.
func (r Register) Merge(o Register) Change {
	switch order := r.compare(o); {
	case order == 0 && r.state == Remote && o.state == Present:
		return Change{Outcome: Filled, Now: o}
	case order == 0:
		return Change{Outcome: Unchanged, Now: r}
	case order < 0:
		return lost(Applied, o, r)
	default:
		return lost(Ignored, r, o)
	}
}

func lost(o Outcome, winner, loser Register) Change {
	c := Change{Outcome: o, Now: winner, Lost: loser}
	if !loser.stamp.IsZero() {
		c.Clash = winner.stamp == loser.stamp
		c.Conflict = winner.stamp.Region != loser.stamp.Region && !winner.seen.Covers(loser.stamp)
	}
	return c
}

// compare orders writes; zero means that they are the same one.
func (r Register) compare(o Register) int {
	return cmp.Or(
		r.stamp.Compare(o.stamp),
		cmp.Compare(r.deleted(), o.deleted()),
		bytes.Compare(r.digest[:], o.digest[:]),
	)
}

func (r Register) deleted() int {
	if r.state == Deleted {
		return 1
	}
	return 0
}

// A body is a value with its salt, hashed before anything else is known: a large value
// takes its time.
type body struct {
	value []byte
	salt  [16]byte
	hash  [32]byte
}

func newBody(value []byte) body {
	b := body{value: append([]byte{}, value...)}
	_, _ = rand.Read(b.salt[:]) // never fails
	b.hash = hashBody(b.salt, b.value)
	return b
}

func hashBody(salt [16]byte, value []byte) (hash [32]byte) {
	h := sha256.New()
	h.Write([]byte("pawl lww value 1\n"))
	h.Write(salt[:])
	h.Write(value)
	h.Sum(hash[:0])
	return hash
}

func (b body) written(s Stamp, seen Vector) Register {
	return Register{stamp: s, state: Present, digest: digest(b.hash, s, Present, seen), salt: b.salt, seen: seen, value: b.value}
}

// erased is a tombstone, whose digest is its own, too.
func erased(s Stamp, seen Vector) Register {
	return Register{stamp: s, state: Deleted, digest: digest(newBody(nil).hash, s, Deleted, seen), seen: seen}
}

func digest(body [32]byte, s Stamp, state State, seen Vector) [32]byte {
	b := append(make([]byte, 0, 128), "pawl lww write 1\n"...)
	b = append(b, body[:]...)
	b = append(binary.BigEndian.AppendUint64(b, s.Lamport), s.Region, byte(state))
	return sha256.Sum256(appendVector(b, seen))
}

// An Outcome says what became of a write.
type Outcome uint8

const (
	// Unchanged: the write was here already.
	Unchanged Outcome = iota + 1
	// Applied: it is what the key now has. Change.Lost is what the key had.
	Applied
	// Ignored: it is lost, since the key has a greater one.
	Ignored
	// Filled: it was here without its value, which has come.
	Filled
	// SetAside: its stamp is too far ahead, and it is in quarantine. It is neither
	// merged nor lost. See Map.Quarantined.
	SetAside
	// Collected: it is lost, since it is older than a tombstone that every region has
	// passed.
	Collected
)

// String says the outcome in a few words.
func (o Outcome) String() string {
	switch o {
	case Unchanged:
		return "unchanged"
	case Applied:
		return "applied"
	case Ignored:
		return "ignored"
	case Filled:
		return "filled"
	case SetAside:
		return "set aside"
	case Collected:
		return "collected"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// A Change is what a write, or a merge of one, did to a key.
type Change struct {
	Key     string // empty from Register.Merge
	Outcome Outcome
	// Now is what the key has after it.
	Now Register
	// Lost is the write that lost: what was overwritten, or what came too late. It is
	// zero if none was. Nothing else keeps it. A write that is delivered twice can be
	// reported as lost twice; its stamp and digest tell.
	Lost Register
	// Conflict: the region that wrote Now had seen neither Lost nor a write that won
	// over it. Somebody's write has gone that nobody decided to overwrite. It is always
	// true where that is so. It can be true, too, where Lost had been seen, and had lost
	// already, outside of a whole delta: pushed with Merge, or by a Register's Merge.
	Conflict bool
	// Clash: Lost and Now have the same stamp and are two writes. Their region
	// stamped twice, since it was put back to an older copy or runs twice: look into
	// it, for other writes of it may be missing. See Merged.Diverged.
	Clash bool
}
