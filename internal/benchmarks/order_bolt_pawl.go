package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
)

// orderOnBolt pushes through a buffer, and delivers meanwhile if it is to.
func orderOnBolt(file boltFile, keys int, deliver bool) func(context.Context, time.Duration) ([]float64, error) {
	return func(ctx context.Context, d time.Duration) ([]float64, error) {
		return file.onFreshFile(ctx, d, func(db *bbolt.DB) (float64, error) {
			store, err := boltorder.New(db, nil)
			if err != nil {
				return 0, err
			}
			buf, err := order.New(store, &order.Options{Scope: "benchmark", MaxBuffered: 1_000_000})
			if err != nil {
				return 0, err
			}
			next := make([]atomic.Uint64, keys)
			push := func(worker int) step {
				key := orderKey(worker % keys)
				return func(ctx context.Context) (int, error) {
					m := order.Message{Key: key, Position: order.Position{Epoch: 1, Number: next[worker%keys].Add(1)}, Payload: []byte(orderBody)}
					answers, err := buf.Push(ctx, m)
					if err == nil && answers[0].State != order.Buffered {
						err = fmt.Errorf("%w: %v", errNotNew, answers[0].State)
					}
					return 1, err
				}
			}
			if !deliver {
				return fan(ctx, boltCallers, d, push)
			}
			return pushAndDeliver(ctx, buf, d, keys, next, push)
		})
	}
}

// pushAndDeliver returns how many messages per second were delivered, until all that
// were pushed are.
func pushAndDeliver(ctx context.Context, buf *order.Buffer, d time.Duration, keys int, next []atomic.Uint64, push func(int) step) (float64, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var worker sync.WaitGroup
	var failed error
	var delivered atomic.Uint64
	start := time.Now()
	worker.Go(func() {
		failed = buf.Run(running, func(context.Context, order.Message) error {
			delivered.Add(1)
			return nil
		}, &order.RunOptions{Concurrency: boltCallers})
	})
	_, err := fan(ctx, boltCallers, d, push)
	pushed := uint64(0)
	for k := range keys {
		pushed += next[k].Load()
	}
	for err == nil && delivered.Load() < pushed {
		time.Sleep(time.Millisecond)
		err = ctx.Err()
	}
	stop()
	worker.Wait() // for the last acknowledgements
	elapsed := time.Since(start)
	if err == nil {
		err = failed
	}
	for k := range keys {
		if err != nil {
			return 0, err
		}
		var a order.Account
		if a, err = buf.Account(ctx, orderKey(k)); err == nil && a.Ledgers[0].Delivered != next[k].Load() {
			err = fmt.Errorf("%d of %d messages are acknowledged", a.Ledgers[0].Delivered, next[k].Load())
		}
	}
	return float64(pushed) / elapsed.Seconds(), err
}
