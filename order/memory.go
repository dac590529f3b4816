package order

import (
	"context"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of this process, and a [Sweeper]. Nothing of
// it survives the process and no other process sees it: it is for tests, for
// examples, and for messages that their sender can send again.
//
// It starts no goroutine and no timer. A key costs about 800 bytes for itself and
// its active epoch, 500 for each epoch that has ended, 16 for each number within
// the window (Options.Window) of an epoch that has not ended, and 24 for each
// unbroken range of void or skipped numbers. A buffered message costs about 90
// bytes beside its payload. Messages with an ID and gap records stay until
// [Memory.Sweep] is called: nothing else removes them. The number of keys is not
// bounded; [Buffer.Forget] removes one. It is safe for concurrent use.
type Memory struct {
	start time.Time // now is measured from here, so a clock that is set changes nothing

	mu     sync.Mutex
	shift  int64 // microseconds: in tests the clock is elsewhere
	scopes map[string]*scopeRow
	rows   rowPool
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{start: time.Now(), scopes: map[string]*scopeRow{}}
}

// Push implements [Store].
func (m *Memory) Push(ctx context.Context, p Params, arrivals []Arrival) ([]Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(p.Scope)
	answers := make([]Answer, len(arrivals))
	for i := range arrivals {
		answers[i] = m.push(s, now, &p, &arrivals[i])
	}
	return answers, nil
}

// push is the rules of [Store.Push], and counts the answer.
func (m *Memory) push(s *scopeRow, now int64, p *Params, a *Arrival) Answer {
	k := s.keys[a.Key]
	at := a.Position
	if a.Assign { // rule 1
		if found, ok := s.ids[a.ID]; ok {
			found.epoch.key.arrivals.count(Duplicate)
			return Answer{State: Duplicate, Key: found.epoch.key.name, Position: Position{found.epoch.Epoch, found.number}}
		}
		at = Position{max(a.Position.Epoch, 1), max(p.Start, 1)}
		if k != nil && k.last().Epoch >= at.Epoch {
			at = Position{k.last().Epoch, k.last().Head}
		}
	}
	answer := m.place(s, k, now, p, a, at)
	answer.Key, answer.Position = a.Key, at
	if k == nil {
		k = s.keys[a.Key]
	}
	if k != nil {
		k.arrivals.count(answer.State)
		m.changed(k, now, p)
	}
	return answer
}

// place is the rules of [Store.Push] from the second on.
func (m *Memory) place(s *scopeRow, k *keyRow, now int64, p *Params, a *Arrival, at Position) Answer {
	e, refused := m.epoch(s, k, p, at)
	n := at.Number
	switch {
	case refused != 0: // rules 2 and 3
		return Answer{State: refused}
	case n < e.Base: // rule 4
		return Answer{State: StaleEpoch}
	case n < e.Cursor:
		return m.behind(e, now, p, a, n)
	case e.pages.has(n, unorderedSet): // rule 8
		return Answer{State: Duplicate, Unverified: true}
	case e.pages.has(n, heldSet): // rule 8
		return sameOrNot(e, n, a)
	case a.Assign && (n > MaxNumber || n-e.Cursor >= p.MaxAhead):
		return Answer{State: Full}
	case n-e.Cursor >= p.MaxAhead: // rule 9
		return Answer{State: TooFar}
	case m.full(k, e, p, n): // rule 10
		return Answer{State: Full}
	}
	if e.key == nil { // rule 11
		m.begin(s, a.Key, k, e, now, p)
	}
	if _, isVoid := e.ranges.find(n); isVoid {
		e.ranges.remove(n)
		e.VoidAhead--
	}
	e.pages.hold(n, a, now)
	e.Buffered++
	e.known(n)
	s.note(a.ID, e, n)
	if n == e.Cursor {
		e.ready = now
	}
	return Answer{State: Buffered}
}

// epoch is the rules 2 and 3 of [Store.Push]. An epoch that does not exist yet is
// returned without a key: it is to begin.
func (m *Memory) epoch(s *scopeRow, k *keyRow, p *Params, at Position) (*epochRow, Arrived) {
	if k != nil {
		if at.Epoch < k.now().Epoch {
			return nil, StaleEpoch
		}
		if i, ok := k.epoch(at.Epoch); ok {
			return k.epochs[i], 0
		}
		if len(k.epochs)-k.active >= MaxEpochs {
			return nil, Full
		}
	}
	base := p.Start
	if base == 0 {
		base = at.Number
	}
	return &epochRow{
		Ledger: Ledger{Epoch: at.Epoch, Base: base, Cursor: base, Head: base},
		pages:  numberPages{pool: &m.rows}, begun: base,
	}, 0
}

// behind is the rules 5 to 7 of [Store.Push]: the number is below the cursor.
func (m *Memory) behind(e *epochRow, now int64, p *Params, a *Arrival, n uint64) Answer {
	i, ended := e.ranges.find(n)
	switch {
	case !ended:
		return sameOrNot(e, n, a)
	case p.Late && e.key.lateWaiting >= p.MaxBuffered:
		return Answer{State: Full}
	}
	e.becomeLate(i, n, p)
	if e.remembers(n, p) {
		e.pages.remember(n, a.Digest)
	}
	if p.Late {
		e.key.scope.addLate(e, n, a, now)
	}
	return Answer{State: Late}
}

// becomeLate takes a number out of the range that it was skipped or void with.
func (e *epochRow) becomeLate(i int, n uint64, p *Params) {
	if e.ranges[i].skipped {
		e.Skipped--
	} else {
		e.Void--
	}
	e.ranges.remove(n)
	e.Late++
	if j, ok := e.key.recordAt(e.Epoch, n); ok {
		e.key.records[j].arrived++
	}
	if k := e.kept[n]; k != nil {
		k.late = true
	}
	if e.remembers(n, p) {
		_, bit := pageOffset(n)
		page := e.pages.room(n)
		page.known &^= bit
		page.late |= bit
	}
}

// sameOrNot compares an arrival with what is known of its number.
func sameOrNot(e *epochRow, n uint64, a *Arrival) Answer {
	switch digest, ok := e.digest(n); {
	case !ok:
		return Answer{State: Duplicate, Unverified: true}
	case digest == a.Digest:
		return Answer{State: Duplicate}
	}
	return Answer{State: Conflict}
}

// full is the rule 10 of [Store.Push]. An epoch that is to begin may leave nothing
// of the others.
func (m *Memory) full(k *keyRow, e *epochRow, p *Params, n uint64) bool {
	if k == nil {
		return p.MaxBuffered < 1 && n != e.Cursor
	}
	buffered, active := k.buffered(), e == k.now()
	if e.key == nil && e.Epoch > k.last().Epoch {
		if p.Abandon {
			buffered = 0
		}
		active = p.Abandon || k.now().Cursor == k.now().Head
	}
	return buffered >= uint64(max(p.MaxBuffered, 0)) && !(active && n == e.Cursor)
}

// count counts an answer.
func (c *Arrivals) count(state Arrived) {
	c.Pushed++
	switch state {
	case Buffered:
		c.Accepted++
	case Duplicate:
		c.Duplicate++
	case Conflict:
		c.Conflict++
	case Late:
		c.Late++
	case StaleEpoch:
		c.Stale++
	case Full:
		c.Full++
	case TooFar:
		c.TooFar++
	}
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, p Params, a Ask) (Claimed, error) {
	if err := ctx.Err(); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(p.Scope)
	var c Claimed
	if ask := s.asks[a.Nonce]; ask != nil { // it may have been sent before
		for _, k := range ask.keys {
			if k.ask == ask && now < k.until {
				c.Claims = append(c.Claims, k.claim(now, &a, false))
			}
		}
		if len(c.Claims) > 0 {
			return c, nil
		}
	}
	ask := &askRow{nonce: a.Nonce}
	for len(c.Claims) < a.Keys && s.due.Len() > 0 && s.due.keys[0].at <= now {
		k := s.due.keys[0]
		s.unask(k) // of an owner whose lease has lapsed
		k.token = max(k.token+1, s.floor+1, uint64(now))
		k.ask, k.until = ask, now+a.Lease.Microseconds()
		ask.keys = append(ask.keys, k)
		c.Claims = append(c.Claims, k.claim(now, &a, true))
		m.changed(k, now, &p)
	}
	if ask.claimed = len(ask.keys); ask.claimed > 0 {
		s.asks[a.Nonce] = ask
	}
	if len(c.Claims) < a.Keys && s.due.Len() > 0 {
		c.Next = micros(s.due.keys[0].at - now)
	}
	return c, nil
}

// Sweep implements [Sweeper].
func (m *Memory) Sweep(ctx context.Context, p Params, n int) (forgotten int, err error) {
	if n < 1 {
		return 0, invalid("sweep of %d messages", n)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, s := m.now(), m.scope(p.Scope)
	for ; n > 0 && len(s.ended) > 0; n-- {
		k := s.ended[0]
		if !k.gone && k.ended+p.KeepBody.Microseconds() > now {
			break
		}
		s.ended[0] = nil
		s.ended = s.ended[1:]
		switch {
		case k.gone:
		case k.epoch.remembers(k.number, &p):
			k.bare, k.payload, k.context = true, nil, nil
		default:
			s.forget(k)
			forgotten++
		}
	}
	for range min(n, s.records.Len()) {
		if s.sweep == nil {
			s.sweep = s.records.Front()
		}
		r := s.sweep.Value.(*gapRecord)
		s.sweep = s.sweep.Next()
		if r.resolution != 0 && r.resolved+p.KeepGaps.Microseconds() <= now {
			s.dropRecord(r)
			forgotten++
		}
	}
	return forgotten, nil
}

// scope returns the rows of a scope.
func (m *Memory) scope(name string) *scopeRow {
	s := m.scopes[name]
	if s == nil {
		s = newScopeRow(name)
		m.scopes[name] = s
	}
	return s
}

func (m *Memory) now() int64 {
	return m.start.UnixMicro() + time.Since(m.start).Microseconds() + m.shift
}

// micros is a span as a duration. It is never negative.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
