package lww

import "fmt"

// A Delta is a page of what one region has and another has not seen, at a time.
type Delta struct {
	From, To uint8
	// Since is what the other region had seen, Upto what the sender had.
	Since, Upto Vector
	// After and Last are the stamps between which the page's writes lie; the first
	// page has no After. More: there is another page.
	After, Last Stamp
	More        bool
	// Sum is over all that the sender had, to find regions that differ.
	Sum     [32]byte
	Entries []Entry // least stamp first
}

// Delta returns what another region has not seen: all writes that since does not
// cover, as pages of about size bytes, at least one. Zero means 1 MiB; one write is
// never divided. Send them in this order. What the other region can have: its own
// Vector, or what the map knows of it, [Map.Acknowledged]. Sending a delta again is
// harmless, and is how a lost one is made good; to a region that does not answer send
// them less often, for they grow. The zero Vector stands for all there is.
//
// Values that stay at home (Options.Residency) are sent as stubs. Errors:
// ErrRegion; ErrInvalid for the map's own region or a negative size.
//
// It costs time in proportion to what it returns, and holds no lock while it asks
// Residency.
func (m *Map) Delta(to uint8, since Vector, size int) ([]Delta, error) {
	if to == m.region || size < 0 {
		return nil, invalid("a delta from region %d to %d of %d bytes a page", m.region, to, size)
	}
	if size == 0 {
		size = 1 << 20
	}
	m.mu.RLock()
	known := m.regions[to] != nil
	entries := m.index.since(since, m.entries)
	page := Delta{From: m.region, To: to, Since: since, Upto: m.have, Sum: m.sum}
	m.mu.RUnlock()
	if !known {
		return nil, fmt.Errorf("%w: %d; there is no delta for it; see AddRegion", ErrRegion, to)
	}

	var pages []Delta
	for start, end := 0, 0; ; start = end {
		for bytes := 0; end < len(entries) && (end == start || bytes < size); end++ {
			entries[end] = m.leaving(to, entries[end])
			bytes += len(entries[end].Key) + len(entries[end].Register.value) + entryOverhead
		}
		page.Entries, page.More = entries[start:end:end], end < len(entries)
		if end > start {
			page.Last = entries[end-1].Register.stamp
		}
		pages = append(pages, page)
		if !page.More {
			return pages, nil
		}
		page.After = page.Last
	}
}

// entryOverhead is what an entry takes in a delta beside its key and value: about.
const entryOverhead = 64

// leaving is an entry as another region may have it.
func (m *Map) leaving(to uint8, e Entry) Entry {
	if m.opts.Residency != nil && to != m.region && e.Register.state == Present &&
		m.opts.Residency(e.Register.stamp.Region, to, e.Key) {
		e.Register = e.Register.Stub()
	}
	return e
}

// Export returns the writes of some keys as another region may have them, to be
// pushed ahead of the next delta or on request. Keys that are not here are left out.
func (m *Map) Export(to uint8, keys ...string) []Entry {
	var entries []Entry
	for _, key := range keys {
		if r := m.Get(key); r.state != Absent {
			entries = append(entries, m.leaving(to, Entry{key, r}))
		}
	}
	return entries
}

// Merged is what a delta did.
type Merged struct {
	// Changes has what became of each write, in the delta's order.
	Changes []Change
	// Advanced: the map has now seen all that the sender had, and its Vector says so.
	// It is false before the last page, after a page was lost, and when Held is set.
	// The next delta makes it good.
	Advanced bool
	// Held is the stamp that is too far ahead, because of which the Vector stays where
	// it is: that of a write that was set aside, or one that the sender has seen. The
	// delta's other writes are merged. See Map.Quarantined and Map.Raise.
	Held Stamp
	// Rewound: the sender has seen writes of this region that this map does not know:
	// it was put back to an older copy. Those that the sender still has are in the
	// delta.
	Rewound bool
	// Diverged: the two regions have seen the same and do not have the same. A region
	// was put back to an older copy. If it has written before it knew, see
	// Map.Restamp; otherwise start it again from a peer's SnapshotFor.
	Diverged bool
}

// Apply merges a delta that another region made for this one. Pages may be lost,
// repeated and reordered; the map's Vector moves when all pages of a delta have come
// in their order. It also learns from it what the sender has seen.
//
// Either all of the delta is merged or, with an error, nothing: ErrRegion (the sender
// or a writer is not one of the known regions), ErrInvalid (not for this region, a
// bad key, a [*SizeError]), ErrFull. What was refused is not lost: the sender has it,
// and the next delta brings it again.
func (m *Map) Apply(d Delta) (Merged, error) {
	m.mu.Lock()
	a, err := m.apply(d)
	m.mu.Unlock()
	if err != nil {
		return Merged{}, err
	}
	m.tell(a.Changes)
	m.tellApplied(d, a)
	return a, nil
}

func (m *Map) apply(d Delta) (Merged, error) {
	if d.To != m.region || d.From == m.region {
		return Merged{}, invalid("a delta from region %d to %d came to %d; nothing was merged", d.From, d.To, m.region)
	}
	p := m.regions[d.From]
	if p == nil {
		return Merged{}, fmt.Errorf("%w: %d, which sent a delta; nothing was merged; see AddRegion", ErrRegion, d.From)
	}
	changes, held, err := m.merge(d.Entries)
	if err != nil {
		return Merged{}, err
	}
	a := Merged{Changes: changes, Rewound: d.Upto.At(m.region) > m.have.At(m.region)}
	if a.Rewound {
		m.counts.Rewound++
	}
	p.acked = p.acked.Join(d.Upto)
	p.follow(d, held)
	if !p.chain.whole || !m.have.CoversAll(d.Since) {
		a.Held = held
		return a, nil
	}
	if a.Held = p.chain.held; a.Held.IsZero() && tooFar(d.Upto.highest().Lamport, m.clock, m.opts.MaxAhead) {
		a.Held = d.Upto.highest()
	}
	if !a.Held.IsZero() {
		return a, nil
	}
	m.see(d.Upto)
	a.Advanced = true
	// Entries ahead of the vector are not what both have seen.
	if a.Diverged = m.have.Equal(d.Upto) && len(m.ahead) == 0 && m.sum != d.Sum; a.Diverged {
		m.counts.Diverged++
	}
	return a, nil
}

// A chain is the pages of a delta that have come one after the other.
type chain struct {
	open, whole bool
	upto        Vector
	last        Stamp
	held        Stamp
}

// follow adds a page to the chain if it is the next one.
func (p *peer) follow(d Delta, held Stamp) {
	c := &p.chain
	switch {
	case d.After.IsZero():
		*c = chain{open: true, upto: d.Upto}
	case !c.open || c.last != d.After || !c.upto.Equal(d.Upto):
		*c = chain{}
		return
	}
	if c.held.IsZero() {
		c.held = held
	}
	c.last, c.whole, c.open = d.Last, !d.More, d.More
}
