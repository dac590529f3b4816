// Package dlq keeps the messages that could not be processed, with why, until
// something has become of each: it tries them again on a durable schedule, in a
// sandbox, and puts what still fails before a person. A message that is kept here is a
// letter; letters belong to a stream, which is what works them.
//
// # Guarantee
//
// A letter that [Queue.Put] has answered is stored, as durably as the store is, and
// stays until a handler has succeeded or a person has ended it; then it is kept for
// Options.Retention. Nothing is deleted to make room: a full stream refuses
// ([ErrFull]), and the message is still the caller's. What failed is kept word for
// word the first time and the last times, and counted by kind in between.
//
// The letters of an ordering key are worked one at a time and in the order in which
// they were put, across any number of processes: what follows waits behind the first,
// whether that waits for its time or for a person ([Queue.Park] for messages that have
// not failed). A person may skip one, which is recorded.
//
// Retries come 5, 10, 15 and 25 minutes after each other, unless the options say
// otherwise, and are counted before the handler runs, so that a letter which kills its
// process is counted too. When the failures of retries exceed Options.MaxFailures,
// three, a letter goes to review; the failure that made the letter does not count.
//
// What persons do goes through a [Review], which asks the application's Authorize
// function first and appends to an audit that nothing changes.
//
// # Not guaranteed
//
// A handler may run more than once for a letter: after a crash, after a lost lease,
// when a message is delivered again. Retries keep the original ID, so guard effects
// with it ([github.com/pawl-go/pawl/dedup]). Options.Pin keeps the guard's record
// while the letter is unresolved; without it a redrive after the guard's retention is
// a new message to the guard.
//
// The order of a key holds among letters. That nothing of the key overtakes them in
// the normal flow is the caller's to see to: Park first what may be blocked. A letter
// that a person skips is out of order, since that is what skipping means.
//
// A handler that ignores the end of its context is not stopped: it holds its place and
// its key until it returns. Neither is one whose letter a person has changed meanwhile:
// what comes of it is not recorded.
//
// Retries are for what heals by itself or was mended. What the letters say of errors is
// bounded and safe to store whatever an error does, except that its Error method has
// to return; it is not free of personal data if the errors are not.
//
// # Which function
//
//   - [Queue.Put] when a message has failed for good, with the last error. When it
//     returns nil, acknowledge the message.
//   - [Queue.Park] before working a message that has an ordering key: it may be blocked.
//   - [Queue.Run] in at least one process for each stream: it retries the letters, drives
//     the redrive jobs, renews the pins. With RunOptions.Return it puts them back into
//     the normal flow instead of working them.
//   - A [Review], or its [Handler] over HTTP, for persons: list, group, reveal, edit,
//     approve, reject, discard, skip, forget, redrive in a canary and a ramp, audit.
//   - [Queue.DryRun] to see what would become of a letter.
//   - Sweep of the store now and then (see [Sweeper]), which removes what the
//     retentions have left behind.
//
// Watch Totals.Oldest and Totals.Review ([Queue.Totals]), and Stats.Refused: letters
// that there was no room for. A store of this package may be set up so that it can lose
// letters; its Check says so.
package dlq

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
	"github.com/pawl-go/pawl/internal/seal"
	"github.com/pawl-go/pawl/internal/work"
	"github.com/pawl-go/pawl/retry"
)

// A Queue keeps dead letters. Its methods are safe for concurrent use. Concurrent
// calls of Put are joined into one commit; none waits for company.
type Queue struct {
	*core
	store Store
	bound bool // to the caller's transaction
}

// Options set up a [Queue]. The zero value of each field is a working default.
type Options struct {
	// Retention is how long a letter is kept after it ended, and a job: at least that
	// long, and until the next Sweep of the store. Zero means 90 days.
	Retention time.Duration

	// AuditRetention is the same for entries of the audit, from when they were written.
	// Zero means 400 days.
	AuditRetention time.Duration

	// Capacity is how many unresolved letters a stream may have. Zero means 1,000,000.
	Capacity int

	// MaxPayload is the length in bytes of the longest payload; a longer one is refused
	// with a [*SizeError]. Zero means 1 MiB; the most is 16 MiB.
	MaxPayload int

	// Backoff is the time before each retry: Delay(1) after the letter was put, Delay(2)
	// after the first retry has failed. Zero means retry.Fibonacci(5 min, 10 min): 5,
	// 10, 15, 25, 40 minutes.
	Backoff retry.Backoff

	// Spread lengthens each delay by up to so many percent, as the letter's ID decides:
	// letters that failed together do not come back together, and the schedule of a
	// letter can be computed again. Zero means 10; less than zero, none.
	Spread int

	// MaxFailures is how many retries may fail: the letter goes to review when failures
	// exceed it, with the default of 3 when the fourth retry fails. Tries that a crash
	// interrupted count. Zero means 3; less than zero sends the first failed retry to
	// review.
	MaxFailures int

	// Handler and Version are kept with each attempt: what tried, and which deployment;
	// at most 128 bytes each.
	Handler, Version string

	// Fingerprint names the kind of a failure; errors with the same name are in one
	// group. It gets nil when a letter was put without error. Empty, or nil, or a panic:
	// the types of the error's chain, the function that panicked, and the text without
	// words that have digits and without what stands in quotes.
	Fingerprint func(err error) string

	// Pin makes the guard of an effect remember an ID for longer: it is called when a
	// letter was put, and again every PinEvery by [Queue.Run] while the letter is
	// unresolved, also from several processes. Make it keep the record for more than two
	// PinEvery:
	//
	//	func(ctx context.Context, _, id string) error { return guard.Retain(ctx, 72*time.Hour, id) }
	//
	// A guard that does not know the ID, because the effect has not happened, has nothing
	// to keep, and a redrive rightly has the effect. When Pin fails, it is called again at
	// the next round. Nil: nothing is pinned.
	Pin func(ctx context.Context, stream, id string) error

	// Unpin is called when a letter has ended. It may be missed, by a crash, or fail;
	// let pins end by themselves. Nil: nothing is called.
	Unpin func(ctx context.Context, stream, id string) error

	// PinEvery is the time between rounds of pinning. Zero means 24 hours.
	PinEvery time.Duration

	// Keys seal payloads and headers before the store sees them, with AES-256-GCM under
	// a subkey of each letter, bound to its stream and ID. The first key seals, all of
	// them open, at most 16; the last also makes the digests. To rotate, put a new key
	// in front and leave the old ones until nothing is sealed with them. Not sealed are
	// IDs, keys, and the texts and stacks of errors. Empty: nothing is sealed.
	Keys []Key

	// Trace carries the trace context of a message to its retries. Nil: none is.
	Trace *Trace

	// StoreTimeout bounds a step, which is tried again until then. Zero means 5 seconds.
	StoreTimeout time.Duration

	// Logger receives what an operator should look at: a letter in review, a refused
	// one, a lost lease, a job that was paused. IDs are logged as short hashes; payloads,
	// headers and the texts of errors are not logged. Nil: nothing is logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// Trace carries a trace context in the headers of a letter. Neither function may
// block; one that panics is logged, and the letter goes without.
type Trace struct {
	// Inject sets headers from ctx, which is that of Put or Park. It gets a copy.
	Inject func(ctx context.Context, headers map[string]string)
	// Extract returns ctx with the trace context of the headers, for the handler and for
	// RunOptions.Return.
	Extract func(ctx context.Context, headers map[string]string) context.Context
}

// New returns a queue over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range. It does no I/O and
// starts no goroutine.
func New(s Store, opts *Options) (*Queue, error) {
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
	q := &Queue{core: &core{opts: o, ring: ring, loops: map[*loop]struct{}{}, nudges: map[chan struct{}]struct{}{}}, store: s}
	_, q.local = s.(*Memory)
	width := merge.WidthOf(s)
	q.puts = merge.Merger[[]Put, []Answer]{Call: q.mergedPut, Timeout: o.StoreTimeout, Max: 64, Width: width}
	q.settler = work.Settler[Settlement]{Send: q.send, Final: final, Timeout: o.StoreTimeout, Direct: q.local, Width: width}
	return q, nil
}

// With returns a view of the queue on another store, which is bound to a transaction
// of the caller: store.Tx(tx). What the view puts is part of the transaction. It
// shares options, counters and hooks; like the transaction, it is for one goroutine.
// Pin is called by the view before the commit: one that rolls back leaves a pin, which
// ends by itself.
func (q *Queue) With(s Store) *Queue {
	return &Queue{core: q.core, store: s, bound: true}
}

// Wake makes the workers of this queue look for work at once.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := range q.loops {
		l.Wake()
	}
}

type loop = work.Loop[Claim]

// core is what a queue and its views share.
type core struct {
	opts    Options
	ring    *seal.Ring // nil: bodies are not sealed
	local   bool       // the store is a Memory: no I/O to join, to repeat or to time out
	counts  tallies
	puts    merge.Merger[[]Put, []Answer]
	settler work.Settler[Settlement]

	mu     sync.Mutex
	loops  map[*loop]struct{}
	nudges map[chan struct{}]struct{} // of calls of Run
}

func (c *core) params() Params {
	return Params{Retention: c.opts.Retention, Audit: c.opts.AuditRetention, Capacity: c.opts.Capacity}
}

func (c *core) warn(ctx context.Context, msg string, args ...any) {
	if c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "dlq: "+msg, args...)
	}
}

// delay is the time before retry n of a letter.
func (c *core) delay(n int, id string) time.Duration {
	random := hash(id)
	d := c.opts.Backoff.Delay(n, random)
	if c.opts.Spread > 0 {
		most := float64(d) * float64(c.opts.Spread) / 100
		d += time.Duration(most * float64(random>>11) / (1 << 53))
	}
	return min(max(d, 0), MaxDuration)
}

const day = 24 * time.Hour

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Retention = or(c.Retention, 90*day)
	c.AuditRetention = or(c.AuditRetention, 400*day)
	c.Capacity = or(c.Capacity, 1_000_000)
	c.MaxPayload = or(c.MaxPayload, DefaultMaxPayload)
	c.Spread = max(or(c.Spread, 10), 0)
	c.MaxFailures = max(or(c.MaxFailures, 3), 0)
	c.PinEvery = or(c.PinEvery, day)
	c.StoreTimeout = or(c.StoreTimeout, 5*time.Second)
	if c.Backoff.IsZero() {
		c.Backoff = retry.Fibonacci(5*time.Minute, 10*time.Minute)
	}
	if err := c.Backoff.Validate(); err != nil {
		return c, invalid("%w", err)
	}
	for name, d := range map[string]time.Duration{"retention": c.Retention, "audit retention": c.AuditRetention, "time between pins": c.PinEvery} {
		if d < time.Millisecond || d > MaxDuration {
			return c, invalid("%s %v, not %v to %v", name, d, time.Millisecond, MaxDuration)
		}
	}
	switch {
	case c.Capacity < 1:
		return c, invalid("capacity %d", c.Capacity)
	case c.MaxPayload < 0 || c.MaxPayload > maxMaxPayload:
		return c, invalid("payloads of %d bytes, at most %d", c.MaxPayload, maxMaxPayload)
	case c.Spread > 100:
		return c, invalid("spread of %d percent, at most 100", c.Spread)
	case c.StoreTimeout < 0:
		return c, invalid("store timeout %v", c.StoreTimeout)
	case len(c.Handler) > maxTextual || len(c.Version) > maxTextual || cut(c.Handler+c.Version, 2*maxTextual+1) != c.Handler+c.Version:
		return c, invalid("handler of %d or version of %d bytes, not at most %d bytes of UTF-8 without NUL", len(c.Handler), len(c.Version), maxTextual)
	}
	return c, nil
}
