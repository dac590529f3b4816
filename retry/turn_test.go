package retry

import (
	"testing"
	"time"
)

// A clock that goes back or jumps ahead neither restores what was spent nor
// keeps it for ever.
func TestBudgetWhenTheClockJumps(t *testing.T) {
	b, err := NewBudget(&BudgetOptions{Window: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b.turn(5 * time.Second)
	b.slots[b.current%slots].spent = 3
	for _, now := range []time.Duration{5 * time.Second, 0, -time.Hour, 14 * time.Second} {
		b.turn(now)
		if _, spent := b.sums(); spent != 3 {
			t.Errorf("at %v, %v is spent", now, spent)
		}
	}
	b.turn(15 * time.Second)
	if _, spent := b.sums(); spent != 0 {
		t.Errorf("a window later, %v is spent", spent)
	}
	b.slots[b.current%slots].spent = 3
	b.turn(1<<63 - 1)
	if _, spent := b.sums(); spent != 0 {
		t.Errorf("after a jump, %v is spent", spent)
	}
}
