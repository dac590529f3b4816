package boltinbox

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Change implements [inbox.Store]. A batch is one commit, as in Accept.
func (s *Store) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) (errs []error, err error) {
	err = s.update(ctx, "change", func(st *step) (err error) {
		errs, err = st.change(p, changes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

func (st *step) change(p inbox.Params, changes []inbox.Change) (errs []error, err error) {
	for i := range changes {
		refused, err := st.changeOne(p, &changes[i])
		if err != nil {
			return nil, err
		}
		if refused != nil {
			if errs == nil {
				errs = make([]error, len(changes))
			}
			errs[i] = refused
		}
	}
	return errs, nil
}

// changeOne applies a change to the records it is about, or says why it was
// refused.
func (st *step) changeOne(p inbox.Params, c *inbox.Change) (refused, err error) {
	e, _, err := st.entry(c.ID)
	if err != nil {
		return nil, err
	}
	refused = inbox.ErrNotFound
	done := c.Kind == inbox.ChangeForget
	for _, seq := range e.seqs {
		ev, s, err := st.record(seq)
		if err != nil {
			return nil, err
		}
		// What was read is valid until the next write.
		ev.Payload, ev.Context, s.err = bytes.Clone(ev.Payload), bytes.Clone(ev.Context), bytes.Clone(s.err)
		switch {
		case c.Kind == inbox.ChangeForget:
			err = st.forgetRecord(seq, &ev, &s, p)
		case len(s.actions) > 0 && s.changed == c.Nonce: // applied before; a replay has given it another Seq
			done = true
		case c.Seq != 0 && seq != c.Seq:
		case !allowed(c.Kind, &ev, &s):
			refused = inbox.ErrState
		default:
			done = true
			err = st.apply(seq, &ev, &s, c, p)
		}
		if err != nil {
			return nil, err
		}
	}
	if done {
		return nil, nil
	}
	return refused, nil
}

// allowed says whether a kind of change applies to a record.
func allowed(k inbox.ChangeKind, ev *event, s *status) bool {
	switch k {
	case inbox.ChangeReplay:
		return ev.stream != "" && s.state != inbox.StatePending && s.state != inbox.StateConflict && ev.form&inbox.FormRedacted == 0
	case inbox.ChangeResolve:
		return s.state != inbox.StatePending && s.state != inbox.StateDone
	case inbox.ChangeRedact:
		return s.state != inbox.StatePending
	}
	return false
}

func (st *step) apply(seq uint64, ev *event, s *status, c *inbox.Change, p inbox.Params) error {
	before := *s
	s.changed = c.Nonce
	s.actions = append(s.actions, inbox.Action{Kind: c.Kind, At: time.UnixMicro(st.now), Actor: c.Actor, Reason: c.Reason})
	s.actions = s.actions[max(len(s.actions)-inbox.MaxActions, 0):]
	if c.Kind == inbox.ChangeRedact {
		return st.redact(seq, ev, s)
	}
	if err := st.dropSettled(seq, ev.form, &before); err != nil {
		return err
	}
	st.count(before.state, -1)
	if c.Kind == inbox.ChangeReplay {
		return st.replay(seq, ev, s)
	}
	st.conclude(s, inbox.StateDone, p)
	st.count(s.state, 1)
	return st.putSettled(seq, ev.form, s)
}

// replay makes a record that has ended pending again, under a new number.
func (st *step) replay(seq uint64, ev *event, s *status) error {
	next, err := st.events.NextSequence()
	if err != nil {
		return err
	}
	e, _, err := st.entry(ev.ID)
	if err != nil {
		return err
	}
	e.seqs = append(slices.DeleteFunc(e.seqs, func(other uint64) bool { return other == seq }), next)
	if err := st.ids.Put([]byte(ev.ID), e.append(nil)); err != nil {
		return err
	}
	if err := st.dropEvent(seq, ev); err != nil {
		return err
	}
	ev.since = st.now
	if err := st.putEvent(next, ev); err != nil {
		return err
	}
	s.state, s.attempts, s.token, s.at = inbox.StatePending, 0, 0, 0
	st.count(s.state, 1)
	return st.wait(next, keyName(ev.stream, ev.Key), s)
}

// redact takes the body out of a record that has ended, and what was said about it.
func (st *step) redact(seq uint64, ev *event, s *status) error {
	if err := st.dropSettled(seq, ev.form, s); err != nil {
		return err
	}
	ev.Payload, ev.Context, ev.Trace, ev.form = nil, nil, "", inbox.FormRedacted
	if err := st.events.Put(seqKey(seq), ev.append(nil)); err != nil {
		return err
	}
	s.err, s.failures, s.deleted = nil, nil, st.now
	st.changed = true
	return st.putSettled(seq, ev.form, s)
}

// forgetRecord removes a record, also one that is pending.
func (st *step) forgetRecord(seq uint64, ev *event, s *status, p inbox.Params) error {
	if s.state != inbox.StatePending {
		return st.remove(seq, ev, s)
	}
	name := keyName(ev.stream, ev.Key)
	k, _, err := st.key(name)
	if err != nil {
		return err
	}
	k.expires = st.now + p.Retention.Microseconds()
	if err := st.leave(name, &k, seq); err != nil {
		return err
	}
	return st.erase(seq, ev)
}
