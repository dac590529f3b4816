// Package redisdlq keeps the letters of a [dlq.Queue] in Redis.
//
// A letter that was added is in Redis until something has become of it: it is tried in
// the order of its key, it can be listed, and what persons did about it is written down
// beside it. Every step is one atomic script in the partition of the stream, with the
// server's clock, and may be sent twice: what [dlq.Store] promises holds between any
// number of processes that use one Redis.
//
// What is not guaranteed:
//
//   - A letter is only as durable as this Redis. After a crash with appendfsync
//     everysec, and after a failover to a replica that had not received the last writes,
//     a letter can be gone that was answered as added, and so can an entry of the audit;
//     what was resolved or decided can be open again, and is then worked again by an owner
//     with a token above all earlier ones. The same holds for a server that was started
//     from an older dump. For letters that must not be lost use pgdlq or boltdlq, or a
//     Redis with appendfsync always and no replica to fail over to. [Store.Check] says
//     what the server's settings allow.
//   - A server that is killed while it writes its append-only file can leave a part of
//     a step there, which Redis 7.0 applies when it is started for the second time after
//     that, before all that came later. A step that was sent again is then as it should
//     be; of one that was not, the part stays. Have the file written anew after a crash
//     (BGREWRITEAOF).
//   - A batch with letters of several streams is not stored in one commit, but in one
//     for each partition; and a batch of more than 512 items, or 8 MiB, in several. A call
//     that fails has stored some, or none, and is repeated.
//   - Nothing composes with a transaction of yours: there is no Tx view.
//
// Where it fits, this is all:
//
//	store, err := redisdlq.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisdlq.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	queue, err := dlq.New(store, nil)
//
// Call [Store.Sweep] now and then, every minute with a few thousand things, say: nothing
// else removes letters that have ended, and the server's memory fills.
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through the
// client that you have. Each step is one round trip, a batch one for each 512 items,
// with a script call for every partition that it touches, in one pipeline per node. Only
// [Store.Totals] asks every partition.
//
// All of a stream lies in one partition, and so on one node of a cluster, whose scripts
// run one after the other: streams are what spreads the load.
//
// Everything is kept in memory. A letter with an ID of 90 bytes takes about 1,600 bytes
// beside its body and the details of its failures, until it is swept. A script stops its
// server for some tens of microseconds for each letter that it stores, claims or settles.
//
// Set maxmemory-policy to noeviction: a full server then answers a letter with [dlq.Full],
// and refuses, with an error, all else that needs room first: a duplicate, an edit, a
// note, a job, an alarm. What is there can still be worked, discarded and swept.
//
// A step that the client sends again after a broken connection has the first answer.
// While Redis does not answer, a call lasts as long as the client's dials, retries and
// read timeouts do. Give contexts a deadline.
//
// # Numbers
//
// The number of a letter and of an entry is the server's time in microseconds, or one
// more than the last of its stream. So none is used again, also when the server has lost
// the last ones, as long as its clock does not go back.
//
// # Access
//
// Letters, keys, IDs and the reasons that persons gave stand in Redis as the queue hands
// them over: in clear, unless Options.Keys of the queue seals the bodies. Restrict who
// may read them. Scripts run with the rights of their caller, so a user needs the
// commands that its scripts use. For the default prefix, what puts letters, what works
// them, what a person's tools do, and what sweeps:
//
//	ACL SETUSER producer on >secret ~{pawl:dlq:* +evalsha +eval +time +hget +hmget +hset +hdel +zadd +zrem +zrangebylex +zrevrangebylex
//	ACL SETUSER worker on >secret ~{pawl:dlq:* +evalsha +eval +time +hget +hmget +hset +hdel +hexists +zadd +zrem +zrangebylex +zrevrangebylex
//	ACL SETUSER reviewer on >secret ~{pawl:dlq:* ~pawl:dlq:layout +evalsha +eval +time +hget +hmget +hset +hdel +hexists +zadd +zrem +zrangebylex +zrevrangebylex +set +info +config|get
//	ACL SETUSER purge on >secret ~{pawl:dlq:* +evalsha +eval +time +hget +hset +hdel +hexists +zadd +zrem +zrangebylex
//
// On a cluster add +cluster|slots, +cluster|shards and +command to each, on every node.
// These keep other programs away, and each user from all other keys; they do not keep the
// users apart, because Redis does not tell a script from a command. Check is the
// reviewer's: it uses SET, INFO and CONFIG GET.
//
// # Erasing
//
// [dlq.ChangeForget] removes a letter from all keys at once. Its ID stays in the entry
// that says so, until that is swept. An append-only file has the bytes until it is
// rewritten, a dump and a replica until the next one.
//
// # Testing
//
// miniredis will do. Leases and delays follow its clock (SetTime). Check answers
// [dlq.ErrUnchecked] there. For a service's own logic no server is needed: in a
// testing/synctest bubble with dlq.NewMemory, time.Sleep ends a lease at once.
//
// # Keys
//
// Two keys for each partition, {<prefix>:dlq:<partition>}:h and likewise z; lib.lua
// describes what they hold. A partition is moved to another node of a cluster as a
// whole, which takes the time that its hash takes.
package redisdlq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/redispart"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written with
// another number of partitions, or by a version of this package that lays them out in
// another way. Go no further then: the store would look for letters where they are not.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It has at
	// most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that the streams are spread over, at
	// most 256. It is part of what is stored: all processes use the same, and it cannot
	// be changed while anything is kept. Zero means 16.
	Partitions int
}

// A Store keeps letters in Redis. It implements [dlq.Store] and [dlq.Sweeper], is safe
// for concurrent use and needs no Close: it starts nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	keys  [][]string // h and z of each partition
	sweep sync.Mutex // guards what follows
	next  int        // partition where the next Sweep begins
}

var (
	_ dlq.Store   = (*Store)(nil)
	_ dlq.Sweeper = (*Store)(nil)
)

// layoutVersion is that of the rows and of the names of keys.
const layoutVersion = 1

// New returns a store on the server, or servers, of the client. It does no I/O. nil
// options mean the defaults. An error is [dlq.ErrInvalid]: a nil client, or an option
// outside its range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	parts, err := redispart.New(client, o.Prefix, "dlq", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisdlq: new: %w: %w", dlq.ErrInvalid, err)
	}
	s := &Store{parts: parts, keys: make([][]string, parts.Len())}
	for i := range s.keys {
		s.keys[i] = []string{parts.Tag(i) + ":h", parts.Tag(i) + ":z"}
	}
	return s, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts, and as
// a health check. The first Check on an empty server writes the layout down, in the key
// <prefix>:dlq:layout.
//
// The error is [ErrLayout]; or [dlq.ErrAtRisk] with the reasons, or [dlq.ErrUnchecked] with
// what the server would not tell, or both: with these two the store works. Anything else
// means that the server did not answer. On a cluster every master is asked.
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
		findings = append(findings, fmt.Errorf("redisdlq: check: %w: %s", dlq.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisdlq: check: %w: %s", dlq.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}
