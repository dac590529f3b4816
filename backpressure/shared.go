package backpressure

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
)

// A Shared admits calls at one rate over many processes. Make it with [NewShared]. It
// is safe for concurrent use.
//
// Every decision is the store's, so the rate holds however unevenly the load lies on
// the processes. Concurrent calls share a round trip. Lines take each other's tokens
// as in a [Shaper], with the same words. What differs: callers that wait are served
// first come first served within a line of one process, and there is no ageing.
//
// A call whose answer is lost may have taken its tokens: they are not given back, so
// the rate is never exceeded by that.
type Shared struct {
	opts   SharedOptions
	lines  map[string]*SharedLine
	store  SharedStore
	local  *Shaper // of this process's share
	merger merge.Merger[Ask, Answer]
	counts SharedStats // by atomic additions

	mu       sync.Mutex
	failures int // calls of the store in a row that had no answer
	until    time.Time
	probing  bool
}

// A SharedStore keeps the tokens of the lines of one name.
type SharedStore interface {
	// Take decides on the asks in their order, each wholly or not at all, as one
	// atomic step, by the store's clock. Answers come one for each ask, in order. An
	// error means that nothing is known: some may have been taken.
	//
	// The lines are ordered by importance, the greatest first, and are the same in
	// all processes. A line that the store does not know has a full bucket. A line
	// short of tokens takes those of lesser lines, the last first, down to their
	// floors, and for a second after, lesser lines leave half of theirs to it.
	Take(ctx context.Context, lines []LineOptions, asks []Ask) ([]Answer, error)
}

// An Ask is for the tokens of one call.
type Ask struct {
	Line int // in lines
	Cost int // 1 to the line's burst
}

// An Answer is what a store says to an [Ask].
type Answer struct {
	Admit      bool
	Borrowed   bool          // from a lesser line
	RetryAfter time.Duration // until the line has the tokens by itself; zero if Admit
}

// OnDown is what a [Shared] does when its store gives no answer.
type OnDown uint8

const (
	// LocalShare admits in each process its share of the rate: Rate / Processes. It
	// begins with a full bucket of one second's share, or of one token where that is
	// less. A call that costs more than the bucket holds is refused with StoreDown.
	LocalShare OnDown = iota
	// Open admits everything.
	Open
	// Closed refuses everything, with StoreDown.
	Closed
)

// SharedOptions set up a [Shared].
type SharedOptions struct {
	// Lines are the lines of business, the same in all processes.
	Lines []LineOptions

	// OnDown is what to do when the store gives no answer. The zero value is
	// LocalShare.
	OnDown OnDown

	// Processes is how many processes share the rate, for LocalShare: at least one.
	// There is no default.
	Processes int

	// Timeout is how long the store has to answer. Zero means 250 ms.
	Timeout time.Duration

	// MaxWaiters is how many callers of a line may wait in this process. Zero means
	// 1,000.
	MaxWaiters int

	// Logger is told when the store is down and when it is back. Nil: nothing is
	// logged.
	Logger *slog.Logger
}

// NewShared returns a shaper over a store. It fails with an [*OptionError] on options
// outside their range. It does no I/O and starts no goroutine. The options are copied.
func NewShared(store SharedStore, opts *SharedOptions) (*Shared, error) {
	var o SharedOptions
	if opts != nil {
		o = *opts
	}
	o.Timeout = cmp.Or(o.Timeout, 250*time.Millisecond)
	o.MaxWaiters = cmp.Or(o.MaxWaiters, 1000)
	v := reflect.ValueOf(store)
	switch {
	case store == nil || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, badOption("shared", "store", "is nil")
	case o.OnDown > Closed:
		return nil, badOption("shared", "OnDown", "is %d", o.OnDown)
	case o.Processes < 0 || o.Processes < 1 && o.OnDown == LocalShare:
		return nil, badOption("shared", "Processes", "is %d: say how many share the rate", o.Processes)
	case o.Timeout < time.Millisecond:
		return nil, badOption("shared", "Timeout", "is %v, below a millisecond", o.Timeout)
	case o.MaxWaiters < 0:
		return nil, badOption("shared", "MaxWaiters", "is %d, below zero", o.MaxWaiters)
	}
	complete, err := (&ShaperOptions{Lines: o.Lines}).withDefaults()
	if err != nil {
		return nil, err
	}
	o.Lines = complete.Lines
	for _, l := range o.Lines {
		if l.Rate > maxSharedRate {
			return nil, badOption("line "+l.Name, "Rate", "is %v, above %v for a shared line", l.Rate, maxSharedRate)
		}
	}
	slices.SortStableFunc(o.Lines, func(a, b LineOptions) int { return cmp.Compare(b.Importance, a.Importance) })
	s := &Shared{opts: o, store: store, lines: make(map[string]*SharedLine)}
	for i, l := range o.Lines {
		s.lines[l.Name] = &SharedLine{s: s, place: i, opts: l}
	}
	if o.OnDown == LocalShare {
		if s.local, err = NewShaper(&ShaperOptions{Lines: localLines(o.Lines, o.Processes)}); err != nil {
			return nil, err
		}
	}
	s.merger = merge.Merger[Ask, Answer]{
		Call: func(ctx context.Context, asks []Ask, _ func(int) bool) ([]Answer, error) {
			return store.Take(ctx, o.Lines, asks)
		},
		Timeout: o.Timeout, Max: 256,
	}
	return s, nil
}

const maxSharedRate = 1e6

// localLines are the lines of one of n processes.
func localLines(lines []LineOptions, n int) []LineOptions {
	local := slices.Clone(lines)
	for i := range local {
		l := &local[i]
		l.Rate = max(l.Rate/float64(n), minRate)
		l.Floor = min(l.Floor/float64(n), l.Rate)
		l.Burst = max(min(int(math.Ceil(l.Rate)), l.Burst), 1)
		if l.Burst < 2 && l.Floor < l.Rate {
			l.Floor = 0
		}
	}
	return local
}

// Line returns the line of that name, or an [*UnknownError]. Ask once and keep it.
func (s *Shared) Line(name string) (*SharedLine, error) {
	l, ok := s.lines[name]
	if !ok {
		return nil, &UnknownError{"line", name}
	}
	return l, nil
}

// A SharedLine is one line of a [Shared].
type SharedLine struct {
	s     *Shared
	place int
	opts  LineOptions

	mu    sync.Mutex
	queue []chan struct{} // those that wait; the first asks
	full  atomic.Int64    // how many
}

// Allow asks for the tokens of a call of that cost, now. When it refuses, no token was
// taken, unless the reason is [StoreDown], [Expired] or [GivenUp]: then it is not
// known. While callers of the line wait in this process, it refuses.
func (l *SharedLine) Allow(ctx context.Context, cost int) Verdict {
	v := Verdict{Reason: CostInvalid}
	switch {
	case cost < 1 || cost > l.opts.Burst:
	case l.full.Load() > 0:
		v = Verdict{Reason: Queued, RetryAfter: time.Duration(float64(cost) / l.opts.Rate * 1e9)}
	default:
		v = l.ask(ctx, cost)
	}
	return l.counted(v)
}

// Wait waits for the tokens of a call of that cost, first come first served among the
// callers of the line in this process. It returns nil when the tokens were taken, and
// otherwise a [*RefusedError]: when ctx ends, when its deadline is certain to come
// first, when too many wait already, and when the store is down under [Closed].
func (l *SharedLine) Wait(ctx context.Context, cost int) error {
	return l.counted(l.await(ctx, cost)).Err()
}

func (l *SharedLine) await(ctx context.Context, cost int) Verdict {
	if cost < 1 || cost > l.opts.Burst {
		return Verdict{Reason: CostInvalid}
	}
	if l.full.Add(1) > int64(l.s.opts.MaxWaiters) {
		l.full.Add(-1)
		return Verdict{Reason: QueueFull}
	}
	defer l.full.Add(-1)
	turn := make(chan struct{})
	l.mu.Lock()
	l.queue = append(l.queue, turn)
	if len(l.queue) == 1 {
		close(turn)
	}
	l.mu.Unlock()
	defer l.next(turn)
	select {
	case <-turn:
	case <-ctx.Done():
		return ended(ctx)
	}
	for {
		v := l.ask(ctx, cost)
		if v.Admit || v.Reason != NoTokens {
			return v
		}
		wait := max(v.RetryAfter, time.Millisecond)
		if !fits(ctx, wait) {
			return Verdict{Reason: Expired, RetryAfter: wait}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ended(ctx)
		}
	}
}

// next takes a caller out of the queue, and lets the first of those left ask.
func (l *SharedLine) next(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, turn)
	l.queue = slices.Delete(l.queue, i, i+1)
	if i == 0 && len(l.queue) > 0 {
		close(l.queue[0])
	}
}
