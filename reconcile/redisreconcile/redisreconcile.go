// Package redisreconcile keeps the operations of a [reconcile.Ledger] in Redis, and in other
// keys of the same server the observations of a [reconcile.Timeline] ([Store.Timeline]) and
// the findings and counts of [reconcile.Checks] ([Store.Checks]).
//
// An operation that was begun is in Redis before anything is sent, and stays there, open,
// until something is known of it. Every step is an atomic script in each partition that it
// touches, with the server's clock, and may be sent twice: what [reconcile.Store] promises
// holds between any number of processes that use one Redis.
//
// What is not guaranteed:
//
//   - A record is only as durable as this Redis. After a crash with appendfsync everysec, and
//     after a failover to a replica that had not received the last writes, an operation can
//     be unknown that was sent: its key is new then, and it is sent again. What had ended can
//     be open again, and is then looked for by an owner with a token above all earlier ones.
//     Observations, findings and what persons decided can be gone. The same holds for a
//     server that was started from an older dump. For effects that cost money use
//     pgreconcile or boltreconcile, or a Redis with appendfsync always and no replica to fail
//     over to. [Store.Check] says what the server's settings allow.
//   - A server that is killed while it writes its append-only file can leave a part of
//     a step there, which Redis 7.0 applies when it is started for the second time after
//     that, before all that came later. A step that was sent again is then as it should
//     be; of one that was not, the part stays. Have the file written anew after a crash
//     (BGREWRITEAOF).
//   - A batch of operations is not stored in one commit, but in one for each partition; and a
//     batch of more than 512 items, or 8 MiB, in several. A call that fails has applied some,
//     or none, and is repeated.
//   - Nothing composes with a transaction of yours: there is no Tx view.
//
// Where it fits, this is all:
//
//	store, err := redisreconcile.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisreconcile.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	ledger, err := reconcile.New(store, nil)
//	timeline, err := reconcile.NewTimeline(store.Timeline(), nil)
//
// Call [Store.Sweep] now and then, every minute with a few thousand things, say: nothing
// else removes what has expired, and the server's memory fills.
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through the
// client that you have. A step is one round trip, with a script call for every partition
// that it touches, in one pipeline per node. A claim is one call on a server that is alone,
// and says so; elsewhere it asks all partitions what is due and then takes from those that
// come first, so that a claim may find less than there is when several workers ask at
// once. A list of operations and the counts ask every partition.
//
// Operations are spread over the partitions by kind and key, so a ledger is as large and as
// fast as the cluster. All of a kind of a timeline lies in one partition, and so does all of a
// kind of checks: the three names of a message are joined, and findings are bounded, by one
// script. On a cluster kinds are what spreads these.
//
// A claim takes operations in the order of Due. When more than some 512 leases have lapsed at
// once in a partition, it considers those that lapsed first.
//
// Everything is kept in memory. An operation with a key of 90 bytes takes about 1,500 bytes
// beside its payload and result, an observation about 600. A script stops its server for
// some tens of microseconds for each operation that it begins, claims or settles.
//
// Set maxmemory-policy to noeviction: a full server then answers a new operation with
// [reconcile.ErrFull], before anything is sent, and refuses observations, new findings and
// new counts with an error, while what is there can still be looked for, settled, decided and
// swept.
//
// A step that the client sends again after a broken connection has the first answer, but for
// an append, which finds its own observations: they are counted as repeated then. While Redis
// does not answer, a call lasts as long as the client's dials, retries and read timeouts do.
// Give contexts a deadline.
//
// # Access
//
// Operations, keys, accounts and notes stand in Redis as the ledger hands them over: in
// clear, unless Options.Keys of the ledger seals payloads and results. Restrict who may read
// them. Scripts run with the rights of their caller, so a user needs the commands that its
// scripts use. For the default prefix, what a service does, what a person's tools do, and
// what sweeps:
//
//	ACL SETUSER service on >secret ~{pawl:reconcile:* +evalsha +eval +time +hget +hmget +hset +hdel +zadd +zrem +zrangebylex +info
//	ACL SETUSER operator on >secret ~{pawl:reconcile:* ~pawl:reconcile:layout +evalsha +eval +time +hget +hmget +hset +hdel +zadd +zrem +zrangebylex +set +info +config|get
//	ACL SETUSER purge on >secret ~{pawl:reconcile:* +evalsha +eval +time +hget +hset +hdel +zadd +zrem +zrangebylex
//
// On a cluster add +cluster|slots, +cluster|shards and +command to each, on every node.
// These keep other programs away, and each user from all other keys; they do not keep the
// users apart, because Redis does not tell a script from a command. Check is the operator's:
// it uses SET, INFO and CONFIG GET. A service without INFO works, with slower claims.
//
// # Erasing
//
// [reconcile.Ledger.Forget] removes an operation from all keys at once, and so does Forget of
// a finding, and of a message. An append-only file has the bytes until it is
// rewritten, a dump and a replica until the next one.
//
// # Testing
//
// miniredis will do. Leases and delays follow its clock (SetTime). Check answers
// [reconcile.ErrUnchecked] there. For a service's own logic no server is needed: in a
// testing/synctest bubble with reconcile.NewMemory, time.Sleep ends a lease at once.
//
// # Keys
//
// Six keys for each partition: {<prefix>:reconcile:<partition>}:h and :z for operations, :th
// and :tz for observations, :ch and :cz for findings and counts. ledger.lua, timeline.lua and
// checks.lua describe what they hold. A partition is moved to another node of a cluster as a
// whole, which takes the time that its hashes take.
package redisreconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/reconcile"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written with
// another number of partitions, or by a version of this package that lays them out in
// another way. Go no further then: the store would look for operations where they are not,
// and take them for new.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It has at
	// most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that operations, and the kinds of
	// timelines and checks, are spread over, at most 256. It is part of what is stored: all
	// processes use the same, and it cannot be changed while anything is kept. More
	// partitions make batches, claims and lists slower, because each costs a call. Zero
	// means 16.
	Partitions int
}

// A Store keeps operations in Redis. It implements [reconcile.Store] and
// [reconcile.Sweeper], is safe for concurrent use and needs no Close: it starts nothing,
// and the client is yours.
type Store struct {
	parts                    *redispart.Partitions
	ledger, timeline, checks [][]string // the two keys of each room, in each partition
	sweep                    sync.Mutex // guards what follows
	next                     int        // where the next Sweep begins
}

var (
	_ reconcile.Store   = (*Store)(nil)
	_ reconcile.Sweeper = (*Store)(nil)
)

// layoutVersion is that of the rows and of the names of keys.
const layoutVersion = 1

// New returns a store on the server, or servers, of the client. It does no I/O. nil
// options mean the defaults. An error is [reconcile.ErrInvalid]: a nil client, or an
// option outside its range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	parts, err := redispart.New(client, o.Prefix, "reconcile", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisreconcile: new: %w: %w", reconcile.ErrInvalid, err)
	}
	s := &Store{parts: parts}
	for i := range parts.Len() {
		tag := parts.Tag(i)
		s.ledger = append(s.ledger, []string{tag + ":h", tag + ":z"})
		s.timeline = append(s.timeline, []string{tag + ":th", tag + ":tz"})
		s.checks = append(s.checks, []string{tag + ":ch", tag + ":cz"})
	}
	return s, nil
}

// Timeline returns the store's room for observations. It costs nothing.
func (s *Store) Timeline() *TimelineStore { return &TimelineStore{s} }

// Checks returns the store's room for findings. It costs nothing.
func (s *Store) Checks() *CheckStore { return &CheckStore{s} }

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts, and as
// a health check. The first Check on an empty server writes the layout down, in the key
// <prefix>:reconcile:layout.
//
// The error is [ErrLayout]; or [reconcile.ErrAtRisk] with the reasons, or
// [reconcile.ErrUnchecked] with what the server would not tell, or both: with these two the
// store works. Anything else means that the server did not answer. On a cluster every
// master is asked.
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
		findings = append(findings, fmt.Errorf("redisreconcile: check: %w: %s", reconcile.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisreconcile: check: %w: %s", reconcile.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}
