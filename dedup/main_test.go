package dedup_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a guard, a failover or a memory store starts outlives its use.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
