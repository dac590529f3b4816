package lww

import (
	"encoding/binary"
	"fmt"
)

// Snapshot returns all that the map has as bytes: values, tombstones, clock, vector
// and quarantine. It holds values that stay at home, so it is for this region alone,
// and values are in clear. It needs the memory of the map once more, and its lock only
// as long as it takes to list the keys.
//
// What was written after it is not in it. See [Map.Set] for a log, and [Load].
func (m *Map) Snapshot() []byte {
	return m.snapshot(m.region)
}

// SnapshotFor returns what a new region begins with, or one that is set up again:
// all that the map has, without the values that stay at home (Options.Residency) and
// without the quarantine.
func (m *Map) SnapshotFor(to uint8) []byte {
	return m.snapshot(to)
}

func (m *Map) snapshot(to uint8) []byte {
	m.mu.RLock()
	s := contents{clock: m.clock, have: m.have, entries: m.index.since(Vector{}, m.entries)}
	if to == m.region {
		s.aside = m.aside.after("")
	}
	m.mu.RUnlock()
	for i := range s.entries {
		s.entries[i] = m.leaving(to, s.entries[i])
	}
	return message(nil, kindSnapshot, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, s.clock)
		b = appendVector(b, s.have)
		b = appendEntries(b, s.entries)
		return appendEntries(b, s.aside)
	})
}

// contents are what a snapshot holds.
type contents struct {
	clock          uint64
	have           Vector
	entries, aside []Entry
}

func (r *reader) contents() contents {
	return contents{clock: r.uint64("a clock"), have: r.vector(), entries: r.entries(), aside: r.entries()}
}

// Load returns a map with what a snapshot holds: of the same region after a start, or
// of another that made it with SnapshotFor. The clock is taken as it is, however far
// ahead. Regions of which there are writes and which Options.Regions does not name
// count as retired. What other regions have seen is not in a snapshot and is learnt
// anew.
//
// A snapshot that is older than the region's last write is an older copy: Replay the
// log of what was written since, or else see the package comment before the first
// write.
//
// Errors: those of [New]; ErrEncoding for bytes that are not a snapshot; ErrFull and a
// [*SizeError] where the options have no room for it.
func Load(snapshot []byte, region uint8, opts *Options) (*Map, error) {
	m, err := New(region, opts)
	if err != nil {
		return nil, err
	}
	var c contents
	if err := decode(snapshot, kindSnapshot, &c, (*reader).contents); err != nil {
		return nil, err
	}
	m.clock = c.clock
	m.see(c.have)
	need := room{aside: len(c.aside), keys: len(c.entries)}
	for _, e := range append(c.entries[:len(c.entries):len(c.entries)], c.aside...) {
		if m.regions[e.Register.stamp.Region] == nil {
			m.regions[e.Register.stamp.Region] = &peer{retired: true}
		}
		if err := m.checkEntry(e); err != nil {
			return nil, err
		}
		need.bytes += int64(len(e.Key) + len(e.Register.value))
	}
	if err := m.fits(need); err != nil {
		return nil, fmt.Errorf("%w; the snapshot was not loaded", err)
	}
	for _, e := range c.entries {
		if _, twice := m.entries[e.Key]; twice {
			return nil, unreadable("key %s twice in a snapshot", short(e.Key))
		}
		m.clock = max(m.clock, e.Register.stamp.Lamport)
		m.put(e.Key, Register{}, e.Register)
	}
	for _, e := range c.aside {
		m.bytes += int64(len(e.Key) + len(e.Register.value))
		m.aside[e.aside()] = e.Register
	}
	return m, nil
}
