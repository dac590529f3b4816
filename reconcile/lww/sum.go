package lww

import (
	"crypto/sha256"
	"encoding/binary"
)

// The sum of a map is the exclusive or of a hash over each key that has a value, here
// or elsewhere, with the stamp and digest of its write. Two regions that have seen the
// same and have not the same sum have lost something. It finds faults; it is no
// protection from those who look for two sets of one sum. Tombstones are not in it,
// for regions collect them at different times.

// toggle adds an entry to the sum, or takes it out.
func (m *Map) toggle(key string, r Register) {
	if r.state == Absent || r.state == Deleted {
		return
	}
	b := append(make([]byte, 0, 128), r.digest[:]...)
	b = append(binary.BigEndian.AppendUint64(b, r.stamp.Lamport), r.stamp.Region)
	one := sha256.Sum256(append(b, key...))
	for i := range m.sum {
		m.sum[i] ^= one[i]
	}
}
