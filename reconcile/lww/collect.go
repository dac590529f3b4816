package lww

import (
	"fmt"
	"slices"
)

// A peer is what the map knows of a region, its own included.
type peer struct {
	retired bool
	acked   Vector // what it has seen
	chain   chain  // of its delta that is coming in
}

// Vector returns what this map has seen without a hole: all writes that it covers
// were merged, or greater ones of their keys.
func (m *Map) Vector() Vector {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.have
}

// Acknowledge notes what another region has seen: its Vector, as it told. Apply does
// so, too. It must be the region's word and not what was sent to it: on it rests that
// nothing deleted comes back. ErrRegion: the region is not one of the known.
func (m *Map) Acknowledge(region uint8, v Vector) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.regions[region]
	if p == nil {
		return fmt.Errorf("%w: %d; nothing was noted; see AddRegion", ErrRegion, region)
	}
	p.acked = p.acked.Join(v)
	return nil
}

// Acknowledged returns what another region is known to have seen; the zero Vector
// for a region that nothing is known of.
func (m *Map) Acknowledged(region uint8) Vector {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if region == m.region {
		return m.have
	}
	if p := m.regions[region]; p != nil {
		return p.acked
	}
	return Vector{}
}

// AddRegion makes a region one of the known, or a retired one one of those that
// write. Do it in every region before the new one writes, and begin the new one from
// a peer's SnapshotFor. No tombstone is collected until it has told what it has seen.
func (m *Map) AddRegion(region uint8) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.regions[region]; p == nil || p.retired {
		m.regions[region] = &peer{}
	}
}

// RetireRegion says that a region will never write again, so that tombstones do not
// wait for it. Its writes are still taken from others. Make sure first that they have
// all of them: one that comes after a tombstone was collected without it brings a
// deleted key back. ErrInvalid for the map's own region, ErrRegion for an unknown.
func (m *Map) RetireRegion(region uint8) error {
	if region == m.region {
		return invalid("region %d cannot retire itself", region)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.regions[region]
	if p == nil {
		return fmt.Errorf("%w: %d; nothing was changed", ErrRegion, region)
	}
	p.retired = true
	return nil
}

// Regions returns the known regions that have not retired, this one included.
func (m *Map) Regions() []uint8 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var regions []uint8
	for r, p := range m.regions {
		if !p.retired {
			regions = append(regions, r)
		}
	}
	slices.Sort(regions)
	return regions
}

// Collect forgets at most n tombstones that every region has passed, and returns how
// many it forgot. It looks at all tombstones at most. Nothing is collected while a
// region has not been heard of, or is cut off.
//
// A tombstone is passed when each region that writes has said that it has seen it,
// and this map has seen all that each had written when it said so. Whatever is older
// and comes later is then a write that the Vector covers, of a key that is not here:
// it is known for what it is, and ignored ([Collected]).
func (m *Map) Collect(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.regions {
		if r != m.region && !p.retired && m.have.At(r) < p.acked.At(r) {
			return 0
		}
	}
	collected := 0
	for key := range m.dead {
		if collected >= n {
			break
		}
		if r := m.entries[key]; m.passed(r.stamp) {
			m.remove(key, r)
			collected++
		}
	}
	m.counts.Forgotten += uint64(collected)
	return collected
}

// passed says whether every region that writes has seen a write.
func (m *Map) passed(s Stamp) bool {
	for r, p := range m.regions {
		if r != m.region && !p.retired && !p.acked.Covers(s) {
			return false
		}
	}
	return m.have.Covers(s)
}
