package boltdlq

import (
	"github.com/pawl-go/pawl/dlq"
)

func (st *step) change(p dlq.Params, changes []dlq.Change) ([]error, error) {
	return each(changes, func(c *dlq.Change) (refused, err error) { return st.changeOne(p, c) })
}

// changeOne applies a change and appends its entry, or says why it was refused.
func (st *step) changeOne(p dlq.Params, c *dlq.Change) (refused, err error) {
	if first(st.index, indexPrefix(c.Stream, entryByNonce, string(c.Nonce[:]))) != 0 {
		return nil, nil // it was applied before
	}
	e := dlq.Entry{ID: c.ID}
	if c.Kind == dlq.ChangeNote && c.Seq == 0 {
		return nil, st.append(p, c, e)
	}
	l, found, err := st.letter(c.Stream, c.Seq)
	switch {
	case err != nil:
		return nil, err
	case !found || l.id != c.ID:
		return dlq.ErrNotFound, nil
	case !l.allows(c.Kind):
		return dlq.ErrState, nil
	case c.Before != [32]byte{} && c.Before != l.digest:
		return dlq.ErrChanged, nil
	}
	if c.Kind == dlq.ChangeApprove && c.Job != "" {
		if _, known, err := st.job(c.Stream, c.Job); err != nil || !known {
			return dlq.ErrNotFound, err
		}
	}
	e.Letter, e.Before, e.After = l.seq, l.digest, l.digest
	switch c.Kind {
	case dlq.ChangeEdit:
		e.After = c.After
	case dlq.ChangeForget:
		e.After = [32]byte{}
	}
	if c.Kind != dlq.ChangeNote {
		if err := st.apply(&l, p, c); err != nil {
			return nil, err
		}
	}
	return nil, st.append(p, c, e)
}

// allows says whether the kind of change applies to the letter.
func (l *letter) allows(k dlq.ChangeKind) bool {
	switch k {
	case dlq.ChangeForget, dlq.ChangeNote:
		return true
	case dlq.ChangeSkip:
		return l.state.Unresolved() && !l.aside
	case dlq.ChangeEdit, dlq.ChangeApprove, dlq.ChangeReject, dlq.ChangeDiscard:
		return l.state.Unresolved()
	}
	return false
}

// apply changes a letter and takes it from its worker.
func (st *step) apply(l *letter, p dlq.Params, c *dlq.Change) error {
	after := *l
	after.begunBy = 0
	if err := st.outcome(&after, moved); err != nil {
		return err
	}
	switch c.Kind {
	case dlq.ChangeEdit:
		if err := st.edit(&after, c); err != nil {
			return err
		}
		return st.stay(l, &after)
	case dlq.ChangeApprove:
		if err := st.approve(&after, c); err != nil {
			return err
		}
		return st.stay(l, &after)
	case dlq.ChangeReject:
		st.end(&after, dlq.StateRejected, p)
	case dlq.ChangeDiscard:
		st.end(&after, dlq.StateDiscarded, p)
	case dlq.ChangeSkip:
		after.state, after.next, after.aside = dlq.StateReview, 0, true
		if err := st.leave(l, &after, p); err != nil {
			return err
		}
		return st.enter(&after)
	case dlq.ChangeForget:
		if !l.state.Unresolved() {
			return st.remove(l)
		}
		st.end(&after, dlq.StateDiscarded, p)
		if err := st.leave(l, &after, p); err != nil {
			return err
		}
		return st.remove(&after)
	}
	return st.leave(l, &after, p)
}

// edit replaces the body, and keeps the first one.
func (st *step) edit(l *letter, c *dlq.Change) error {
	key := seqKey(l.stream, l.seq)
	if !l.edited {
		body, err := decodeBlob(st.bodies.Get(key), "the body of a letter")
		if err != nil {
			return err
		}
		if err := st.write(st.originals, key, blob(body)); err != nil {
			return err
		}
	}
	l.edited, l.digest = true, c.After
	return st.write(st.bodies, key, blob(c.Body))
}

// approve makes the letter due, and has a job count it.
func (st *step) approve(l *letter, c *dlq.Change) error {
	l.tries, l.next, l.state = 0, st.now, dlq.StateWaiting
	if c.Job == "" {
		return nil
	}
	l.job, l.counted = c.Job, true
	return st.tellJob(l, released)
}

// append adds an entry to the audit.
func (st *step) append(p dlq.Params, c *dlq.Change, what dlq.Entry) error {
	seq, err := st.entries.NextSequence()
	if err != nil {
		return err
	}
	e := entry{Entry: what, nonce: c.Nonce, expires: st.now + p.Audit.Microseconds()}
	e.Stream, e.Seq, e.At = c.Stream, seq, moment(st.now)
	e.Verb, e.Actor, e.Reason = c.Kind.String(), c.Actor, c.Reason
	switch c.Kind {
	case dlq.ChangeNote:
		e.Verb, e.Job = c.Verb, c.Job
	case dlq.ChangeApprove:
		e.Job = c.Job
	}
	for _, place := range e.places() {
		if err := st.relist(st.index, nil, place); err != nil {
			return err
		}
	}
	if err := st.relist(st.expiring, nil, e.forgets()); err != nil {
		return err
	}
	return st.write(st.entries, seqKey(e.Stream, e.Seq), e.append(nil))
}

// places are the keys under which the index lists an entry.
func (e *entry) places() (keys [3][]byte) {
	keys[0] = indexKey(e.Stream, entryByNonce, string(e.nonce[:]), e.Seq)
	if e.ID != "" {
		keys[1] = indexKey(e.Stream, entryByID, e.ID, e.Seq)
	}
	if e.Job != "" {
		keys[2] = indexKey(e.Stream, entryByJob, e.Job, e.Seq)
	}
	return keys
}

// forgets is the key under which an entry waits to be forgotten.
func (e *entry) forgets() []byte {
	return expiringKey(e.expires, entryExpires, seqKey(e.Stream, e.Seq))
}

// dropEntry takes back what append wrote.
func (st *step) dropEntry(e *entry) error {
	for _, place := range e.places() {
		if err := st.relist(st.index, place, nil); err != nil {
			return err
		}
	}
	if err := st.relist(st.expiring, e.forgets(), nil); err != nil {
		return err
	}
	return st.erase(st.entries, seqKey(e.Stream, e.Seq))
}
