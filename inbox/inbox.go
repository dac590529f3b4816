// Package inbox accepts what a provider sends, durably, and works it afterwards.
//
// An event that was answered with success is stored: nothing is acknowledged or
// worked before it is durable, and no answer waits for work. Every stored event is
// handed to a handler at least once, until it is done or given up on, and the
// events of one ordering key are handled one at a time, in the order in which they
// were accepted, across any number of processes. The same event delivered again is
// a duplicate for the whole retention and is not worked again. Only trouble of the
// store makes the endpoint refuse a delivery that is authentic; a backlog, a
// failing handler or a dead dependency never does.
//
// What is not guaranteed: a handler may run more than once for an event, so guard
// its effects: see below. Two events of one key that are accepted at the same
// time have no order among them, and providers do not deliver in order: what the
// sender numbered has to be put in order by its numbers. An event that was given
// up on, conflicts with an earlier one or could not be decoded is kept and
// counted, and waits for a person. Accepted events are as durable as the store;
// each store's package says how durable that is.
//
// Most callers want [Handler] in front and [Box.Work] behind:
//
//	box, err := inbox.New(store, nil)
//	...
//	hook, err := inbox.Handler(box, source, nil)
//	...
//	mux.Handle("/webhooks/whatsapp", hook)
//	...
//	err = box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
//		return inbox.OutcomeOf(crm.Put(ctx, r.Event))
//	}, nil)
//
// Work blocks: run the server and Work in goroutines of their own. To stop, call
// Shutdown of the http.Server, then end Work's context and wait for it, then close
// the store's file.
//
// # One effect
//
// When the events and what the handler writes are in one bbolt file, complete the
// event in the transaction of the write ([Box.Complete]): both are then one
// commit, and nothing else is needed. For any other effect use a guard of
// [github.com/pawl-go/pawl/dedup] with the event's ID. What its errors mean for
// the event is shown in the example of [Outcome] named Dedup.
//
// # What was given up on
//
// An event that is dead, quarantined or in conflict has no way back yet: it is not
// worked again, and accepting it again does not change that. Read it with
// [Box.List] and run your handler on the record yourself; it stays for
// Options.Keep. Set WorkOptions.MaxAttempts so that the attempts last longer than
// the longest outage of what the handler needs.
//
// # Who promises what
//
// The platform promises to deliver a webhook for as long as its horizon, in any
// order and more than once. A success that this package answers says that the
// delivery is stored, not that it is worked; that a message was accepted by a
// provider does not say that it reached a person; and no library makes a firm
// compliant.
//
// # Choosing a store
//
// [NewMemory] is for tests and for events that may be lost with the process. The
// package boltinbox keeps them in a file. Both are for one process: behind a load
// balancer all deliveries must reach that process, and two replicas need a store
// of your own for now. It implements [Store] and passes inboxtest.
//
// # Identity
//
// An event is known by its ID, which the source makes from signed bytes. The
// same ID with the same payload is a duplicate; with another payload it is a
// conflict, which is kept beside the first and never worked.
//
// # Forgetting
//
// An event that is done is remembered for Options.Retention, so that it is known
// when it is sent again, and one that was given up on for Options.Keep. The next
// Sweep of the store after that removes it: call Sweep now and then, since nothing
// else removes events and their payloads. An event that waits is never forgotten.
//
// Payload, context and LastError are stored in clear until the event is removed. A
// single event cannot be erased before.
package inbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/work"
)

// A Box holds events between their delivery and their handlers. Its methods are
// safe for concurrent use.
//
// Concurrent calls of Accept are joined into one commit, and so are the
// settlements of events that end at the same time; none waits for company.
type Box struct {
	*core
	store Store
	bound bool // to the caller's transaction
}

// Options set up a [Box]. The zero value of each field is a working default.
type Options struct {
	// Retention is how long an event is remembered after it was done: at least that
	// long, and until the next Sweep of the store. It must be longer than the
	// provider may re-send a delivery: [Handler] refuses one that is not longer than
	// Source.Horizon. Zero means 8 days: Meta re-sends for 7
	// (https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/create-webhook-endpoint).
	Retention time.Duration

	// Keep is the same for an event that was given up on, quarantined, or in conflict
	// with another. Zero means 90 days; it is at least Retention.
	Keep time.Duration

	// Streams says which streams work an event: names of [A-Za-z0-9._-]{1,64}, at
	// least one and at most 16. Each stream has its own workers, attempts and
	// backoff, so that a slow dependency does not hold up the others. The events of a
	// stream that nobody works stay pending. An answer outside of these rules, or a
	// panic, is logged, and the event goes to DefaultStream. Nil: all events go there.
	Streams func(Event) []string

	// StoreTimeout bounds one acceptance, and one settlement, which is tried again
	// until then. Zero means 5 seconds.
	StoreTimeout time.Duration

	// Logger receives what an operator should look at: an event given up on, a
	// conflict, a body that was not decoded, a lease that was lost. IDs are logged
	// as short hashes; payloads and the texts of errors are not logged, since they
	// may hold personal data: the record has them. Nil: nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// DefaultStream is the stream of events that no option sends elsewhere.
const DefaultStream = "default"

// New returns a box over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range. It does no I/O
// and starts no goroutine.
func New(s Store, opts *Options) (*Box, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Box{core: &core{opts: o, loops: map[waker]struct{}{}}, store: s}
	_, b.local = s.(*Memory)
	b.counts.rejected = map[Reason]uint64{}
	b.accepts = merge.Merger[[]Arrival, []Answer]{Call: b.mergedAccept, Orphan: b.orphan, Timeout: o.StoreTimeout, Max: acceptBatch}
	b.settler = work.Settler[Settlement]{Send: b.send, Final: final, Timeout: o.StoreTimeout, Direct: b.local}
	return b, nil
}

// acceptBatch is how many acceptances share a commit. Each may bring a body of
// megabytes.
const acceptBatch = 64

// With returns a view of the box on another store, which is bound to a
// transaction of the caller: store.Tx(tx). What the view accepts or completes is
// part of the transaction. It shares options, counters and hooks; like the
// transaction, it is for one goroutine. Call [Box.Wake] after a commit that
// accepted something, or let the workers find it when they next look.
func (b *Box) With(s Store) *Box {
	return &Box{core: b.core, store: s, bound: true}
}

// Wake makes the workers of this box look for work at once. [Box.Accept] does so
// by itself, except in a transaction.
func (b *Box) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.loops {
		l.Wake()
	}
}

// Get returns the records of an event: one for each of its streams, then those
// of arrivals in conflict with it. None means that it is not known.
func (b *Box) Get(ctx context.Context, id string) ([]Record, error) {
	if err := validID("ID", id); err != nil {
		return nil, err
	}
	return b.list(ctx, Query{ID: id, N: maxPage})
}

// List returns at most n records in a state, in the order of acceptance,
// beginning behind the record with the number after; zero begins at the first.
func (b *Box) List(ctx context.Context, s State, after uint64, n int) ([]Record, error) {
	if s < StatePending || s > StateConflict {
		return nil, invalid("state %d", s)
	}
	if n < 1 || n > maxPage {
		return nil, invalid("page of %d, not 1 to %d", n, maxPage)
	}
	return b.list(ctx, Query{State: s, After: after, N: n})
}

const maxPage = 1000

func (b *Box) list(ctx context.Context, q Query) ([]Record, error) {
	records, err := b.store.List(ctx, q)
	if err != nil {
		return nil, unavailable(ctx, "list", err)
	}
	return records, nil
}

// Totals counts what is stored, by state, and says how old the oldest pending
// event is. It asks the store; [Box.Stats] does not.
func (b *Box) Totals(ctx context.Context) (Totals, error) {
	t, err := b.store.Totals(ctx)
	if err != nil {
		return Totals{}, unavailable(ctx, "count", err)
	}
	return t, nil
}

// core is what a box and its views share.
type core struct {
	opts    Options
	local   bool // the store is a Memory: no I/O to join, to repeat or to time out
	counts  counts
	accepts merge.Merger[[]Arrival, []Answer]
	settler work.Settler[Settlement]

	mu    sync.Mutex
	loops map[waker]struct{}
}

// A waker is a loop of Work, whatever its type.
type waker interface{ Wake() }

func (c *core) params() Params { return Params{Retention: c.opts.Retention, Keep: c.opts.Keep} }

func (c *core) warn(ctx context.Context, msg string, args ...any) {
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "inbox: "+msg, args...)
	}
}
