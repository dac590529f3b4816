package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/redisdedup"
	"github.com/pawl-go/pawl/dlq/redisdlq"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/redisinbox"
	"github.com/pawl-go/pawl/order/redisorder"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
	"github.com/pawl-go/pawl/seqgen"
	"github.com/pawl-go/pawl/seqgen/redisseqgen"
)

// inRedis keeps events, claims, effects and numbers under one prefix of a Redis,
// where the next run finds them.
//
// Redis has no transaction of an effect and the completion of its claim: a process
// that dies between the two has the effect again. So the effect has to honour a key,
// as a remote would that takes an idempotency key: a record is written under the
// identity of its event, and a second one changes nothing.
type inRedis struct {
	*replies
	*redisNumbers
	client *redis.Client
	box    *redisinbox.Store
	guard  *dedup.Guard
}

const (
	redisEffects = "{" + serverName + ":own}effects" // a list of what happened
	redisHad     = "{" + serverName + ":own}had"     // the identities of it
	redisRun     = "{" + serverName + ":own}run"     // about the runs on this data
	redisGiven   = "{" + serverName + ":own}given"   // the number of each event
	redisLast    = "{" + serverName + ":own}last"    // the last number given in each lane
)

func openRedis(ctx context.Context, url string) (*inRedis, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis: not the URL of a Redis server") // the cause may have a password in it
	}
	r := &inRedis{client: redis.NewClient(opts)}
	if err := r.use(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-redis: %w", err), r.client.Close())
	}
	return r, nil
}

func (r *inRedis) use(ctx context.Context) (err error) {
	if r.box, err = redisinbox.New(r.client, &redisinbox.Options{Prefix: serverName}); err != nil {
		return err
	}
	// What can be lost with this server can be lost with this example's events.
	if err := r.box.Check(ctx); err != nil && !errors.Is(err, inbox.ErrAtRisk) && !errors.Is(err, inbox.ErrUnchecked) {
		return err
	}
	claims, err := redisdedup.New(r.client, &redisdedup.Options{Prefix: serverName})
	if err != nil {
		return err
	}
	if r.guard, err = dedup.New(claims, guardOptions); err != nil {
		return err
	}
	lanes, err := redisorder.New(r.client, &redisorder.Options{Prefix: serverName})
	if err != nil {
		return err
	}
	letters, err := redisdlq.New(r.client, &redisdlq.Options{Prefix: serverName})
	if err != nil {
		return err
	}
	operations, err := redisreconcile.New(r.client, &redisreconcile.Options{Prefix: serverName})
	if err != nil {
		return err
	}
	r.replies, err = newReplies(outbound{
		lanes: lanes, operations: operations, said: operations.Timeline(), letters: letters,
		findings: operations.Checks(),
	}, settleTime)
	if err != nil {
		return err
	}
	r.redisNumbers, err = newRedisNumbers(r.client)
	return err
}

func (r *inRedis) events() inbox.Store { return r.box }
func (r *inRedis) close() error        { return r.client.Close() }

// record writes an effect down under the identity of its event.
var record = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], ARGV[1], '') == 1 then
	redis.call('RPUSH', KEYS[2], ARGV[2])
end
return 1`)

func (r *inRedis) handle(ctx context.Context, e effect) error {
	return r.guard.Do(ctx, dedup.Request{ID: e.ID}, func(ctx context.Context) error {
		if err := r.enqueue(ctx, nil, e); err != nil {
			return err
		}
		v, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return record.Run(ctx, r.client, []string{redisHad, redisEffects}, e.ID, v).Err()
	})
}

func (r *inRedis) effects() (list []effect, err error) {
	all, err := r.client.LRange(context.Background(), redisEffects, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		var e effect
		if err := json.Unmarshal([]byte(v), &e); err != nil {
			return nil, fmt.Errorf("an effect on the server: %w", err)
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *inRedis) ordered(by string) (name string, changed bool, err error) {
	ctx := context.Background()
	totals, err := r.box.Totals(ctx)
	if err != nil {
		return "", false, err
	}
	before, err := r.client.HGet(ctx, redisRun, "order").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", false, err
	}
	return serverName, before != by, sameOrder("the server", totals, before, by)
}

func (r *inRedis) place(ctx context.Context) (string, error) {
	if err := r.client.HSetNX(ctx, redisRun, "gateway", newName()).Err(); err != nil {
		return "", err
	}
	name, err := r.client.HGet(ctx, redisRun, "gateway").Result()
	return serverPlace(name), err
}

func (r *inRedis) orderedBy(by string) error {
	return r.client.HSet(context.Background(), redisRun, "order", by).Err()
}

// redisNumbers note a number only after it was handed out: a crash between the two
// leaves one that no event has. It is found when its lane is next used, and given to
// the next event, since a gap that nothing fills would hold up the lane.
type redisNumbers struct {
	client    *redis.Client
	generator *seqgen.Generator
	mu        sync.Mutex
	last      map[string]seqgen.Position // given, by lane
	spare     map[string]uint64          // the last number that was handed out before this run
}

func newRedisNumbers(client *redis.Client) (*redisNumbers, error) {
	store, err := redisseqgen.New(client, &redisseqgen.Options{Prefix: serverName})
	if err != nil {
		return nil, err
	}
	generator, err := seqgen.New(store, &seqgen.Options{Scope: "sender"})
	return &redisNumbers{client: client, generator: generator, last: map[string]seqgen.Position{}, spare: map[string]uint64{}}, err
}

func (n *redisNumbers) number(ctx context.Context, events []inbox.Event) ([]position, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]position, len(events))
	for i, e := range events {
		v, err := n.client.HGet(ctx, redisGiven, e.ID).Bytes()
		if errors.Is(err, redis.Nil) {
			list[i], err = n.give(ctx, e)
		} else if err == nil {
			err = json.Unmarshal(v, &list[i])
		}
		if err != nil {
			return nil, fmt.Errorf("the number of an event: %w", err)
		}
	}
	return list, nil
}

// give gives an event the next number of its lane.
func (n *redisNumbers) give(ctx context.Context, e inbox.Event) (position, error) {
	lane := laneOf(e)
	if err := n.find(ctx, lane); err != nil {
		return position{}, err
	}
	next := n.last[lane]
	if next.Number++; next.Number > n.spare[lane] {
		var err error
		if next, err = n.generator.Next(ctx, lane); err != nil {
			return position{}, err
		}
	}
	p := at(lane, next)
	v, err := json.Marshal(p)
	if err != nil {
		return position{}, err
	}
	_, err = n.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.HSet(ctx, redisGiven, e.ID, v)
		tx.HSet(ctx, redisLast, lane, v)
		return nil
	})
	if err == nil {
		n.last[lane] = next
	}
	return p, err
}

// find looks how far a lane has come, once.
func (n *redisNumbers) find(ctx context.Context, lane string) error {
	if _, found := n.last[lane]; found {
		return nil
	}
	state, err := n.generator.Look(ctx, lane)
	if err != nil {
		return err
	}
	last := seqgen.Position{Epoch: state.Epoch}
	v, err := n.client.HGet(ctx, redisLast, lane).Bytes()
	if err == nil {
		var p position
		if err = json.Unmarshal(v, &p); err == nil {
			last.Epoch, last.Number = p.Epoch, p.Number
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	n.last[lane], n.spare[lane] = last, state.Last
	return nil
}
