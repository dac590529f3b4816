package inbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/seal"
	"github.com/pawl-go/pawl/internal/work"
)

// A Box holds events between their delivery and their handlers. Its methods are
// safe for concurrent use.
//
// Concurrent calls of Accept with up to 32 events are joined into one commit, and
// so are the settlements of events that end at the same time; none waits for
// company.
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

	// BodyRetention is how long an event that is done keeps its payload and context,
	// which are then removed (FormRedacted): the ID stays for Retention, so that
	// duplicates are known, and the body does not. It is at most Retention. Zero: as
	// long as the event is remembered.
	BodyRetention time.Duration

	// Keys seal payload and context before the store sees them, with AES-256-GCM under
	// a subkey of each event, bound to its ID: whoever reads the store cannot read
	// them, and whoever writes it cannot exchange them between events. The first key
	// seals, all of them open, at most 16. To rotate, put a new key in front and leave
	// the old ones until nothing is sealed with them.
	//
	// The last key also makes the digests by which a conflict is told from a
	// duplicate, so that there is no plain hash of what could be guessed. When it is
	// taken away, events that were accepted before and are delivered again are
	// conflicts: wait until they have expired. The same holds for events that were
	// accepted before there were keys.
	//
	// A record that is stored in clear, as from before there were keys, is taken as it
	// is. So who may write the store can still put in bodies of its own.
	//
	// Not sealed are the IDs, types, ordering keys, traces, and the texts of errors. An
	// ID that is a fingerprint (Event.Fingerprinted) is a plain hash of parts of the
	// payload. Empty: nothing is sealed.
	Keys []Key

	// Payloads keeps bodies outside of the store, sealed if there are Keys. A body is
	// kept there before its event is accepted, and deleted by [Box.Sweep] and by an
	// [Operator]. Each such event costs a look at the store and a Put before it is
	// answered; up to sixteen of a delivery are under way at once. A body that cannot
	// be had fails the attempt, which is repeated like any other.
	//
	// A Put whose event was then not stored, or was forgotten at the same moment,
	// leaves a body that nothing refers to, so give the bucket a rule that deletes
	// what is older than Keep and the longest time that an event may wait. Do not set
	// it to nil while bodies are outside: they could not be had, nor be swept. Nil: all
	// bodies are in the store.
	Payloads PayloadStore

	// OutsideOver is the size in bytes above which a payload is kept outside. Zero: all
	// are, if Payloads is set.
	OutsideOver int

	// Trace carries the trace context of a delivery to its handler. Nil: none is.
	Trace *Trace

	// Streams says which streams work an event: names of [A-Za-z0-9._-]{1,64}, at
	// least one and at most 16. Each stream has its own workers, attempts and
	// backoff, so that a slow dependency does not hold up the others. The events of a
	// stream that nobody works stay pending. An answer outside of these rules, or a
	// panic, is logged, and the event goes to DefaultStream. Nil: all events go there.
	Streams func(Event) []string

	// StoreTimeout bounds one acceptance, each call of Payloads, and one settlement or
	// change, which is tried again until then. Zero means 5 seconds.
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
	ring, err := newRing(o.Keys)
	if err != nil {
		return nil, err
	}
	o.Keys = nil // the ring has them
	b := &Box{core: &core{opts: o, ring: ring, loops: map[waker]struct{}{}}, store: s}
	_, b.local = s.(*Memory)
	b.counts.rejected = map[Reason]uint64{}
	width := merge.WidthOf(s)
	b.accepts = merge.Merger[batch, []Answer]{Call: b.mergedAccept, Orphan: b.orphan, Timeout: o.StoreTimeout, Max: acceptBatch, Width: width}
	b.settler = work.Settler[Settlement]{Send: b.send, Final: final, Timeout: o.StoreTimeout, Direct: b.local, Width: width}
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

// core is what a box and its views share.
type core struct {
	opts    Options
	ring    *seal.Ring // nil: bodies are not sealed
	local   bool       // the store is a Memory: no I/O to join, to repeat or to time out
	counts  counts
	accepts merge.Merger[batch, []Answer]
	settler work.Settler[Settlement]

	mu    sync.Mutex
	loops map[waker]struct{}

	sweeping sync.Mutex
	swept    uint64 // where the next sweep of bodies outside begins
}

// A waker is a loop of Work, whatever its type.
type waker interface{ Wake() }

func (c *core) params() Params {
	return Params{Retention: c.opts.Retention, Keep: c.opts.Keep, Bodies: c.opts.BodyRetention}
}

func (c *core) warn(ctx context.Context, msg string, args ...any) {
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "inbox: "+msg, args...)
	}
}
