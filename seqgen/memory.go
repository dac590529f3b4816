package seqgen

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process. Nothing of it survives the
// process and no other process sees it: it is for tests, for examples, and for
// numbers that need not outlive the process. It is the reference for other
// stores. It is safe for concurrent use.
//
// A key costs about two kilobytes, and is never dropped. Voids are dropped by
// [Memory.Sweep] alone.
type Memory struct {
	mu    sync.Mutex
	limit int
	clock func() time.Time
	keys  map[recordKey]*record
}

type recordKey struct{ scope, key string }

// DefaultLimit is how many keys a [Memory] holds at most until SetLimit says
// otherwise.
const DefaultLimit = 1_000_000

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{limit: DefaultLimit, clock: time.Now, keys: map[recordKey]*record{}}
}

// SetLimit sets how many keys the store holds at most; a step that needs another
// one is answered with [ErrFull]. Zero or less means [DefaultLimit].
func (m *Memory) SetLimit(n int) {
	if n <= 0 {
		n = DefaultLimit
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

// Len returns how many keys the store holds.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keys)
}

// Clone returns a copy of the store as it is now. A test that goes on with the
// copy has a store that was restored from a backup.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Memory{limit: m.limit, clock: m.clock, keys: make(map[recordKey]*record, len(m.keys))}
	for k, r := range m.keys {
		copied := *r
		copied.log = slices.Clone(r.log)
		copied.voids = maps.Clone(r.voids)
		for epoch, list := range copied.voids {
			copied.voids[epoch] = slices.Clone(list)
		}
		c.keys[k] = &copied
	}
	return c
}

// Reserve implements [Store].
func (m *Memory) Reserve(ctx context.Context, p Params, asks []Ask) ([]Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	grants := make([]Grant, len(asks))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range asks {
		grants[i] = m.reserve(p, &asks[i])
	}
	return grants, nil
}

func (m *Memory) reserve(p Params, a *Ask) Grant {
	k := recordKey{p.Scope, a.Key}
	r := m.keys[k]
	if r != nil {
		return r.reserve(m.clock(), p, a)
	}
	if a.Seen != (Position{}) {
		return Grant{Err: ErrRolledBack}
	}
	made := newRecord()
	g := made.reserve(m.clock(), p, a)
	if g.Err == nil && !m.add(k, made) {
		return Grant{Err: ErrFull}
	}
	return g
}

// add keeps a new record if there is room for it.
func (m *Memory) add(k recordKey, r *record) bool {
	if len(m.keys) >= m.limit {
		return false
	}
	m.keys[k] = r
	return true
}

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, changes []Change) ([]Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(changes))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		outcomes[i] = m.settle(p, &changes[i])
	}
	return outcomes, nil
}

func (m *Memory) settle(p Params, c *Change) Outcome {
	k := recordKey{p.Scope, c.Key}
	r, known := m.keys[k]
	if !known {
		switch c.Kind {
		case KindReturn, KindVoid:
			return Outcome{Err: ErrRolledBack}
		case KindBump:
			r = &record{}
		default:
			r = newRecord()
		}
	}
	o := r.settle(m.clock(), p, c)
	if !known && o.Err == nil && !m.add(k, r) {
		return Outcome{Err: ErrFull}
	}
	return o
}

// Look implements [Store].
func (m *Memory) Look(ctx context.Context, scope string, keys []string) ([]State, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	states := make([]State, len(keys))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, key := range keys {
		states[i].Key = key
		if r := m.keys[recordKey{scope, key}]; r != nil {
			states[i] = State{Key: key, Epoch: r.epoch, Last: r.last, Mode: r.mode, Token: r.token, Owned: r.owned, Used: r.used}
		}
	}
	return states, nil
}

// Voids implements [Store].
func (m *Memory) Voids(ctx context.Context, q VoidQuery) ([]Void, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.keys[recordKey{q.Scope, q.Key}]
	if r == nil {
		return nil, nil
	}
	var page []Void
	for _, v := range r.voids[q.Epoch] {
		if v.Hi >= q.From && v.Lo <= q.To && len(page) < q.Limit {
			v.Key, v.Epoch = q.Key, q.Epoch
			page = append(page, v.Void)
		}
	}
	return page, nil
}

// Sweep drops voids whose retention has passed, among those of at most n keys,
// and returns how many it dropped.
func (m *Memory) Sweep(ctx context.Context, n int) (dropped int, err error) {
	if n < 1 {
		return 0, invalid("sweep of %d keys", n)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	for _, r := range m.keys { // in an order that differs each time
		if n == 0 {
			break
		}
		n--
		for epoch, list := range r.voids {
			left := slices.DeleteFunc(list, func(v voidRecord) bool { return !now.Before(v.expires) })
			dropped += len(list) - len(left)
			if r.voids[epoch] = left; len(left) == 0 {
				delete(r.voids, epoch)
			}
		}
	}
	return dropped, nil
}
