// Package redisseqgen keeps the numbers of [seqgen] in Redis, for several processes
// that number the same keys and have a Redis already.
//
// Every step is one atomic script, with the server's clock, and may be sent twice:
// what [seqgen.Store] promises holds between any number of processes that use one
// Redis, as long as it forgets nothing.
//
// What is not guaranteed: a number is only as durable as this Redis. After a crash
// with appendfsync everysec, after a failover to a replica that had not received the
// last writes, and after a start from an older dump, the store has gone back, and
// would hand out numbers that were handed out before. Any process that outlives the
// loss notices it by the numbers that it has seen, and a process that starts notices
// it with a witness (seqgen.Options.Witness), such as a boltseqgen store; otherwise
// nobody does. Where a number must never come twice, use pgseqgen or boltseqgen.
// [Store.Check] says what the server's settings allow.
//
//	store, err := redisseqgen.New(client, nil)
//	if err != nil {
//		return err
//	}
//	if err := store.Check(ctx); errors.Is(err, redisseqgen.ErrLayout) {
//		return err
//	} else if err != nil {
//		log.Print(err) // at risk, unchecked, or not reachable yet
//	}
//	generator, err := seqgen.New(store, nil)
//
// There is no transaction to bind a store to, so mode Gapless has no use here.
//
// # Servers
//
// Redis 7.0 or newer, or Valkey: alone, behind Sentinel, or as a Cluster, through
// the client that you have. A batch is one script call for each partition that it
// touches, in one pipeline per node, and each partition has an answer of its own.
//
// Commands used: EVALSHA, EVAL and, inside scripts, TIME, HGET, HMGET, HSET and the
// commands of sorted sets; Check also uses SET, INFO and CONFIG GET.
//
// A key takes about four kilobytes of memory, for ever. Set maxmemory-policy to
// noeviction: a server that drops keys begins them again at 1. A full one answers
// seqgen.ErrFull.
//
// Call [Store.Sweep] now and then: nothing else drops voids whose retention has
// passed.
//
// # Keys
//
// Three keys for each partition, {<prefix>:seqgen:<partition>}:h, v and x; lib.lua
// describes what they hold. Scopes and keys stand in them in clear: restrict who may
// read them.
package redisseqgen

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/seqgen"
)

// ErrLayout is what [Store.Check] returns when the keys in Redis were written
// with another number of partitions, or by a version of this package that lays
// them out in another way. Go no further then: the store would look for keys where
// they are not, and begin them again at 1.
var ErrLayout = redispart.ErrLayout

// Options configure a [Store].
type Options struct {
	// Prefix begins every key; stores with different prefixes share nothing. It
	// has at most 64 bytes and no braces. Empty means "pawl".
	Prefix string

	// Partitions is the number of slots of a cluster that the keys are spread over,
	// at most 256. It is part of what is stored: all processes use the same, and it
	// cannot be changed while numbers are kept. Zero means 16.
	Partitions int
}

// A Store keeps sequences in Redis. It implements [seqgen.Store], is safe for
// concurrent use and needs no Close: it starts nothing, and the client is yours.
type Store struct {
	parts *redispart.Partitions
	keys  [][]string   // h, v and x of each partition
	next  atomic.Int64 // where the next Sweep begins
}

var _ seqgen.Store = (*Store)(nil)

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
	parts, err := redispart.New(client, o.Prefix, "seqgen", o.Partitions, layoutVersion)
	if err != nil {
		return nil, fmt.Errorf("redisseqgen: new: %w: %w", seqgen.ErrInvalid, err)
	}
	s := &Store{parts: parts, keys: make([][]string, parts.Len())}
	for i := range s.keys {
		tag := parts.Tag(i)
		s.keys[i] = []string{tag + ":h", tag + ":v", tag + ":x"}
	}
	return s, nil
}

// Check asks whether the server answers, whether what is stored has this store's
// layout, and what its settings allow to be lost. Call it when a service starts,
// and as a health check. The first Check on an empty server writes the layout
// down, in the key <prefix>:seqgen:layout.
//
// The error is [ErrLayout]; or [seqgen.ErrAtRisk] with the reasons, or
// [seqgen.ErrUnchecked] with what the server would not tell, or both: with these
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
		findings = append(findings, fmt.Errorf("redisseqgen: check: %w: %s", seqgen.ErrAtRisk, strings.Join(report.AtRisk, "; ")))
	}
	if len(report.Unchecked) > 0 {
		findings = append(findings, fmt.Errorf("redisseqgen: check: %w: %s", seqgen.ErrUnchecked, strings.Join(report.Unchecked, "; ")))
	}
	return errors.Join(findings...)
}

//go:embed lib.lua
var lib string

func script(text string) *redispart.Script { return redispart.NewScript(lib + text) }

// field is where the row of a key is.
func field(scope, key string) string { return scope + ":" + key }

// failed wraps an error once. When ctx has ended, the client may say so in words
// of its own, such as a timeout of the connection.
func failed(ctx context.Context, step string, err error) error {
	if redis.HasErrorPrefix(err, "OOM") { // the server refuses to write, and did nothing
		return fmt.Errorf("redisseqgen: %s: %w: %w", step, seqgen.ErrFull, err)
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("redisseqgen: %s: %w: %w", step, end, err)
	}
	return fmt.Errorf("redisseqgen: %s: %w", step, err)
}

var (
	// errRow is the answer to a key whose row is something else: another program
	// writes to the prefix, or a newer version of this package does.
	errRow = errors.New("what is stored under the key is not a row of this version; nothing was changed")

	// errReply is the answer to a reply that no script of this package makes.
	errReply = errors.New("the server's reply is not one of the script's")
)
