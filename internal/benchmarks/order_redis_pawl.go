package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/redisorder"
)

// orderRedisStore steps through the store as a buffer and its worker do: one push,
// one claim, and one settlement that delivers the run and releases the key. Each
// goroutine has a scope of its own, so that it claims what it has pushed.
func orderRedisStore(client redis.UniversalClient) (func(int) step, error) {
	store, err := redisorder.New(client, nil)
	if err != nil {
		return nil, err
	}
	return func(worker int) step {
		p := order.Params{Scope: fmt.Sprint("benchmark", worker), Start: 1, Window: 1024, MaxBuffered: 10_000, MaxAhead: 1_000_000, KeepBody: time.Hour, KeepGaps: time.Hour}
		key := fmt.Sprintf("key%d-%d", worker, rand.Uint64())
		next := uint64(1)
		numbers := make([]uint64, orderRun)
		body := []byte(orderBody)
		return func(ctx context.Context) (int, error) {
			shuffled(next, numbers)
			arrivals := make([]order.Arrival, orderRun)
			for i, n := range numbers {
				arrivals[i].Message = order.Message{Key: key, Position: order.Position{Epoch: 1, Number: n}, Payload: body}
				sum := sha256.Sum256(body)
				arrivals[i].Digest = [16]byte(sum[:16])
			}
			answers, err := store.Push(ctx, p, arrivals)
			if err != nil {
				return 0, err
			}
			for _, a := range answers {
				if a.Err != nil || a.State != order.Buffered {
					return 0, fmt.Errorf("push was answered %d, %w", a.State, a.Err)
				}
			}
			ask := order.Ask{Keys: 1, Messages: orderRun, Bytes: 1 << 20, Lease: time.Minute}
			for i := range 2 {
				n := rand.Uint64()
				for b := range 8 {
					ask.Nonce[8*i+b] = byte(n >> (8 * b))
				}
			}
			claimed, err := store.Claim(ctx, p, ask)
			if err != nil {
				return 0, err
			}
			if len(claimed.Claims) != 1 || len(claimed.Claims[0].Run) != orderRun || claimed.Claims[0].Run[0].Position.Number != next {
				return 0, errNotInOrder
			}
			c := claimed.Claims[0]
			next += orderRun
			errs, err := store.Settle(ctx, p, []order.Settlement{
				{Kind: order.KindDeliver, Key: key, Token: c.Token, Epoch: 1, To: next},
				{Kind: order.KindRelease, Key: key, Token: c.Token, Epoch: 1}})
			if err == nil && errs != nil {
				err = fmt.Errorf("settle: %v", errs)
			}
			return orderRun, err
		}
	}, nil
}
