// Package crashtest kills the server of a store under load and counts what was lost,
// and puts a store back to an older copy and looks what becomes of what it forgot.
package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// KillUnderLoad lets 32 goroutines have the effects of ids messages while kill
// takes the server down and up again, kills times. The store has to be one that
// keeps what it has answered. No effect may then happen twice within its lease,
// which is longer than the test; none may run side by side; and a message that
// was once answered as done stays done.
func KillUnderLoad(t *testing.T, s dedup.Store, ids, kills int, kill func()) {
	t.Helper()
	guard, err := dedup.New(s, &dedup.Options{Scope: "crash", Lease: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{t: t, guard: guard, effects: make([]atomic.Int32, ids), running: make([]atomic.Int32, ids), done: make([]atomic.Bool, ids)}
	var over atomic.Bool
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for !over.Load() {
				l.deliver(rand.IntN(ids))
			}
		})
	}
	for n := range kills {
		for before := l.acknowledged.Load(); l.acknowledged.Load() < before+int64(ids)/int64(2*kills); {
			time.Sleep(time.Millisecond) // until there is something to lose
		}
		t.Logf("kill %d, %d messages acknowledged", n+1, l.acknowledged.Load())
		kill()
	}
	over.Store(true)
	workers.Wait()
	for i := range ids {
		was := l.done[i].Load()
		if err := l.deliver(i); was && err != nil {
			t.Errorf("message %d was done, and now is answered: %v", i, err)
		}
	}
	t.Logf("%d of %d messages acknowledged, %d calls without an answer", l.acknowledged.Load(), ids, l.unanswered.Load())
}

// load is what is known of every message.
type load struct {
	t                        *testing.T
	guard                    *dedup.Guard
	effects, running         []atomic.Int32
	done                     []atomic.Bool
	acknowledged, unanswered atomic.Int64
}

// deliver delivers a message once.
func (l *load) deliver(i int) error {
	err := l.guard.Do(context.Background(), dedup.Request{ID: fmt.Sprint("message-", i)}, func(context.Context) error {
		if l.running[i].Add(1) != 1 {
			l.t.Errorf("message %d is being run twice at once", i)
		}
		if l.effects[i].Add(1) != 1 {
			l.t.Errorf("message %d has had its effect before", i)
		}
		l.running[i].Add(-1)
		return nil
	})
	switch {
	case err == nil && l.effects[i].Load() == 0:
		l.t.Errorf("message %d is answered as done, and had no effect", i)
	case err == nil:
		if !l.done[i].Swap(true) {
			l.acknowledged.Add(1)
		}
	case errors.Is(err, dedup.ErrUnavailable):
		l.unanswered.Add(1)
	}
	return err
}
