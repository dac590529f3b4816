package boltseqgen

import (
	"encoding/binary"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/seqgen"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

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
	r.mode, r.owned = seqgen.Mode(d.Byte()), d.Byte() == 1
	for _, n := range []*uint64{&r.epoch, &r.last, &r.token, &r.used} {
		*n = d.Uvarint()
	}
	for len(d.Rest) > 0 && !d.Failed {
		var e logEntry
		d.Fixed(e.nonce[:])
		for _, n := range []*uint64{&e.epoch, &e.lo, &e.hi, &e.token} {
			*n = d.Uvarint()
		}
		r.log = append(r.log, e)
	}
	return r, d.End("a key")
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
	v.kind, v.reason = seqgen.VoidKind(d.Byte()), seqgen.Reason(d.Byte())
	v.hi, v.token = d.Uvarint(), d.Uvarint()
	v.at, v.expires = d.Varint(), d.Varint()
	return v, d.End("a void")
}

// decode begins to read a row of this package.
func decode(b []byte) *boltrow.Decoder { return boltrow.Decode(b, layout) }
