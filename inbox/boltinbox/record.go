package boltinbox

import (
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

// counts are the records by state.
type counts [inbox.StateConflict + 1]int

func (c *counts) append(b []byte) []byte {
	b = append(b, layout)
	for _, n := range c[1:] {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func (c *counts) decode(b []byte) error {
	if b == nil {
		return nil
	}
	d := decode(b)
	for i := range c[1:] {
		c[i+1] = int(d.Uvarint())
	}
	return d.End("the totals")
}

// An entry is what is known of an event ID.
type entry struct {
	digest [32]byte
	seqs   []uint64 // of its streams, then of conflicts
}

func (e *entry) append(b []byte) []byte {
	b = append(append(b, layout), e.digest[:]...)
	for _, s := range e.seqs {
		b = binary.AppendUvarint(b, s)
	}
	return b
}

func decodeEntry(b []byte) (e entry, err error) {
	d := decode(b)
	d.Fixed(e.digest[:])
	for len(d.Rest) > 0 && !d.Failed {
		e.seqs = append(e.seqs, d.Uvarint())
	}
	return e, d.End("an entry of ids")
}

// An event is the part of a record that never changes.
type event struct {
	inbox.Event
	stream   string
	digest   [32]byte
	received int64
}

const (
	flagFingerprinted = 1 << iota
	flagUnknown
	flagOccurred
)

func (e *event) append(b []byte) []byte {
	var flags byte
	if e.Fingerprinted {
		flags |= flagFingerprinted
	}
	if e.Unknown {
		flags |= flagUnknown
	}
	if !e.Occurred.IsZero() {
		flags |= flagOccurred
	}
	b = append(b, layout, flags)
	b = binary.AppendVarint(b, e.received)
	if flags&flagOccurred != 0 { // in two numbers, since a provider may name any year
		b = binary.AppendVarint(b, e.Occurred.Unix())
		b = binary.AppendUvarint(b, uint64(e.Occurred.Nanosecond()))
	}
	b = append(b, e.digest[:]...)
	for _, s := range e.texts() {
		b = boltrow.AppendBytes(b, []byte(*s))
	}
	return append(boltrow.AppendBytes(b, e.Payload), e.Context...)
}

// texts are the fields that are strings, in the order in which they are stored.
func (e *event) texts() []*string {
	return []*string{&e.ID, &e.stream, &e.Key, &e.Provider, &e.Type, &e.Version, &e.Account, &e.Phone, &e.MessageID, &e.ExternalID}
}

// decodeEvent reads what append wrote. Payload and context share the bytes of b.
func decodeEvent(b []byte) (e event, err error) {
	d := decode(b)
	flags := d.Byte()
	e.Fingerprinted, e.Unknown = flags&flagFingerprinted != 0, flags&flagUnknown != 0
	e.received = d.Varint()
	if flags&flagOccurred != 0 {
		sec := d.Varint()
		e.Occurred = time.Unix(sec, int64(d.Uvarint())).UTC()
	}
	d.Fixed(e.digest[:])
	for _, s := range e.texts() {
		*s = string(d.Bytes())
	}
	e.Payload = d.Bytes()
	e.Context, d.Rest = d.Rest, nil
	return e, d.End("an event")
}

// A status is the part of a record that changes. A record is pending or settled.
type status struct {
	state    inbox.State
	attempts uint64
	token    uint64 // under which it was last begun, or ended
	at       int64  // pending: when it is due after a failure, or zero; settled: when it ended
	expires  int64  // settled
	deleted  int64  // settled: when payload and context were erased, or zero
	err      []byte
}

func (s *status) append(b []byte) []byte {
	b = append(b, layout, byte(s.state))
	b = binary.AppendUvarint(b, s.attempts)
	b = binary.AppendUvarint(b, s.token)
	b = binary.AppendVarint(b, s.at)
	if s.state != inbox.StatePending {
		b = binary.AppendVarint(b, s.expires-s.at)
		b = binary.AppendVarint(b, s.deleted)
	}
	return append(b, s.err...)
}

func decodeStatus(b []byte) (s status, err error) {
	d := decode(b)
	s.state = inbox.State(d.Byte())
	s.attempts = d.Uvarint()
	s.token = d.Uvarint()
	s.at = d.Varint()
	if s.state != inbox.StatePending {
		s.expires = s.at + d.Varint()
		s.deleted = d.Varint()
	}
	s.err, d.Rest = d.Rest, nil
	if s.state < inbox.StatePending || s.state > inbox.StateConflict {
		d.Failed = true
	}
	return s, d.End("the state of a record")
}

// A keyRow is the ordering key of a stream.
type keyRow struct {
	token   uint64
	nonce   [16]byte // of the ask that claimed it
	until   int64    // the end of the lease; zero: not claimed
	next    int64    // when it is due if it is not claimed
	expires int64    // when it may be forgotten if nothing is pending
}

// at is when the key can be claimed.
func (k *keyRow) at() int64 {
	if k.until != 0 {
		return k.until
	}
	return k.next
}

func (k *keyRow) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, layout), k.token)
	b = append(b, k.nonce[:]...)
	b = binary.AppendVarint(b, k.until)
	b = binary.AppendVarint(b, k.next)
	return binary.AppendVarint(b, k.expires)
}

func decodeKey(b []byte) (k keyRow, err error) {
	d := decode(b)
	k.token = d.Uvarint()
	d.Fixed(k.nonce[:])
	k.until, k.next, k.expires = d.Varint(), d.Varint(), d.Varint()
	return k, d.End("a key")
}

// decode begins to read a row of this package.
func decode(b []byte) *boltrow.Decoder { return boltrow.Decode(b, layout) }
