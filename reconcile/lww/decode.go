package lww

import (
	"encoding/binary"
	"hash/crc32"
)

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]. It fails with
// ErrEncoding, which leaves r as it was, on bytes that are cut off, damaged, of a
// later version, or hold a value that its digest does not belong to.
func (r *Register) UnmarshalBinary(b []byte) error {
	return decode(b, kindRegister, r, (*reader).register)
}

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]. Errors are those of
// Register.
func (v *Vector) UnmarshalBinary(b []byte) error { return decode(b, kindVector, v, (*reader).vector) }

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]. Errors are those of
// Register.
func (d *Delta) UnmarshalBinary(b []byte) error { return decode(b, kindDelta, d, (*reader).delta) }

func decode[T any](b []byte, kind byte, into *T, read func(*reader) T) error {
	const frame = 2 + 4
	if len(b) < frame {
		return unreadable("%d bytes", len(b))
	}
	if b[0] != version {
		return unreadable("version %d, and this package reads version %d", b[0], version)
	}
	if b[1] != kind {
		return unreadable("kind %q where %q is wanted", b[1], kind)
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return unreadable("the checksum of %d bytes is wrong", len(b))
	}
	r := reader{rest: b[2:end]}
	value := read(&r)
	switch {
	case r.err != nil:
		return r.err
	case len(r.rest) > 0:
		return unreadable("%d bytes too many", len(r.rest))
	}
	*into = value
	return nil
}

// A reader takes what it reads off the bytes. After an error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = unreadable(format, args...)
	}
	r.rest = nil
}

// take returns the next n bytes, which belong to the caller's slice.
func (r *reader) take(n int, what string) []byte {
	if n > len(r.rest) {
		r.fail("cut off in %s", what)
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte(what string) byte {
	if b := r.take(1, what); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint(what string) uint64 {
	x, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("no number in %s", what)
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

// length reads the size of something of which each element takes least bytes, and
// so cannot exceed what is left.
func (r *reader) length(least int, what string) int {
	n := r.uvarint(what)
	if n > uint64(len(r.rest)/least) {
		r.fail("cut off in %s", what)
		return 0
	}
	return int(n)
}

func (r *reader) stamp() Stamp { return Stamp{r.uint64("a stamp"), r.byte("a stamp")} }

func (r *reader) vector() Vector {
	n := r.length(2, "a vector")
	if n == 0 {
		return Vector{}
	}
	at := make([]Stamp, 0, n)
	for range n {
		s := Stamp{Region: r.byte("a vector"), Lamport: r.uvarint("a vector")}
		if r.err != nil {
			return Vector{}
		}
		if s.IsZero() || len(at) > 0 && at[len(at)-1].Region >= s.Region {
			r.fail("a vector out of order")
			return Vector{}
		}
		at = append(at, s)
	}
	return Vector{at}
}

func (r *reader) register() Register {
	g := Register{state: State(r.byte("a register")), stamp: r.stamp()}
	copy(g.digest[:], r.take(len(g.digest), "a digest"))
	g.seen = r.vector()
	switch g.state {
	case Present:
		copy(g.salt[:], r.take(len(g.salt), "a salt"))
		g.value = append([]byte{}, r.take(r.length(1, "a value"), "a value")...)
		if r.err == nil && digest(hashBody(g.salt, g.value), g.stamp, Present, g.seen) != g.digest {
			r.fail("a value is not the one that was written")
		}
	case Deleted, Remote:
	default:
		r.fail("state %d", g.state)
	}
	if r.err == nil && g.stamp.IsZero() {
		r.fail("a write without a stamp")
	}
	if r.err != nil {
		return Register{}
	}
	return g
}

func (r *reader) entries() []Entry {
	const least = 1 + 1 + 1 + 9 + 32 + 1 // a key of one byte, a tombstone that has seen nothing
	n := r.length(least, "entries")
	if n == 0 {
		return nil
	}
	entries := make([]Entry, 0, n)
	for range n {
		key := string(r.take(r.length(1, "a key"), "a key"))
		e := Entry{Key: key, Register: r.register()}
		if r.err == nil {
			if err := checkKey(key); err != nil {
				r.fail("a key: %v", err)
			}
		}
		if r.err != nil {
			return nil
		}
		entries = append(entries, e)
	}
	return entries
}

func (r *reader) delta() Delta {
	d := Delta{From: r.byte("a delta"), To: r.byte("a delta"), Since: r.vector(), Upto: r.vector(), After: r.stamp(), Last: r.stamp()}
	switch r.byte("a delta") {
	case 0:
	case 1:
		d.More = true
	default:
		r.fail("a delta that has neither more pages nor none")
	}
	copy(d.Sum[:], r.take(len(d.Sum), "a sum"))
	d.Entries = r.entries()
	if r.err != nil {
		return Delta{}
	}
	return d
}
