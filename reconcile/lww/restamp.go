package lww

import "fmt"

// Restamp writes again, under fresh stamps of this region, what a region stamped
// above a Lamport, and returns the changes. It mends what a region did that was put
// back to an older copy and wrote before it knew: others take its new writes for ones
// they have seen, and it takes its old ones for such. Name that region and the
// greatest Lamport of its own in the older copy, in the region itself and in each
// other that has writes of it above that; exchange deltas before and after.
//
// Where two regions have different values under such stamps, one loses to the other
// as in any conflict, and is returned. Values that are not here ([Remote]) cannot be
// restamped and stay as they are.
//
// Errors, after which nothing was changed: ErrOverflow.
func (m *Map) Restamp(region uint8, above uint64) ([]Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := &m.index[region]
	var entries []Entry
	for _, i := range run.items[run.after(above):] {
		if r := m.entries[i.key]; r.stamp == (Stamp{i.lamport, region}) && r.state != Remote {
			entries = append(entries, Entry{i.key, r})
		}
	}
	if uint64(len(entries)) > ^uint64(0)-m.clock {
		return nil, fmt.Errorf("%w; none of %d writes was restamped", ErrOverflow, len(entries))
	}
	changes := make([]Change, 0, len(entries))
	for _, e := range entries {
		old := e.Register
		register := erased
		if old.state == Present {
			register = newBody(old.value).written
		}
		m.clock++
		now := register(Stamp{m.clock, m.region}, m.have.Join(old.seen).with(old.stamp))
		m.have = m.have.with(now.stamp)
		m.put(e.Key, old, now)
		m.counts.Written++
		changes = append(changes, Change{Key: e.Key, Outcome: Applied, Now: now, Lost: old})
	}
	return changes, nil
}
