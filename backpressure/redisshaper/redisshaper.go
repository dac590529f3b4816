// Package redisshaper keeps the tokens of a [backpressure.Shared] in Redis, so that
// many processes share one rate.
//
// Every decision is one atomic script on the server, with the server's clock: all
// processes together admit in any second no more than a line's burst and its rate.
//
// What is not guaranteed: the tokens are as durable as this Redis. After a failover,
// a restart without persistence, or an eviction, buckets are full, and as much as
// each line's burst is admitted once more. A call that the client sends again after a
// broken connection takes its tokens again: less is admitted then. When the server's
// clock is set forward, buckets fill up; when it is set back, nothing is added, and
// nothing withheld for longer than that.
//
//	store, err := redisshaper.New(client, &redisshaper.Options{Name: "gateway"})
//	if err != nil {
//		return err
//	}
//	shaper, err := backpressure.NewShared(store, &backpressure.SharedOptions{
//		Lines:     []backpressure.LineOptions{{Name: "im", Rate: 5000}},
//		OnDown:    backpressure.LocalShare,
//		Processes: 4,
//	})
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through the
// client that you have. Commands used: EVALSHA, EVAL and, inside scripts, TIME, MGET
// and SET; Check also uses SET.
//
// A [backpressure.Shared] gives the store up after its Timeout, whatever the client's
// own timeouts are; set MaxRetries to -1, so that a call that was given up is not sent
// again.
//
// # Keys
//
// One string for each line, {<prefix>:shaper:<partition>}:<length of name>:<name>:<line>.
// It expires when every bucket is full. take.lua describes it. Names are not personal
// data: do not make them of customers' numbers.
package redisshaper

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed take.lua
var takeText string

var takeScript = redispart.NewScript(takeText)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written with
// another number of partitions, or by a version that lays them out in another way.
// The limits then start afresh beside the old ones. Once no process uses those, delete
// the key <prefix>:shaper:layout; the old buckets expire by themselves.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It has at
	// most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Name separates shapers; processes with the same one share its lines. 1 to 128
	// bytes. Empty means "default".
	Name string

	// Partitions is the number of slots of a cluster that names are spread over, at
	// most 256; all processes use the same. Zero means 16.
	Partitions int
}

// A Store keeps tokens in Redis. It implements [backpressure.SharedStore], is safe for
// concurrent use and needs no Close: it starts nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	key   string // begins that of each line
	last  atomic.Pointer[limits]
}

var _ backpressure.SharedStore = (*Store)(nil)

const layoutVersion = 2

// New returns a store on the server, or servers, of the client. It does no I/O. nil
// options mean the defaults. An error means a nil client or an option outside its
// range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = "default"
	}
	parts, err := redispart.New(client, o.Prefix, "shaper", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisshaper: new: %w: %w", backpressure.ErrInvalid, err)
	}
	if len(o.Name) > 128 {
		return nil, fmt.Errorf("redisshaper: new: %w: name of %d bytes, at most 128", backpressure.ErrInvalid, len(o.Name))
	}
	return &Store{parts: parts, key: fmt.Sprintf("%s:%d:%s:", parts.Tag(parts.Of(o.Name)), len(o.Name), o.Name)}, nil
}

// Check asks whether the server answers, and whether what is stored has this store's
// layout, which the first Check on an empty server writes down. The error is
// [ErrLayout], or the server did not answer. What the server's settings allow to be
// lost does not matter much here, so it is not looked at.
func (s *Store) Check(ctx context.Context) error {
	if err := s.parts.CheckLayout(ctx); err != nil {
		return failed(ctx, "check", err)
	}
	return nil
}

// Take implements [backpressure.SharedStore] in one round trip.
func (s *Store) Take(ctx context.Context, lines []backpressure.LineOptions, asks []backpressure.Ask) ([]backpressure.Answer, error) {
	limits := s.limitsOf(lines)
	call := redispart.Call{Keys: limits.keys, Args: append(make([]any, 0, len(limits.args)+2*len(asks)), limits.args...)}
	for _, a := range asks {
		call.Args = append(call.Args, a.Line+1, a.Cost)
	}
	calls := []redispart.Call{call}
	if err := s.parts.Run(ctx, takeScript, calls); err != nil {
		return nil, failed(ctx, "take", err)
	}
	reply := calls[0].Reply
	if len(reply) != len(asks) {
		return nil, fmt.Errorf("redisshaper: take: %d answers to %d asks", len(reply), len(asks))
	}
	answers := make([]backpressure.Answer, len(asks))
	for i, r := range reply {
		n, err := strconv.ParseInt(r, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redisshaper: take: an answer that is no number: %w", err)
		}
		answers[i] = backpressure.Answer{Admit: n < 0, Borrowed: n == -2, RetryAfter: time.Duration(max(n, 0)) * time.Microsecond}
	}
	return answers, nil
}

// limits are what a script is told of lines: they are the same call after call.
type limits struct {
	lines []backpressure.LineOptions
	keys  []string
	args  []any
}

func (s *Store) limitsOf(lines []backpressure.LineOptions) *limits {
	if last := s.last.Load(); last != nil && slices.Equal(last.lines, lines) {
		return last
	}
	n := &limits{lines: slices.Clone(lines), args: []any{lifetime(lines).Milliseconds()}}
	for i := range lines {
		l := &lines[i]
		floor := l.FloorBurst()
		n.keys = append(n.keys, s.key+l.Name)
		n.args = append(n.args, l.Importance, number(l.Rate-l.Floor), l.Burst-floor, number(l.Floor), floor)
	}
	s.last.Store(n)
	return n
}

// lifetime is how long it takes until every bucket is full, and no line short.
func lifetime(lines []backpressure.LineOptions) time.Duration {
	longest := time.Second
	for i := range lines {
		l := &lines[i]
		for _, b := range [...]struct{ burst, rate float64 }{
			{float64(l.Burst - l.FloorBurst()), l.Rate - l.Floor}, {float64(l.FloorBurst()), l.Floor},
		} {
			if b.rate > 0 {
				longest = max(longest, time.Duration(min(b.burst/b.rate, maxLifetime.Seconds())*float64(time.Second)))
			}
		}
	}
	return longest + time.Second
}

const maxLifetime = 365 * 24 * time.Hour

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// failed wraps an error once. When ctx has ended, the client may say so in words of
// its own.
func failed(ctx context.Context, step string, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisshaper: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisshaper: %s: %w", step, err)
}
