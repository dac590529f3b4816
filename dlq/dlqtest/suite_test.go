package dlqtest_test

import (
	"testing"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	dlqtest.Run(t, dlqtest.Config{
		New:    func(*testing.T) dlq.Store { return dlq.NewMemory() },
		Reopen: func(_ *testing.T, s dlq.Store) dlq.Store { return s }, // nothing is closed: what the subtests themselves expect
		Bubble: true,
	})
}
