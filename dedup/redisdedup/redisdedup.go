// Package redisdedup keeps the claims of a [dedup.Guard] in Redis.
//
// Every step is one atomic script on the server, with the server's clock, and
// may be sent twice: what [dedup.Store] promises holds between any number of
// processes that use one Redis.
//
// What is not guaranteed: a claim is only as durable as this Redis. After a crash
// with appendfsync everysec, and after a failover to a replica that had not
// received the last writes, a claim can be granted twice and a completion can be
// forgotten. Once it was lost, an ID is new, also one that was held. For effects
// that cost money use boltdedup or pgdedup. [Store.Check] says what the server's
// settings allow.
//
//	store, err := redisdedup.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisdedup.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	guard, err := dedup.New(store, &dedup.Options{Scope: "crm"})
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through
// the client that you have. On a cluster a batch is one script call for each
// partition, in one pipeline per node, and each partition has an answer of its
// own. A server that is alone, and says so, answers a batch of claims in one call.
//
// Commands used: EVALSHA, EVAL, INFO, ZRANGEBYLEX and, inside scripts, TIME, GET,
// SET, DEL, ZADD and ZREM; Check also uses SET and CONFIG GET. A client that may
// not use INFO works, with slower batches.
//
// Claims are kept in memory, with their results, for the guard's retention: an ID
// of 36 bytes takes about 220 bytes there. Set maxmemory-policy to noeviction, so
// that a full server refuses claims rather than forget some.
//
// A step that the client sends again after a broken connection has the first
// answer. While Redis does not answer, a call lasts as long as the client's dials,
// retries and read timeouts do, up to 10 seconds: a command that was sent is not
// given up when ctx ends, unless ContextTimeoutEnabled is set, though the caller
// is. On a cluster a node that hangs holds up what was sent together with its own
// calls; one that is gone does not for long. Give contexts a deadline. With
// MaxRetries: -1 the client fails sooner, and the guard asks again by itself.
//
// # Testing
//
// miniredis will do; the example "unitTest" tests a service with it. Leases follow
// its clock (SetTime), retentions its expiry (FastForward): move both. Store.Check
// answers dedup.ErrUnchecked there. For a service's own logic no server is
// needed: in a testing/synctest bubble with dedup.NewMemory, time.Sleep(31 *
// time.Second) ends a lease at once.
//
// # Keys
//
// One key for each ID, {<prefix>:dedup:<partition>}:<scope>:<id>, which expires
// by itself when its retention has passed. IDs under the policy Hold are also in
// one sorted set for each partition and scope, {<prefix>:dedup:<partition>}!<scope>,
// as long as they are claimed or held; these do not expire. claim.lua describes
// what a key holds. The scope and the ID stand in the keys in clear: restrict who
// may read them.
package redisdedup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/redispart"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written
// with another number of partitions, or by a version of this package that lays
// them out in another way. Go no further then: the store would look for IDs where
// they are not, and answer that they are new.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It
	// has at most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that the IDs are spread over,
	// at most 256. It is part of what is stored: all processes use the same, and
	// it cannot be changed while IDs are remembered. More partitions make batches
	// slower, because each costs a call. Zero means 16.
	Partitions int
}

// A Store keeps claims in Redis. It implements [dedup.Store], is safe for
// concurrent use and needs no Close: it starts nothing, and the client is yours.
type Store struct {
	client redis.UniversalClient
	parts  *redispart.Partitions
}

var (
	_ dedup.Store   = (*Store)(nil)
	_ dedup.Widener = (*Store)(nil)
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
	parts, err := redispart.New(client, o.Prefix, "dedup", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisdedup: new: %w: %w", dedup.ErrInvalid, err)
	}
	return &Store{client, parts}, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts,
// and as a health check. The first Check on an empty server writes the layout
// down, in the key <prefix>:dedup:layout.
//
// The error is [ErrLayout]; or [dedup.ErrAtRisk] with the reasons, or
// [dedup.ErrUnchecked] with what the server would not tell, or both: with these
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
		findings = append(findings, fmt.Errorf("redisdedup: check: %w: %s", dedup.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisdedup: check: %w: %s", dedup.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}

// failed wraps an error once. When ctx has ended, the client may say so in words
// of its own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if redis.HasErrorPrefix(err, "OOM") { // the server refuses to write, and did nothing
		return fmt.Errorf("redisdedup: %s: %w: %w", step, dedup.ErrFull, err)
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisdedup: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisdedup: %s: %w", step, err)
}
