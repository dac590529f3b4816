package inboxtest_test

import (
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Config{
		New:    func(*testing.T) inbox.Store { return inbox.NewMemory() },
		Bubble: true,
	})
}
