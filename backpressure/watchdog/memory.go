package watchdog

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process: for tests, for examples, and
// for a watchdog that watches loops of its own process. It is the reference for
// other stores. It is safe for concurrent use. What bounds it is the Most of its
// callers: about a kilobyte for each worker.
type Memory struct {
	mu     sync.Mutex
	clock  func() time.Time
	scopes map[string]map[string]*memoryRecord
}

type memoryRecord struct {
	Record
	nonce   [16]byte
	past    [][16]byte // the newest last
	turns   uint64
	handler uint64

	take    [16]byte // nonce of the last take
	answer  Outcome  // to it
	settled bool     // no attempt is under way
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{clock: time.Now, scopes: map[string]map[string]*memoryRecord{}}
}

// now is the store's time in whole microseconds, without a monotonic part: a clock
// that is set goes on from there, as a server's does.
func (m *Memory) now() time.Time { return time.UnixMicro(m.clock().UnixMicro()).UTC() }

// Beat implements [Store].
func (m *Memory) Beat(ctx context.Context, p Params, beats []Beat) ([]Ack, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	acks := make([]Ack, len(beats))
	for i := range beats {
		acks[i] = m.beat(p, &beats[i])
	}
	return acks, nil
}

func (m *Memory) beat(p Params, b *Beat) Ack {
	scope := m.scopes[p.Scope]
	r, now := scope[b.Name], m.now()
	switch {
	case r == nil && !b.Join:
		return Ack{Err: ErrGone}
	case r == nil && len(scope) >= p.Most:
		return Ack{Err: ErrFull}
	case r == nil:
		if scope == nil {
			scope = map[string]*memoryRecord{}
			m.scopes[p.Scope] = scope
		}
		r = &memoryRecord{settled: true}
		scope[b.Name] = r
		r.begin(b, now)
	case r.nonce == b.Nonce && (r.Left || b.Seq <= r.Seq):
		return Ack{Token: r.Token}
	case r.nonce == b.Nonce:
		r.count(b, now)
	case b.Join && !slices.Contains(r.past, b.Nonce):
		r.past = append(r.past, r.nonce)
		r.past = r.past[max(0, len(r.past)-PastInstances):]
		r.begin(b, now)
	default:
		return Ack{Err: ErrFenced}
	}
	r.Seq, r.Interval, r.Said, r.Detail, r.Position, r.Pending = b.Seq, b.Interval, b.State, b.Detail, b.Position, b.Pending
	r.Busy, r.Left, r.turns, r.handler, r.BeatAt = b.Busy, b.Leave, b.Turns, b.Handler, now
	return Ack{Token: r.Token}
}

// begin is a new instance.
func (r *memoryRecord) begin(b *Beat, now time.Time) {
	r.nonce, r.Token = b.Nonce, next(r.Token, now)
	r.JoinedAt, r.StateAt = now, now
	r.Stalled, r.Quiet, r.Running = 0, 0, 0
}

// count adds the time since the last beat to what has not changed.
func (r *memoryRecord) count(b *Beat, now time.Time) {
	since := min(max(now.Sub(r.BeatAt), 0), MaxCount*b.Interval)
	add := func(d *time.Duration, same bool) {
		if *d += since; !same {
			*d = 0
		}
	}
	add(&r.Stalled, r.Busy && b.Busy && r.Position == b.Position)
	add(&r.Quiet, r.turns == b.Turns && b.Turns != 0 && r.handler == 0 && b.Handler == 0)
	add(&r.Running, r.handler == b.Handler && b.Handler != 0)
	if r.Said != b.State {
		r.StateAt = now
	}
}

func next(token uint64, now time.Time) uint64 { return max(token+1, uint64(now.UnixMicro())) }

// List implements [Store].
func (m *Memory) List(ctx context.Context, scope, after string, limit int) (Page, error) {
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	page := Page{Now: m.now()}
	for name, r := range m.scopes[scope] {
		if name > after {
			page.Records = append(page.Records, Entry{name, r.Record})
		}
	}
	slices.SortFunc(page.Records, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if len(page.Records) > limit {
		page.Records = slices.Clip(page.Records[:limit])
	}
	return page, nil
}

// Act implements [Store].
func (m *Memory) Act(ctx context.Context, scope string, actions []Action) ([]Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	outcomes := make([]Outcome, len(actions))
	for i := range actions {
		a := &actions[i]
		r, now := m.scopes[scope][a.Name], m.now()
		switch {
		case a.Kind == KindForget:
			if r != nil && (a.Token != 0 && a.Token != r.Token || a.Seq != 0 && a.Seq != r.Seq) {
				outcomes[i].Err = ErrChanged
			} else if delete(m.scopes[scope], a.Name); len(m.scopes[scope]) == 0 {
				delete(m.scopes, scope)
			}
		case r == nil:
			outcomes[i].Err = ErrGone
		case a.Kind == KindTake:
			outcomes[i] = r.grant(a, now)
		case a.Kind == KindDone:
			outcomes[i].Err = r.done(a, now)
		case a.Kind == KindClear:
			outcomes[i].Err = r.clear(a, now)
		case a.Kind == KindResume:
			r.Attempts, r.GivenUp = 0, false
			if r.settled {
				r.NextAt = time.Time{}
			}
		}
	}
	return outcomes, nil
}

func (r *memoryRecord) grant(a *Action, now time.Time) Outcome {
	switch {
	case r.take == a.Nonce && r.take != [16]byte{}:
		return r.answer
	case r.Left || r.Token != a.Token || a.Seq != 0 && r.Seq != a.Seq || r.Stalled < a.Stalled || r.Quiet < a.Quiet:
		return Outcome{Err: ErrChanged}
	case r.GivenUp:
		r.ActedAt = now
		return Outcome{Err: ErrGivenUp}
	case now.Before(r.ActedAt): // the clock has gone back
		r.NextAt, r.ActedAt = now.Add(max(r.NextAt.Sub(r.ActedAt), 0)), now
		return Outcome{Err: ErrBusy}
	case now.Before(r.NextAt):
		return Outcome{Err: ErrBusy}
	case r.Attempts >= a.Most:
		r.GivenUp, r.ActedAt = true, now
		r.answer = Outcome{First: true, Err: ErrGivenUp}
	default:
		r.Attempts++
		r.Claim = next(r.Claim, now)
		r.NextAt, r.ActedAt, r.settled = now.Add(a.Wait), now, false
		r.answer = Outcome{Claim: r.Claim, Attempt: r.Attempts}
	}
	r.take = a.Nonce
	return r.answer
}

func (r *memoryRecord) done(a *Action, now time.Time) error {
	if r.Claim != a.Claim {
		return ErrChanged
	}
	if !r.settled {
		r.settled, r.NextAt, r.ActedAt = true, now.Add(a.Wait), now
	}
	return nil
}

func (r *memoryRecord) clear(a *Action, now time.Time) error {
	if r.Claim != a.Claim || now.Before(r.ActedAt.Add(a.Wait)) {
		return ErrChanged
	}
	r.Attempts, r.GivenUp = 0, false
	return nil
}
