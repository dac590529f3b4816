package lww

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// An Entry is a write to a key, as it goes from region to region.
type Entry struct {
	Key      string
	Register Register
}

// Get returns what a key has. It is the zero Register, whose State is Absent, for a
// key that was never written; look at the State before the Value.
func (m *Map) Get(key string) Register {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.entries[key]
}

// Set writes a value, stamped above everything that was merged. The value is copied;
// nil is an empty value. Change.Lost is what it overwrites, which is never a
// conflict. To be sure that the write survives the process, store the entry before
// you answer for it, and Merge it after the next start.
//
// Errors, after which nothing was written: ErrInvalid for a key that is not 1 to 512
// bytes of UTF-8 without NUL or a value that is too large (a [*SizeError]), ErrFull,
// ErrOverflow.
func (m *Map) Set(key string, value []byte) (Change, error) {
	if len(value) > m.opts.MaxValue {
		return Change{}, &SizeError{Key: short(key), Size: len(value), Limit: m.opts.MaxValue}
	}
	return m.write(key, len(value), newBody(value).written)
}

// Delete writes a tombstone, also for a key that is not here: a write of another
// region that comes later may be older. It counts as a key until it is collected.
// Errors are those of Set.
func (m *Map) Delete(key string) (Change, error) { return m.write(key, 0, erased) }

func (m *Map) write(key string, size int, register func(Stamp, Vector) Register) (Change, error) {
	if err := checkKey(key); err != nil {
		return Change{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.entries[key]
	need := room{bytes: int64(size - len(old.value))}
	if !known {
		need.keys, need.bytes = 1, need.bytes+int64(len(key))
	}
	if err := m.fits(need); err != nil {
		return Change{}, fmt.Errorf("%w; key %s was not written", err, short(key))
	}
	if m.clock == math.MaxUint64 {
		return Change{}, fmt.Errorf("%w; key %s was not written", ErrOverflow, short(key))
	}
	m.clock++
	s := Stamp{m.clock, m.region}
	c := Change{Key: key, Outcome: Applied, Lost: old,
		Now: register(s, m.have.Join(old.seen).with(old.stamp))}
	m.have = m.have.with(s)
	m.put(key, old, c.Now)
	m.counts.Written++
	return c, nil
}

// Merge takes single writes: pushed ahead of the next delta, or fetched with Export.
// It returns what became of each, in the order of the arguments. Either all are taken
// or, with an error, none.
//
// It does not move the map's Vector, since it cannot know what else there is: Delta
// and Apply do.
//
// Errors: ErrInvalid (a bad key, a value that is too large, the zero Register),
// ErrRegion, ErrFull.
func (m *Map) Merge(entries ...Entry) ([]Change, error) {
	m.mu.Lock()
	changes, _, err := m.merge(entries)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m.tell(changes)
	return changes, nil
}

// Replay merges this region's own writes from the caller's log after a start, in the
// order in which they were written. Unlike Merge it takes the log to be whole: all
// that the region wrote up to the latest of them is then here. Errors are those of
// Merge, and ErrInvalid for a write of another region.
func (m *Map) Replay(entries ...Entry) ([]Change, error) {
	var last Stamp
	for _, e := range entries {
		s := e.Register.stamp
		if s.Region != m.region {
			return nil, invalid("a write of region %d for key %s in the log of region %d; nothing was merged", s.Region, short(e.Key), m.region)
		}
		if s.Compare(last) > 0 {
			last = s
		}
	}
	m.mu.Lock()
	changes, held, err := m.merge(entries)
	if err == nil && held.IsZero() {
		m.see(NewVector(last))
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m.tell(changes)
	return changes, nil
}

// merge takes all entries or none, from the least stamp to the greatest: each raises
// the mark for the next one's being too far ahead. It returns the least stamp that
// was set aside, too.
func (m *Map) merge(entries []Entry) ([]Change, Stamp, error) {
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return entries[a].Register.stamp.Compare(entries[b].Register.stamp)
	})
	if err := m.plan(entries, order); err != nil {
		return nil, Stamp{}, err
	}
	changes := make([]Change, len(entries))
	var held Stamp
	for _, i := range order {
		e := entries[i]
		if m.setAside(e) {
			if held.IsZero() {
				held = e.Register.stamp
			}
			changes[i] = Change{Key: e.Key, Outcome: SetAside, Now: m.entries[e.Key]}
			m.counts.SetAside++
			continue
		}
		changes[i] = m.mergeOne(e)
	}
	return changes, held, nil
}

// mergeOne merges an entry that is valid, has room and is not too far ahead.
func (m *Map) mergeOne(e Entry) Change {
	old, known := m.entries[e.Key]
	m.clock = max(m.clock, e.Register.stamp.Lamport)
	if !known && m.have.Covers(e.Register.stamp) {
		// It was here, or something greater was. Only a tombstone that was collected
		// leaves a key without a write.
		m.counts.Collected++
		return Change{Key: e.Key, Outcome: Collected, Lost: e.Register}
	}
	c := old.Merge(e.Register)
	c.Key = e.Key
	if c.Outcome == Applied || c.Outcome == Filled {
		m.put(e.Key, old, c.Now)
	}
	m.counts.count(c)
	return c
}

// put replaces what a key has.
func (m *Map) put(key string, old, now Register) {
	if old.state == Absent {
		m.bytes += int64(len(key))
	} else {
		m.toggle(key, old)
	}
	m.toggle(key, now)
	m.bytes += int64(len(now.value) - len(old.value))
	if now.state == Deleted {
		m.dead[key] = struct{}{}
	} else {
		delete(m.dead, key)
	}
	m.entries[key] = now
	if now.stamp != old.stamp {
		m.index.add(key, now.stamp)
		m.index.dropped(old.stamp, m.entries)
	}
	if m.have.Covers(now.stamp) {
		delete(m.ahead, key)
	} else {
		m.ahead[key] = struct{}{}
	}
}

// remove forgets a key.
func (m *Map) remove(key string, old Register) {
	m.toggle(key, old)
	m.bytes -= int64(len(key) + len(old.value))
	delete(m.dead, key)
	delete(m.entries, key)
	delete(m.ahead, key)
	m.index.dropped(old.stamp, m.entries)
}

// see moves the vector, and the clock with it.
func (m *Map) see(v Vector) {
	m.have = m.have.Join(v)
	m.clock = max(m.clock, v.highest().Lamport)
	for key := range m.ahead {
		if m.have.Covers(m.entries[key].stamp) {
			delete(m.ahead, key)
		}
	}
}

// room is what a change needs.
type room struct {
	keys  int
	bytes int64
	aside int
}

func (m *Map) fits(need room) error {
	switch {
	case need.keys > 0 && len(m.entries)+need.keys > m.opts.MaxKeys:
		return fmt.Errorf("%w: %d keys of at most %d, %d more to come", ErrFull, len(m.entries), m.opts.MaxKeys, need.keys)
	case need.bytes > 0 && m.bytes+need.bytes > m.opts.MaxBytes:
		return fmt.Errorf("%w: %d bytes of at most %d, %d more to come", ErrFull, m.bytes, m.opts.MaxBytes, need.bytes)
	case need.aside > 0 && m.aside.len()+need.aside > m.opts.MaxQuarantine:
		return fmt.Errorf("%w: %d writes in quarantine of at most %d, %d more to come", ErrFull, m.aside.len(), m.opts.MaxQuarantine, need.aside)
	}
	return nil
}

// plan refuses entries that are invalid or for which there may be no room. A write
// that comes twice among them may count twice.
func (m *Map) plan(entries []Entry, order []int) error {
	var need room
	fresh := map[string]struct{}{}
	clock := m.clock
	for _, i := range order {
		e := entries[i]
		if err := m.checkEntry(e); err != nil {
			return err
		}
		r := e.Register
		switch old, known := m.entries[e.Key]; {
		case m.aside.has(e):
			need.bytes += int64(len(r.value))
		case tooFar(r.stamp.Lamport, clock, m.opts.MaxAhead):
			need.aside++
			need.bytes += int64(len(e.Key) + len(r.value))
		case !known && m.have.Covers(r.stamp):
			// It will not come in.
		default:
			clock = max(clock, r.stamp.Lamport)
			if !known {
				fresh[e.Key] = struct{}{}
				need.bytes += int64(len(e.Key))
			}
			if o := old.Merge(r).Outcome; o == Applied || o == Filled {
				need.bytes += int64(max(0, len(r.value)-len(old.value)))
			}
		}
	}
	need.keys = len(fresh)
	if err := m.fits(need); err != nil {
		return fmt.Errorf("%w; nothing of %d writes was merged", err, len(entries))
	}
	return nil
}

func tooFar(lamport, clock, most uint64) bool { return lamport > clock && lamport-clock > most }

func (m *Map) checkEntry(e Entry) error {
	if err := checkKey(e.Key); err != nil {
		return err
	}
	r := e.Register
	switch {
	case r.stamp.IsZero() || r.state == Absent:
		return invalid("no write for key %s; nothing was merged", short(e.Key))
	case len(r.value) > m.opts.MaxValue:
		return &SizeError{Key: short(e.Key), Size: len(r.value), Limit: m.opts.MaxValue}
	case m.regions[r.stamp.Region] == nil:
		return fmt.Errorf("%w: %d, which wrote key %s; nothing was merged; see AddRegion", ErrRegion, r.stamp.Region, short(e.Key))
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("empty key")
	case len(key) > maxKey:
		return invalid("key of %d bytes, at most %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return invalid("key %s is not valid UTF-8", short(key))
	}
	for i := range len(key) {
		if key[i] == 0 {
			return invalid("key %s has a NUL byte at %d", short(key), i)
		}
	}
	return nil
}
