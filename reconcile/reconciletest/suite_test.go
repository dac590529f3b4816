package reconciletest_test

import (
	"testing"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

func TestMemory(t *testing.T) {
	reconciletest.Run(t, reconciletest.Config{
		New:    func(*testing.T) reconcile.Store { return reconcile.NewMemory() },
		Bubble: true,
	})
}

// The way a store on a real server is tested: real time, real sleeps.
func TestMemoryInRealTime(t *testing.T) {
	reconciletest.Run(t, reconciletest.Config{New: func(*testing.T) reconcile.Store { return reconcile.NewMemory() }})
}

func TestTimelineMemory(t *testing.T) {
	reconciletest.RunTimeline(t, reconciletest.TimelineConfig{
		New:    func(*testing.T) reconcile.TimelineStore { return reconcile.NewTimelineMemory() },
		Bubble: true,
	})
}

func TestCheckMemory(t *testing.T) {
	reconciletest.RunChecks(t, reconciletest.CheckConfig{
		New:    func(*testing.T) reconcile.CheckStore { return reconcile.NewCheckMemory() },
		Bubble: true,
	})
}

func TestCheckMemoryInRealTime(t *testing.T) {
	reconciletest.RunChecks(t, reconciletest.CheckConfig{New: func(*testing.T) reconcile.CheckStore { return reconcile.NewCheckMemory() }})
}
