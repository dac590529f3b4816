package boltorder

import (
	"encoding/binary"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/order"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

// A keyRow is what is known of an ordering key beside its epochs.
type keyRow struct {
	token    uint64
	nonce    [16]byte // of the ask that claimed it
	until    int64    // the end of the lease; zero: not claimed
	due      int64    // when there is something to claim; zero: never
	late     uint64   // late messages that are to be handed over, parked ones included
	head     int64    // when the message was pushed that is to be delivered next; zero: there is none
	live     []uint64 // the epochs that have not ended, ascending
	arrivals order.Arrivals
}

// at is when the key can be claimed; zero: never.
func (k *keyRow) at() int64 {
	if k.due == 0 {
		return 0
	}
	return max(k.due, k.until)
}

func (k *keyRow) counts() []*uint64 {
	a := &k.arrivals
	return []*uint64{&a.Pushed, &a.Accepted, &a.Duplicate, &a.Conflict, &a.Late, &a.Stale, &a.Full, &a.TooFar}
}

func (k *keyRow) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, layout), k.token)
	b = append(b, k.nonce[:]...)
	b = binary.AppendVarint(b, k.until)
	b = binary.AppendVarint(b, k.due)
	b = binary.AppendUvarint(b, k.late)
	b = binary.AppendVarint(b, k.head)
	for _, n := range k.counts() {
		b = binary.AppendUvarint(b, *n)
	}
	for _, e := range k.live {
		b = binary.AppendUvarint(b, e)
	}
	return b
}

func decodeKey(b []byte) (k keyRow, err error) {
	d := decode(b)
	k.token = d.Uvarint()
	d.Fixed(k.nonce[:])
	k.until, k.due, k.late, k.head = d.Varint(), d.Varint(), d.Uvarint(), d.Varint()
	for _, n := range k.counts() {
		*n = d.Uvarint()
	}
	for len(d.Rest) > 0 && !d.Failed {
		k.live = append(k.live, d.Uvarint())
	}
	d.Failed = d.Failed || len(k.live) == 0 // a key always has one
	return k, d.End("a key")
}

// An epochRow is one sequence of a key. Its counts are those of [order.Ledger].
type epochRow struct {
	base, cursor, head uint64
	ended              bool
	parked             bool // the message at the cursor

	delivered, void, skipped, late             uint64
	buffered, unordered, voidAhead, outOfOrder uint64

	attempts uint64 // of the message at the cursor
	begun    uint64 // the numbers from the cursor to below this one were begun
	taken    uint64 // those to below this one were begun by the last claim
	due      int64  // when the message at the cursor can be claimed, or the gap looked at; zero: neither
	err      []byte // of the last attempt of the message at the cursor

	gap gapState
}

// A gapState is the gap at the cursor. When it closes its notes stay: what is left
// of it later is the same gap if the same number stands behind it.
type gapState struct {
	open    bool
	opened  int64
	since   int64 // when the cursor came to its first number
	look    int64 // when it is to be looked at
	above   uint64
	alerted bool
	asked   uint64
}

func (e *epochRow) parkedCount() uint64 {
	if e.parked {
		return 1
	}
	return 0
}

func (e *epochRow) missing() uint64 {
	return e.head - e.cursor - e.buffered - e.parkedCount() - e.unordered - e.voidAhead
}

func (e *epochRow) numbers() []*uint64 {
	return []*uint64{&e.base, &e.cursor, &e.head, &e.delivered, &e.void, &e.skipped, &e.late, &e.buffered, &e.unordered,
		&e.voidAhead, &e.outOfOrder, &e.attempts, &e.begun, &e.taken, &e.gap.asked, &e.gap.above}
}

func (e *epochRow) flags() []*bool { return []*bool{&e.ended, &e.parked, &e.gap.open, &e.gap.alerted} }

func (e *epochRow) append(b []byte) []byte {
	b = append(b, layout, packFlags(e.flags()))
	for _, n := range e.numbers() {
		b = binary.AppendUvarint(b, *n)
	}
	b = binary.AppendVarint(b, e.due)
	for _, at := range []int64{e.gap.opened, e.gap.since, e.gap.look} {
		b = binary.AppendVarint(b, at)
	}
	return append(b, e.err...)
}

func decodeEpoch(b []byte) (e epochRow, err error) {
	d := decode(b)
	unpackFlags(d.Byte(), e.flags())
	for _, n := range e.numbers() {
		*n = d.Uvarint()
	}
	e.due, e.gap.opened, e.gap.since, e.gap.look = d.Varint(), d.Varint(), d.Varint(), d.Varint()
	e.err, d.Rest = append([]byte(nil), d.Rest...), nil
	return e, d.End("an epoch")
}

// A message is one that was pushed, or the mark that a number came late.
type message struct {
	digest  [16]byte
	known   bool // the digest is known
	late    bool // its number came late
	waiting bool // it is to be handed over late
	parked  bool // it was set aside when it was to be handed over late
	outside bool // it was delivered outside of the buffer

	pushed   int64
	due      int64  // late: when it can be claimed or, when it is not waiting any more, when it ended
	attempts uint64 // waiting
	noted    uint64 // waiting: the token under which err was noted
	err      []byte // waiting

	id, context, payload []byte
}

func (m *message) flags() []*bool {
	return []*bool{&m.known, &m.late, &m.waiting, &m.parked, &m.outside}
}

func (m *message) append(b []byte) []byte {
	b = append(b, layout, packFlags(m.flags()))
	b = append(b, m.digest[:]...)
	b = binary.AppendVarint(b, m.pushed)
	if m.late {
		b = binary.AppendVarint(b, m.due)
	}
	if m.waiting {
		b = binary.AppendUvarint(b, m.attempts)
		b = binary.AppendUvarint(b, m.noted)
		b = boltrow.AppendBytes(b, m.err)
	}
	b = boltrow.AppendBytes(b, m.id)
	b = boltrow.AppendBytes(b, m.context)
	return append(b, m.payload...)
}

// decodeMessage reads what append wrote. The message shares the bytes of b.
func decodeMessage(b []byte) (m message, err error) {
	d := decode(b)
	unpackFlags(d.Byte(), m.flags())
	d.Fixed(m.digest[:])
	m.pushed = d.Varint()
	if m.late {
		m.due = d.Varint()
	}
	if m.waiting {
		m.attempts, m.noted, m.err = d.Uvarint(), d.Uvarint(), d.Bytes()
	}
	m.id, m.context = d.Bytes(), d.Bytes()
	m.payload, d.Rest = d.Rest, nil
	return m, d.End("a message")
}

// A span is a range of numbers that are void, skipped or unordered.
type span struct {
	kind     spanKind
	from, to uint64 // to is not included
}

type spanKind uint8

const (
	void spanKind = iota + 1
	skipped
	unordered // at or above the cursor only
)

func (s *span) append(b []byte) []byte {
	return binary.AppendUvarint(append(b, layout, byte(s.kind)), s.to-s.from)
}

func decodeSpan(from uint64, b []byte) (span, error) {
	d := decode(b)
	s := span{kind: spanKind(d.Byte()), from: from}
	s.to = from + d.Uvarint()
	if s.kind < void || s.kind > unordered {
		d.Failed = true
	}
	return s, d.End("a range")
}

// A gapRow is the record of a gap that was skipped. The gap at a cursor has a row
// as well, so that it is listed; what is known of it is in its epoch's row.
type gapRow struct {
	open       bool
	alerted    bool
	reason     order.Reason
	resolution order.Resolution
	to         uint64
	opened     int64
	resolved   int64
	asked      uint64
	arrived    uint64
	actor      []byte
	note       []byte
}

func (g *gapRow) flags() []*bool { return []*bool{&g.open, &g.alerted} }

func (g *gapRow) append(b []byte) []byte {
	b = append(b, layout, packFlags(g.flags()), byte(g.reason), byte(g.resolution))
	b = binary.AppendUvarint(b, g.to)
	b = binary.AppendVarint(b, g.opened)
	b = binary.AppendVarint(b, g.resolved)
	b = binary.AppendUvarint(b, g.asked)
	b = binary.AppendUvarint(b, g.arrived)
	b = boltrow.AppendBytes(b, g.actor)
	return append(b, g.note...)
}

func decodeGap(b []byte) (g gapRow, err error) {
	d := decode(b)
	unpackFlags(d.Byte(), g.flags())
	g.reason, g.resolution = order.Reason(d.Byte()), order.Resolution(d.Byte())
	g.to, g.opened, g.resolved = d.Uvarint(), d.Varint(), d.Varint()
	g.asked, g.arrived, g.actor = d.Uvarint(), d.Uvarint(), append([]byte(nil), d.Bytes()...)
	g.note, d.Rest = append([]byte(nil), d.Rest...), nil
	return g, d.End("the record of a gap")
}

// totals are the counts of a scope.
type totals struct {
	keys, buffered, parked, late, open, unresolved uint64
}

func (t *totals) numbers() []*uint64 {
	return []*uint64{&t.keys, &t.buffered, &t.parked, &t.late, &t.open, &t.unresolved}
}

func (t *totals) append(b []byte) []byte {
	b = append(b, layout)
	for _, n := range t.numbers() {
		b = binary.AppendUvarint(b, *n)
	}
	return b
}

func decodeTotals(b []byte) (t totals, err error) {
	if b == nil {
		return t, nil
	}
	d := decode(b)
	for _, n := range t.numbers() {
		*n = d.Uvarint()
	}
	return t, d.End("the totals")
}

func packFlags(flags []*bool) (b byte) {
	for i, f := range flags {
		if *f {
			b |= 1 << i
		}
	}
	return b
}

func unpackFlags(b byte, flags []*bool) {
	for i, f := range flags {
		*f = b&(1<<i) != 0
	}
}

// decode begins to read a row of this package.
func decode(b []byte) *boltrow.Decoder { return boltrow.Decode(b, layout) }
