// Package redisorder keeps the messages and cursors of an [order.Buffer] in Redis.
//
// Every step is one atomic script for each partition that it touches, with the
// server's clock, and may be sent twice: what [order.Store] promises holds between
// any number of processes that use one Redis.
//
// What is not guaranteed: an accepted message is only as durable as this Redis.
// After a crash with appendfsync everysec, and after a failover to a replica that
// had not received the last writes, an accepted message can be gone, which shows as
// a gap if a later one of its key was kept; and a cursor can be back where it was,
// so that messages are handed over again, to a worker with a token above all
// earlier ones. The same holds for a server that was started from an older dump.
// A server that is killed while it writes its append-only file can leave a part of a
// step there, which Redis 7.0 applies when it is started for the second time after
// that: have the file written anew after a crash (BGREWRITEAOF).
// For messages that must not be lost use pgorder or boltorder. [Store.Check] says
// what the server's settings allow.
//
//	store, err := redisorder.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisorder.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	buffer, err := order.New(store, &order.Options{Scope: "inbound"})
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through
// the client that you have. A push or a settlement is one script call for each
// partition that it touches, in one pipeline per node, and each partition has an
// answer of its own. Messages with an ID take one more round trip before, which
// notes where the ID is. A claim is one call on a server that is alone, and says so;
// elsewhere it asks all partitions what is due and then takes from those that come
// first, so that a claim may find less than there is when several workers ask at
// once.
//
// Commands used: EVALSHA, EVAL, INFO and, inside scripts, TIME, HGET, HMGET, HSET,
// HSETNX, HEXISTS, HDEL, HINCRBY and the commands of sorted sets; Check also uses SET and
// CONFIG GET. A client that may not use INFO works, with slower claims.
//
// Everything is kept in memory: a buffered message takes about 220 bytes beside what
// it carries, the digest of one that was delivered about 150, and an idle key about
// 850. Set maxmemory-policy to noeviction, so that a full server refuses messages
// rather than forget some.
//
// A step that the client sends again after a broken connection has the first
// answer. While Redis does not answer, a call lasts as long as the client's dials,
// retries and read timeouts do. Give contexts a deadline.
//
// # Forgetting
//
// The digests of messages without an ID leave with the steps that move the cursor.
// Messages with an ID, and the records of gaps that were resolved, are forgotten by
// [Store.Sweep] only; call it now and then, as long as it finds something. The ID of
// a message that was forgotten, also by KindForget, stays in a row of its own for at
// least ten minutes and until a Sweep: a push of it that is still under way is turned
// away by that row.
//
// # Testing
//
// miniredis will do. Leases and deadlines follow its clock (SetTime). Store.Check
// answers [order.ErrUnchecked] there. For a service's own logic no server is
// needed: in a testing/synctest bubble with order.NewMemory, time.Sleep ends a
// lease at once.
//
// # Keys
//
// Six keys for each partition and scope, {<prefix>:order:<partition>}:<scope>:h and
// likewise z, d, a, x and y; lib.lua describes what they hold. Ordering keys, IDs
// and payloads stand in them in clear: restrict who may read them. A partition is
// moved to another node of a cluster as a whole, which takes the time that its hash
// takes.
package redisorder

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written
// with another number of partitions, or by a version of this package that lays
// them out in another way. Go no further then: the store would look for keys where
// they are not, and begin them anew.
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

// A Store keeps messages in Redis. It implements [order.Store] and
// [order.Sweeper], is safe for concurrent use and needs no Close: it starts
// nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	names atomic.Pointer[names] // of the scope that was used last
	sweep sync.Mutex            // guards what follows
	next  int                   // partition where the next Sweep begins
	pass  []string              // how many ended messages of each it passes over
}

var (
	_ order.Store   = (*Store)(nil)
	_ order.Sweeper = (*Store)(nil)
)

// layoutVersion is that of the rows and of the names of keys.
const layoutVersion = 1

// New returns a store on the server, or servers, of the client. It does no I/O.
// nil options mean the defaults. An error means a nil client or an option outside
// its range.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	parts, err := redispart.New(client, o.Prefix, "order", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisorder: new: %w: %w", order.ErrInvalid, err)
	}
	return &Store{parts: parts, pass: make([]string, parts.Len())}, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts,
// and as a health check. The first Check on an empty server writes the layout
// down, in the key <prefix>:order:layout.
//
// The error is [ErrLayout]; or [order.ErrAtRisk] with the reasons, or
// [order.ErrUnchecked] with what the server would not tell, or both: with these
// two the store works. Anything else means that the server did not answer. On a
// cluster every master is asked.
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
		findings = append(findings, fmt.Errorf("redisorder: check: %w: %s", order.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisorder: check: %w: %s", order.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}

// names are the keys of a scope: h, z, d, a, x and y of each partition.
type names struct {
	scope string
	keys  [][]string
}

func (s *Store) keys(scope string) [][]string {
	if n := s.names.Load(); n != nil && n.scope == scope {
		return n.keys
	}
	n := &names{scope, make([][]string, s.parts.Len())}
	for i := range n.keys {
		base := s.parts.Tag(i) + ":" + scope + ":"
		n.keys[i] = []string{base + "h", base + "z", base + "d", base + "a", base + "x", base + "y"}
	}
	s.names.Store(n)
	return n.keys
}

var (
	//go:embed lib.lua
	libText string
	//go:embed rare.lua
	rareText string
)

// script returns a script behind what all of them share.
func script(text string) *redispart.Script {
	return redispart.NewScript(libText + rareText + text)
}

// failed wraps an error once. When ctx has ended, the client may say so in words
// of its own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisorder: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisorder: %s: %w", step, err)
}

var (
	// errRow is the answer to a key whose rows are something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored under the key is not of this version; nothing was changed")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
