package order

import "time"

// ShiftClock moves the store's clock.
func (m *Memory) ShiftClock(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shift += d.Microseconds()
}
