package watchdog

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// ReporterOptions set up a [Reporter]. Name has to be set; the zero value of each
// other field is a working default.
type ReporterOptions struct {
	// Scope separates workers: a watchdog watches one scope. It matches
	// [A-Za-z0-9._-]{1,64}. Empty means "default".
	Scope string
	// Name names the worker in its scope: 1 to 512 bytes of UTF-8 without NUL. Of two
	// workers with one name the older is fenced.
	Name string
	// Interval is the time between two heartbeats. Zero means 15 s; it is 10 ms to one
	// hour.
	Interval time.Duration
	// Sample, if it is not nil, is asked before each heartbeat and takes the place of
	// [Reporter.At], [Reporter.Pending] and [Reporter.Say]. A Sample that takes longer
	// than a third of the interval, or panics, is reported as [Unknown], and does not
	// hold up the heartbeat.
	Sample func() Sample
	// MaxWorkers is how many workers the scope has at most; a new one above it is not
	// watched (ErrFull). Zero means 10,000, which is also the most.
	MaxWorkers int

	Logger *slog.Logger // nil: nothing is logged
	Hooks  *ReporterHooks
}

// A Sample is what a worker says of itself.
type Sample struct {
	State    State  // Unknown: Flowing if Pending is not zero or a handler runs, otherwise Idle
	Position uint64 // what it has worked up to
	Pending  uint64 // what waits for it
	Detail   string // for people; it is stored and shown, so no personal data. Cut to 256 bytes

	blind bool // nobody could say
}

// ReporterHooks are functions that a reporter calls from the goroutine of Run; they
// must not block. Each may be nil. Fields may be added.
type ReporterHooks struct {
	// Beaten is called when the store has taken a heartbeat.
	Beaten func(took time.Duration)
	// Failed is called when it has not.
	Failed func(err error)
	// Fenced is called once, when another instance has taken the name.
	Fenced func(err error)
}

// A Reporter sends the heartbeats of one worker. The worker's loops and handlers
// tell it what they do through methods that cost a few atomic operations, never wait
// and allocate nothing; one goroutine, that of [Reporter.Run], sends it every
// Interval. So a loop that hangs cannot hold up the heartbeat that says so.
//
// It is safe for concurrent use. Its durations are measured by the store between
// heartbeats: a wrong clock of the worker's machine changes nothing.
type Reporter struct {
	store Store
	o     ReporterOptions

	turns, position, pending atomic.Uint64
	said                     atomic.Pointer[saying]
	handlers                 slots

	running  atomic.Bool
	sampling atomic.Bool // a call of Sample has not returned
	token    atomic.Uint64
	counts   reporterCounts

	mu   sync.Mutex
	last time.Time // the last heartbeat that the store took
}

type saying struct {
	state  State
	detail string
}

// NewReporter returns a reporter for one worker. It does no I/O and starts nothing:
// see [Reporter.Run]. It fails on a nil store and on options outside their range.
func NewReporter(s Store, opts *ReporterOptions) (*Reporter, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	var o ReporterOptions
	if opts != nil {
		o = *opts
	}
	if o.Hooks != nil {
		hooks := *o.Hooks
		o.Hooks = &hooks
	}
	o.Scope = cmp.Or(o.Scope, DefaultScope)
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.MaxWorkers = cmp.Or(o.MaxWorkers, MaxWorkers)
	if err := validateName(o.Name); err != nil {
		return nil, err
	}
	switch {
	case !validScope(o.Scope):
		return nil, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(o.Scope))
	case o.Interval < 10*time.Millisecond || o.Interval > time.Hour:
		return nil, invalid("interval of %v, not 10 ms to 1 h", o.Interval)
	case o.MaxWorkers < 1 || o.MaxWorkers > MaxWorkers:
		return nil, invalid("%d workers at most, not 1 to %d", o.MaxWorkers, MaxWorkers)
	}
	return &Reporter{store: s, o: o}, nil
}

// Poll says that the worker's loop has turned. A loop that calls it calls it at
// least once an interval, also when there is nothing to do; one that never calls it
// is not watched for turning.
func (r *Reporter) Poll() { r.turns.Add(1) }

// At says what the worker has worked up to: an offset, or a count. It is compared
// for equality only, so it may go back. Above 2^63-1 it wraps.
func (r *Reporter) At(position uint64) { r.position.Store(position & MaxNumber) }

// Advance adds to the position, for workers that count.
func (r *Reporter) Advance(n uint64) { r.position.Add(n) }

// Pending says how much waits for the worker. While it is not zero, or a handler
// runs, the worker is expected to make progress.
func (r *Reporter) Pending(n uint64) { r.pending.Store(min(n, MaxNumber)) }

// Say says what the worker is doing, until it says something else: WaitingGap,
// Parked, LeaseLost, or Idle and Flowing. [Unknown] leaves it to the reporter: Flowing
// while something is pending or a handler runs, and Idle otherwise. The detail is for
// people, is stored and shown, and must hold no personal data; it is cut to 256
// bytes. Other states are taken as Unknown.
func (r *Reporter) Say(s State, detail string) {
	r.said.Store(&saying{s, cut(detail)})
}

// Begin says that a handler begins, and End, with what Begin returned, that it has
// ended. More than 256 handlers at a time are counted and not timed.
func (r *Reporter) Begin() Handler { return r.handlers.begin() }

// End says that a handler has ended.
func (r *Reporter) End(h Handler) { r.handlers.end(h) }

// Around wraps a handler of one message, such as that of order.Buffer.Run: it says
// when the handler begins and ends, and counts one position for each call that
// returns nil.
func Around[M any](r *Reporter, handle func(context.Context, M) error) func(context.Context, M) error {
	return func(ctx context.Context, m M) error {
		h := r.Begin()
		defer r.End(h)
		err := handle(ctx, m)
		if err == nil {
			r.Advance(1)
		}
		return err
	}
}

// AroundValue wraps a handler whose answer is a value, such as that of
// inbox.Box.Work: it says when the handler begins and ends, and counts one position
// for each answer that progress reports as such. A nil progress counts every call.
//
//	err = box.Work(ctx, watchdog.AroundValue(reporter, handle,
//		func(o inbox.Outcome) bool { return o.Err() == nil }), nil)
func AroundValue[M, O any](r *Reporter, handle func(context.Context, M) O, progress func(O) bool) func(context.Context, M) O {
	return func(ctx context.Context, m M) O {
		h := r.Begin()
		defer r.End(h)
		o := handle(ctx, m)
		if progress == nil || progress(o) {
			r.Advance(1)
		}
		return o
	}
}

// Token returns the fencing token of the running instance, which rises with every
// instance of the name, or zero before the first heartbeat was taken.
func (r *Reporter) Token() uint64 { return r.token.Load() }

// sample is what the next beat says, without asking the Sample of the options.
func (r *Reporter) sample() Sample {
	s := Sample{Position: r.position.Load() & MaxNumber, Pending: r.pending.Load()}
	if said := r.said.Load(); said != nil {
		s.State, s.Detail = said.state, said.detail
	}
	return s
}

// beat fills in what a sample says.
func (s *Sample) beat(b *Beat, oldest uint64) {
	b.Position, b.Pending, b.Detail, b.Handler = s.Position&MaxNumber, min(s.Pending, MaxNumber), cut(s.Detail), oldest
	b.State = s.State
	switch {
	case s.blind:
		b.State = Unknown
	case s.State == Idle, s.State == Flowing, s.State == WaitingGap, s.State == Parked, s.State == LeaseLost:
	default:
		if b.State = Idle; b.Pending > 0 || oldest > 0 {
			b.State = Flowing
		}
	}
	b.Busy = !b.State.excused() && (b.Pending > 0 || oldest > 0)
}

// cut makes a detail what a store takes.
func cut(detail string) string {
	clean := make([]byte, 0, min(len(detail), MaxDetail))
	for _, c := range detail {
		if c < ' ' || c == 0x7f {
			c = ' '
		}
		if len(clean)+utf8.RuneLen(c) > MaxDetail {
			break
		}
		clean = utf8.AppendRune(clean, c)
	}
	return string(clean)
}

func isNil(s Store) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
