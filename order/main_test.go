package order_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a buffer or a memory store starts outlives its use.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
