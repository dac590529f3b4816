package boltinbox

import (
	"bytes"
	"encoding/binary"

	"github.com/pawl-go/pawl/inbox"
)

func (st *step) settle(p inbox.Params, settlements []inbox.Settlement) (errs []error, err error) {
	for i := range settlements {
		applied, err := st.settleOne(p, &settlements[i])
		if err != nil {
			return nil, err
		}
		if !applied {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = inbox.ErrStale
		}
	}
	return errs, nil
}

// settleOne says whether a settlement was applied, now or before.
func (st *step) settleOne(p inbox.Params, s *inbox.Settlement) (applied bool, err error) {
	seq, form, r, err := st.find(s)
	if err != nil {
		return false, err
	}
	r.err = bytes.Clone(r.err)
	ends := ended(s.Kind)
	if seq != 0 && r.state != inbox.StatePending {
		return r.state == ends && r.token == s.Token, nil
	}
	name := keyName(s.Stream, s.Key)
	k, isNew, err := st.key(name)
	if err != nil || isNew || k.token != s.Token || s.Token == 0 {
		return false, err
	}
	mine := seq != 0 && r.token == s.Token
	if k.until == 0 { // released
		return s.Kind == inbox.KindRelease || s.Kind == inbox.KindRetry && mine, nil
	}
	forget := st.now + p.Retention.Microseconds()
	switch {
	case s.Kind == inbox.KindBegin && seq != 0 && seq == st.first(name):
		return true, st.begin(seq, s.Token)
	case ends != 0 && mine:
		st.conclude(&r, ends, p)
		if ends != inbox.StateDone {
			r.err, r.failures = []byte(s.Error), s.Failures
		}
		k.expires = forget
		return true, st.end(name, &k, seq, form, &r)
	case s.Kind == inbox.KindRetry && mine:
		r.at, r.err, r.failures = st.now+s.Delay.Microseconds(), []byte(s.Error), s.Failures
		if err := st.pending.Put(seqKey(seq), r.append(nil)); err != nil {
			return false, err
		}
		return true, st.release(name, k, r.at, forget)
	case s.Kind == inbox.KindRelease:
		return true, st.release(name, k, st.now, forget)
	case s.Kind == inbox.KindExtend:
		before := k
		k.until = st.now + s.Lease.Microseconds()
		return true, st.move(name, &before, &k)
	}
	return false, nil
}

// ended is the state in which a settlement of the kind leaves a record; zero if
// it does not end one.
func ended(k inbox.Kind) inbox.State {
	switch k {
	case inbox.KindDone:
		return inbox.StateDone
	case inbox.KindDead:
		return inbox.StateDead
	case inbox.KindQuarantine:
		return inbox.StateQuarantined
	case inbox.KindUnknown:
		return inbox.StateUnknown
	}
	return 0
}

// conclude says how long a record stays that ends now.
func (st *step) conclude(r *status, s inbox.State, p inbox.Params) {
	r.state, r.at = s, st.now
	switch s {
	case inbox.StateDone:
		r.expires = st.now + p.Retention.Microseconds()
		r.erases = r.expires
		if p.Bodies > 0 {
			r.erases = st.now + p.Bodies.Microseconds()
		}
	case inbox.StateUnknown:
		r.expires, r.erases = 0, 0
	default:
		r.expires = st.now + p.Keep.Microseconds()
		r.erases = r.expires
	}
}

// end moves a record from the pending ones to the settled.
func (st *step) end(name []byte, k *keyRow, seq uint64, form inbox.Form, s *status) error {
	if err := st.leave(name, k, seq); err != nil {
		return err
	}
	st.count(s.state, 1)
	return st.putSettled(seq, form, s)
}

// leave takes a record out of the pending ones. A key that it leaves empty may be
// forgotten after k.expires, also when nobody releases it.
func (st *step) leave(name []byte, k *keyRow, seq uint64) error {
	if err := st.pending.Delete(seqKey(seq)); err != nil {
		return err
	}
	if err := st.queue.Delete(queueKey(name, seq)); err != nil {
		return err
	}
	st.count(inbox.StatePending, -1)
	if st.first(name) != 0 {
		return nil
	}
	if err := st.due.Delete(dueKey(name, k.at())); err != nil {
		return err
	}
	return st.putKey(name, k)
}

// release makes a key claimable at a time.
func (st *step) release(name []byte, k keyRow, at, expires int64) error {
	before := k
	k.until, k.next, k.expires = 0, at, expires
	return st.move(name, &before, &k)
}

// move writes a key after a change of its lease, and keeps it where it belongs in
// due and claimed.
func (st *step) move(name []byte, before, after *keyRow) error {
	if st.first(name) != 0 && before.at() != after.at() {
		if err := st.due.Delete(dueKey(name, before.at())); err != nil {
			return err
		}
		if err := st.due.Put(dueKey(name, after.at()), nil); err != nil {
			return err
		}
	}
	if before.until != 0 && (after.until == 0 || before.nonce != after.nonce) {
		if err := st.claimed.Delete(claimKey(before.nonce, name)); err != nil {
			return err
		}
	}
	if after.until != 0 && (before.until == 0 || before.nonce != after.nonce) {
		if err := st.claimed.Put(claimKey(after.nonce, name), nil); err != nil {
			return err
		}
	}
	return st.putKey(name, after)
}

// find returns the record that a settlement is about; zero if there is none.
func (st *step) find(s *inbox.Settlement) (seq uint64, form inbox.Form, r status, err error) {
	if s.ID == "" {
		return 0, 0, status{}, nil
	}
	e, _, err := st.entry(s.ID)
	if err != nil {
		return 0, 0, status{}, err
	}
	for _, seq := range e.seqs {
		ev, r, err := st.record(seq)
		if err != nil {
			return 0, 0, status{}, err
		}
		if ev.stream == s.Stream && ev.Key == s.Key && (s.Seq == 0 || s.Seq == seq) {
			return seq, ev.form, r, nil
		}
	}
	return 0, 0, status{}, nil
}

// entry returns what is known of an event ID.
func (st *step) entry(id string) (e entry, known bool, err error) {
	b := st.ids.Get([]byte(id))
	if b == nil {
		return entry{}, false, nil
	}
	e, err = decodeEntry(b)
	return e, true, err
}

// record returns the two parts of a record. They are valid until the next write.
func (st *step) record(seq uint64) (ev event, s status, err error) {
	if ev, err = decodeEvent(st.events.Get(seqKey(seq))); err != nil {
		return ev, s, err
	}
	b := st.pending.Get(seqKey(seq))
	if b == nil {
		b = st.settled.Get(seqKey(seq))
	}
	s, err = decodeStatus(b)
	return ev, s, err
}

// key returns the row of a key, and whether there was none yet.
func (st *step) key(name []byte) (k keyRow, isNew bool, err error) {
	b := st.keys.Get(name)
	if b == nil {
		return keyRow{}, true, nil
	}
	k, err = decodeKey(b)
	return k, false, err
}

func (st *step) putKey(name []byte, k *keyRow) error {
	st.changed = true
	return st.keys.Put(name, k.append(nil))
}

// putSettled writes the end of a record, and lists it if somebody should look, or
// if its body is kept outside.
func (st *step) putSettled(seq uint64, form inbox.Form, s *status) error {
	if s.state != inbox.StateDone {
		if err := st.kept.Put(keptKey(s.state, seq), nil); err != nil {
			return err
		}
	}
	if form&inbox.FormOutside != 0 && s.erases != 0 {
		if err := st.outside.Put(outsideKey(s.erases, seq), nil); err != nil {
			return err
		}
	}
	return st.settled.Put(seqKey(seq), s.append(nil))
}

// dropSettled takes back what putSettled wrote.
func (st *step) dropSettled(seq uint64, form inbox.Form, s *status) error {
	if err := st.kept.Delete(keptKey(s.state, seq)); err != nil {
		return err
	}
	if form&inbox.FormOutside != 0 && s.erases != 0 {
		if err := st.outside.Delete(outsideKey(s.erases, seq)); err != nil {
			return err
		}
	}
	return st.settled.Delete(seqKey(seq))
}

func keptKey(s inbox.State, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(s)}, seq)
}

// first returns the first pending record of a key; zero if there is none.
func (st *step) first(name []byte) (seq uint64) {
	prefix := queuePrefix(name)
	q, _ := st.queue.Cursor().Seek(prefix)
	if !bytes.HasPrefix(q, prefix) {
		return 0
	}
	return binary.BigEndian.Uint64(q[len(prefix):])
}
