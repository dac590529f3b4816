package boltreconcile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/reconcile"
)

// A subject is what observations are about.
type subject struct {
	kind, ref, id string // in the row's key

	count, dropped int
	last           string // the event that was dropped last
	expires        int64
	listed         int64 // as what it is listed among what expires, which may be earlier
}

func (s *subject) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, layout), uint64(s.count)), uint64(s.dropped))
	b = binary.AppendVarint(binary.AppendVarint(b, s.expires), s.listed)
	return boltrow.AppendBytes(b, []byte(s.last))
}

func decodeSubject(key, b []byte) (s subject, err error) {
	kind, rest, _ := bytes.Cut(key, []byte{0})
	d := decode(b)
	s.count, s.dropped = int(d.Uvarint()), int(d.Uvarint())
	s.expires, s.listed = d.Varint(), d.Varint()
	s.last = string(d.Bytes())
	if len(rest) < 2 {
		d.Failed = true
	} else {
		s.kind, s.ref, s.id = string(kind), string(rest[:1]), string(rest[1:])
	}
	return s, d.End("a message")
}

// appendObservation writes what is not in the row's key: subject, time of arrival and event.
func appendObservation(b []byte, o *reconcile.Observation, absurd bool) []byte {
	b = append(append(b, layout, 0), o.Digest[:]...)
	if absurd {
		b[1] = 1
	}
	b = binary.AppendVarint(b, o.Said.UnixMicro())
	for _, s := range texts(o) {
		b = boltrow.AppendBytes(b, []byte(*s))
	}
	return b
}

// texts are the fields that are strings, in the order in which they are stored.
func texts(o *reconcile.Observation) []*string {
	return []*string{&o.Message, &o.Own, &o.Status, &o.Participant, &o.Source, &o.Code}
}

// decodeObservation returns an observation that shares nothing with the file.
func decodeObservation(key, b []byte) (o reconcile.Observation, err error) {
	_, received, event, ok := splitKey(key)
	if !ok {
		return o, fmt.Errorf("the key of an observation cannot be read: %w", boltrow.ErrRecord)
	}
	d := decode(b)
	o.Absurd = d.Byte() == 1
	d.Fixed(o.Digest[:])
	o.Said = time.UnixMicro(d.Varint())
	for _, s := range texts(&o) {
		*s = string(d.Bytes())
	}
	if o.Said.IsZero() {
		o.Said = time.Time{}
	}
	o.Event, o.Received, o.At = event, time.UnixMicro(received), o.Said
	if o.Absurd {
		o.At = o.Received
	}
	return o, d.End("an observation")
}
