package reconcile

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process. Nothing of it survives the
// process and no other process sees it: it is for tests and examples. What a process
// sends and dies with is then forgotten, which is what a ledger is there to prevent.
//
// A claim looks at all open operations of the kind, a list at all. Expired records are
// dropped when their keys begin again, a few with every new operation, and by
// [Memory.Sweep]. It is safe for concurrent use.
type Memory struct {
	start  time.Time // now is measured from here, so a clock that is set changes nothing
	micros int64     // start in microseconds since 1970

	mu    sync.Mutex
	kinds map[string]*kindRecords
	limit int
	count int
	floor uint64 // above the tokens of records that were erased
}

type kindRecords struct {
	all  map[string]*record
	open map[string]*record // those that are, or may become, due
}

// DefaultLimit is how many operations a [Memory] holds at most until SetLimit says
// otherwise.
const DefaultLimit = 1_000_000

// NewMemory returns an empty store.
func NewMemory() *Memory {
	now := time.Now()
	return &Memory{start: now, micros: now.UnixMicro(), kinds: map[string]*kindRecords{}, limit: DefaultLimit}
}

// SetLimit sets how many operations the store holds at most; the beginning of another is
// answered with [ErrFull]. Zero or less means [DefaultLimit].
func (m *Memory) SetLimit(n int) {
	if n <= 0 {
		n = DefaultLimit
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

// Len returns how many operations the store holds, expired ones that were not dropped
// yet included.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// Begin implements [Store].
func (m *Memory) Begin(ctx context.Context, p Params, asks []Ask) ([]Answer, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k := m.kind(p.Kind)
	answers := make([]Answer, len(asks))
	for i := range asks {
		answers[i] = m.begin(k, now, p, &asks[i])
	}
	return answers, nil
}

func (m *Memory) begin(k *kindRecords, now int64, p Params, a *Ask) Answer {
	r := k.all[a.Key]
	if r == nil || r.expired(now) {
		if r == nil {
			m.dropSome(k, now, 2)
			if m.count >= m.limit {
				return Answer{Entry: Entry{Op: Op{Key: a.Key}}, Err: ErrFull}
			}
			m.count++
		} else {
			m.floor = max(m.floor, r.token)
		}
		r = newRecord(p.Kind, &a.Op, now)
		r.token = m.floor
		k.all[strings.Clone(a.Key)] = r
	}
	grant := r.begin(now, p, a)
	m.index(k, r)
	return Answer{Grant: grant, Entry: r.entry(now)}
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, p Params, a ClaimAsk) ([]Entry, time.Duration, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	k := m.kind(p.Kind)
	var mine, due []*record
	var next int64
	for _, r := range k.open {
		switch at := r.claimable(); {
		case r.nonce == a.Nonce && r.granted(now):
			mine = append(mine, r)
		case at == 0:
		case at <= now:
			due = append(due, r)
		case next == 0 || at < next:
			next = at
		}
	}
	byDue := func(a, b *record) int { return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.Key, b.Key)) }
	taken := mine
	if len(mine) == 0 {
		slices.SortFunc(due, byDue)
		taken = due[:min(len(due), a.N)]
		for _, r := range taken {
			r.look(now, p, a.Nonce)
		}
	}
	slices.SortFunc(taken, byDue)
	entries := make([]Entry, len(taken))
	for i, r := range taken {
		entries[i] = r.entry(now)
	}
	left := time.Duration(0)
	if next > 0 {
		left = micros(next - now)
	}
	return entries, left, nil
}

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, s []Settlement) ([]error, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k := m.kind(p.Kind)
	errs := make([]error, len(s))
	failed := false
	for i := range s {
		errs[i] = m.settle(k, now, p, &s[i])
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil, nil
	}
	return errs, nil
}

func (m *Memory) settle(k *kindRecords, now int64, p Params, s *Settlement) error {
	r := k.all[s.Key]
	if r != nil && r.expired(now) {
		r = nil
	}
	switch {
	case s.Verb == VerbForget:
		if r = k.all[s.Key]; r != nil {
			m.drop(k, r)
		}
		return nil
	case r == nil && (s.Verb == VerbReceipt || s.Verb == VerbResolve):
		return ErrNotFound
	case r == nil:
		return ErrStale
	}
	err := r.settle(now, p, s)
	m.index(k, r)
	return err
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, q Query) ([]Entry, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []*record
	for _, r := range m.kind(q.Kind).all {
		if !r.expired(now) && r.selected(&q) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return strings.Compare(a.Key, b.Key) })
	entries := make([]Entry, min(len(found), q.N))
	for i := range entries {
		entries[i] = found[i].entry(now)
	}
	return entries, nil
}

// Counts implements [Store].
func (m *Memory) Counts(ctx context.Context, kind, after string, first bool, n int) ([]Counts, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	of := map[string]*Counts{}
	for _, r := range m.kind(kind).all {
		if r.expired(now) || !first && r.Account <= after {
			continue
		}
		c := of[r.Account]
		if c == nil {
			c = &Counts{Account: r.Account}
			of[r.Account] = c
		}
		r.count(c, now)
	}
	counts := make([]Counts, 0, len(of))
	for _, c := range of {
		counts = append(counts, *c)
	}
	slices.SortFunc(counts, func(a, b Counts) int { return strings.Compare(a.Account, b.Account) })
	return counts[:min(len(counts), n)], nil
}

// Sweep implements [Sweeper]. It begins anywhere.
func (m *Memory) Sweep(ctx context.Context, n int) (removed int, err error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	for _, k := range m.kinds {
		if n <= 0 {
			break
		}
		removed += m.dropSome(k, now, n)
		n -= len(k.all)
	}
	return removed, nil
}

// lock returns the time, which does not go back, and what unlocks the store.
func (m *Memory) lock(ctx context.Context) (now int64, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	m.mu.Lock()
	return m.micros + time.Since(m.start).Microseconds(), m.mu.Unlock, nil
}

func (m *Memory) kind(name string) *kindRecords {
	k := m.kinds[name]
	if k == nil {
		k = &kindRecords{all: map[string]*record{}, open: map[string]*record{}}
		m.kinds[strings.Clone(name)] = k
	}
	return k
}

// index keeps a record among the open ones as long as it is one.
func (m *Memory) index(k *kindRecords, r *record) {
	if r.state.Ended() && r.due == 0 {
		delete(k.open, r.Key)
	} else {
		k.open[r.Key] = r
	}
}

// dropSome drops the expired of n records.
func (m *Memory) dropSome(k *kindRecords, now int64, n int) (dropped int) {
	for _, r := range k.all {
		if n--; n < 0 {
			break
		}
		if r.expired(now) {
			m.drop(k, r)
			dropped++
		}
	}
	return dropped
}

func (m *Memory) drop(k *kindRecords, r *record) {
	m.floor = max(m.floor, r.token)
	delete(k.all, r.Key)
	delete(k.open, r.Key)
	m.count--
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
