// Package boltrow is how the bbolt stores write their rows: a byte for the version
// of the layout, and then numbers and bytes one after the other.
package boltrow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrRecord says that a row cannot be read.
var ErrRecord = errors.New("it is not in a layout this version knows")

// AppendBytes appends bytes with their length.
func AppendBytes(b, value []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// A Decoder takes values off the front of Rest and remembers a failure, so that a
// row is read as it is written and the failure is looked at once, by End.
type Decoder struct {
	Rest   []byte
	Failed bool
}

// Decode begins to read a row and checks its version: another one is a failure.
func Decode(b []byte, layout byte) *Decoder {
	d := &Decoder{Rest: b}
	d.Failed = d.Byte() != layout
	return d
}

// Byte takes one byte.
func (d *Decoder) Byte() byte {
	var b [1]byte
	d.Fixed(b[:])
	return b[0]
}

// Uvarint takes what binary.AppendUvarint has appended.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	d.skip(n)
	return v
}

// Varint takes what binary.AppendVarint has appended.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.Rest)
	d.skip(n)
	return v
}

// Fixed fills into.
func (d *Decoder) Fixed(into []byte) {
	n := copy(into, d.Rest)
	d.Failed = d.Failed || n < len(into)
	d.Rest = d.Rest[n:]
}

// Bytes takes what AppendBytes has appended. It shares the row's bytes.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if n > uint64(len(d.Rest)) {
		d.Failed, n = true, 0
	}
	b := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return b
}

func (d *Decoder) skip(n int) {
	if n <= 0 {
		d.Failed, n = true, 0
	}
	d.Rest = d.Rest[n:]
}

// End says whether a row was read whole; what names it in the error.
func (d *Decoder) End(what string) error {
	if d.Failed || len(d.Rest) > 0 {
		return fmt.Errorf("%s cannot be read: %w", what, ErrRecord)
	}
	return nil
}
