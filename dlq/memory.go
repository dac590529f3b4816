package dlq

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process. Nothing of it survives the
// process and no other process sees it: it is for tests, for examples, and for
// letters that may be lost. What has expired stays until [Memory.Sweep] is called:
// nothing else removes letters and their bodies. It is safe for concurrent use.
type Memory struct {
	start time.Time // now is measured from here, so a clock that is set changes nothing

	mu sync.Mutex
	table
}

// DefaultLimit is how many letters a [Memory] holds at most until SetLimit says
// otherwise.
const DefaultLimit = 1_000_000

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{start: time.Now()}
	m.table.init()
	return m
}

// SetLimit sets how many letters the store holds at most, ended ones included; a
// letter that exceeds it is answered [Full]. Zero means [DefaultLimit].
func (m *Memory) SetLimit(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = or(max(n, 0), DefaultLimit)
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, p Params, letters []Put) ([]Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	answers := make([]Answer, len(letters))
	for i := range letters {
		answers[i] = m.put(now, p, &letters[i])
	}
	return answers, nil
}

// put is the five rules of [Store.Put], in their order.
func (m *Memory) put(now int64, p Params, l *Put) Answer {
	s := m.stream(l.Stream)
	newest := s.newest(l.ID)
	switch {
	case newest != nil && newest.putBy == l.Nonce: // rule 1
		return newest.putAs
	case newest != nil && newest.State.Unresolved(): // rule 2
		newest.putBy, newest.putAs = l.Nonce, Duplicate
		if l.Failure.Fingerprint != "" {
			s.fail(newest, bytesOwned(l.Failure), now)
			s.interrupt(newest, now+l.Delay.Microseconds())
		}
		return Duplicate
	case l.IfBlocked && s.lanes[LaneOf(l.ID, l.Key, false)].empty(): // rule 3
		return NotBlocked
	case s.unresolved.Len() >= p.Capacity || m.size >= m.limit: // rule 4
		return Full
	}
	m.add(s, l, now) // rule 5
	return Added
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, a Ask) (Claimed, error) {
	if err := ctx.Err(); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	s := m.look(a.Stream)
	var c Claimed
	for k := range s.claimed {
		if k.nonce == a.Nonce && now < k.until && k.begun() != nil {
			c.Claims = append(c.Claims, k.claim(now))
		}
	}
	if len(c.Claims) > 0 {
		return c, nil
	}
	size := 0
	for len(c.Claims) < a.N && s.due.Len() > 0 && s.due.lanes[0].at() <= now {
		if size >= a.Bytes && len(c.Claims) > 0 {
			return c, nil
		}
		k := s.due.lanes[0]
		k.token = max(k.token+1, uint64(now))
		k.nonce = a.Nonce
		k.until = now + a.Lease.Microseconds()
		s.claimed[k] = struct{}{}
		r := k.queue[0]
		r.begunBy, r.settledBy = k.token, 0
		r.Tries++
		s.schedule(k)
		size += len(r.Body) + len(r.Original)
		c.Claims = append(c.Claims, k.claim(now))
	}
	if len(c.Claims) < a.N && size < a.Bytes && s.due.Len() > 0 {
		c.Next = micros(s.due.lanes[0].at() - now)
	}
	return c, nil
}

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, settlements []Settlement) ([]error, error) {
	return each(ctx, m, settlements, func(now int64, s *Settlement) error { return m.settle(now, p, s) })
}

// settle is the rules of [Store.Settle].
func (m *Memory) settle(now int64, p Params, t *Settlement) error {
	s := m.look(t.Stream)
	k, r := s.lanes[t.Lane], s.letters[t.Seq]
	if r != nil && r.Lane() != t.Lane {
		r = nil
	}
	if r != nil && r.settledBy == t.Token && r.settledAs == t.Kind && t.Token != 0 {
		return nil // applied before
	}
	if k == nil || k.token != t.Token || t.Token == 0 {
		return ErrStale
	}
	if k.until == 0 { // released
		if t.Kind == KindRelease {
			return nil // applied before
		}
		return ErrStale
	}
	mine := r != nil && r.begunBy == t.Token
	switch {
	case t.Kind == KindExtend:
		k.until = now + t.Lease.Microseconds()
		s.schedule(k)
		return nil
	case t.Kind == KindRelease:
		if mine {
			r.Tries--
		}
	case !mine:
		return ErrStale
	case t.Kind == KindResolve:
		m.outcome(r, &counts.passed)
		m.end(s, r, StateResolved, p, now)
	case t.Kind == KindRetry:
		m.outcome(r, &counts.failed)
		s.fail(r, bytesOwned(t.Failure), now)
		r.Next = time.UnixMicro(now + t.Delay.Microseconds())
	case t.Kind == KindReview:
		m.outcome(r, &counts.failed)
		s.fail(r, bytesOwned(t.Failure), now)
		s.move(r, StateReview, now)
	default:
		return ErrStale
	}
	if mine {
		r.begunBy, r.settledBy, r.settledAs = 0, t.Token, t.Kind
	}
	s.release(k, now, now+p.Retention.Microseconds())
	return nil
}

// each applies the items of a batch and collects their errors.
func each[T any](ctx context.Context, m *Memory, items []T, apply func(now int64, item *T) error) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var errs []error
	for i := range items {
		if err := apply(now, &items[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(items))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

func (m *Memory) now() int64 {
	return m.start.UnixMicro() + time.Since(m.start).Microseconds()
}

// micros is a span as a duration. It is never negative.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

// bytesOwned is a failure that shares nothing with the caller's.
func bytesOwned(f Failure) Failure {
	f.Detail = bytes.Clone(f.Detail)
	return f
}

func or[T comparable](value, fallback T) T {
	var none T
	if value == none {
		return fallback
	}
	return value
}
