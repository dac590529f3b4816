package retry_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No call leaves a goroutine or a timer behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
