package boltinbox

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/inbox"
)

func (st *step) list(q *inbox.Query) (records []inbox.Record, err error) {
	if q.After == math.MaxUint64 {
		return nil, nil // nothing is behind the last number
	}
	e, _, err := st.entry(q.ID)
	if err != nil {
		return nil, err
	}
	for seq := range st.selected(q, &e) {
		r, err := st.whole(seq)
		if err != nil {
			return nil, err
		}
		if records = append(records, r); len(records) == q.N {
			break
		}
	}
	return records, nil
}

// selected yields the numbers of the records that a query selects, rising; e is
// what is known of its ID.
func (st *step) selected(q *inbox.Query, e *entry) func(yield func(seq uint64) bool) {
	switch {
	case q.ID != "":
		return behind(e.seqs, q.After)
	case q.MessageID != "":
		return after(st.messages, foreignPrefix(q.MessageID), q.After, nil)
	case q.ExternalID != "":
		return after(st.externals, foreignPrefix(q.ExternalID), q.After, nil)
	case q.State == 0:
		return behind(st.erasable(), q.After)
	case q.State == inbox.StatePending:
		return after(st.pending, nil, q.After, nil)
	case q.State == inbox.StateDone:
		return after(st.settled, nil, q.After, func(v []byte) bool {
			s, err := decodeStatus(v)
			return err != nil || s.state == inbox.StateDone // whoever reads it whole finds the error
		})
	}
	return after(st.kept, []byte{byte(q.State)}, q.After, nil)
}

// after yields the numbers behind a number, from keys that are a prefix and a
// number.
func after(b *bbolt.Bucket, prefix []byte, seq uint64, want func(v []byte) bool) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		c := b.Cursor()
		for k, v := c.Seek(binary.BigEndian.AppendUint64(bytes.Clone(prefix), seq+1)); bytes.HasPrefix(k, prefix) && k != nil; k, v = c.Next() {
			if (want == nil || want(v)) && !yield(binary.BigEndian.Uint64(k[len(prefix):])) {
				return
			}
		}
	}
}

// erasable returns the numbers of the records that have ended, whose body is kept
// outside, and whose Erases has passed. They are redacted soon after, so they are
// few.
func (st *step) erasable() (seqs []uint64) {
	c := st.outside.Cursor()
	for k, _ := c.First(); k != nil && int64(binary.BigEndian.Uint64(k)) <= st.now; k, _ = c.Next() {
		seqs = append(seqs, binary.BigEndian.Uint64(k[8:]))
	}
	slices.Sort(seqs)
	return seqs
}

// behind yields the numbers of a list that are behind a number.
func behind(seqs []uint64, after uint64) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for _, seq := range seqs {
			if seq > after && !yield(seq) {
				return
			}
		}
	}
}

// whole returns a record that shares no bytes with the file.
func (st *step) whole(seq uint64) (inbox.Record, error) {
	ev, s, err := st.record(seq)
	if err != nil {
		return inbox.Record{}, err
	}
	r := inbox.Record{
		Event: ev.Event, Seq: seq, Stream: ev.stream, State: s.state, Attempts: int(s.attempts), LastError: string(s.err),
		Failures: s.failures, Actions: s.actions, Form: ev.form,
		Received: time.UnixMicro(ev.received), Age: micros(st.now - ev.since),
		Deleted: moment(s.deleted),
	}
	r.Payload, r.Context = bytes.Clone(ev.Payload), bytes.Clone(ev.Context)
	switch {
	case s.state != inbox.StatePending:
		r.Settled, r.Expires, r.Erases = moment(s.at), moment(s.expires), moment(s.erases)
	case s.at != 0:
		r.Next = time.UnixMicro(s.at)
	}
	return r, nil
}

// moment is a stored time; zero is none.
func moment(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

func (st *step) totals() (inbox.Totals, error) {
	t := inbox.Totals{
		Pending: st.counts[inbox.StatePending], Done: st.counts[inbox.StateDone], Dead: st.counts[inbox.StateDead],
		Quarantined: st.counts[inbox.StateQuarantined], Conflicts: st.counts[inbox.StateConflict],
		Unknown: st.counts[inbox.StateUnknown],
	}
	if k, _ := st.pending.Cursor().First(); k != nil {
		ev, err := decodeEvent(st.events.Get(k))
		if err != nil {
			return t, err
		}
		t.Oldest = micros(st.now - ev.since)
	}
	return t, nil
}
