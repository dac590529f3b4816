package boltrow_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/pawl-go/pawl/internal/boltrow"
)

func row() []byte {
	b := []byte{1, 7}
	b = binary.AppendUvarint(b, math.MaxUint64)
	b = binary.AppendVarint(b, math.MinInt64)
	b = append(b, "nonce"...)
	return boltrow.AppendBytes(b, []byte("payload"))
}

func read(b []byte, layout byte) error {
	d := boltrow.Decode(b, layout)
	first, u, v := d.Byte(), d.Uvarint(), d.Varint()
	var nonce [5]byte
	d.Fixed(nonce[:])
	payload := d.Bytes()
	if err := d.End("a row"); err != nil {
		return err
	}
	if first != 7 || u != math.MaxUint64 || v != math.MinInt64 || string(nonce[:]) != "nonce" || string(payload) != "payload" {
		return errors.New("other values")
	}
	return nil
}

func TestRow(t *testing.T) {
	if err := read(row(), 1); err != nil {
		t.Error(err)
	}
}

// A row of another version, one that was cut anywhere, and one with more behind it
// are failures, and no panic.
func TestRowThatCannotBeRead(t *testing.T) {
	for n := range row() {
		if err := read(row()[:n], 1); !errors.Is(err, boltrow.ErrRecord) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if err := read(append(row(), 0), 1); !errors.Is(err, boltrow.ErrRecord) {
		t.Errorf("with a byte behind it: %v", err)
	}
	if err := read(row(), 2); !errors.Is(err, boltrow.ErrRecord) {
		t.Errorf("of another version: %v", err)
	}
	huge := binary.AppendUvarint([]byte{1}, math.MaxUint64) // a length beyond the row
	if d := boltrow.Decode(huge, 1); d.Bytes() != nil && len(d.Bytes()) > 0 || d.End("") == nil {
		t.Error("a length beyond the row was believed")
	}
}
