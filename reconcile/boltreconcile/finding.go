package boltreconcile

import (
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/internal/boltrow"
	"github.com/pawl-go/pawl/reconcile"
)

// A finding is one of [reconcile.Finding] without its log, which is a row of its own.
// Times are in microseconds since 1970; zero is never. Its methods are the rules of
// [reconcile.CheckStore].
type finding struct {
	kind, check, subject string // in the row's key

	account, detail, by, note         string
	state                             reconcile.FindingState
	version                           uint64
	count                             int64
	times                             int
	first, last, opened, due, expires int64
	nonce                             [16]byte // of the last report that changed it
	outcome                           reconcile.Outcome

	said []reconcile.Change // what a step adds to the log, for the caller to write
}

func (f *finding) key() []byte { return nameKey(f.kind, f.check, f.subject) }

func (f *finding) expired(now int64) bool { return f.expires != 0 && f.expires <= now }

func (f *finding) unresolved() bool { return f.state != reconcile.Resolved }

// dismissed says that a person has seen to it, and it was there all the time since.
func (f *finding) dismissed(now int64, p *reconcile.CheckParams) bool {
	return f.state == reconcile.Resolved && f.by != "" && now-f.last <= p.Lull.Microseconds()
}

// wakes says that a report makes a resolved finding unresolved.
func (f *finding) wakes(now int64, p *reconcile.CheckParams, v reconcile.ReportVerb) bool {
	return (v == reconcile.ReportSuspect || v == reconcile.ReportRaise) && f.state == reconcile.Resolved && !f.dismissed(now, p)
}

// report is rule 4 of Report; a finding without state is new, and suspected or raised.
func (f *finding) report(now int64, p *reconcile.CheckParams, r *reconcile.Report) (o reconcile.Outcome, erase bool) {
	switch r.Verb {
	case reconcile.ReportSuspect, reconcile.ReportRaise:
		return f.seen(now, p, r), false
	case reconcile.ReportWait:
		if f.unresolved() {
			f.due = now + r.Delay.Microseconds()
			return reconcile.Applied, false
		}
	case reconcile.ReportAcknowledge:
		if f.state == reconcile.Open {
			f.become(now, reconcile.Acknowledged, r)
			return reconcile.Applied, false
		}
	case reconcile.ReportClear, reconcile.ReportResolve:
		if f.unresolved() {
			f.become(now, reconcile.Resolved, r)
			f.due, f.expires = 0, now+p.Retention.Microseconds()
			return reconcile.Applied, r.Verb == reconcile.ReportClear && f.times == 0
		}
	}
	return reconcile.Nothing, false
}

// seen applies Suspect and Raise.
func (f *finding) seen(now int64, p *reconcile.CheckParams, r *reconcile.Report) (o reconcile.Outcome) {
	o = reconcile.Counted
	switch known := f.state != 0 && f.unresolved(); {
	case f.dismissed(now, p):
		f.expires = now + p.Retention.Microseconds()
	case r.Verb == reconcile.ReportSuspect && known:
	case r.Verb == reconcile.ReportSuspect:
		f.become(now, reconcile.Suspected, r)
		f.due, f.expires = now+r.Delay.Microseconds(), 0
		o = reconcile.Doubtful
	default:
		f.due, f.expires = now+r.Delay.Microseconds(), 0
		if f.state == reconcile.Open || f.state == reconcile.Acknowledged {
			break
		}
		f.become(now, reconcile.Open, r)
		f.times++
		f.opened = now
		o = reconcile.Raised
		if f.times > 1 {
			o = reconcile.Reopened
		}
	}
	f.last = now
	f.count += r.N
	f.account = r.Account
	if o != reconcile.Counted || r.Verb == reconcile.ReportRaise {
		f.detail = r.Detail
	}
	return o
}

// become changes the state and adds a line to the log.
func (f *finding) become(now int64, s reconcile.FindingState, r *reconcile.Report) {
	f.state, f.by, f.note = s, r.By, r.Note
	f.version = max(f.version+1, uint64(now))
	f.said = append(f.said, reconcile.Change{At: moment(now), State: s, By: r.By, Note: r.Note})
}

// selected is the rule of [reconcile.FindingQuery].
func (f *finding) selected(q *reconcile.FindingQuery) bool {
	return (q.Check == "" || q.Check == f.check) && (q.Subject == "" || q.Subject == f.subject) &&
		(q.Account == "" || q.Account == f.account) && (q.State == 0 || q.State == f.state) && (!q.Unresolved || f.unresolved())
}

func (f *finding) append(b []byte) []byte {
	b = append(append(b, layout, byte(f.state), byte(f.outcome)), f.nonce[:]...)
	b = binary.AppendUvarint(binary.AppendUvarint(b, f.version), uint64(f.times))
	b = binary.AppendVarint(b, f.count)
	for _, at := range f.moments() {
		b = binary.AppendVarint(b, *at)
	}
	for _, s := range f.texts() {
		b = boltrow.AppendBytes(b, []byte(*s))
	}
	return b
}

// moments and texts are the fields that are such, in the order in which they are stored.
func (f *finding) moments() []*int64 {
	return []*int64{&f.first, &f.last, &f.opened, &f.due, &f.expires}
}

func (f *finding) texts() []*string { return []*string{&f.account, &f.detail, &f.by, &f.note} }

func decodeFinding(kind, check, subject string, b []byte) (f finding, err error) {
	d := decode(b)
	f.kind, f.check, f.subject = kind, check, subject
	f.state, f.outcome = reconcile.FindingState(d.Byte()), reconcile.Outcome(d.Byte())
	d.Fixed(f.nonce[:])
	f.version, f.times, f.count = d.Uvarint(), int(d.Uvarint()), d.Varint()
	for _, at := range f.moments() {
		*at = d.Varint()
	}
	for _, s := range f.texts() {
		*s = string(d.Bytes())
	}
	if f.state < reconcile.Suspected || f.state > reconcile.Resolved {
		d.Failed = true
	}
	return f, d.End("a finding")
}

// Changes are the log of a finding.
type changes struct {
	said    []reconcile.Change
	dropped int // between the first ones and the others
}

// add appends a change; the log is bounded.
func (h *changes) add(c reconcile.Change) { h.said, h.dropped = bounded(h.said, c, h.dropped) }

func (h *changes) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, layout), uint64(h.dropped)), uint64(len(h.said)))
	for i := range h.said {
		c := &h.said[i]
		b = binary.AppendVarint(append(b, byte(c.State)), c.At.UnixMicro())
		b = boltrow.AppendBytes(boltrow.AppendBytes(b, []byte(c.By)), []byte(c.Note))
	}
	return b
}

// decodeChanges reads what append wrote, and shares nothing with the file. Nil: there
// are none yet.
func decodeChanges(b []byte) (h changes, err error) {
	if b == nil {
		return changes{}, nil
	}
	d := decode(b)
	h.dropped = int(d.Uvarint())
	for n := d.Uvarint(); n > 0 && !d.Failed; n-- {
		h.said = append(h.said, reconcile.Change{
			State: reconcile.FindingState(d.Byte()), At: time.UnixMicro(d.Varint()), By: string(d.Bytes()), Note: string(d.Bytes()),
		})
	}
	return h, d.End("the log of a finding")
}

// Findings are the unresolved findings of a check, by state.
type findings [reconcile.Resolved]int

func (t *findings) unresolved() (n int) {
	for _, of := range t {
		n += of
	}
	return n
}

func (t *findings) append(b []byte) []byte {
	b = append(b, layout)
	for _, n := range t[1:] {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// decodeFindings reads what append wrote. Nil: there are none.
func decodeFindings(b []byte) (t findings, err error) {
	if b == nil {
		return findings{}, nil
	}
	d := decode(b)
	for i := range t[1:] {
		t[i+1] = int(d.Uvarint())
	}
	return t, d.End("the counts of a check")
}

// counts is what a finding counts for.
func (f *finding) counts() (t findings) {
	if f != nil && f.unresolved() {
		t[f.state]++
	}
	return t
}
