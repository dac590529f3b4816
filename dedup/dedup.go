// Package dedup makes the effect of a message happen once, however often the
// message is delivered.
//
// A [Guard] lets one owner at a time run the effect of an ID and remembers that
// it has happened: two workers never hold the same ID at once by the store's
// clock, a duplicate of a completed message is refused for the whole retention,
// and an owner that lost its lease can change nothing in the store any more.
// Nothing is marked as done before the effect has happened.
//
// What is not guaranteed: outside the store, the effect is at least once. An
// owner that is paused for longer than its lease may still be on its way to
// another system when the next owner starts. Three things close that gap: commit
// the effect in the transaction of the completion ([Guard.With]), hand the
// fencing token to whoever can compare it ([TokenFrom]), or choose [Hold], which
// answers Unknown instead of running an effect a second time. A claim is as
// durable as its store; each store's package says how durable that is.
//
// Most callers want [Guard.Do], or [DoValue] where a duplicate needs the first
// answer:
//
//	err := guard.Do(ctx, dedup.Request{ID: id}, func(ctx context.Context) error {
//		return charge(ctx, order)
//	})
//	if err != nil {
//		return err // do not acknowledge: the effect is not known to have happened
//	}
//	// The effect has happened, now or before: acknowledge.
//
// # When a process dies
//
// Until its lease has lapsed, deliveries of the message get ErrInFlight. Nobody
// can tell then whether the owner died before the effect or after it. Under
// [Rerun] the next delivery runs the effect, possibly a second time: right for
// effects that are idempotent or commit with the claim. Under [Hold] nobody runs
// it: the ID is held, and claims of it are answered Unknown, until a person or a
// reconciler settles it; list such claims with [Guard.Held]. Nothing runs by
// itself: without a delivery nothing happens. In a transaction ([Guard.With])
// neither claim nor effect has happened.
//
// # Choosing a store
//
// [NewMemory] is for tests and single processes. The packages boltdedup,
// redisdedup and pgdedup keep claims in a file, in Redis and in PostgreSQL. Use
// bbolt or PostgreSQL for effects that cost money: there a claim, the business
// write and its completion can commit together. A store of your own implements
// [Store] and passes deduptest.
//
// # The scope of an ID
//
// An ID is compared within the guard's scope, and scopes share nothing: the same
// ID in "crm" and in "invoices" is two effects. Make the ID from what identifies
// the message upstream and from nothing else: a message pulled through two
// accounts then has one effect, since both pulls see one provider's ID. For
// messages that your own system numbers use [MessageID], for events without any
// ID [FingerprintID].
//
// # Personal data
//
// IDs are personal data where the provider's are: a WhatsApp message ID contains
// the customer's number. Errors and logs name an ID by the first 12 digits of its
// [ShortID]; what fn returns is passed on as it is. Stores keep IDs and results in
// clear, [Memory] excepted; [Guard.Forget] erases them.
package dedup

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/work"
)

// A Guard decides who may run the effect of a message. Make one for each kind of
// effect; many can share a store. Its methods are safe for concurrent use.
//
// Concurrent single calls of Claim, Do, FirstSeen and Settle are joined into one
// round trip or commit; none waits for company. A call of the store is given up
// after 10 seconds, if the store can be interrupted, and calls that arrived
// meanwhile wait for it: give contexts a deadline. A Memory is asked directly.
type Guard struct {
	*core
	store Store
	bound bool // to the caller's transaction
}

// Options set up a [Guard]. The zero value of each field is a working default.
type Options struct {
	// Scope separates this kind of effect from others in the same store:
	// [A-Za-z0-9._-]{1,64}. Empty means "default".
	Scope string

	// OnLapse says what becomes of a claim whose owner vanished. The zero value is
	// Rerun.
	OnLapse Lapse

	// Lease is how long a claim is held without renewal. A short lease finds a dead
	// owner soon; a long one survives a long pause of a live one. Do renews it at
	// every third. Zero means 30 seconds; the least is one millisecond.
	Lease time.Duration

	// Retention is how long a completed ID is remembered, counted from its
	// completion. Zero means 8 days: Meta re-sends an unanswered webhook for 7
	// (https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/create-webhook-endpoint).
	Retention time.Duration

	// Horizon is how long the sender may re-send a message. New refuses a
	// Retention that is not longer. Zero means not stated: nothing is checked.
	Horizon time.Duration

	// Wait is how long Do waits for a duplicate that is being run by another owner
	// before it returns ErrInFlight. It asks again after 50 ms, then after twice as
	// long each time, at most 1 s. Zero means not at all.
	Wait time.Duration

	// ResultSize is the largest stored result in bytes. Zero means 64 KiB; the
	// most is 16 MiB.
	ResultSize int

	// SettleTimeout bounds a settlement, which is tried again until then even when
	// the caller's context has ended. Zero means 5 seconds.
	SettleTimeout time.Duration

	// Logger receives what an operator should look at: a lease that was lost, a
	// settlement that came too late. IDs are logged as the first 12 digits of their
	// ShortID. Nil: nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// New returns a guard over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store, on an option outside its range and on a retention
// that does not exceed the horizon. It does no I/O and starts no goroutine.
func New(s Store, opts *Options) (*Guard, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Guard{core: &core{opts: o}, store: s}
	g.memory, _ = s.(*Memory)
	width := merge.WidthOf(s)
	g.claims = merge.Merger[Ask, Claim]{Call: g.mergedClaim(false), Orphan: g.orphan, Width: width}
	g.firsts = merge.Merger[Ask, Claim]{Call: g.mergedClaim(true), Width: width}
	g.settler = work.Settler[Settlement]{Send: g.send, Final: final, Timeout: o.SettleTimeout, Width: width}
	g.leases = work.Leases[*run]{Extend: g.extend, Lost: ErrStale, Duration: o.Lease, OnLost: g.leaseLost, OnExtended: g.renewed}
	return g, nil
}

// With returns a view of the guard on another store, which is bound to a
// transaction of the caller: store.Tx(tx). It claims and settles within the
// transaction, so commit is the completion and rollback is the release: nil from
// Do on a view means that the effect has happened if the transaction commits.
// Acknowledge after the commit.
//
// There is no merging, no renewal and no waiting, and a settlement obeys its
// context, as the transaction does; like the transaction, the view is for one
// goroutine. Under Hold, an error holds the ID if the transaction commits all the
// same; a rollback releases it, so nothing that a rollback cannot undo belongs
// into such a transaction. The view shares scope, options, counters and hooks,
// which therefore also count what is rolled back. On a nil store, every call of
// the view fails with ErrInvalid.
func (g *Guard) With(s Store) *Guard {
	if isNil(s) {
		s = noStore{}
	}
	return &Guard{core: g.core, store: s, bound: true}
}

// core is what a guard and its views share.
type core struct {
	opts    Options
	memory  *Memory // the store, if it is one: no I/O to join, to repeat or to time out
	counts  counts
	leases  work.Leases[*run]
	claims  merge.Merger[Ask, Claim]
	firsts  merge.Merger[Ask, Claim]
	settler work.Settler[Settlement]

	disowning atomic.Int64 // claims that are being released for callers that gave up
}

func (c *core) params(complete bool) Params {
	return Params{Scope: c.opts.Scope, Lease: c.opts.Lease, Retention: c.opts.Retention,
		OnLapse: c.opts.OnLapse, Complete: complete}
}

func (c *core) warn(ctx context.Context, msg, id string, err error) {
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "dedup: "+msg, "scope", c.opts.Scope, "id", short(id), "error", err)
	}
}
