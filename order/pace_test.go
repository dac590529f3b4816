package order

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A key that has to rest is given back with what was not handed over unbegun, in
// both kinds of runs, and other keys go on.
func TestPace(t *testing.T) {
	for _, tx := range []bool{false, true} {
		t.Run(fmt.Sprint("tx=", tx), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := NewMemory()
				b, err := New(mem, nil)
				if err != nil {
					t.Fatal(err)
				}
				for n := range uint64(5) {
					b.Push(t.Context(), Message{Key: "slow", Position: Position{Number: n + 1}}, Message{Key: "fast", Position: Position{Number: n + 1}})
				}
				begin, rest := time.Now(), 2
				opts := &RunOptions{Concurrency: 1, pace: func(m *Message) time.Duration {
					if m.Key == "fast" {
						return 0
					}
					if rest--; rest < 0 {
						rest = 2
						return 10 * time.Second
					}
					return 0
				}}
				var got []string
				handle := func(_ context.Context, m Message) error {
					got = append(got, fmt.Sprint(m.Key, m.Position.Number, "@", time.Since(begin), "#", m.Attempt))
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					if !tx {
						done <- b.Run(ctx, handle, opts)
						return
					}
					done <- b.RunTx(ctx, func(ctx context.Context, run *TxRun) (int, error) {
						for i, m := range run.Messages {
							if err := run.Do(i, func(ctx context.Context) error { return handle(ctx, m) }); err != nil {
								return 0, err
							}
						}
						return len(run.Messages), run.Settle(ctx, mem, len(run.Messages))
					}, opts)
				}()
				time.Sleep(time.Minute)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				want := []string{"slow1@0s#1", "slow2@0s#1", "fast1@0s#1", "fast2@0s#1", "fast3@0s#1", "fast4@0s#1", "fast5@0s#1",
					"slow3@10s#1", "slow4@10s#1", "slow5@20s#1"}
				if !slices.Equal(got, want) {
					t.Errorf("handed over\n%v, want\n%v", got, want)
				}
				a, err := b.Account(t.Context(), "slow")
				if err != nil || a.Ledgers[0].Delivered != 5 || a.Claimed {
					t.Errorf("%+v, %v", a, err)
				}
			})
		})
	}
}
