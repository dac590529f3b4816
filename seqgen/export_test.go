package seqgen

import "time"

// SetClock makes the store read another clock.
func (m *Memory) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = now
}
