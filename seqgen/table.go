package seqgen

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A table holds the sequences of a generator by key. Looking up a key that has
// been used for a while takes no lock: such keys stand in a map that is never
// changed, only replaced.
type table struct {
	read atomic.Pointer[map[string]*Sequence]

	mu     sync.Mutex
	all    map[string]*Sequence
	stale  bool // read differs from all
	misses int  // look-ups that did not find in read what is in all
	limit  int
	shut   bool // no key is added any more
}

func newTable(limit int) *table {
	t := &table{all: map[string]*Sequence{}, limit: limit}
	t.read.Store(&map[string]*Sequence{})
	return t
}

// find returns the sequence of a key, or nil. It may return one that was removed,
// which is closed.
func (t *table) find(key string) *Sequence {
	return (*t.read.Load())[key]
}

// get returns the sequence of a key, made by add if there is none. When there is
// no room, it drops another key if drop says that it may be dropped, or returns
// nil.
func (t *table) get(key string, add func() *Sequence, drop bool) *Sequence {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[key]
	if s == nil {
		if t.shut || len(t.all) >= t.limit && !(drop && t.dropOne()) {
			return nil
		}
		s = add()
		t.all[key] = s
		t.stale = true
	}
	if t.misses++; t.stale && t.misses >= len(t.all) { // the copy has paid for itself
		t.publish()
	}
	return s
}

// dropOne removes any key.
func (t *table) dropOne() bool {
	for key := range t.all {
		delete(t.all, key)
		t.stale = true
		return true
	}
	return false
}

// remove removes a sequence, if it is still the one of its key.
func (t *table) remove(s *Sequence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.key] != s {
		return
	}
	delete(t.all, s.key)
	t.stale = true
	if (*t.read.Load())[s.key] == s { // or its key would never be found without the lock again
		if t.misses++; t.misses >= len(t.all) {
			t.publish()
		}
	}
}

func (t *table) publish() {
	read := make(map[string]*Sequence, len(t.all))
	maps.Copy(read, t.all)
	t.read.Store(&read)
	t.stale, t.misses = false, 0
}

// close lets no key be added any more.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
}

// list returns all sequences.
func (t *table) list() []*Sequence {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Sequence, 0, len(t.all))
	for _, s := range t.all {
		list = append(list, s)
	}
	return list
}
