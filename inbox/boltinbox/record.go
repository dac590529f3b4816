package boltinbox

import (
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 2

// counts are the records by state.
type counts [inbox.StateUnknown + 1]int

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

// An event is the part of a record that changes only when it is replayed or its
// body is redacted.
type event struct {
	inbox.Event
	form     inbox.Form
	stream   string
	digest   [32]byte
	received int64
	since    int64 // it was received or replayed
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
	b = append(b, layout, flags, byte(e.form))
	b = binary.AppendVarint(b, e.received)
	b = binary.AppendVarint(b, e.since-e.received)
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
	return []*string{&e.ID, &e.stream, &e.Key, &e.Provider, &e.Type, &e.Version, &e.Account, &e.Phone, &e.MessageID, &e.ExternalID, &e.Trace}
}

// decodeEvent reads what append wrote. Payload and context share the bytes of b.
func decodeEvent(b []byte) (e event, err error) {
	d := decode(b)
	flags := d.Byte()
	e.Fingerprinted, e.Unknown = flags&flagFingerprinted != 0, flags&flagUnknown != 0
	e.form = inbox.Form(d.Byte())
	e.received = d.Varint()
	e.since = e.received + d.Varint()
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
	expires  int64  // settled; zero: never
	erases   int64  // settled; zero: never
	deleted  int64  // when the body was redacted, or zero
	err      []byte
	failures []inbox.Failure
	changed  [16]byte // the nonce of the last change
	actions  []inbox.Action
}

func (s *status) append(b []byte) []byte {
	b = append(b, layout, byte(s.state))
	b = binary.AppendUvarint(b, s.attempts)
	b = binary.AppendUvarint(b, s.token)
	b = binary.AppendVarint(b, s.at)
	if s.state != inbox.StatePending {
		b = binary.AppendVarint(b, s.expires)
		b = binary.AppendVarint(b, s.erases)
		b = binary.AppendVarint(b, s.deleted)
	}
	b = boltrow.AppendBytes(b, s.err)
	b = binary.AppendUvarint(b, uint64(len(s.failures)))
	for i := range s.failures {
		f := &s.failures[i]
		b = binary.AppendUvarint(b, uint64(f.Attempt))
		b = binary.AppendVarint(b, f.At.UnixMicro())
		b = boltrow.AppendBytes(b, []byte(f.Error))
	}
	if len(s.actions) == 0 {
		return b
	}
	b = append(b, s.changed[:]...)
	for i := range s.actions {
		a := &s.actions[i]
		b = binary.AppendVarint(append(b, byte(a.Kind)), a.At.UnixMicro())
		b = boltrow.AppendBytes(b, []byte(a.Actor))
		b = boltrow.AppendBytes(b, []byte(a.Reason))
	}
	return b
}

func decodeStatus(b []byte) (s status, err error) {
	d := decode(b)
	s.state = inbox.State(d.Byte())
	s.attempts = d.Uvarint()
	s.token = d.Uvarint()
	s.at = d.Varint()
	if s.state != inbox.StatePending {
		s.expires, s.erases, s.deleted = d.Varint(), d.Varint(), d.Varint()
	}
	s.err = d.Bytes()
	for n := d.Uvarint(); n > 0 && !d.Failed; n-- {
		s.failures = append(s.failures, inbox.Failure{
			Attempt: int(d.Uvarint()), At: time.UnixMicro(d.Varint()), Error: string(d.Bytes()),
		})
	}
	if len(d.Rest) > 0 {
		d.Fixed(s.changed[:])
	}
	for len(d.Rest) > 0 && !d.Failed {
		s.actions = append(s.actions, inbox.Action{
			Kind: inbox.ChangeKind(d.Byte()), At: time.UnixMicro(d.Varint()), Actor: string(d.Bytes()), Reason: string(d.Bytes()),
		})
	}
	if s.state < inbox.StatePending || s.state > inbox.StateUnknown {
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
