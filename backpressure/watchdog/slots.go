package watchdog

import "sync/atomic"

// A Handler is one call that [Reporter.Begin] has begun.
type Handler struct {
	number uint64
	slot   int // -1: there was none left
}

// slots hold the numbers of the handlers that run. Numbers rise, so the smallest is
// the oldest; the store measures how long it stays the same.
type slots struct {
	last    atomic.Uint64
	numbers [256]atomic.Uint64
	untimed atomic.Int64
}

func (s *slots) begin() Handler {
	n := s.last.Add(1) & MaxNumber
	for try := range len(s.numbers) {
		slot := int((n + uint64(try)) % uint64(len(s.numbers)))
		if s.numbers[slot].Load() == 0 && s.numbers[slot].CompareAndSwap(0, n) {
			return Handler{n, slot}
		}
	}
	s.untimed.Add(1)
	return Handler{n, -1}
}

// end frees the handler's slot. A handler that was not begun, or has ended before,
// frees nothing.
func (s *slots) end(h Handler) {
	switch {
	case h.number == 0:
	case h.slot < 0:
		s.untimed.Add(-1)
	case h.slot < len(s.numbers):
		s.numbers[h.slot].CompareAndSwap(h.number, 0)
	}
}

// oldest returns the number of the handler that runs for longest; 0: none runs.
func (s *slots) oldest() (oldest uint64) {
	for i := range s.numbers {
		if n := s.numbers[i].Load(); n != 0 && (oldest == 0 || n < oldest) {
			oldest = n
		}
	}
	return oldest
}
