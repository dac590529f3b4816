// Package rediswatchdog keeps the heartbeats of [watchdog] in Redis, for workers and
// watchdogs in several processes.
//
// Every step is one atomic script, with the server's clock, and may be sent twice:
// what [watchdog.Store] promises holds between any number of processes that use one
// Redis, as long as it forgets nothing. One of several watchdogs is granted an attempt.
//
// What is not guaranteed: a record is only as durable as this Redis. After a crash with
// appendfsync everysec, a failover or a flush, workers join again with their next
// heartbeat and nobody is called stuck for it; but how often a worker was restarted, and
// that it was given up, is forgotten with its record, and an attempt that was granted
// just before can be granted again. [Store.Check] says what the server's settings allow.
//
//	store, err := rediswatchdog.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, rediswatchdog.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	reporter, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: host})
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through the
// client that you have. A scope lies in one partition, on one server, whose clock
// measures it; scopes are spread over the partitions.
//
// Commands used: EVALSHA, EVAL and, inside scripts, TIME, HGET, HMGET, HSET, HDEL, ZADD,
// ZREM, ZLEXCOUNT and ZRANGEBYLEX; Check also uses SET, INFO and CONFIG GET.
//
// A heartbeat is one script call that writes one row of 170 to 850 bytes. A scope has as
// many rows as workers; the watchdog forgets those that are gone.
//
// # Keys
//
// Two keys for each partition, {<prefix>:watchdog:<partition>}:h and n; lib.lua describes
// what they hold. Scopes, names and details stand in them in clear: restrict who may
// read them.
package rediswatchdog

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/internal/redispart"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written with
// another number of partitions, or by a version of this package that lays them out in
// another way. Go no further then: workers would join where no watchdog looks.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It has at
	// most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that the scopes are spread over,
	// at most 256. It is part of what is stored: all processes use the same. Zero means
	// 16.
	Partitions int
}

// A Store keeps workers in Redis. It implements [watchdog.Store], is safe for
// concurrent use and needs no Close: it starts nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	keys  [][]string // h and n of each partition
}

var _ watchdog.Store = (*Store)(nil)

// layoutVersion is that of the rows and of the names of keys.
const layoutVersion = 1

// New returns a store on the server, or servers, of the client. It does no I/O. nil
// options mean the defaults. An error means a nil client or an option outside its
// range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	parts, err := redispart.New(client, o.Prefix, "watchdog", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("rediswatchdog: new: %w: %w", watchdog.ErrInvalid, err)
	}
	s := &Store{parts: parts, keys: make([][]string, parts.Len())}
	for i := range s.keys {
		tag := parts.Tag(i)
		s.keys[i] = []string{tag + ":h", tag + ":n"}
	}
	return s, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts. The
// first Check on an empty server writes the layout down, in the key
// <prefix>:watchdog:layout.
//
// The error is [ErrLayout]; or [watchdog.ErrAtRisk] with the reasons, or
// [watchdog.ErrUnchecked] with what the server would not tell, or both: with these two
// the store works. Anything else means that the server did not answer. On a cluster
// every master is asked.
func (s *Store) Check(ctx context.Context) error {
	if err := s.parts.CheckLayout(ctx); err != nil {
		return failed(ctx, "check", err)
	}
	report, err := s.parts.CheckSettings(ctx)
	if err != nil {
		return failed(ctx, "check", err)
	}
	var findings []error
	if len(report.AtRisk) > 0 {
		findings = append(findings, fmt.Errorf("rediswatchdog: check: %w: %s", watchdog.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("rediswatchdog: check: %w: %s", watchdog.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}

// failed wraps an error once. When ctx has ended, the client may say so in words of
// its own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if redis.HasErrorPrefix(err, "OOM") { // the server refuses to write, and did nothing
		return fmt.Errorf("rediswatchdog: %s: the server has no memory left; nothing was changed: %w", step, err)
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("rediswatchdog: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("rediswatchdog: %s: %w", step, err)
}

var (
	// errRow is the answer to a worker whose row is something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored for the worker is not a row of this version; nothing was changed; Watchdog.Forget drops it")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
