package main

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
)

// An outage is that of a Redis server which this program starts, kills in mid-run
// and starts again with the same data. The order of the events is in it, and the
// claims of their effects. While it is down the effects go on in the order of
// arrival, and a standby in this process keeps refusing what happened before.
//
// Failing closed is the default of each part: an order buffer without OnUnavailable
// and a guard without Failover answer with errors, and the inbox keeps its events
// until Redis is back. This wiring prefers effects without order to late ones.
type outage struct {
	server   *redisServer
	failover *dedup.Failover
	steps    []step // still to come
}

// A step is done before the delivery with its number.
type step struct {
	at int
	do func(context.Context) error
}

func startOutage(ctx context.Context) (*outage, error) {
	server, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	o := &outage{server: server}
	claims, err := redisdedup.New(server.client, nil)
	if err == nil {
		o.failover, err = dedup.NewFailover(claims, memoryClaims(), &dedup.FailoverOptions{
			Shared:     true, // by all processes there are
			Timeout:    500 * time.Millisecond,
			RetryEvery: 200 * time.Millisecond,
		})
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// during says what happens while n deliveries are made. The server is killed at
// the half, with whatever is under way, and is back at three quarters, once what was
// accepted meanwhile has had its effect. What the server was not told of is reported
// to it before anything else; the last quarter is in order again.
func (o *outage) during(p *program, n int) {
	o.steps = []step{
		{n / 4, p.handedOver}, // so that there is something in the server
		{n / 2, func(context.Context) error { return o.server.kill() }},
		{max(n/2+1, n*3/4), func(ctx context.Context) error {
			if err := p.handedOver(ctx); err != nil {
				return err
			}
			if err := o.server.start(ctx); err != nil {
				return err
			}
			return wait(ctx, "deliveries are not reported", func(context.Context) (int, error) {
				return p.order.Stats().Unreported, nil
			})
		}},
	}
}

// before is called before a delivery.
func (o *outage) before(ctx context.Context, delivery int) error {
	for len(o.steps) > 0 && o.steps[0].at <= delivery {
		if err := o.steps[0].do(ctx); err != nil {
			return err
		}
		o.steps = o.steps[1:]
	}
	return nil
}

// handBack waits until the server knows of what happened without it. What was
// claimed there when it died is only free when that lease has lapsed.
func (o *outage) handBack(ctx context.Context) error {
	return wait(ctx, "effects are not written back", func(context.Context) (int, error) {
		s := o.failover.Stats()
		return s.Unwritten + s.Waiting, nil
	})
}

func (o *outage) close() error { return o.server.close() }
