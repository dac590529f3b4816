package boltdlq

import (
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/boltrow"
)

// The version of the layout with which every value begins. Values of a later
// version are refused.
const layout = 1

// A letter is the part of a letter that changes often. Its body, the original of that
// and its log are rows of their own, so that a change does not write them again.
type letter struct {
	stream string // in the row's key, as is seq
	seq    uint64

	id, key, fingerprint, job string

	state     dlq.State
	aside     bool
	counted   bool // its job waits for what becomes of it
	edited    bool // there is an original
	digest    [32]byte
	tries     int
	put       int64
	next      int64 // zero: it does not wait
	settled   int64
	expires   int64 // zero: it has not ended
	putBy     [16]byte
	putAs     dlq.Answer
	begunBy   uint64 // the token under which it is being tried; zero: it is not
	settledBy uint64 // the token of its last settlement
	settledAs dlq.Kind
}

func (l *letter) lane() string { return dlq.LaneOf(l.id, l.key, l.aside) }

// grouped says whether the letter is counted in the group of its fingerprint.
func (l *letter) grouped() bool { return l.state.Unresolved() && l.fingerprint != "" }

const (
	flagAside = 1 << iota
	flagCounted
	flagEdited
)

func (l *letter) append(b []byte) []byte {
	var flags byte
	if l.aside {
		flags |= flagAside
	}
	if l.counted {
		flags |= flagCounted
	}
	if l.edited {
		flags |= flagEdited
	}
	b = append(b, layout, byte(l.state), flags, byte(l.putAs), byte(l.settledAs))
	b = append(append(b, l.digest[:]...), l.putBy[:]...)
	for _, n := range []uint64{uint64(l.tries), l.begunBy, l.settledBy} {
		b = binary.AppendUvarint(b, n)
	}
	for _, at := range []int64{l.put, l.next, l.settled, l.expires} {
		b = binary.AppendVarint(b, at)
	}
	for _, s := range []string{l.id, l.key, l.fingerprint, l.job} {
		b = boltrow.AppendBytes(b, []byte(s))
	}
	return b
}

func decodeLetter(stream string, seq uint64, b []byte) (l letter, err error) {
	d := decode(b)
	l.stream, l.seq = stream, seq
	l.state = dlq.State(d.Byte())
	flags := d.Byte()
	l.aside, l.counted, l.edited = flags&flagAside != 0, flags&flagCounted != 0, flags&flagEdited != 0
	l.putAs, l.settledAs = dlq.Answer(d.Byte()), dlq.Kind(d.Byte())
	d.Fixed(l.digest[:])
	d.Fixed(l.putBy[:])
	l.tries, l.begunBy, l.settledBy = int(d.Uvarint()), d.Uvarint(), d.Uvarint()
	l.put, l.next, l.settled, l.expires = d.Varint(), d.Varint(), d.Varint(), d.Varint()
	for _, s := range []*string{&l.id, &l.key, &l.fingerprint, &l.job} {
		*s = string(d.Bytes())
	}
	if l.state < dlq.StateWaiting || l.state > dlq.StateRejected {
		d.Failed = true
	}
	return l, d.End("a letter")
}

// blob is a row that is bytes and nothing else.
func blob(value []byte) []byte {
	return append(append(make([]byte, 0, 1+len(value)), layout), value...)
}

// decodeBlob returns bytes that share nothing with the file.
func decodeBlob(b []byte, what string) ([]byte, error) {
	d := decode(b)
	value := append([]byte{}, d.Rest...)
	d.Rest = nil
	return value, d.End(what)
}

func appendLog(b []byte, l *dlq.Log) []byte {
	b = append(b, layout)
	b = appendFailure(b, &l.First)
	b = binary.AppendUvarint(b, uint64(len(l.Last)))
	for i := range l.Last {
		b = appendFailure(b, &l.Last[i])
	}
	b = binary.AppendUvarint(b, uint64(len(l.Folds)))
	for i := range l.Folds {
		f := &l.Folds[i]
		b = boltrow.AppendBytes(b, []byte(f.Fingerprint))
		b = binary.AppendUvarint(b, uint64(f.Count))
		b = binary.AppendVarint(binary.AppendVarint(b, f.First.UnixMicro()), f.Last.UnixMicro())
	}
	return binary.AppendUvarint(b, uint64(l.Others))
}

func appendFailure(b []byte, f *dlq.Failure) []byte {
	b = binary.AppendVarint(b, f.At.UnixMicro())
	return boltrow.AppendBytes(boltrow.AppendBytes(b, []byte(f.Fingerprint)), f.Detail)
}

// decodeLog returns a log that shares nothing with the file.
func decodeLog(b []byte) (l dlq.Log, err error) {
	d := decode(b)
	l.First = decodeFailure(d)
	for n := d.Uvarint(); n > 0 && !d.Failed; n-- {
		l.Last = append(l.Last, decodeFailure(d))
	}
	for n := d.Uvarint(); n > 0 && !d.Failed; n-- {
		l.Folds = append(l.Folds, dlq.Fold{
			Fingerprint: string(d.Bytes()), Count: int(d.Uvarint()), First: time.UnixMicro(d.Varint()), Last: time.UnixMicro(d.Varint()),
		})
	}
	l.Others = int(d.Uvarint())
	return l, d.End("the log of a letter")
}

func decodeFailure(d *boltrow.Decoder) dlq.Failure {
	return dlq.Failure{At: time.UnixMicro(d.Varint()), Fingerprint: string(d.Bytes()), Detail: append([]byte{}, d.Bytes()...)}
}

// A lane is what is worked one at a time.
type lane struct {
	stream, name string // in the row's key

	token   uint64
	nonce   [16]byte // of the ask that claimed it
	until   int64    // the end of the lease; zero: not claimed
	since   int64    // when it was last released, or its first letter became the first
	expires int64    // when it may be forgotten if it is empty

	// Where it is listed; zero: nowhere.
	dueAt    int64
	dueSeq   uint64
	forgetAt int64
}

func (k *lane) append(b []byte) []byte {
	b = append(append(b, layout), k.nonce[:]...)
	b = binary.AppendUvarint(binary.AppendUvarint(b, k.token), k.dueSeq)
	for _, at := range []int64{k.until, k.since, k.expires, k.dueAt, k.forgetAt} {
		b = binary.AppendVarint(b, at)
	}
	return b
}

func decodeLane(stream, name string, b []byte) (k lane, err error) {
	d := decode(b)
	k.stream, k.name = stream, name
	d.Fixed(k.nonce[:])
	k.token, k.dueSeq = d.Uvarint(), d.Uvarint()
	k.until, k.since, k.expires, k.dueAt, k.forgetAt = d.Varint(), d.Varint(), d.Varint(), d.Varint(), d.Varint()
	return k, d.End("a lane")
}

// A group is the unresolved letters of a fingerprint.
type group struct {
	waiting, review int
	first, last     int64
}

func (g *group) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, layout), uint64(g.waiting)), uint64(g.review))
	return binary.AppendVarint(binary.AppendVarint(b, g.first), g.last)
}

func decodeGroup(b []byte) (g group, err error) {
	d := decode(b)
	g.waiting, g.review = int(d.Uvarint()), int(d.Uvarint())
	g.first, g.last = d.Varint(), d.Varint()
	return g, d.End("a group")
}

// counts are the letters of a stream by state.
type counts [dlq.StateRejected + 1]int

func (c *counts) append(b []byte) []byte {
	b = append(b, layout)
	for _, n := range c[1:] {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// decodeCounts reads what append wrote. Nil: none are counted.
func decodeCounts(b []byte) (c counts, err error) {
	if b == nil {
		return counts{}, nil
	}
	d := decode(b)
	for i := range c[1:] {
		c[i+1] = int(d.Uvarint())
	}
	return c, d.End("the totals of a stream")
}

// An entry is a line of the audit with what the store alone needs to know.
type entry struct {
	dlq.Entry // Stream and Seq are in the row's key
	nonce     [16]byte
	expires   int64
}

func (e *entry) append(b []byte) []byte {
	b = append(append(b, layout), e.nonce[:]...)
	b = append(append(b, e.Before[:]...), e.After[:]...)
	b = binary.AppendVarint(binary.AppendVarint(b, e.At.UnixMicro()), e.expires)
	b = binary.AppendUvarint(b, e.Letter)
	for _, s := range e.texts() {
		b = boltrow.AppendBytes(b, []byte(*s))
	}
	return b
}

// texts are the fields that are strings, in the order in which they are stored.
func (e *entry) texts() []*string { return []*string{&e.Verb, &e.ID, &e.Job, &e.Actor, &e.Reason} }

func decodeEntry(stream string, seq uint64, b []byte) (e entry, err error) {
	d := decode(b)
	e.Stream, e.Seq = stream, seq
	d.Fixed(e.nonce[:])
	d.Fixed(e.Before[:])
	d.Fixed(e.After[:])
	e.At, e.expires = time.UnixMicro(d.Varint()), d.Varint()
	e.Letter = d.Uvarint()
	for _, s := range e.texts() {
		*s = string(d.Bytes())
	}
	return e, d.End("an entry of the audit")
}

// A job is a redrive job with what the store alone needs to know.
type job struct {
	dlq.Job // Stream and ID are in the row's key
	expires int64
}

// forgetAt is when the job may be forgotten; zero: it has not ended.
func (j *job) forgetAt() int64 {
	if !j.Ended {
		return 0
	}
	return j.expires
}

func (j *job) append(b []byte) []byte {
	b = append(append(b, layout), j.Nonce[:]...)
	var ended uint64
	if j.Ended {
		ended = 1
	}
	for _, n := range []uint64{j.Version, ended, uint64(j.Released), uint64(j.Passed), uint64(j.Failed), uint64(j.Moved)} {
		b = binary.AppendUvarint(b, n)
	}
	for _, at := range []int64{j.Created.UnixMicro(), j.Updated.UnixMicro(), j.expires} {
		b = binary.AppendVarint(b, at)
	}
	return boltrow.AppendBytes(b, j.Data)
}

// decodeJob returns a job that shares nothing with the file.
func decodeJob(stream, id string, b []byte) (j job, err error) {
	d := decode(b)
	j.Stream, j.ID = stream, id
	d.Fixed(j.Nonce[:])
	j.Version, j.Ended = d.Uvarint(), d.Uvarint() == 1
	for _, n := range []*int{&j.Released, &j.Passed, &j.Failed, &j.Moved} {
		*n = int(d.Uvarint())
	}
	j.Created, j.Updated, j.expires = time.UnixMicro(d.Varint()), time.UnixMicro(d.Varint()), d.Varint()
	j.Data = append([]byte{}, d.Bytes()...)
	return j, d.End("a job")
}

// An alarm is the last one of a fingerprint that was the first within its window.
type alarm struct {
	nonce   [16]byte
	expires int64 // the end of its window
}

func (a *alarm) append(b []byte) []byte {
	return binary.AppendVarint(append(append(b, layout), a.nonce[:]...), a.expires)
}

func decodeAlarm(b []byte) (a alarm, err error) {
	d := decode(b)
	d.Fixed(a.nonce[:])
	a.expires = d.Varint()
	return a, d.End("an alarm")
}

// decode begins to read a row of this package.
func decode(b []byte) *boltrow.Decoder { return boltrow.Decode(b, layout) }
