package lww

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Writes that are set aside because of their stamps.

type quarantine map[asideKey]Register

type asideKey struct {
	key    string
	stamp  Stamp
	digest [32]byte
}

func (q quarantine) len() int { return len(q) }

func (q quarantine) has(e Entry) bool {
	_, ok := q[e.aside()]
	return ok
}

// after lists the writes of keys greater than a key.
func (q quarantine) after(key string) []Entry {
	var list []Entry
	for k, r := range q {
		if k.key > key {
			list = append(list, Entry{k.key, r})
		}
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.Register.compare(b.Register))
	})
	return list
}

func (e Entry) aside() asideKey { return asideKey{e.Key, e.Register.stamp, e.Register.digest} }

// setAside puts an entry into quarantine if it belongs there, and says whether. One
// that is there stays, also if the clock has come near it meanwhile: only a person
// takes it out.
func (m *Map) setAside(e Entry) bool {
	k := e.aside()
	r := e.Register
	switch old, there := m.aside[k]; {
	case there && old.state == Remote && r.state == Present:
		m.bytes += int64(len(r.value))
		m.aside[k] = r
	case there:
	case tooFar(r.stamp.Lamport, m.clock, m.opts.MaxAhead):
		m.bytes += int64(len(e.Key) + len(r.value))
		m.aside[k] = r
	default:
		return false
	}
	return true
}

// Quarantined lists the writes that are set aside, by key and stamp, of keys greater
// than after: at most n, and the rest of those of the last key. They are not merged:
// Get does not show them, the clock does not rise by them, and no delta carries them
// on. They are in a snapshot. Which writes are set aside depends on what came before
// them; what becomes of those that are merged does not.
//
// As long as a region offers such a write, this map's Vector does not move by its
// deltas: they grow, and tombstones are not collected. Find out why the clock of the
// write's region is where it is, then Release the write or Discard it.
func (m *Map) Quarantined(after string, n int) []Entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := m.aside.after(after)
	end := min(len(list), max(n, 0))
	for end > 0 && end < len(list) && list[end].Key == list[end-1].Key {
		end++
	}
	return list[:end]
}

// Release merges what is set aside of a key with a stamp, and raises the clock to
// it: all that this region writes from then on is stamped above it, and what other
// regions write meanwhile with lower stamps loses to it. A stamp of 2^64-1 is the
// last; after it no region that has merged it can write any more.
//
// It returns one change, or more where a region stamped twice. Errors, after which
// it is still set aside: ErrNotFound, ErrFull.
func (m *Map) Release(key string, s Stamp) ([]Change, error) {
	m.mu.Lock()
	changes, err := m.release(key, s)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m.tell(changes)
	return changes, nil
}

func (m *Map) release(key string, s Stamp) ([]Change, error) {
	found := m.asideOf(key, s)
	if len(found) == 0 {
		return nil, notAside(key, s)
	}
	if _, known := m.entries[key]; !known {
		// Its bytes are counted already.
		if err := m.fits(room{keys: 1}); err != nil {
			return nil, fmt.Errorf("%w; key %s stays in quarantine", err, short(key))
		}
	}
	var changes []Change
	for _, e := range found {
		m.dropAside(e)
		changes = append(changes, m.mergeOne(e))
	}
	return changes, nil
}

// Discard takes what is set aside of a key with a stamp out of quarantine, without
// merging it, and returns it: it is the caller's now, and nowhere else here. It comes
// back with the next delta of a region that has merged it, which must be mended
// first. To keep the value, Set it. When the region begins again with a lower clock,
// RetireRegion and AddRegion it here, so that what it said of its runaway clock no
// longer holds back Collect. ErrNotFound: there is none.
func (m *Map) Discard(key string, s Stamp) ([]Register, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.asideOf(key, s)
	if len(found) == 0 {
		return nil, notAside(key, s)
	}
	var discarded []Register
	for _, e := range found {
		m.dropAside(e)
		discarded = append(discarded, e.Register)
	}
	return discarded, nil
}

// Raise brings the clock to a Lamport, if it is below. What is written from then on
// is stamped above it; what was set aside stays there. It is for a region that was put
// back to an older copy, and for a new one that would find all there is too far
// ahead. ErrInvalid for 2^64-1, above which nothing can be written.
func (m *Map) Raise(lamport uint64) error {
	if lamport == math.MaxUint64 {
		return invalid("a clock at %d could stamp nothing more; the clock was not raised", lamport)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = max(m.clock, lamport)
	return nil
}

func (m *Map) asideOf(key string, s Stamp) (found []Entry) {
	for k, r := range m.aside {
		if k.key == key && k.stamp == s {
			found = append(found, Entry{key, r})
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return a.Register.compare(b.Register) })
	return found
}

func (m *Map) dropAside(e Entry) {
	m.bytes -= int64(len(e.Key) + len(e.Register.value))
	delete(m.aside, e.aside())
}

func notAside(key string, s Stamp) error {
	return fmt.Errorf("%w: no write %v of key %s is in quarantine; nothing was changed", ErrNotFound, s, short(key))
}
