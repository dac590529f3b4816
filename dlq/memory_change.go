package dlq

import (
	"bytes"
	"container/list"
	"context"
	"time"
)

// entryRow is a line of the audit with what the store alone needs to know.
type entryRow struct {
	Entry
	nonce   [16]byte
	expires int64
	stream  *streamRows
}

// jobRow is a job with what the store alone needs to know.
type jobRow struct {
	Job
	expires int64
	stream  *streamRows
	at      *list.Element
}

// alarmRow is the last alarm that was the first within its window.
type alarmRow struct {
	name    string
	nonce   [16]byte
	expires int64 // the end of its window
	stream  *streamRows
}

// Change implements [Store].
func (m *Memory) Change(ctx context.Context, p Params, changes []Change) ([]error, error) {
	return each(ctx, m, changes, func(now int64, c *Change) error { return m.change(now, p, c) })
}

// change is the rules of [Store.Change].
func (m *Memory) change(now int64, p Params, c *Change) error {
	s := m.stream(c.Stream)
	if _, ok := s.applied[c.Nonce]; ok {
		return nil
	}
	if c.Kind == ChangeNote && c.Seq == 0 {
		m.append(s, p, c, Entry{ID: c.ID}, now)
		return nil
	}
	r := s.letters[c.Seq]
	switch {
	case r == nil || r.ID != c.ID:
		return ErrNotFound
	case !r.allows(c.Kind):
		return ErrState
	case c.Before != [32]byte{} && c.Before != r.Digest:
		return ErrChanged
	case c.Kind == ChangeApprove && c.Job != "" && s.jobs[c.Job] == nil:
		return ErrNotFound
	}
	e := Entry{ID: r.ID, Letter: r.Seq, Before: r.Digest}
	if c.Kind != ChangeNote {
		m.apply(s, r, p, c, now)
	}
	if c.Kind != ChangeForget {
		e.After = r.Digest
	}
	m.append(s, p, c, e, now)
	return nil
}

// allows says whether the kind of change applies to the letter.
func (r *stored) allows(k ChangeKind) bool {
	switch k {
	case ChangeForget, ChangeNote:
		return true
	case ChangeSkip:
		return r.State.Unresolved() && !r.Aside
	case ChangeEdit, ChangeApprove, ChangeReject, ChangeDiscard:
		return r.State.Unresolved()
	}
	return false
}

func (m *Memory) apply(s *streamRows, r *stored, p Params, c *Change, now int64) {
	m.outcome(r, &counts.moved)
	r.begunBy = 0
	switch c.Kind {
	case ChangeEdit:
		if r.Original == nil {
			r.Original = append([]byte{}, r.Body...) // not nil, whatever the body was
		}
		r.Body, r.Digest = bytes.Clone(c.Body), c.After
	case ChangeApprove:
		if c.Job != "" {
			r.Job, r.counted = c.Job, true
			s.jobs[c.Job].Released++
		}
		r.Tries, r.Next = 0, time.UnixMicro(now)
		s.move(r, StateWaiting, now)
	case ChangeReject:
		m.end(s, r, StateRejected, p, now)
	case ChangeDiscard:
		m.end(s, r, StateDiscarded, p, now)
	case ChangeSkip:
		s.move(r, StateReview, now)
		s.leave(r, now, now+p.Retention.Microseconds())
		r.Aside = true
		m.enter(r, now)
	case ChangeForget:
		if r.State.Unresolved() {
			m.end(s, r, StateDiscarded, p, now)
		}
		s.ended[r.State]--
		m.remove(r)
	}
}

// append adds a line to the audit.
func (m *Memory) append(s *streamRows, p Params, c *Change, e Entry, now int64) {
	s.entrySeq++
	e.Stream, e.Seq, e.At = c.Stream, s.entrySeq, time.UnixMicro(now)
	e.Verb, e.Actor, e.Reason = c.Kind.String(), c.Actor, c.Reason
	switch c.Kind {
	case ChangeNote:
		e.Verb, e.Job = c.Verb, c.Job
	case ChangeApprove:
		e.Job = c.Job
	}
	row := &entryRow{Entry: e, nonce: c.Nonce, expires: now + p.Audit.Microseconds(), stream: s}
	s.entries = append(s.entries, row)
	s.applied[c.Nonce] = struct{}{}
	m.things.PushBack(row)
}

// counts are what a job counts.
var counts = struct{ passed, failed, moved func(*Job) *int }{
	func(j *Job) *int { return &j.Passed }, func(j *Job) *int { return &j.Failed }, func(j *Job) *int { return &j.Moved },
}

// outcome counts what became of a letter that a job released.
func (m *Memory) outcome(r *stored, which *func(*Job) *int) {
	if j := r.stream.jobs[r.Job]; j != nil && r.counted {
		*(*which)(&j.Job)++
	}
	r.counted = false
}

// SaveJob implements [Store].
func (m *Memory) SaveJob(ctx context.Context, p Params, j Job) (Job, error) {
	if err := ctx.Err(); err != nil {
		return Job{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.stream(j.Stream)
	row := s.jobs[j.ID]
	switch {
	case row != nil && row.Nonce == j.Nonce:
		return row.copy(), nil
	case row == nil && j.Version > 0:
		return Job{}, ErrNotFound
	case row != nil && row.Version != j.Version:
		return row.copy(), ErrChanged
	case row == nil:
		row = &jobRow{stream: s, Job: Job{Stream: j.Stream, ID: j.ID, Created: time.UnixMicro(now)}}
		s.jobs[j.ID] = row
		row.at = m.things.PushBack(row)
	}
	row.Nonce, row.Data, row.Ended = j.Nonce, bytes.Clone(j.Data), j.Ended
	row.Version++
	row.Updated, row.expires = time.UnixMicro(now), now+p.Retention.Microseconds()
	return row.copy(), nil
}

func (j *jobRow) copy() Job {
	c := j.Job
	c.Data = bytes.Clone(c.Data)
	return c
}

// Alert implements [Store].
func (m *Memory) Alert(ctx context.Context, alarms []Alarm) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	first := make([]bool, len(alarms))
	for i, a := range alarms {
		s := m.stream(a.Stream)
		row := s.alarms[a.Fingerprint]
		switch {
		case row != nil && row.nonce == a.Nonce:
			first[i] = true
			continue
		case row != nil && now < row.expires:
			continue
		case row == nil:
			row = &alarmRow{name: a.Fingerprint, stream: s}
			s.alarms[a.Fingerprint] = row
			m.things.PushBack(row)
		}
		first[i] = true
		row.nonce, row.expires = a.Nonce, now+a.Window.Microseconds()
	}
	return first, nil
}
