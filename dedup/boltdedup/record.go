package boltdedup

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A record is what the store knows of one ID. Times are microseconds since 1970
// by the wall clock. An absent record stands for an ID that has none.
type record struct {
	state       state
	hold        bool  // claimed under the policy Hold
	ownAsk      bool  // done: the ask that claimed it also completed it
	since       int64 // claimed, held: the grant; done, released: the settlement
	until       int64 // claimed: the end of the lease
	expires     int64 // the end of the retention; zero while the record never expires
	token       uint64
	attempt     uint64
	nonce       [16]byte // of the ask that acquired it; zero when nothing compares it any more
	fingerprint [32]byte
	result      []byte // done
}

// state is stored, so the numbers stay.
type state uint8

const (
	absent   state = 0
	claimed  state = 1
	held     state = 2
	done     state = 3
	released state = 4
)

// The encoding begins with the layout version and a byte of state and flags.
// Then come, as varints, token, grant or settlement relative to the token,
// attempt, end of the lease and end of the retention relative to since; then
// nonce, fingerprint and result. What a state does not need is left out, since
// small records make small commits: 21 bytes when done, 38 when claimed.
const (
	recordLayout = 1

	stateMask       = 0x07
	flagHold        = 0x08
	flagOwnAsk      = 0x10
	flagFingerprint = 0x20
	flagResult      = 0x40
	knownFlags      = stateMask | flagHold | flagOwnAsk | flagFingerprint | flagResult
)

// errRecord is the reason why a stored record cannot be read.
var errRecord = errors.New("it is not in a layout this version knows")

// append encodes the record behind b.
func (r *record) append(b []byte) []byte {
	b = append(b, recordLayout, r.flags())
	b = binary.AppendUvarint(b, r.token)
	b = binary.AppendVarint(b, r.since-int64(r.token)) // nearly always zero: a token is the time of its grant
	b = binary.AppendUvarint(b, r.attempt)
	if r.state == claimed {
		b = binary.AppendVarint(b, r.until-r.since)
	}
	if !r.forever() {
		b = binary.AppendVarint(b, r.expires-r.since)
	}
	if r.hasNonce() {
		b = append(b, r.nonce[:]...)
	}
	if r.fingerprint != [32]byte{} {
		b = append(b, r.fingerprint[:]...)
	}
	return append(b, r.result...)
}

func (r *record) flags() byte {
	f := byte(r.state)
	if r.hold {
		f |= flagHold
	}
	if r.ownAsk {
		f |= flagOwnAsk
	}
	if r.fingerprint != [32]byte{} {
		f |= flagFingerprint
	}
	if len(r.result) > 0 {
		f |= flagResult
	}
	return f
}

// hasNonce says whether a later ask can be compared with the nonce. The nonce
// of a record that a settlement completed is spent: its answer is Done to all.
func (r *record) hasNonce() bool { return r.state != done || r.ownAsk }

// decode reads what append wrote. The result shares the bytes of b.
func decode(b []byte) (record, error) {
	if len(b) < 2 || b[0] != recordLayout || b[1]&^knownFlags != 0 {
		return record{}, errRecord
	}
	f := b[1]
	r := record{state: state(f & stateMask), hold: f&flagHold != 0, ownAsk: f&flagOwnAsk != 0}
	if r.state < claimed || r.state > released {
		return record{}, errRecord
	}
	d := decoder{rest: b[2:]}
	r.token = d.uvarint()
	r.since = int64(r.token) + d.varint()
	r.attempt = d.uvarint()
	if r.state == claimed {
		r.until = r.since + d.varint()
	}
	if !r.forever() {
		r.expires = r.since + d.varint()
	}
	if r.hasNonce() {
		d.bytes(r.nonce[:])
	}
	if f&flagFingerprint != 0 {
		d.bytes(r.fingerprint[:])
	}
	if f&flagResult != 0 {
		r.result, d.rest = d.rest, nil
	}
	if d.failed || len(d.rest) > 0 {
		return record{}, fmt.Errorf("%w: it is cut off or too long", errRecord)
	}
	return r, nil
}

// A decoder takes values off the front of rest and remembers a failure.
type decoder struct {
	rest   []byte
	failed bool
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

func (d *decoder) bytes(into []byte) {
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
