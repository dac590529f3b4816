package ordertest_test

import (
	"testing"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/ordertest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	ordertest.Run(t, ordertest.Config{
		New:    func(*testing.T) order.Store { return order.NewMemory() },
		Bubble: true,
	})
}

// TestOnTheRealClock is the form in which stores on real servers are tested.
func TestOnTheRealClock(t *testing.T) {
	t.Parallel()
	ordertest.Run(t, ordertest.Config{New: func(*testing.T) order.Store { return order.NewMemory() }})
}
