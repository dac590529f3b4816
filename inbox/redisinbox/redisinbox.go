// Package redisinbox keeps the events of an [inbox.Box] in Redis.
//
// An event that was accepted is in Redis, will be worked, and is known when it comes
// again. Every step is an atomic script in each partition that it touches, with the
// server's clock, and may be sent twice: what [inbox.Store] promises holds between any
// number of processes that use one Redis.
//
// What is not guaranteed:
//
//   - An accepted event is only as durable as this Redis. After a crash with
//     appendfsync everysec, and after a failover to a replica that had not received
//     the last writes, an accepted event can be gone although the provider was
//     answered with success; what was done can be worked again, by an owner with a
//     token above all earlier ones. The same holds for a server that was started from
//     an older dump. For events that must not be lost use pginbox or boltinbox, or a Redis with
//     appendfsync always and no replica to fail over to. [Store.Check] says what the
//     server's settings allow.
//   - A server that is killed while it writes its append-only file can leave a part of
//     a step there, which Redis 7.0 applies when it is started for the second time after
//     that, before all that came later. A step that was sent again is then as it should
//     be; of one that was not, the part stays. Have the file written anew after a crash
//     (BGREWRITEAOF).
//   - The events of one call are not stored in one commit, but in one for each
//     partition. A call that fails has stored some, or none, and is repeated: see
//     Two steps.
//   - The order of Seq between keys. For one key it is always that in which the events
//     were stored, and for all keys when one Store accepts them, one call after
//     another. Between processes it follows the servers' clocks: two events of
//     different keys that processes have accepted shortly after each other may be
//     listed in the other order, and one who pages through a list while events are
//     accepted may miss one that was given a number below the page's last. Shortly is
//     as many microseconds as a batch has records, and on a cluster the difference of
//     its nodes' clocks.
//
// Where it fits, this is all:
//
//	store, err := redisinbox.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisinbox.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	box, err := inbox.New(store, nil)
//
// Call [inbox.Box.Sweep] now and then, every minute with a few thousand records, say:
// nothing else removes events and their payloads, and the server's memory fills.
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through the
// client that you have. An acceptance is two round trips, a settlement one, each with
// a script call for every partition that it touches, in one pipeline per node. A
// claim is one call on a server that is alone, and says so; elsewhere it asks all
// partitions what is due and then takes from those that come first, so that a claim
// may find less than there is when several workers ask at once. A change of a
// person, a list and the totals ask every partition.
//
// Everything is kept in memory. An event with an ID of 90 bytes takes about 1,800 bytes
// beside its payload and context, from its acceptance until it is swept. The payload is
// stored once for each stream. Set maxmemory-policy to noeviction: a full server then
// refuses what is new, before anything of it is stored, while what is there can still
// be worked and swept.
//
// A step that the client sends again after a broken connection has the first answer,
// but for an acceptance, which finds its own records: the event was then counted as
// accepted by nobody. While Redis does not answer, a call lasts as long as the
// client's dials, retries and read timeouts do. Give contexts a deadline.
//
// # Two steps
//
// All of an ordering key lies in one partition, so that its order is the script's. But
// an event is known by its ID, which may come again with another key: when the rule
// that makes keys was changed between two deliveries, or with another body. So an
// acceptance first writes down, in the partition of the ID, in which partition the
// event will be, or reads where it is; and then stores the event there, or finds it.
// Success is answered after the second step, and Duplicate only for an event that is
// stored and queued.
//
// A process that dies between the two leaves a row that leads nowhere. The next
// delivery of the event goes where the row says. With the same key it is simply stored.
// With a key of another partition it may not be stored there; then the nonce of the row
// is made void in the partition that it names, by the script that sees that the event
// is not there, the row is replaced, and the second step is taken where the new row
// says. Whoever was on its way with the void nonce is turned away, and begins anew. So
// an event is never in two partitions, and never lost between them. An erasure and a
// sweep make the nonces of what they remove void in the same way. Void nonces are kept
// for ten minutes, and an acceptance gives up that has taken five between its steps;
// a process that is paused in the instant between that check and the sending, for ten
// minutes, could store an event a second time, if its key has changed.
//
// Rows that no delivery has completed are found and removed by Sweep when they are ten
// minutes old.
//
// # Erasing
//
// [inbox.ChangeForget] removes an event from all keys at once, except its ID, which
// stays beside its void nonce until a Sweep after ten minutes. An append-only file has
// the bytes until it is rewritten, a dump and a replica until the next one.
//
// # Access
//
// Events, payloads, keys and IDs stand in Redis as the box hands them over: in clear,
// unless Options.Keys of the box seals the bodies. Restrict who may read them. Scripts
// run with the rights of their caller, so a user needs the commands that its scripts
// use. For the default prefix, what stores, what works, what a person's tools do, and
// what sweeps:
//
//	ACL SETUSER ingest on >secret ~{pawl:inbox:* +evalsha +eval +time +hget +hset +hexists +hincrby +zadd
//	ACL SETUSER worker on >secret ~{pawl:inbox:* +evalsha +eval +time +hget +hmget +hset +hincrby +zadd +zrem +zrangebylex +info
//	ACL SETUSER operator on >secret ~{pawl:inbox:* ~pawl:inbox:layout +evalsha +eval +time +hget +hmget +hset +hexists +hdel +hincrby +zadd +zrem +zrangebylex +set +info +config|get
//	ACL SETUSER purge on >secret ~{pawl:inbox:* +evalsha +eval +time +hget +hset +hexists +hdel +hincrby +zadd +zrem +zrangebylex
//
// On a cluster add +cluster|slots, +cluster|shards and +command to each, on every node.
// So ingest cannot take, list or remove an event, and worker cannot erase one. Redis
// does not tell a script from a command: each of them may overwrite rows, and read
// those whose names it knows. Check is the operator's: it uses SET, INFO and CONFIG GET.
// A worker without INFO works, with slower claims.
//
// # Testing
//
// miniredis will do. Leases and delays follow its clock (SetTime). Check answers
// [inbox.ErrUnchecked] there. For a service's own logic no server is needed: in a
// testing/synctest bubble with inbox.NewMemory, time.Sleep ends a lease at once.
//
// # Keys
//
// Two keys for each partition, {<prefix>:inbox:<partition>}:h and likewise z; lib.lua
// describes what they hold. A partition is moved to another node of a cluster as a
// whole, which takes the time that its hash takes.
package redisinbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/redispart"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written
// with another number of partitions, or by a version of this package that lays
// them out in another way. Go no further then: the store would look for events
// where they are not, and take them for new.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It
	// has at most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that the ordering keys are
	// spread over, at most 256. It is part of what is stored: all processes use the
	// same, and it cannot be changed while anything is kept. More partitions make
	// batches and claims slower, because each costs a call. Zero means 16.
	Partitions int
}

// A Store keeps events in Redis. It implements [inbox.Store] and
// [inbox.Sweeper], is safe for concurrent use and needs no Close: it starts
// nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	keys  [][]string    // h and z of each partition
	seen  atomic.Uint64 // the highest number of a record that this store has seen or asked for
	sweep sync.Mutex    // guards what follows
	next  int           // partition where the next Sweep begins
}

var (
	_ inbox.Store   = (*Store)(nil)
	_ inbox.Sweeper = (*Store)(nil)
)

// layoutVersion is that of the rows and of the names of keys.
const layoutVersion = 1

// New returns a store on the server, or servers, of the client. It does no I/O.
// nil options mean the defaults. An error is [inbox.ErrInvalid]: a nil client, or an
// option outside its range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	parts, err := redispart.New(client, o.Prefix, "inbox", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisinbox: new: %w: %w", inbox.ErrInvalid, err)
	}
	s := &Store{parts: parts, keys: make([][]string, parts.Len())}
	for i := range s.keys {
		s.keys[i] = []string{parts.Tag(i) + ":h", parts.Tag(i) + ":z"}
	}
	return s, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts,
// and as a health check. The first Check on an empty server writes the layout
// down, in the key <prefix>:inbox:layout.
//
// The error is [ErrLayout]; or [inbox.ErrAtRisk] with the reasons, or
// [inbox.ErrUnchecked] with what the server would not tell, or both: with these two
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
		findings = append(findings, fmt.Errorf("redisinbox: check: %w: %s", inbox.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisinbox: check: %w: %s", inbox.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}

//go:embed lib.lua
var libText string

// script returns a script behind what all of them share.
func script(text string) *redispart.Script { return redispart.NewScript(libText + text) }

// maxBatch is how many items, and maxBytes how many bytes of bodies, go in one
// round trip: a script stops its server while it runs.
const (
	maxBatch = 512
	maxBytes = 8 << 20
)

// run runs a script in the partitions that have items, all in one round trip. of
// returns the partition of an item and encode appends its values behind the
// header; use reads the reply of a call, which has these items. An error means
// that not all have an answer.
func (s *Store) run(ctx context.Context, script *redispart.Script, header []any, items []int, of func(i int) int,
	encode func(args []any, i int) []any, use func(part int, items []int, reply []string) error) error {
	lists := make([][]int, len(s.keys))
	for _, i := range items {
		lists[of(i)] = append(lists[of(i)], i)
	}
	var calls []redispart.Call
	var called []int
	for part, list := range lists {
		if len(list) == 0 {
			continue
		}
		args := append([]any(nil), header...)
		for _, i := range list {
			args = encode(args, i)
		}
		calls = append(calls, redispart.Call{Keys: s.keys[part], Args: args})
		called = append(called, part)
	}
	if err := s.parts.Run(ctx, script, calls); err != nil {
		return err
	}
	for c, part := range called {
		if calls[c].Err != nil {
			return calls[c].Err
		}
		if err := use(part, lists[part], calls[c].Reply); err != nil {
			return err
		}
	}
	return nil
}

// everywhere runs a script in each partition, with the same arguments.
func (s *Store) everywhere(ctx context.Context, script *redispart.Script, use func(part int, reply []string) error, args ...any) error {
	return s.run(ctx, script, args, upTo(len(s.keys)), func(part int) int { return part },
		func(args []any, _ int) []any { return args },
		func(part int, _ []int, reply []string) error { return use(part, reply) })
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// failed wraps an error once. When ctx has ended, the client may say so in words
// of its own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisinbox: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisinbox: %s: %w", step, err)
}

var (
	// errRow is the answer to an item whose rows are something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored is not of this version; it was not changed")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
