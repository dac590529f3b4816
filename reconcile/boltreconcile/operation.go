package boltreconcile

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/reconcile"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

// An operation is the part of an operation that changes often. Its payload, its result
// and its log are rows of their own, so that a change does not write them again. Times
// are in microseconds since 1970; zero is never.
type operation struct {
	kind, key string // in the row's key

	account     string
	fingerprint [32]byte

	state           reconcile.State
	token           uint64
	attempts, looks int
	review, note    string
	again           bool
	created         int64
	first, sent     int64
	fenced, due     int64
	until           int64 // of the lease; zero: none
	expires         int64
	nonce           [16]byte // of the last grant
	grant           reconcile.Grant
	claimed         bool           // by a Claim
	last            reconcile.Verb // that ended the last grant; zero: none did
	endedOutside    bool           // by a receipt, under the token that the record still has
	outside         [16]byte       // nonce of the last receipt or decision
	outsideAs       refusal        // and its answer

	// What a step adds, for the caller to write.
	result []byte // nil: the same as before
	said   []reconcile.Transition
}

const (
	flagAgain = 1 << iota
	flagClaimed
	flagEndedOutside
)

func (o *operation) append(b []byte) []byte {
	var flags byte
	if o.again {
		flags |= flagAgain
	}
	if o.claimed {
		flags |= flagClaimed
	}
	if o.endedOutside {
		flags |= flagEndedOutside
	}
	b = append(b, layout, byte(o.state), flags, byte(o.grant), byte(o.last), byte(o.outsideAs))
	b = append(append(append(b, o.fingerprint[:]...), o.nonce[:]...), o.outside[:]...)
	for _, n := range []uint64{o.token, uint64(o.attempts), uint64(o.looks)} {
		b = binary.AppendUvarint(b, n)
	}
	for _, at := range o.times() {
		b = binary.AppendVarint(b, *at)
	}
	for _, s := range o.texts() {
		b = boltrow.AppendBytes(b, []byte(*s))
	}
	return b
}

// times and texts are the fields that are such, in the order in which they are stored.
func (o *operation) times() []*int64 {
	return []*int64{&o.created, &o.first, &o.sent, &o.fenced, &o.due, &o.until, &o.expires}
}

func (o *operation) texts() []*string { return []*string{&o.account, &o.review, &o.note} }

func decodeOperation(kind, key string, b []byte) (o operation, err error) {
	d := decode(b)
	o.kind, o.key = kind, key
	o.state = reconcile.State(d.Byte())
	flags := d.Byte()
	o.again, o.claimed, o.endedOutside = flags&flagAgain != 0, flags&flagClaimed != 0, flags&flagEndedOutside != 0
	o.grant, o.last, o.outsideAs = reconcile.Grant(d.Byte()), reconcile.Verb(d.Byte()), refusal(d.Byte())
	d.Fixed(o.fingerprint[:])
	d.Fixed(o.nonce[:])
	d.Fixed(o.outside[:])
	o.token, o.attempts, o.looks = d.Uvarint(), int(d.Uvarint()), int(d.Uvarint())
	for _, at := range o.times() {
		*at = d.Varint()
	}
	for _, s := range o.texts() {
		*s = string(d.Bytes())
	}
	if o.state < reconcile.Started || o.state > reconcile.Unknown {
		d.Failed = true
	}
	return o, d.End("an operation")
}

// A refusal is the answer to a receipt or a decision, as it is stored: none, that the
// record was changed, or how it has ended.
type refusal byte

const (
	notRefused refusal = iota
	hasChanged
	hasEnded // and the state behind that
)

func (r refusal) err() error {
	switch r {
	case notRefused:
		return nil
	case hasChanged:
		return reconcile.ErrChanged
	}
	return &reconcile.EndedError{State: reconcile.State(r - hasEnded)}
}

// ended is the refusal of what the operation's state excludes.
func (o *operation) ended() refusal { return hasEnded + refusal(o.state) }

// A history is what an operation went through.
type history struct {
	said    []reconcile.Transition
	dropped int // between the first ones and the others
}

// add appends a transition; the history is bounded.
func (h *history) add(t reconcile.Transition) { h.said, h.dropped = bounded(h.said, t, h.dropped) }

// bounded appends to a log of which the first four entries and the last ones are kept, and
// the others are counted.
func bounded[T any](log []T, entry T, dropped int) ([]T, int) {
	if len(log) >= reconcile.MaxLog {
		log = slices.Delete(log, 4, 5)
		dropped++
	}
	return append(log, entry), dropped
}

func (h *history) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, layout), uint64(h.dropped)), uint64(len(h.said)))
	for i := range h.said {
		t := &h.said[i]
		b = binary.AppendVarint(append(b, byte(t.Verb), byte(t.State)), t.At.UnixMicro())
		b = binary.AppendUvarint(b, t.Token)
		b = boltrow.AppendBytes(boltrow.AppendBytes(b, []byte(t.By)), []byte(t.Note))
	}
	return b
}

// decodeHistory reads what append wrote, and shares nothing with the file. Nil: there
// is none yet.
func decodeHistory(b []byte) (h history, err error) {
	if b == nil {
		return history{}, nil
	}
	d := decode(b)
	h.dropped = int(d.Uvarint())
	for n := d.Uvarint(); n > 0 && !d.Failed; n-- {
		h.said = append(h.said, reconcile.Transition{
			Verb: reconcile.Verb(d.Byte()), State: reconcile.State(d.Byte()), At: time.UnixMicro(d.Varint()),
			Token: d.Uvarint(), By: string(d.Bytes()), Note: string(d.Bytes()),
		})
	}
	return h, d.End("the history of an operation")
}

// blob is a row that is bytes and nothing else.
func blob(value []byte) []byte {
	return append(append(make([]byte, 0, 1+len(value)), layout), value...)
}

// decodeBlob returns bytes that share nothing with the file; nil if there is no row.
func decodeBlob(b []byte, what string) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	d := decode(b)
	value := append([]byte{}, d.Rest...)
	d.Rest = nil
	return value, d.End(what)
}

// A tally is the operations of an account, as [reconcile.Counts] has them without age.
type tally struct {
	states                          [reconcile.Unknown + 1]int
	review, resent, resentConfirmed int
	waiting                         int
}

// numbers are the fields in the order in which they are stored.
func (t *tally) numbers() []*int {
	return []*int{
		&t.states[reconcile.Started], &t.states[reconcile.Accepted], &t.states[reconcile.Confirmed], &t.states[reconcile.Failed],
		&t.states[reconcile.Unknown], &t.review, &t.resent, &t.resentConfirmed, &t.waiting,
	}
}

func (t *tally) append(b []byte) []byte {
	b = append(b, layout)
	for _, n := range t.numbers() {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	return b
}

// decodeTally reads what append wrote. Nil: none are counted.
func decodeTally(b []byte) (t tally, err error) {
	if b == nil {
		return tally{}, nil
	}
	d := decode(b)
	for _, n := range t.numbers() {
		*n = int(d.Uvarint())
	}
	return t, d.End("the counts of an account")
}

// decode begins to read a row of this package.
func decode(b []byte) *boltrow.Decoder { return boltrow.Decode(b, layout) }
