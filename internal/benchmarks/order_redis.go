package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// orderRun is how many messages go into one call, shuffled among themselves.
const orderRun = 64

// orderBody is what a message carries.
const orderBody = "a short message of the kind that people send each other, 64 byte"

func orderRedisComparisons() []Comparison {
	what := "push 64 messages of 64 bytes in shuffled order, lease them as one run, acknowledge them; "
	return []Comparison{
		{
			Name:    "order-redis/scripts/g=1",
			What:    "One goroutine: " + what + "the peer does that with one pipeline and two bare scripts.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 0.7}}},
			Open: func(ctx context.Context, env *Env) ([]Case, error) {
				return orderRedisCases(ctx, env, 1, []orderPeer{{"two bare scripts", bareScripts}})
			},
		},
		{
			Name:    "order-redis/scripts/g=4",
			What:    "Four goroutines, each with a key of its own: " + what + "the peer does that with one pipeline and two bare scripts.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 0.7}}},
			Open: func(ctx context.Context, env *Env) ([]Case, error) {
				return orderRedisCases(ctx, env, 4, []orderPeer{{"two bare scripts", bareScripts}})
			},
		},
		{
			Name:    "order-redis/loop",
			What:    "One goroutine: " + what + "the peer does a ZADD and a SET for each message, then a ZRANGE, a ZREM and an INCR for each.",
			Metrics: []Metric{{Name: "messages/s", Bar: Bar{Ratio: 50}}},
			Open: func(ctx context.Context, env *Env) ([]Case, error) {
				return orderRedisCases(ctx, env, 1, []orderPeer{{"ZADD, SET, ZRANGE, ZREM, INCR", messageLoop}})
			},
		},
	}
}

// An orderPeer is what a user would write in place of the buffer.
type orderPeer struct {
	name string
	step func(client redis.UniversalClient) func(worker int) step
}

func orderRedisCases(ctx context.Context, env *Env, workers int, peers []orderPeer) ([]Case, error) {
	addr, err := env.Redis()
	if err != nil {
		return nil, err
	}
	client, err := openRedis(ctx, env, []string{addr}, 0)
	if err != nil {
		return nil, err
	}
	store, err := orderRedisStore(client)
	if err != nil {
		return nil, err
	}
	cases := []Case{{Name: "redisorder", Role: Pawl, Run: onEmptyRedis(client, workers, store)}}
	for _, p := range peers {
		cases = append(cases, Case{Name: p.name, Role: Peer, Run: onEmptyRedis(client, workers, p.step(client))})
	}
	return cases, nil
}

// shuffled returns the numbers of the next run, in random order.
func shuffled(from uint64, into []uint64) {
	for i := range into {
		into[i] = from + uint64(i)
	}
	rand.Shuffle(len(into), func(i, j int) { into[i], into[j] = into[j], into[i] })
}

var errNotInOrder = errors.New("what was leased is not the run that was pushed")

// leaseRun takes a key for a worker and returns the unbroken run at its cursor.
var leaseRun = redis.NewScript(`
	local cursor = tonumber(redis.call('HGET', KEYS[1], 'cursor') or '1')
	local numbers = redis.call('ZRANGE', KEYS[2], 0, ARGV[2] - 1)
	local n = 0
	for i, number in ipairs(numbers) do
	  if tonumber(number) ~= cursor + i - 1 then break end
	  n = i
	end
	if n == 0 then return {} end
	local token = redis.call('HINCRBY', KEYS[1], 'token', 1)
	redis.call('HSET', KEYS[1], 'until', ARGV[1])
	local run = redis.call('HMGET', KEYS[3], unpack(numbers, 1, n))
	run[n + 1] = token
	return run`)

// acknowledgeRun moves the cursor of a key, if the token is its last.
var acknowledgeRun = redis.NewScript(`
	if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
	local cursor = tonumber(redis.call('HGET', KEYS[1], 'cursor') or '1')
	local numbers = {}
	for i = 1, ARGV[2] do numbers[i] = string.format('%.0f', cursor + i - 1) end
	redis.call('ZREMRANGEBYRANK', KEYS[2], 0, ARGV[2] - 1)
	redis.call('HDEL', KEYS[3], unpack(numbers))
	redis.call('HSET', KEYS[1], 'cursor', string.format('%.0f', cursor + ARGV[2]))
	return 1`)

// bareScripts is a reorder buffer without the rest: a sorted set of numbers, a hash
// of bodies, a cursor and a token.
func bareScripts(client redis.UniversalClient) func(int) step {
	return func(worker int) step {
		name := fmt.Sprintf("{bare%d-%d}", worker, rand.Uint64())
		keys := []string{name + "c", name + "n", name + "b"}
		next := uint64(1)
		numbers := make([]uint64, orderRun)
		return func(ctx context.Context) (int, error) {
			shuffled(next, numbers)
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				members := make([]redis.Z, orderRun)
				bodies := make([]any, 0, 2*orderRun)
				for i, n := range numbers {
					text := strconv.FormatUint(n, 10)
					members[i] = redis.Z{Score: float64(n), Member: text}
					bodies = append(bodies, text, orderBody)
				}
				p.ZAdd(ctx, keys[1], members...)
				p.HSet(ctx, keys[2], bodies...)
				return nil
			})
			if err != nil {
				return 0, err
			}
			run, err := leaseRun.Run(ctx, client, keys, "later", orderRun).Slice()
			if err != nil {
				return 0, err
			}
			if len(run) != orderRun+1 {
				return 0, errNotInOrder
			}
			moved, err := acknowledgeRun.Run(ctx, client, keys, run[orderRun], orderRun).Int()
			if err == nil && moved != 1 {
				err = errNotInOrder
			}
			next += orderRun
			return orderRun, err
		}
	}
}

// messageLoop is the reorder buffer that people write first: a sorted set whose
// score is the number, the body under its ID, and a counter.
func messageLoop(client redis.UniversalClient) func(int) step {
	return func(worker int) step {
		name := fmt.Sprintf("loop%d-%d", worker, rand.Uint64())
		next := uint64(1)
		numbers := make([]uint64, orderRun)
		return func(ctx context.Context) (int, error) {
			shuffled(next, numbers)
			for _, n := range numbers {
				body := orderBody + strconv.FormatUint(n, 10) // equal bodies would be one member
				if err := client.ZAdd(ctx, name, redis.Z{Score: float64(n), Member: body}).Err(); err != nil {
					return 0, err
				}
				if err := client.Set(ctx, "id"+strconv.FormatUint(n, 10), body, redisTTL).Err(); err != nil {
					return 0, err
				}
			}
			for range numbers {
				head, err := client.ZRangeWithScores(ctx, name, 0, 0).Result()
				if err != nil {
					return 0, err
				}
				if len(head) != 1 || uint64(head[0].Score) != next {
					return 0, errNotInOrder
				}
				if err := client.ZRem(ctx, name, head[0].Member).Err(); err != nil {
					return 0, err
				}
				if err := client.Incr(ctx, name+"seq").Err(); err != nil {
					return 0, err
				}
				next++
			}
			return orderRun, nil
		}
	}
}
