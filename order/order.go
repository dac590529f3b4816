// Package order delivers the messages of each key in the order of the numbers
// that their sender gave them, and accounts for every number.
//
// A message that was answered [Buffered] is stored and will be handed to a handler
// when its turn comes: after all lower numbers of its key, and not before they
// have ended. One handler at a time works a key, across any number of processes,
// and keys are worked side by side. A message that fails is tried again in its
// place and holds up its own key and no other; when its attempts are used up it is
// parked, and its key waits for a person. A number that does not come is a [Gap],
// with a deadline of its own that survives restarts: after five minutes it is
// skipped and the record of that is kept, or the key stops, as the options say. The
// cursor never goes back: what comes after its number was skipped is late, and is
// handed over out of order. Of every number the buffer can say what became of it
// ([Buffer.Where]), and the sums add up ([Ledger]).
//
// What is not guaranteed: outside of a transaction a message is handed over at
// least once (see Mode), because a process may die, or lose its lease, between the
// effect and its record. A worker that is paused for longer than its lease changes
// nothing in the store any more, but what it has sent to others is on its way:
// they can compare tokens ([TokenFrom]). There is no order between keys, and no
// order at all while [Options.OnUnavailable] takes messages because the store is
// down. A skipped number breaks the order by the decision of the options. Whether
// a number below the retained window was delivered or came late is forgotten, and
// a message that is pushed again there is a duplicate that cannot be compared. A
// message is as durable as its store; each store's package says how durable that
// is. A store that is put back to an older copy delivers again what the copy did not
// know as delivered, in order; what had arrived since is a gap like any other.
//
// Most callers want [Buffer.Push] where messages arrive, and [Buffer.Run] where
// they are worked; in front of Postgres or bbolt [Buffer.RunTx]:
//
//	answers, err := buffer.Push(ctx, order.Message{
//		Key: account, Position: order.Position{Number: seq}, ID: id, Payload: body,
//	})
//	if err != nil {
//		return err // do not acknowledge: it is not known to be stored
//	}
//	if !answers[0].Taken() {
//		return refused(answers[0]) // Full: again later; Conflict, StaleEpoch, TooFar: never
//	}
//	...
//	err = buffer.Run(ctx, func(ctx context.Context, m order.Message) error {
//		return crm.Put(ctx, m.ID, m.Payload)
//	}, nil)
//
// For what goes out most callers want [Lanes]: the messages of each customer go out
// through the account that the customer has, one at a time per account, numbered and in
// order, at the rate of the account. [Lanes.Enqueue] takes them and [Lanes.Run] sends
// them.
//
// Use order for streams whose sender numbers its messages. For those that only
// arrive use [github.com/pawl-go/pawl/inbox].
//
// # What a user needs
//
//   - to put in order: [Buffer], [Options], [Message], [Position], [Answer] with
//     [Arrived], [RunOptions] with [Mode]; for RunTx the InTx of a store;
//   - for gaps: [Gap], [GapPolicy], [Void]; [Query] with [Cursor], [Reason] and
//     [Resolution] for whoever looks after them; [EpochPolicy] if senders begin again;
//   - to look: [Account] with [Ledger] and [Arrivals], [Found] with [State], [Totals],
//     [Stats], [Hooks];
//   - to send: [Lanes], [LanesOptions], [Outbound], [Queued], [Sending], [Rate],
//     [Cause], [LaneStats].
//
// The rest is for those who write a store: [Store], [Sweeper], [Params], [Arrival],
// [Ask], [Claimed], [Claim], [Settlement] with [Kind], [Place]; and for a handler in
// transactions of its own, [TxHandler] with [TxRun].
//
// # Keys and epochs
//
// A key is one sequence: choose what the sender counts by. If it counts per
// account, the account is the key, whoever the customer is. A sequence that begins
// again, because its sender lost its counter or was replaced, is a new epoch of
// the same key, with a higher epoch number: its first number is Options.Start
// again, other keys are not touched, and what still comes of the old epoch can be
// told apart. Options.OldEpoch says what becomes of the rest of the old one. A
// restart is never guessed: a number 1 in a known epoch is a duplicate or a
// conflict. A customer who moves from account A to account B takes B's next
// numbers and disturbs nobody; when the customer moves back, A goes on where it
// was. Only the key whose sender begins again gets a new epoch.
//
// # What a key costs
//
// A key that is idle costs no goroutine and no timer, only what its store keeps:
// its cursors and counters, the digests of the last Options.Window numbers, the
// ranges of void and skipped numbers, and the messages with an ID for
// Options.KeepBody. A key that is worked costs a goroutine while it is.
//
// # Choosing a store
//
// [NewMemory] is for tests and single processes. The packages boltorder, redisorder
// and pgorder keep messages in a file, in Redis and in PostgreSQL. In bbolt and
// PostgreSQL the cursor can move in the transaction of the effect. A store of your
// own implements [Store] and passes ordertest.
//
// # Personal data
//
// Keys, IDs and payloads are personal data where they name a customer. Errors and
// logs name keys and IDs by a short hash and have no payload. Stores keep them in
// clear; [Buffer.Forget] erases a key.
package order

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/work"
	"github.com/pawl-go/pawl/retry"
)

// A Buffer puts messages in order. Its methods are safe for concurrent use.
//
// Concurrent calls of Push are joined into one round trip or commit, and so are
// the settlements of keys that are worked at the same time; none waits for company.
type Buffer struct {
	*core
	store Store
	bound bool // to the caller's transaction
}

// Options set up a [Buffer]. The zero value of each field is a working default.
// Buffers that share a scope of a store, in one process or in many, should have
// the same options.
type Options struct {
	// Scope separates the keys and message IDs of this buffer from others in the
	// same store: [A-Za-z0-9._-]{1,64}. Empty means "default".
	Scope string

	// Start is the first number of an epoch. Zero means 1.
	Start uint64

	// FromFirst makes an epoch begin with the number that arrives first, whatever it
	// is: for joining a sequence that is under way. Lower numbers that come later are
	// StaleEpoch. It excludes Start.
	FromFirst bool

	// Window is how many numbers below the cursor are remembered exactly, with the
	// digests of their messages. Zero means 1,024; the most is 1,048,576.
	Window int

	// MaxBuffered is how many messages of a key may be buffered; more are Full. Zero
	// means 10,000; the most is 1,000,000.
	MaxBuffered int

	// MaxAhead is how far above the cursor a number may be; others are TooFar. Zero
	// means 1,000,000.
	MaxAhead uint64

	// MaxPayload is the largest payload in bytes. Zero means 256 KiB; the most is 16
	// MiB.
	MaxPayload int

	// GapTimeout is how long a gap is waited for, counted from when it opened: from
	// the arrival of the message behind it, also while no worker runs or a lower
	// number holds the key up. Zero means 5 minutes.
	//
	// A gap whose time is over before it was anybody's turn is not skipped at once. It
	// is waited for once more, for the first delay of ResendBackoff (1 second by
	// default), at most GapTimeout. With Resend that is so if it was never asked for,
	// and it is asked for first. Without, it is so if nobody was told of it although
	// AlertAfter is less than GapTimeout, and Alert is called first; if AlertAfter is not
	// less, the key has to have stood at the gap for that time.
	GapTimeout time.Duration

	// AfterTimeout says what happens then. The zero value is Skip.
	AfterTimeout GapPolicy

	// Alert is told of a gap that is open for AlertAfter, and of any gap before it is
	// skipped: once, or again if the process dies before that is recorded. If it panics
	// or ends its goroutine, it counts as told. Zero AlertAfter means 30 seconds.
	Alert      func(ctx context.Context, g Gap)
	AlertAfter time.Duration

	// Resend asks the sender for the numbers of a gap again, first after the first
	// delay of ResendBackoff and then after the further ones, as long as the gap is
	// open; Gap.Asked is how often it was asked before. An error is logged and counts
	// as asked. The zero backoff is exponential from 1 second to 1 minute. A jitter
	// spreads keys, and is the same at each look at a gap.
	Resend        func(ctx context.Context, g Gap) error
	ResendBackoff retry.Backoff

	// Voids returns the numbers in [from, to) of a key that were never used, as the
	// generator of the numbers knows them. It is asked for each gap shortly after it
	// opened, and again while it is open. A certain void is crossed at once. One that
	// is orphaned may still be on its way, and is crossed when the key has stood at the
	// gap, and no later message of the range arrived, for OrphanWait. Zero OrphanWait
	// means 10 seconds. Ranges may be larger than what was asked. The example "Voids"
	// of Options joins it to package seqgen.
	Voids      func(ctx context.Context, key string, epoch, from, to uint64) ([]Void, error)
	OrphanWait time.Duration

	// OldEpoch says what becomes of an epoch when a higher one begins. The zero value
	// is Drain.
	OldEpoch EpochPolicy

	// OnLate is handed messages whose number had been skipped or was void, with the
	// record of the gap in Message.Gap if it was skipped and the record is kept, out of
	// order, one at a time per key. It is tried again and parks like a handler, and
	// while it waits for its next attempt, or for a person, it holds up nothing. While
	// it is handed over, its key waits: for RunOptions.Timeout at most, or
	// StoreTimeout if that is zero, when the context ends. Between two late messages
	// what is in order has its turn. Messages are handed to it at least once, whatever
	// the mode. Nil: late messages are counted and not stored.
	OnLate func(ctx context.Context, m Message) error

	// KeepBody is how long a message with an ID is remembered after it ended, with
	// its payload, for Lookup. Zero means 7 days; negative means that it is not.
	KeepBody time.Duration

	// KeepGaps is how long the record of a skipped gap is kept after it was resolved.
	// Zero means 90 days. What was not resolved is kept.
	KeepGaps time.Duration

	// StoreTimeout bounds one push, one look at a gap's callbacks, and one
	// settlement, which is tried again until then. Zero means 5 seconds.
	StoreTimeout time.Duration

	// OnUnavailable takes messages when the store does not answer. By default a
	// buffer fails closed: Push returns ErrUnavailable and the sender keeps its
	// message. With this function messages are handed over without any order between
	// processes, "only dedup, no order": deliver each through a dedup guard, as the
	// handler of Run should do, too.
	//
	// It gets messages in the order of their arrival at this buffer, one call at a
	// time. Those it returns nil for (or all, if it returns nil) are answered
	// Unordered and remembered in this process, up to 100,000; more are counted in
	// Stats.Forgotten, and each will be a gap. When the store answers again they are
	// reported to it before anything else of that key is pushed: their numbers then
	// count as delivered. A process that dies before has not reported them; they are
	// gaps, too.
	//
	// A store of which only a part does not answer is asked for the keys of that part
	// as well: which keys those are shows only when they are pushed. If it refuses,
	// that costs nothing; if it hangs, all pushes of this buffer wait up to
	// UnavailableAfter for each key that was not handed over before, and once in a
	// second for those that were.
	//
	// An error is the message's answer. The context does not end, and all pushes wait
	// for the function, so bound what it does. It must not call Push or Forget of this
	// buffer.
	OnUnavailable func(ctx context.Context, ms []Message) []error

	// UnavailableAfter is how long the store has to answer a push before that. Zero
	// means 1 second, or StoreTimeout if that is less.
	UnavailableAfter time.Duration

	// Logger receives what an operator should look at: a message that was parked, a
	// gap that was skipped, a conflict, a lease that was lost. Keys and IDs are logged
	// as short hashes; payloads and texts of errors of handlers are not logged. Nil:
	// nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// GapPolicy is what happens when a gap was waited for long enough.
type GapPolicy uint8

const (
	// Skip gives the missing numbers up, keeps a record of them, and goes on.
	Skip GapPolicy = iota
	// Stop lets the key wait until the numbers arrive or a person decides
	// ([Buffer.ResolveGap]).
	Stop
)

// EpochPolicy is what becomes of an epoch when a higher one of its key begins.
type EpochPolicy uint8

const (
	// Drain delivers what is buffered of the old epoch first. Its gaps keep their
	// deadlines, and under Stop they wait for a person, and the new epoch with them.
	Drain EpochPolicy = iota
	// Abandon skips what was not delivered, with a record, and goes on with the new
	// epoch at once. What a worker has in hand at that moment is skipped as well: its
	// handler may still have its effect, or have had it, but the record stays, and it
	// does not count as delivered. In RunTx its transaction is rolled back. To know
	// of it, a worker looks up one message after each record.
	Abandon
	// Keep delivers nothing of the new epoch before the old one has come to its end.
	// Its gaps do not time out: only what arrives, or a person, ends them.
	Keep
)

// A Void is a range of numbers that were never used.
type Void struct {
	From, To uint64 // To is not included
	Orphaned bool   // its owner vanished: some of it may have been used after all
}

// New returns a buffer over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range. It does no I/O
// and starts no goroutine.
func New(s Store, opts *Options) (*Buffer, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Buffer{core: &core{opts: o, loops: map[waker]struct{}{}}, store: s}
	_, b.local = s.(*Memory)
	b.pushes = merge.Merger[[]Arrival, []Answer]{Call: b.mergedPush, Orphan: b.orphan, Timeout: o.StoreTimeout}
	b.settler = work.Settler[Settlement]{Send: b.send, Final: final, Timeout: o.StoreTimeout, Direct: b.local}
	return b, nil
}

// With returns a view of the buffer on another store, which is bound to a
// transaction of the caller: store.Tx(tx). What the view pushes is part of the
// transaction, so a message can be stored in the step that numbers it. There is no
// merging, and OnUnavailable is not asked. It shares options, counters and hooks,
// which therefore also count what is rolled back; like the transaction, it is for
// one goroutine. Call [Buffer.Wake] after the commit, or let the workers find the
// messages when they next look.
func (b *Buffer) With(s Store) *Buffer {
	if isNil(s) {
		s = noStore{}
	}
	return &Buffer{core: b.core, store: s, bound: true}
}

// Wake makes the workers of this buffer look for work at once. [Buffer.Push] does
// so by itself, except in a transaction.
func (b *Buffer) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.loops {
		l.Wake()
	}
}

// core is what a buffer and its views share.
type core struct {
	opts    Options
	local   bool // the store is a Memory: no I/O to join, to repeat or to time out
	counts  counts
	pushes  merge.Merger[[]Arrival, []Answer]
	settler work.Settler[Settlement]
	outage  outage

	mu    sync.Mutex
	loops map[waker]struct{}
}

// A waker is a loop of Run, whatever its type.
type waker interface{ Wake() }

func (c *core) params() Params {
	o := &c.opts
	return Params{
		Scope: o.Scope, Start: o.Start, Window: o.Window, MaxBuffered: o.MaxBuffered, MaxAhead: o.MaxAhead,
		Abandon: o.OldEpoch == Abandon, Late: o.OnLate != nil, GapLook: o.firstLook(), KeepBody: o.KeepBody, KeepGaps: o.KeepGaps,
	}
}

func (c *core) enlist(l waker, in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in {
		c.loops[l] = struct{}{}
	} else {
		delete(c.loops, l)
	}
}

func (c *core) warn(ctx context.Context, msg string, args ...any) {
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "order: "+msg, append([]any{"scope", c.opts.Scope}, args...)...)
	}
}
