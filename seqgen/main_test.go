package seqgen_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a generator starts outlives its use.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
