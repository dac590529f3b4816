package watchdog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
)

// The wrappers fit the handlers of the other primitives.
var (
	_ = func(r *watchdog.Reporter, handle func(context.Context, order.Message) error) func(*order.Buffer) error {
		return func(b *order.Buffer) error { return b.Run(context.Background(), watchdog.Around(r, handle), nil) }
	}
	_ = func(r *watchdog.Reporter, handle func(context.Context, inbox.Record) inbox.Outcome) func(*inbox.Box) error {
		fine := func(o inbox.Outcome) bool { return o.Err() == nil }
		return func(b *inbox.Box) error {
			return b.Work(context.Background(), watchdog.AroundValue(r, handle, fine), nil)
		}
	}
)

// A buffer whose handler hangs is a zombie; one that waits for a gap is not, and is
// said to wait.
func TestBesideAnOrderBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buffer, err := order.New(order.NewMemory(), &order.Options{GapTimeout: time.Hour})
		require.NoError(t, err)
		store := watchdog.NewMemory()
		reporter, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: "orders-1", Sample: func() watchdog.Sample {
			s := buffer.Stats()
			sample := watchdog.Sample{Position: s.Delivered, Pending: s.Buffered - s.Delivered}
			if sample.Pending > 0 && s.Running == 0 && s.GapsOpened > s.GapsSkipped+s.GapsResolved {
				sample.State = watchdog.WaitingGap
			}
			return sample
		}})
		require.NoError(t, err)
		w, err := watchdog.New(store, nil)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		go func() { ended <- reporter.Run(ctx) }()
		go func() { ended <- w.Run(ctx) }()
		go func() {
			ended <- buffer.Run(ctx, watchdog.Around(reporter, func(ctx context.Context, m order.Message) error {
				if m.Position.Number == 4 {
					<-ctx.Done()
				}
				return ctx.Err()
			}), nil)
		}()
		push := func(number uint64) {
			_, err := buffer.Push(ctx, order.Message{Key: "k", Position: order.Position{Number: number}})
			require.NoError(t, err)
		}
		stats := func() (map[watchdog.Verdict]int, map[watchdog.State]int) {
			synctest.Wait()
			s := w.Stats()
			return s.Workers, s.States
		}
		push(1)
		push(3)
		time.Sleep(30 * time.Minute)
		verdicts, states := stats()
		require.Equal(t, map[watchdog.Verdict]int{watchdog.Healthy: 1}, verdicts)
		require.Equal(t, map[watchdog.State]int{watchdog.WaitingGap: 1}, states)

		push(2)
		time.Sleep(30 * time.Second)
		_, states = stats()
		require.Equal(t, map[watchdog.State]int{watchdog.Idle: 1}, states)

		push(4) // it hangs
		time.Sleep(11 * time.Minute)
		verdicts, states = stats()
		require.Equal(t, map[watchdog.Verdict]int{watchdog.Zombie: 1}, verdicts)
		require.Equal(t, map[watchdog.State]int{watchdog.HandlerTooLong: 1}, states)
		cancel()
		for range 3 {
			require.NoError(t, <-ended)
		}
	})
}
