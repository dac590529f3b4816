package lww

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// Stats are what a map has, and what it has counted since it was made.
type Stats struct {
	// Keys are those that have a write, Tombstones those of them that are deleted.
	Keys, Tombstones int
	// Bytes are those of keys and values, in quarantine, too.
	Bytes int64
	// Quarantined are the writes that are set aside now.
	Quarantined int
	// Clock is the greatest Lamport that was written or merged.
	Clock uint64
	// Written counts this region's own writes.
	Written uint64
	// Applied, Ignored, Filled, Unchanged, SetAside and Collected count the outcomes
	// of merged writes; one that comes twice counts twice.
	Applied, Ignored, Filled, Unchanged, SetAside, Collected uint64
	// Conflicts and Clashes count the changes that were one.
	Conflicts, Clashes uint64
	// Rewound and Diverged count the deltas that found it.
	Rewound, Diverged uint64
	// Forgotten counts tombstones that were collected.
	Forgotten uint64
}

// Stats returns a snapshot.
func (m *Map) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.counts
	s.Keys, s.Tombstones, s.Bytes = len(m.entries), len(m.dead), m.bytes
	s.Quarantined, s.Clock = m.aside.len(), m.clock
	return s
}

func (s *Stats) count(c Change) {
	switch c.Outcome {
	case Applied:
		s.Applied++
	case Ignored:
		s.Ignored++
	case Filled:
		s.Filled++
	case Unchanged:
		s.Unchanged++
	}
	if c.Conflict {
		s.Conflicts++
	}
	if c.Clash {
		s.Clashes++
	}
}

// Keys lists the keys in a state, by key, at most n of them and greater than after:
// [Remote] ones to fetch, say. It looks at all keys.
func (m *Map) Keys(state State, after string, n int) []string {
	m.mu.RLock()
	var keys []string
	for key, r := range m.entries {
		if r.state == state && key > after {
			keys = append(keys, strings.Clone(key))
		}
	}
	m.mu.RUnlock()
	slices.Sort(keys)
	return keys[:min(len(keys), max(n, 0))]
}

// tell logs what an operator should look at, one line for a call.
func (m *Map) tell(changes []Change) {
	if m.opts.Logger == nil {
		return
	}
	clashes, aside := 0, 0
	for _, c := range changes {
		if c.Clash {
			clashes++
		}
		if c.Outcome == SetAside {
			aside++
		}
	}
	if clashes > 0 {
		m.warn("two writes have the same stamp: a region was put back to an older copy, or runs twice", "writes", clashes)
	}
	if aside > 0 {
		m.warn("writes are stamped too far ahead and set aside", "writes", aside)
	}
}

func (m *Map) tellApplied(d Delta, a Merged) {
	if a.Rewound {
		m.warn("this region was put back to an older copy", "from", d.From, "latest", d.Upto.At(m.region))
	}
	if a.Diverged {
		m.warn("two regions have seen the same and differ", "from", d.From)
	}
}

func (m *Map) warn(msg string, args ...any) {
	if m.opts.Logger != nil {
		m.opts.Logger.Log(context.Background(), slog.LevelWarn, "lww: "+msg, append([]any{"region", m.region}, args...)...)
	}
}
