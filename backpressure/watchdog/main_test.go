package watchdog

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that the package starts outlives its use.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
