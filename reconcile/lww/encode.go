package lww

import (
	"encoding/binary"
	"hash/crc32"
)

// What is written and sent. Each message is
//
//	version  1 byte: 1
//	kind     1 byte: 'r' register, 'v' vector, 'd' delta, 's' snapshot
//	...      what follows
//	crc      4 bytes: CRC-32C of all that comes before
//
// Numbers of fixed size are big-endian; lengths and counts are unsigned varints, as
// encoding/binary has them. A later version of this package reads what an earlier
// one wrote; testdata holds it to that.
//
//	stamp    Lamport 8 bytes, region 1
//	vector   count, and for each region, in order: region 1 byte, Lamport as varint
//	register state 1 byte (1 present, 2 deleted, 3 remote), stamp, digest 32 bytes,
//	         vector; if present: salt 16 bytes, length, value
//	entry    length, key, register
//	delta    from 1 byte, to 1, since vector, upto vector, after stamp, last stamp,
//	         more 1 byte (0 or 1), sum 32 bytes, count, entries
//	snapshot clock 8 bytes, vector, count, entries, count, entries in quarantine
const (
	version = 1

	kindRegister = 'r'
	kindVector   = 'v'
	kindDelta    = 'd'
	kindSnapshot = 's'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// message frames what a function appends.
func message(b []byte, kind byte, content func([]byte) []byte) []byte {
	start := len(b)
	b = content(append(b, version, kind))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// AppendBinary implements [encoding.BinaryAppender]. The zero Register, which is no
// write, has no encoding: ErrInvalid.
func (r Register) AppendBinary(b []byte) ([]byte, error) {
	if r.state == Absent {
		return b, invalid("the zero Register has no encoding")
	}
	return message(b, kindRegister, func(b []byte) []byte { return appendRegister(b, r) }), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler], as AppendBinary.
func (r Register) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// AppendBinary implements [encoding.BinaryAppender]; it never fails.
func (v Vector) AppendBinary(b []byte) ([]byte, error) {
	return message(b, kindVector, func(b []byte) []byte { return appendVector(b, v) }), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler]; it never fails.
func (v Vector) MarshalBinary() ([]byte, error) { return v.AppendBinary(nil) }

// AppendBinary implements [encoding.BinaryAppender]. ErrInvalid: one of the entries
// is no write.
func (d Delta) AppendBinary(b []byte) ([]byte, error) {
	for _, e := range d.Entries {
		if e.Register.state == Absent {
			return b, invalid("no write for key %s in a delta", short(e.Key))
		}
	}
	return message(b, kindDelta, func(b []byte) []byte {
		b = append(b, d.From, d.To)
		b = appendVector(appendVector(b, d.Since), d.Upto)
		b = appendStamp(appendStamp(b, d.After), d.Last)
		more := byte(0)
		if d.More {
			more = 1
		}
		b = append(append(b, more), d.Sum[:]...)
		return appendEntries(b, d.Entries)
	}), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler], as AppendBinary.
func (d Delta) MarshalBinary() ([]byte, error) { return d.AppendBinary(nil) }

func appendStamp(b []byte, s Stamp) []byte {
	return append(binary.BigEndian.AppendUint64(b, s.Lamport), s.Region)
}

func appendVector(b []byte, v Vector) []byte {
	b = binary.AppendUvarint(b, uint64(len(v.at)))
	for _, s := range v.at {
		b = binary.AppendUvarint(append(b, s.Region), s.Lamport)
	}
	return b
}

func appendRegister(b []byte, r Register) []byte {
	b = appendStamp(append(b, byte(r.state)), r.stamp)
	b = appendVector(append(b, r.digest[:]...), r.seen)
	if r.state == Present {
		b = append(b, r.salt[:]...)
		b = binary.AppendUvarint(b, uint64(len(r.value)))
		b = append(b, r.value...)
	}
	return b
}

func appendEntries(b []byte, entries []Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(len(e.Key)))
		b = appendRegister(append(b, e.Key...), e.Register)
	}
	return b
}
