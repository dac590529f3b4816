package boltseqgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/seqgen"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

var errRecord = errors.New("it is not in a layout this version knows")

// A record is what is kept of one key, apart from its voids.
type record struct {
	epoch, last uint64
	mode        seqgen.Mode
	token       uint64
	owned       bool
	used        uint64
	log         []logEntry // the newest last
}

// A logEntry is a step that carried a nonce. Without numbers and without an epoch
// it is spent; with an epoch alone it is a bump.
type logEntry struct {
	nonce         [16]byte
	epoch, lo, hi uint64
	token         uint64 // in mode Block
}

func (e *logEntry) spend() { *e = logEntry{nonce: e.nonce} }

func (r *record) position() seqgen.Position { return seqgen.Position{Epoch: r.epoch, Number: r.last} }

func (r *record) append(b []byte) []byte {
	var owned byte
	if r.owned {
		owned = 1
	}
	b = append(b, layout, byte(r.mode), owned)
	for _, n := range []uint64{r.epoch, r.last, r.token, r.used} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range r.log {
		e := &r.log[i]
		b = append(b, e.nonce[:]...)
		for _, n := range []uint64{e.epoch, e.lo, e.hi, e.token} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return b
}

func decodeRecord(b []byte) (r record, err error) {
	d := decode(b)
	r.mode, r.owned = seqgen.Mode(d.byte()), d.byte() == 1
	for _, n := range []*uint64{&r.epoch, &r.last, &r.token, &r.used} {
		*n = d.uvarint()
	}
	for len(d.rest) > 0 && !d.failed {
		var e logEntry
		d.fixed(e.nonce[:])
		for _, n := range []*uint64{&e.epoch, &e.lo, &e.hi, &e.token} {
			*n = d.uvarint()
		}
		r.log = append(r.log, e)
	}
	return r, d.end("a key")
}

// A voidRow is a void; its place says where it begins.
type voidRow struct {
	hi      uint64
	kind    seqgen.VoidKind
	reason  seqgen.Reason
	token   uint64 // that owned what is orphaned
	at      int64
	expires int64
}

func (v *voidRow) append(b []byte) []byte {
	b = append(b, layout, byte(v.kind), byte(v.reason))
	b = binary.AppendUvarint(b, v.hi)
	b = binary.AppendUvarint(b, v.token)
	b = binary.AppendVarint(b, v.at)
	return binary.AppendVarint(b, v.expires)
}

func decodeVoid(b []byte) (v voidRow, err error) {
	d := decode(b)
	v.kind, v.reason = seqgen.VoidKind(d.byte()), seqgen.Reason(d.byte())
	v.hi, v.token = d.uvarint(), d.uvarint()
	v.at, v.expires = d.varint(), d.varint()
	return v, d.end("a void")
}

// A decoder takes values off the front of rest and remembers a failure.
type decoder struct {
	rest   []byte
	failed bool
}

// decode begins to read a value and checks its version.
func decode(b []byte) *decoder {
	d := &decoder{rest: b}
	d.failed = d.byte() != layout
	return d
}

func (d *decoder) byte() byte {
	var b [1]byte
	d.fixed(b[:])
	return b[0]
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.skip(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	d.skip(n)
	return v
}

func (d *decoder) fixed(into []byte) {
	n := copy(into, d.rest)
	d.failed = d.failed || n < len(into)
	d.rest = d.rest[n:]
}

func (d *decoder) skip(n int) {
	if n <= 0 {
		d.failed, n = true, 0
	}
	d.rest = d.rest[n:]
}

// end says whether a value was read whole.
func (d *decoder) end(what string) error {
	if d.failed || len(d.rest) > 0 {
		return fmt.Errorf("%s cannot be read: %w", what, errRecord)
	}
	return nil
}
