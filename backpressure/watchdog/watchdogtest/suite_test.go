package watchdogtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/backpressure/watchdog/watchdogtest"
)

func TestMemoryInBubbles(t *testing.T) {
	watchdogtest.Run(t, watchdogtest.Config{
		New:    func(*testing.T) watchdog.Store { return watchdog.NewMemory() },
		Bubble: true,
	})
}

// The form in which stores on real servers are tested.
func TestMemoryOnTheRealClock(t *testing.T) {
	watchdogtest.Run(t, watchdogtest.Config{
		New: func(*testing.T) watchdog.Store { return watchdog.NewMemory() },
	})
}

// A service is tested against a store that is down: nobody is called stuck.
func ExampleFaulty() {
	store := &watchdogtest.Faulty{
		Store:  watchdog.NewMemory(),
		Before: func(string) error { return errors.New("no connection") },
	}
	w, err := watchdog.New(store, &watchdog.Options{Every: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = w.Round(context.Background())
	fmt.Println(errors.Is(err, watchdog.ErrUnavailable), w.Stats().Stuck)
	// Output: true 0
}
