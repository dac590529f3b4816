// Package reconcile keeps what a service believes about the world beside what is true.
//
// A [Ledger] keeps one record for each external effect, an operation: a message sent
// through a provider's API, a payment, a call to a CRM. The record is written before the
// call, and [Ledger.Do] returns nil only when the operation is Confirmed. An operation of
// which nobody can tell whether it happened is Unknown: it is neither taken for done nor
// sent again by guessing. The key that the remote is sent is the same on every attempt.
//
// What is not guaranteed: the effect is at least once outside the store, unless the remote
// honours the key, or answers truthfully when it is asked for an operation. A call that was
// on its way when its owner lost the lease is stopped by nobody but the remote. A ledger is
// as durable as its store; each store's package says how durable that is.
//
// Most callers want [Ledger.Do] where the operation arises, [Ledger.Run] in the
// background, and [Ledger.Receipt] where the provider's webhooks are worked:
//
//	err := ledger.Do(ctx, reconcile.Op{Key: messageID, Account: account, Payload: body}, send, probe)
//	if errors.Is(err, reconcile.ErrAccepted) || errors.Is(err, reconcile.ErrUnknown) {
//		return nil // recorded: the queue of Run has it now
//	}
//
// No guard of package dedup is needed around it: a Do that comes again finds the operation
// by its key. What every error means for an event of an inbox, and what to do with the
// statuses of what was sent, is in the examples of [github.com/pawl-go/pawl/inbox] named
// Ledger and Receipts.
//
// # The compensation queue
//
// Operations that are Accepted or Unknown, and those whose process died, are left alone
// for a quiet period. Then the remote is asked (the probe). If it has the operation, that
// is that. If it has not, this counts only when the token has moved, so that whoever sent
// before can record nothing any more, and a settle time has passed since, so that what was
// on its way has arrived: a remote whose reads lag behind its writes answers "not found" of
// what it will have done. Then the operation is sent again under its key. Without a probe it
// is sent again only where the remote honours keys and for as long as it does
// (Options.Horizon). Everything else waits for a person ([Ledger.Resolve]).
//
// When the remote takes nothing and tells nothing (no connection, timeouts, 429, 5xx), nothing
// is learnt about any operation: that is an outage, counted for the ledger and not for its
// operations. By itself it sends none to a person, however long it lasts; but a key's horizon
// runs on meanwhile, and what is beyond it and cannot be asked for waits for a person. Run tries
// one operation at a time until there is an answer, and [Ledger.Counts] has the age of the oldest.
//
// # In the caller's transaction
//
// [Ledger.With] binds a view to a transaction. [Ledger.Record] on it writes an operation
// together with what it follows from, and the queue sends it after the commit.
//
// # What was said about messages
//
// A [Timeline] keeps the statuses of messages as observations, in whichever order they arrive
// and also where they contradict each other; a [Projection] says what follows from them.
//
// # What is not as it should be
//
// [Checks] look for messages that nothing is heard of, statuses of unknown messages,
// operations that are stuck, volumes that drop, types nobody knows, and states that differ
// from the provider's. What they find is kept until it has gone or a person has seen to it.
//
// # Personal data
//
// Payloads and results are sealed where Options.Keys say so; keys and accounts are stored as
// they are given. Errors and logs name a key by the first 12 digits of its SHA-256.
// [Ledger.Forget], [Timeline.Forget] and [Checks.Forget] erase.
//
// # Choosing a store
//
// NewMemory, NewTimelineMemory and NewCheckMemory are for tests and examples: a ledger is there
// for the process that dies. The packages boltreconcile, redisreconcile and pgreconcile keep all
// three in a file, in Redis and in PostgreSQL; in bbolt and PostgreSQL an operation can be
// recorded, and an effect in the same database confirmed, in the caller's transaction. Call
// Sweep of the store now and then: nothing else removes for sure what has expired. What is open or waits
// for a person never expires.
package reconcile

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/seal"
	"github.com/pawl-go/pawl/internal/work"
	"github.com/pawl-go/pawl/retry"
)

// A Ledger keeps the operations of one kind. Many can share a store. Its methods are safe
// for concurrent use; concurrent single calls are joined into one round trip or commit,
// and none waits for company.
type Ledger struct {
	*core
	store Store
	bound bool // to a transaction of the caller
}

// core is what a ledger and its views share.
type core struct {
	opts    Options
	ring    *seal.Ring // nil: nothing is sealed
	counts  counts
	outage  outage
	begins  merge.Merger[Ask, Answer]
	settler work.Settler[Settlement]
	leases  work.Leases[*turn]
}

// A CallFunc sends an operation to the remote, under op.Key, and returns its answer. The
// context carries the key for [IdempotencyHeader] and the token ([TokenFrom]), and ends
// when the lease is lost.
//
// Nil means that the remote took it: Confirmed, or Accepted if the ledger's operations
// have receipts. An error that wraps [ErrAccepted] means Accepted, one marked [NotDone],
// [NotYet] or [Refused] that it certainly did not happen; after any other the operation is Unknown.
type CallFunc func(ctx context.Context, op Op) (result []byte, err error)

// A ProbeFunc asks the remote what it knows of an operation. The context has what a call's
// has, and what the remote answered when it took it ([ResultFrom]). An error means that the
// remote gave no answer, which says nothing about the operation.
type ProbeFunc func(ctx context.Context, op Op) (Evidence, error)

// Evidence is what a probe found.
type Evidence struct {
	Seen   Seen
	Result []byte
	Note   string // at most MaxNote bytes; no personal data
}

// Seen is what a remote knows of an operation.
type Seen uint8

const (
	// SeenUnclear: it answered, and it cannot be told from that. The zero value.
	SeenUnclear Seen = iota
	// SeenNothing: it has no such operation.
	SeenNothing
	// SeenPending: it has it, and the outcome is pending.
	SeenPending
	// SeenDone: it has happened. Where operations have receipts, this means that the
	// receipt was seen, as with a message whose status is delivered; that the remote
	// merely took it is SeenPending.
	SeenDone
	// SeenFailed: the remote has it, and it failed for good.
	SeenFailed
)

// String returns the name in lower case.
func (s Seen) String() string { return name(s, "unclear", "nothing", "pending", "done", "failed") }

// Options set up a [Ledger]. The zero value of each field is a working default.
type Options struct {
	// Kind separates these operations from others in the same store:
	// [A-Za-z0-9._-]{1,64}. Empty means "default".
	Kind string

	// Receipt says that these operations have receipts: a successful call makes one
	// Accepted, and only its receipt makes it Confirmed, through [Ledger.Receipt] or a
	// probe that has seen it.
	Receipt bool

	// Quiet is how long an operation is left alone after it became Accepted or Unknown.
	// Zero means 2 minutes.
	Quiet time.Duration

	// SettleTime is for how long after the token has moved "not found" does not count: longer
	// than the remote's reads lag behind its writes, and than a request can be on its
	// way. Zero means 30 seconds; the least is one millisecond.
	SettleTime time.Duration

	// Horizon is for how long the remote honours a key, counted from the first send, such
	// as 24 hours. Beyond it nothing is sent again by itself: what was not found waits for a
	// person. Zero means that the remote does not know keys, and every second send needs a
	// probe that found nothing.
	Horizon time.Duration

	// Patience is for how long the remote may say that the outcome is pending, counted from
	// the last send, before a person is asked. Zero means 24 hours.
	Patience time.Duration

	// MaxLooks is how often the remote may answer without news before a person is asked, and
	// MaxSends how often an operation is sent that the remote then does not have. What
	// the remote did not answer counts for neither. Zero means 10 and 5.
	MaxLooks, MaxSends int

	// Backoff is the time between looks. Zero means Quiet, doubled with each look, at most
	// 1 hour or Quiet.
	Backoff retry.Backoff

	// Lease is how long an operation is held without renewal; it is renewed at every
	// third. Zero means 30 seconds; the least is one millisecond.
	Lease time.Duration

	// Retention is for how long a Confirmed or Failed operation is remembered; after that
	// its key is new. Zero means 30 days. It must exceed Horizon.
	Retention time.Duration

	// ResultSize and PayloadSize are the largest result and payload in bytes. Zero means
	// 64 KiB; the most is 16 MiB.
	ResultSize, PayloadSize int

	// Keys seal payloads and results at rest, under the first of them; the others open what
	// is older. Keys of operations, accounts and notes stay in clear. None: nothing is sealed.
	Keys []Key

	// SettleTimeout bounds a settlement, which is tried again until then even when the
	// caller's context has ended. Zero means 5 seconds.
	SettleTimeout time.Duration

	// Authorize says who acts, before a person's action is begun, or refuses. Nil: nobody
	// may do any.
	Authorize func(ctx context.Context, a Action) (actor string, err error)

	// Logger receives what an operator should look at. Nil: nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// New returns a ledger over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range. It does no I/O and
// starts no goroutine.
func New(s Store, opts *Options) (*Ledger, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ring, err := newRing(o.Keys)
	if err != nil {
		return nil, err
	}
	o.Keys = nil // the ring has them
	l := &Ledger{core: &core{opts: o, ring: ring}, store: s}
	l.begins = merge.Merger[Ask, Answer]{Call: l.begin, Orphan: l.orphan}
	l.settler = work.Settler[Settlement]{Send: l.send, Final: final, Timeout: o.SettleTimeout}
	l.leases = work.Leases[*turn]{Extend: l.extend, Lost: ErrStale, Duration: o.Lease, OnLost: l.leaseLost}
	return l, nil
}

func (l *Ledger) params() Params {
	return Params{Kind: l.opts.Kind, Lease: l.opts.Lease, Quiet: l.opts.Quiet, Retention: l.opts.Retention}
}

func (l *Ledger) warn(ctx context.Context, msg, key string, args ...any) {
	if l.opts.Logger != nil {
		l.opts.Logger.WarnContext(ctx, "reconcile: "+msg, append([]any{"kind", l.opts.Kind, "key", short(key)}, args...)...)
	}
}
