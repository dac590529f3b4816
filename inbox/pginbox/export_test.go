package pginbox

import "time"

// Floor is where the next claim of a stream begins to look.
func (s *Store) Floor(stream string) int64 {
	sc := s.scout(stream)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.floor
}

// Bell is how acceptances tell others.
type Bell = bell

// NewBell returns a bell.
func NewBell(ring func()) *Bell { return &bell{ring: ring} }

// Press presses it.
func (b *Bell) Press() { b.press() }

// NeverRescan makes a store rely on its floors: what one goes past is not found.
func (s *Store) NeverRescan() { s.rescanEvery, s.staleAfter = time.Hour, time.Hour }

// Hasty makes the floors of a store pass what is not committed yet, and never go back.
func (s *Store) Hasty() { s.rescanEvery, s.staleAfter = time.Hour, 0 }
