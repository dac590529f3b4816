package dedup

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] in the memory of this process. Nothing of it survives the
// process and no other process sees it: it is for tests, for examples, for
// services of one process whose duplicates arrive within its lifetime, and as
// the private standby of a [Failover].
//
// It keeps a 128-bit keyed hash in place of the ID, so two IDs are taken for one
// with a probability of about n²/2¹²⁹ for n IDs. IDs under the policy Hold are
// kept whole, because [Guard.Held] lists them.
//
// An expired record is dropped when its ID is claimed again; besides, every
// claim of a new ID looks at a few other records, at most 256, and drops those
// that have expired, so clearing never stalls a caller. [Memory.Sweep] does the
// same at will. What was dropped makes room for new IDs; the memory itself is
// kept. It is safe for concurrent use.
type Memory struct {
	start  time.Time // now is measured from here, so a clock that is set changes nothing
	micros int64     // start in microseconds since 1970
	seeds  seeds
	limit  atomic.Int64
	count  atomic.Int64
	shards [256]shard
	sweep  struct {
		mu     sync.Mutex
		shard  int // where Sweep goes on
		looked int // of its places
	}
}

// DefaultLimit is how many IDs a [Memory] holds at most until SetLimit says
// otherwise: about one gigabyte, beside results, fingerprints and IDs under Hold.
const DefaultLimit = 10_000_000

// NewMemory returns an empty store.
func NewMemory() *Memory {
	now := time.Now()
	m := &Memory{start: now, micros: now.UnixMicro(), seeds: newSeeds()}
	m.limit.Store(DefaultLimit)
	return m
}

// SetLimit sets how many IDs the store holds at most; a claim of a new ID beyond
// them is answered with [ErrFull]. Zero or less means [DefaultLimit].
func (m *Memory) SetLimit(n int) {
	if n <= 0 {
		n = DefaultLimit
	}
	m.limit.Store(int64(n))
}

// Len returns how many IDs the store holds, expired ones that were not dropped
// yet included.
func (m *Memory) Len() (n int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.len()
		s.mu.Unlock()
	}
	return n
}

// recount tells the common count how many records a locked shard has. A large
// store is told of every 64th only, since processors would wait for each other at
// one counter: its limit is then exact to a few thousandths.
func (m *Memory) recount(s *shard) {
	step := min(max(m.limit.Load()/65_536, 1), 64)
	if d := int64(s.len()) - s.counted; d >= step || -d >= step {
		m.count.Add(d)
		s.counted += d
	}
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	claims := make([]Claim, len(asks))
	for i := range asks {
		claims[i] = m.claimOne(p, &asks[i])
	}
	return claims, nil
}

func (m *Memory) claimOne(p Params, a *Ask) Claim {
	k := m.seeds.key(p.Scope, a.ID)
	s := m.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.claim(s, k, m.now(), p, a)
}

// claim is the six rules of [Store.Claim], in their order. The shard is locked.
func (m *Memory) claim(s *shard, k key, now int64, p Params, a *Ask) Claim {
	r, place := s.find(k)
	if r == nil || r.expired(now) { // rule 1
		return m.first(s, k, r, place, now, p, a)
	}
	x := s.extras[place]
	c := Claim{ID: a.ID, Attempt: int(r.attempt)}
	if x != nil && x.fingerprint != a.Fingerprint && x.fingerprint != zero && a.Fingerprint != zero { // rule 2
		c.State = Conflict
		return c
	}
	switch sameAsk := r.nonce == a.Nonce; {
	case r.state == done && p.Complete && sameAsk: // rule 3
		c.State, c.Token = Acquired, r.token
	case r.state == done:
		c.State, c.Age = Done, micros(now-r.since)
		c.Result = x.copyResult()
	case r.unknown(now): // rule 4
		c.State, c.Token, c.Age = Unknown, r.token, micros(now-r.since)
	case r.state == claimed && now < r.until && sameAsk: // rule 5
		c.State, c.Token, c.Left = Acquired, r.token, micros(r.until-now)
	case r.state == claimed && now < r.until:
		c.State, c.Left, c.Age = InFlight, micros(r.until-now), micros(now-r.since)
	case r.state == released && sameAsk: // rule 6
		c.State = InFlight
	default:
		return m.grant(s, r, place, now, p, a)
	}
	return c
}

// first grants an ID that has no record, or one whose retention has passed and
// whose token the new one must exceed: r is nil, or that record.
func (m *Memory) first(s *shard, k key, r *record, place uint32, now int64, p Params, a *Ask) Claim {
	if r == nil {
		s.dropExpired(now, 2, 256)
		m.recount(s)
		if m.count.Load() >= m.limit.Load() {
			return Claim{ID: a.ID, Err: ErrFull}
		}
		r, place = s.add(k)
		m.recount(s)
	}
	delete(s.extras, place)
	r.attempt = 0
	return m.grant(s, r, place, now, p, a)
}

// grant makes the ask the owner of the record.
func (m *Memory) grant(s *shard, r *record, place uint32, now int64, p Params, a *Ask) Claim {
	r.token = max(r.token+1, s.floor+1, uint64(now))
	r.attempt++
	r.nonce = a.Nonce
	r.since = now
	r.hold = p.OnLapse == Hold && !p.Complete
	r.state, r.until = claimed, now+p.Lease.Microseconds()
	s.expireAt(r, place, now+p.Retention.Microseconds())
	c := Claim{State: Acquired, ID: a.ID, Token: r.token, Attempt: int(r.attempt), Left: p.Lease}
	if p.Complete {
		r.state, c.Left = done, 0
	}
	if a.Fingerprint != zero {
		s.extra(place).fingerprint = a.Fingerprint
	}
	if r.hold {
		s.extra(place).list(p.Scope, a.ID)
	}
	return c
}

// Settle implements [Store].
func (m *Memory) Settle(ctx context.Context, p Params, settlements []Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var errs []error
	for i := range settlements {
		if err := m.settleOne(p, &settlements[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(settlements))
			}
			errs[i] = err
		}
	}
	return errs, nil
}

func (m *Memory) settleOne(p Params, t *Settlement) error {
	k := m.seeds.key(p.Scope, t.ID)
	s := m.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.settle(s, k, m.now(), p, t)
}

// settle is the rules of [Store.Settle]. The shard is locked.
func (m *Memory) settle(s *shard, k key, now int64, p Params, t *Settlement) error {
	r, place := s.find(k)
	if t.Kind == KindForget {
		if r != nil {
			s.remove(k)
			m.recount(s)
		}
		return nil
	}
	if t.Kind == KindRetain {
		if r != nil && r.state == done && !r.expired(now) {
			s.expireAt(r, place, max(r.expires, now+t.Retention.Microseconds()))
		}
		return nil
	}
	if r == nil || r.expired(now) || r.token != t.Token {
		return ErrStale
	}
	open := r.state == claimed || r.state == held
	switch {
	case t.Kind == KindComplete && open:
		r.state, r.since, r.hold = done, now, false
		s.expireAt(r, place, now+p.Retention.Microseconds())
		s.unlist(place)
		if len(t.Result) > 0 {
			s.extra(place).result = slices.Clone(t.Result)
		}
	case t.Kind == KindRelease && open:
		r.state, r.since, r.hold = released, now, false
		s.expireAt(r, place, now+p.Retention.Microseconds())
		s.unlist(place)
	case t.Kind == KindHold && open:
		r.state = held
		s.extra(place).list(p.Scope, t.ID)
	case t.Kind == KindExtend && r.state == claimed:
		r.until = now + t.Lease.Microseconds()
		s.expireAt(r, place, now+p.Retention.Microseconds())
	case t.Kind == KindComplete && r.state == done, t.Kind == KindRelease && r.state == released:
		// Applied before.
	default:
		return ErrStale
	}
	return nil
}

// Held implements [Store]. Each call looks at every record that has something
// beside it (a result, a fingerprint, the policy Hold) and at no other.
func (m *Memory) Held(ctx context.Context, scope, after string, n int) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var page lowest
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		now := m.now()
		for place, x := range s.extras {
			r := s.at(place)
			if x.scope == scope && x.id > after && r.unknown(now) {
				page.add(n, Claim{State: Unknown, ID: x.id, Token: r.token, Attempt: int(r.attempt), Age: micros(now - r.since)})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(page, func(a, b Claim) int { return cmp.Compare(a.ID, b.ID) })
	return page, nil
}

// lowest is a heap of the claims with the lowest IDs, the highest of them first.
type lowest []Claim

func (l lowest) Len() int           { return len(l) }
func (l lowest) Less(i, j int) bool { return l[i].ID > l[j].ID }
func (l lowest) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lowest) Push(c any)        { *l = append(*l, c.(Claim)) }
func (l *lowest) Pop() any          { panic("not used") }

// add keeps a claim if it is among the n lowest.
func (l *lowest) add(n int, c Claim) {
	switch {
	case len(*l) < n:
		heap.Push(l, c)
	case n > 0 && c.ID < (*l)[0].ID:
		(*l)[0] = c
		heap.Fix(l, 0)
	}
}

// Sweep drops expired records among at most n that it looks at, and returns how
// many it dropped. It goes on where the last call stopped, and holds no claim up
// for longer than it takes to look at a few.
func (m *Memory) Sweep(ctx context.Context, n int) (dropped int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("%w: sweep of %d records", ErrInvalid, n)
	}
	m.sweep.mu.Lock()
	defer m.sweep.mu.Unlock()
	for shards := 0; n > 0 && shards <= len(m.shards); {
		if err := ctx.Err(); err != nil {
			return dropped, err
		}
		s := &m.shards[m.sweep.shard]
		s.mu.Lock()
		look := min(n, sweepStep, int(s.used)-m.sweep.looked)
		d := s.dropExpired(m.now(), max(look, 0), max(look, 0))
		m.sweep.looked += look
		if m.sweep.looked >= int(s.used) {
			m.sweep.shard, m.sweep.looked = (m.sweep.shard+1)%len(m.shards), 0
			shards++
		}
		m.recount(s)
		s.mu.Unlock()
		dropped, n = dropped+d, n-max(look, 0)
	}
	return dropped, nil
}

// sweepStep is how many records are looked at under one lock.
const sweepStep = 256

func (m *Memory) now() int64 {
	return m.micros + time.Since(m.start).Microseconds()
}

func (m *Memory) shard(k key) *shard { return &m.shards[k[0]%uint64(len(m.shards))] }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
