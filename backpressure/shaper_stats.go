package backpressure

// ShaperHooks are functions that a shaper calls at the events they name, on the
// goroutine of the call and outside of its locks; they must not block. Each may be
// nil. Fields may be added.
type ShaperHooks struct {
	// Refused is called for every call that was not admitted.
	Refused func(line string, cost int, v Verdict)
}

// LineStats are what a line has counted since [NewShaper].
type LineStats struct {
	// Admitted and Refused are calls. Refused includes those that gave up waiting.
	Admitted, Refused uint64
	// Borrowed and Lent are tokens: taken from lesser lines, and taken by more
	// important ones.
	Borrowed, Lent uint64
	// Waiting is how many callers wait now.
	Waiting int
}

// Stats returns a snapshot.
func (l *Line) Stats() LineStats {
	l.s.mu.Lock() // Waiting
	defer l.s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.counts
	stats.Refused = l.refusals.Load()
	return stats
}

// Stats returns a snapshot of each line, by name.
func (s *Shaper) Stats() map[string]LineStats {
	all := make(map[string]LineStats, len(s.lines))
	for name, l := range s.lines {
		all[name] = l.Stats()
	}
	return all
}

func (l *Line) refused(cost int, v Verdict) {
	l.refusals.Add(1)
	if h := l.s.opts.Hooks; h != nil && h.Refused != nil {
		h.Refused(l.opts.Name, cost, v)
	}
}
