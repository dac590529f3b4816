package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process. Nothing of it survives the
// process and no other process sees it: it is for tests, for examples, and for
// events that may be lost. What has expired stays until [Memory.Sweep] is called:
// nothing else removes events and their payloads. It is safe for concurrent use.
type Memory struct {
	start time.Time // now is measured from here, so a clock that is set changes nothing

	mu sync.Mutex
	table
}

// DefaultLimit is how many records a [Memory] holds at most until SetLimit says
// otherwise.
const DefaultLimit = 1_000_000

// ErrFull is what a [Memory] answers when it has no room for all arrivals.
// Nothing was stored and nothing was dropped to make room.
var ErrFull = errors.New("inbox: the memory store is full")

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{start: time.Now()}
	m.table.init()
	return m
}

// SetLimit sets how many records the store holds at most; an acceptance that
// needs more is answered with [ErrFull]. Zero means [DefaultLimit].
func (m *Memory) SetLimit(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = or(max(n, 0), DefaultLimit)
}

// Accept implements [Store].
func (m *Memory) Accept(ctx context.Context, p Params, arrivals []Arrival) ([]Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records.Len()+m.room(arrivals) > m.limit {
		return nil, ErrFull
	}
	now := m.now()
	answers := make([]Answer, len(arrivals))
	for i := range arrivals {
		answers[i] = m.accept(now, p, &arrivals[i])
	}
	return answers, nil
}

// accept is the three rules of [Store.Accept], in their order.
func (m *Memory) accept(now int64, p Params, a *Arrival) Answer {
	e := m.events[a.ID]
	switch {
	case e == nil: // rule 1
		e = &entry{digest: a.Digest}
		m.events[a.ID] = e
		if a.Raw {
			m.add(e, a, "", StateQuarantined, now, now+p.Keep.Microseconds())
			return Quarantined
		}
		for _, stream := range a.Streams {
			m.add(e, a, stream, StatePending, now, 0)
		}
		return Accepted
	case e.digest == a.Digest && a.Raw: // rule 2
		return Quarantined
	case e.digest == a.Digest:
		return Duplicate
	case e.keeps(a.Digest): // rule 3
		m.add(e, a, "", StateConflict, now, now+p.Keep.Microseconds())
	}
	return Conflict
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, a Ask) (Claimed, error) {
	if err := ctx.Err(); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var c Claimed
	for k := range m.claimed {
		if k.stream == a.Stream && k.nonce == a.Nonce && now < k.until {
			c.Claims = append(c.Claims, k.claim(now, &a))
		}
	}
	if len(c.Claims) > 0 {
		return c, nil
	}
	due := m.due[a.Stream]
	if due == nil {
		return c, nil
	}
	for len(c.Claims) < a.Keys && due.Len() > 0 && due.keys[0].at() <= now {
		k := due.keys[0]
		k.token = max(k.token+1, uint64(now))
		k.nonce = a.Nonce
		k.until = now + a.Lease.Microseconds()
		m.claimed[k] = struct{}{}
		m.begin(k)
		m.schedule(k)
		c.Claims = append(c.Claims, k.claim(now, &a))
	}
	if len(c.Claims) < a.Keys && due.Len() > 0 {
		c.Next = micros(due.keys[0].at() - now)
	}
	return c, nil
}

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, settlements []Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var errs []error
	for i := range settlements {
		if err := m.settle(now, p, &settlements[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

// settle is the rules of [Store.Settle].
func (m *Memory) settle(now int64, p Params, s *Settlement) error {
	r := m.find(s)
	if r != nil && r.State != StatePending {
		if r.State == s.Kind.state() && r.endedBy == s.Token {
			return nil // applied before
		}
		return ErrStale
	}
	k := m.keys[keyName{s.Stream, s.Key}]
	if k == nil || k.token != s.Token || s.Token == 0 {
		return ErrStale
	}
	mine := r != nil && r.begunBy == s.Token
	if k.until == 0 { // released
		if s.Kind == KindRelease || s.Kind == KindRetry && mine {
			return nil // applied before
		}
		return ErrStale
	}
	switch {
	case s.Kind == KindBegin && r != nil && r == k.queue[0]:
		m.begin(k)
	case s.Kind.state() != 0 && mine:
		m.end(k, r, s, p, now)
	case s.Kind == KindRetry && mine:
		r.LastError, r.Failures = s.Error, slices.Clone(s.Failures)
		r.Next = time.UnixMicro(now + s.Delay.Microseconds())
		m.release(k, now+s.Delay.Microseconds(), now+p.Retention.Microseconds())
	case s.Kind == KindRelease:
		m.release(k, now, now+p.Retention.Microseconds())
	case s.Kind == KindExtend:
		k.until = now + s.Lease.Microseconds()
		m.schedule(k)
	default:
		return ErrStale
	}
	return nil
}

// state is the state in which a settlement of the kind leaves a record; zero if
// it does not end one.
func (k Kind) state() State {
	switch k {
	case KindDone:
		return StateDone
	case KindDead:
		return StateDead
	case KindQuarantine:
		return StateQuarantined
	case KindUnknown:
		return StateUnknown
	}
	return 0
}

// List implements [Store]. It looks at those of the event, or else at all records,
// until it has found enough.
func (m *Memory) List(ctx context.Context, q Query) ([]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var found []Record
	if q.ID != "" {
		for _, r := range m.ofEvent(q.ID) {
			if r.Seq > q.After && len(found) < q.N {
				found = append(found, r.copy(now))
			}
		}
		return found, nil
	}
	for at := m.records.Front(); at != nil && len(found) < q.N; at = at.Next() {
		if r := at.Value.(*stored); r.Seq > q.After && r.selected(&q, now) {
			found = append(found, r.copy(now))
		}
	}
	return found, nil
}

// ofEvent returns the records of an event by Seq, which a replay changes.
func (m *Memory) ofEvent(id string) []*stored {
	e := m.events[id]
	if e == nil {
		return nil
	}
	return slices.SortedFunc(slices.Values(e.records), func(a, b *stored) int { return cmp.Compare(a.Seq, b.Seq) })
}

// selected is the rule of [Query] for those without an ID.
func (r *stored) selected(q *Query, now int64) bool {
	switch {
	case q.MessageID != "":
		return r.MessageID == q.MessageID
	case q.ExternalID != "":
		return r.ExternalID == q.ExternalID
	case q.State != 0:
		return r.State == q.State
	}
	return r.Form&FormOutside != 0 && r.ended(now, r.Erases)
}

// ended says whether a time that counts from the end of a record has come.
func (r *stored) ended(now int64, t time.Time) bool {
	return r.State != StatePending && !t.IsZero() && t.UnixMicro() <= now
}

// Totals implements [Store].
func (m *Memory) Totals(ctx context.Context) (Totals, error) {
	if err := ctx.Err(); err != nil {
		return Totals{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := Totals{
		Pending: m.counts[StatePending], Done: m.counts[StateDone], Dead: m.counts[StateDead],
		Quarantined: m.counts[StateQuarantined], Conflicts: m.counts[StateConflict],
		Unknown: m.counts[StateUnknown],
	}
	if first := m.pending.Front(); first != nil {
		t.Oldest = micros(m.now() - first.Value.(*stored).since)
	}
	return t, nil
}

// Sweep implements [Sweeper]. It also forgets keys that have had no event for
// the retention.
func (m *Memory) Sweep(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("inbox: sweep of %d records: %w", n, ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for range min(n, m.idle.Len()) { // round and round: they do not expire in this order
		front := m.idle.Front()
		if k := front.Value.(*keyRow); k.expires <= now {
			m.drop(k)
		} else {
			m.idle.MoveToBack(front)
		}
	}
	looked := 0
	for k := range m.claimed { // its owner died after it had ended the last record
		if looked++; looked > n {
			break
		}
		if len(k.queue) == 0 && k.until <= now && k.expires <= now {
			m.drop(k)
		}
	}
	for range min(n, m.records.Len()) {
		if m.sweep == nil {
			m.sweep = m.records.Front()
		}
		r := m.sweep.Value.(*stored)
		m.sweep = m.sweep.Next()
		switch {
		case r.Form&FormOutside != 0:
		case r.ended(now, r.Expires):
			m.remove(r)
			removed++
		case r.ended(now, r.Erases) && r.Deleted.IsZero():
			r.redact(now)
		}
	}
	return removed, nil
}

func (m *Memory) now() int64 {
	return m.start.UnixMicro() + time.Since(m.start).Microseconds()
}

// micros is a span as a duration. It is never negative.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
