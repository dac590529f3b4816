package inbox

import (
	"context"
	"slices"
	"time"
)

// Change implements [Store].
func (m *Memory) Change(ctx context.Context, p Params, changes []Change) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var errs []error
	for i := range changes {
		if err := m.change(now, p, &changes[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(changes))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

// change is the rules of [Store.Change].
func (m *Memory) change(now int64, p Params, c *Change) error {
	e := m.events[c.ID]
	if c.Kind == ChangeForget {
		if e != nil {
			m.forget(e, p, now)
		}
		return nil
	}
	err := ErrNotFound
	if e == nil {
		return err
	}
	changed := false
	for _, r := range slices.Clone(e.records) {
		switch {
		case r.changedBy == c.Nonce: // applied before; a replay has given it another Seq
			changed = true
		case c.Seq != 0 && r.Seq != c.Seq:
		case !r.allows(c.Kind):
			err = ErrState
		default:
			changed = true
			m.apply(r, c, p, now)
		}
	}
	if changed {
		return nil
	}
	return err
}

// allows says whether a kind of change applies to the record.
func (r *stored) allows(k ChangeKind) bool {
	switch k {
	case ChangeReplay:
		return r.Stream != "" && r.State != StatePending && r.Form&FormRedacted == 0 && r.State != StateConflict
	case ChangeResolve:
		return r.State != StatePending && r.State != StateDone
	case ChangeRedact:
		return r.State != StatePending
	}
	return false
}

func (m *Memory) apply(r *stored, c *Change, p Params, now int64) {
	r.changedBy = c.Nonce
	r.Actions = append(r.Actions, Action{Kind: c.Kind, At: time.UnixMicro(now), Actor: c.Actor, Reason: c.Reason})
	if n := len(r.Actions); n > MaxActions {
		r.Actions = slices.Clone(r.Actions[n-MaxActions:])
	}
	switch c.Kind {
	case ChangeReplay:
		m.replay(r, now)
	case ChangeResolve:
		m.conclude(r, StateDone, p, now)
	case ChangeRedact:
		r.redact(now)
	}
}

// replay makes a record that has ended pending again.
func (m *Memory) replay(r *stored, now int64) {
	m.unlink(r)
	m.seq++
	r.Seq, r.since = m.seq, now
	r.at = m.records.PushBack(r)
	m.counts[r.State]--
	m.counts[StatePending]++
	r.State, r.Attempts, r.begunBy, r.endedBy = StatePending, 0, 0, 0
	r.Settled, r.Expires, r.Erases = time.Time{}, time.Time{}, time.Time{}
	m.wait(r, now)
}

// redact removes the body and what was said about it.
func (r *stored) redact(now int64) {
	r.Payload, r.Context, r.LastError, r.Failures, r.Trace = nil, nil, "", nil, ""
	r.Form, r.Deleted = FormRedacted, time.UnixMicro(now)
}

// forget removes all records of an event.
func (m *Memory) forget(e *entry, p Params, now int64) {
	for _, r := range slices.Clone(e.records) {
		if r.State == StatePending {
			m.pending.Remove(r.waited)
			k := m.keys[keyName{r.Stream, r.Key}]
			k.queue = slices.DeleteFunc(k.queue, func(q *stored) bool { return q == r })
			k.expires = now + p.Retention.Microseconds()
			m.schedule(k)
		}
		m.remove(r)
	}
}
