package dlq

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// List implements [Store]. It looks at all letters until it has found enough.
func (m *Memory) List(ctx context.Context, q Query) (Page, error) {
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.look(q.Stream)
	var p Page
	at, _ := slices.BinarySearchFunc(s.order, q.After+1, func(r *stored, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	for _, r := range s.order[at:] {
		if r.gone || !r.selected(&q) {
			continue
		}
		if len(p.Records) == q.N {
			p.Next = p.Records[q.N-1].Seq
			break
		}
		c := r.copy()
		if q.Heads {
			c.Body, c.Original = nil, nil
		}
		p.Records = append(p.Records, c)
	}
	return p, nil
}

// selected is the rule of [Query].
func (r *stored) selected(q *Query) bool {
	return (q.ID == "" || r.ID == q.ID) && (q.Key == "" || r.Key == q.Key) && (q.State == 0 || r.State == q.State) &&
		(q.Fingerprint == "" || r.Fingerprint == q.Fingerprint) && (q.Job == "" || r.Job == q.Job) &&
		(q.From.IsZero() || !r.Put.Before(q.From)) && (q.Until.IsZero() || r.Put.Before(q.Until))
}

// Groups implements [Store].
func (m *Memory) Groups(ctx context.Context, stream, after string, n int) ([]Group, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.look(stream)
	var found []Group
	for _, name := range behind(s.groups, after, n) {
		found = append(found, *s.groups[name])
	}
	return found, nil
}

// Audit implements [Store].
func (m *Memory) Audit(ctx context.Context, q AuditQuery) ([]Entry, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.look(q.Stream)
	var found []Entry
	at, _ := slices.BinarySearchFunc(s.entries, q.After+1, func(e *entryRow, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	for _, e := range s.entries[at:] {
		if q.ID != "" && e.ID != q.ID || q.Job != "" && e.Job != q.Job {
			continue
		}
		if len(found) == q.N {
			return found, found[q.N-1].Seq, nil
		}
		found = append(found, e.Entry)
	}
	return found, 0, nil
}

// Jobs implements [Store].
func (m *Memory) Jobs(ctx context.Context, stream, after string, n int) ([]Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.look(stream)
	var found []Job
	for _, id := range behind(s.jobs, after, n) {
		found = append(found, s.jobs[id].copy())
	}
	return found, nil
}

// Totals implements [Store].
func (m *Memory) Totals(ctx context.Context, after string, n int) ([]Totals, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var found []Totals
	for _, name := range slices.Sorted(maps.Keys(m.streams)) {
		s := m.streams[name]
		if name <= after || len(s.letters) == 0 || len(found) == n {
			continue
		}
		t := Totals{
			Stream: name, Resolved: s.ended[StateResolved], Discarded: s.ended[StateDiscarded], Rejected: s.ended[StateRejected],
		}
		for e := s.unresolved.Front(); e != nil; e = e.Next() {
			if e.Value.(*stored).State == StateReview {
				t.Review++
			} else {
				t.Waiting++
			}
		}
		if first := s.unresolved.Front(); first != nil {
			t.Oldest = micros(now - first.Value.(*stored).Put.UnixMicro())
		}
		found = append(found, t)
	}
	return found, nil
}

// behind returns at most n keys of a map behind one of them, by ascending order.
func behind[V any](m map[string]V, after string, n int) (keys []string) {
	for k := range m {
		if k > after {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys[:min(n, len(keys))]
}

// A sweepable is what Sweep looks at.
type sweepable interface {
	expired(now int64) bool
	drop(t *table) (counts bool) // called when it is unlinked, if it is not a letter
}

// Sweep implements [Sweeper].
func (m *Memory) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, invalid("sweep of %d", n)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for range min(n, m.things.Len()) {
		if m.sweep == nil {
			m.sweep = m.things.Front()
		}
		e := m.sweep
		m.sweep = e.Next()
		thing := e.Value.(sweepable)
		if !thing.expired(now) {
			continue
		}
		if _, ok := thing.(*stored); !ok {
			m.unlink(e)
		}
		if thing.drop(&m.table) {
			removed++
		}
	}
	return removed, nil
}

func (r *stored) expired(now int64) bool {
	return !r.State.Unresolved() && r.Expires.UnixMicro() <= now
}

func (r *stored) drop(t *table) bool {
	r.stream.ended[r.State]--
	t.remove(r)
	return true
}

func (e *entryRow) expired(now int64) bool { return e.expires <= now }

func (e *entryRow) drop(*table) bool {
	s := e.stream
	delete(s.applied, e.nonce)
	if s.entries[0] == e { // the usual case
		s.entries = s.entries[1:]
		return true
	}
	at, _ := slices.BinarySearchFunc(s.entries, e.Seq, func(e *entryRow, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	s.entries = slices.Delete(s.entries, at, at+1)
	return true
}

func (j *jobRow) expired(now int64) bool { return j.Ended && j.expires <= now }

func (j *jobRow) drop(*table) bool {
	delete(j.stream.jobs, j.ID)
	return false
}

func (a *alarmRow) expired(now int64) bool { return a.expires <= now }

func (a *alarmRow) drop(*table) bool {
	delete(a.stream.alarms, a.name)
	return false
}

func (k *lane) expired(now int64) bool { return k.empty() && k.until <= now && k.expires <= now }

func (k *lane) drop(*table) bool {
	delete(k.stream.claimed, k)
	delete(k.stream.lanes, k.name)
	return false
}
