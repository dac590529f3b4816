package work_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

func TestLoopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a", "b", "c", "d", "e")
		_, stop := start(t, q.config(4*time.Second))
		time.Sleep(time.Second)
		begin := time.Now()
		if n := stop(); n != 0 {
			t.Errorf("%d units were abandoned", n)
		}
		if got := time.Since(begin); got != 3*time.Second {
			t.Errorf("a drain of units that take 3 more seconds took %v", got)
		}
		if n := q.now(); n.ran != 4 || len(n.waiting) != 1 {
			t.Errorf("%d units ran and %d wait, want 4 and 1", n.ran, len(n.waiting))
		}
	})
}

func TestLoopCancelsWhatStillRunsAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a")
		c := q.config(0)
		var cause error
		c.Run = func(ctx context.Context, _ string, draining <-chan struct{}, _ func()) time.Duration {
			<-draining
			<-ctx.Done()
			cause = context.Cause(ctx)
			return work.Never
		}
		_, stop := start(t, c)
		time.Sleep(time.Hour)
		begin := time.Now()
		if n := stop(); n != 0 {
			t.Errorf("%d units were abandoned", n)
		}
		if got := time.Since(begin); got != c.Grace || !errors.Is(cause, errDrain) || !errors.Is(cause, context.Canceled) {
			t.Errorf("after %v the unit was cancelled with %v, want after %v with both causes", got, cause, c.Grace)
		}
	})
}

func TestLoopAbandonsWhatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		q.add("a", "b")
		c := q.config(time.Second)
		blocked := make(chan struct{})
		run := c.Run
		c.Run = func(ctx context.Context, u string, draining <-chan struct{}, _ func()) time.Duration {
			if u == "b" {
				<-blocked
			}
			return run(ctx, u, draining, nil)
		}
		_, stop := start(t, c)
		time.Sleep(2 * time.Second)
		begin := time.Now()
		if n := stop(); n != 1 || time.Since(begin) != 2*c.Grace {
			t.Errorf("after %v %d units were abandoned, want 1 after twice the grace", time.Since(begin), n)
		}
		before := q.now().renewed
		time.Sleep(time.Hour)
		if got := q.now().renewed - before; got != 0 {
			t.Errorf("the lease of an abandoned unit was renewed %d times", got)
		}
		close(blocked)
	})
}

func TestLoopHandsOverWhatItClaimedWhileItWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := q.config(0)
		c.Claim = func(ctx context.Context, n int) ([]string, time.Duration, error) {
			time.Sleep(500 * time.Millisecond)
			return []string{"a"}, 0, ctx.Err()
		}
		given := false
		c.Run = func(_ context.Context, _ string, draining <-chan struct{}, _ func()) time.Duration {
			select {
			case <-draining:
				given = true
			default:
			}
			return work.Never
		}
		_, stop := start(t, c)
		time.Sleep(100 * time.Millisecond)
		stop()
		if !given {
			t.Error("the unit was not handed over, or not told that the loop drains")
		}
	})
}
