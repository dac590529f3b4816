package dedup

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Failover is a [Store] that keeps refusing duplicates while its primary store
// is down, by asking a standby instead:
//
//  1. While the primary answers, all claims are its own. Completions are mirrored
//     to the standby behind the caller's back.
//  2. When the primary gives no answer twice in a row, the standby grants claims.
//     A duplicate of what was mirrored, of what this process completed, and of
//     what it is running is refused.
//  3. When the primary answers again, everything that this process completed
//     meanwhile is written back to it before it is trusted. What runs at a switch
//     ends with the store that granted it.
//
// What is refused during the outage depends on the standby. One that all
// processes share refuses every duplicate of what they have mirrored or completed
// since. A private one (a [Memory], a bbolt file) refuses what this process has
// seen; two processes may then each run the same ID once. FailoverOptions.Shared
// says which it is, and Stats repeats it.
//
// What is not guaranteed: during a partition that only some processes see, and
// between the hand-backs of two processes, an ID may be granted twice, as may one
// that runs under the standby's grant at the hand-back and is delivered to
// another process; FailoverStats.Twice counts those that a hand-back meets. A
// process that dies in an outage takes with it what it had not written back: call
// HandBack before a planned end. An ID that was held by hand (c.Hold) is known to
// the primary alone, and may run in an outage. The tokens of the two stores come
// from two clocks, so they are sure to rise only between claims of one store.
//
// Guards under the policy [Hold] are never served by a standby: they fail as long
// as the primary does. Held lists the primary's. Forget erases in both stores, and
// Retain retains in both; if the primary is down they do so at the standby and fail.
//
// What is due is done at the occasion of a call, and by [Failover.Run] also when
// there are none. It is safe for concurrent use.
type Failover struct {
	primary, standby Store
	opts             FailoverOptions

	telling sync.Mutex // held while a store is told of completions, and while an ID is erased

	mu       sync.Mutex
	down     bool
	since    time.Time     // of the last transition
	failures int           // of the primary, in a row
	probe    probe         // what failed last
	tried    time.Time     // the last attempt to hand back
	deaf     time.Time     // when the standby failed to be told
	busy     bool          // catchUp is under way
	asking   map[asked]int // asks that have no answer yet
	grants   map[owned]grant
	learnt   map[owned]*completion // to be told to the primary
	mirrors  map[owned]*completion // to be told to the standby
	stats    FailoverStats
}

// FailoverOptions set up a [Failover].
type FailoverOptions struct {
	// Shared states that all processes use the same standby. It changes nothing but
	// what Stats reports.
	Shared bool

	// Timeout is how long the primary may take for a step before it counts as not
	// answering. Zero means 2 seconds.
	Timeout time.Duration

	// RetryEvery is how often the primary is tried again during an outage. Zero
	// means one second.
	RetryEvery time.Duration

	// Limit is how many completions are remembered for writing back, and how many
	// wait to be mirrored. At the limit an outage's claims fail with ErrFull,
	// because they could not be handed back, and mirroring skips. Zero means
	// 100,000; each takes about 300 bytes and its result.
	Limit int

	// OnTransition is called at every switch, with whether the standby is now in
	// charge and the error that caused it; nil error when the primary is back. It
	// must not block; calls of two quick switches may come in either order.
	OnTransition func(down bool, cause error)
}

// FailoverStats are what a [Failover] has counted since it was made, and what it
// holds now.
type FailoverStats struct {
	Down   bool
	Since  time.Time // of the last transition; zero if none
	Shared bool

	Failovers   uint64 // transitions to the standby
	HandBacks   uint64 // transitions to the primary
	Granted     uint64 // claims granted by the standby
	Mirrored    uint64 // completions told to the standby
	Unmirrored  uint64 // completions that it was not told, for want of room
	WrittenBack uint64 // completions told to the primary
	Twice       uint64 // IDs that another had completed at the primary by then
	Conflicts   uint64 // IDs that had another fingerprint there

	Running   int // claims that are not settled yet
	Unwritten int // completions not yet written back
	Waiting   int // completions not yet mirrored
}

// NewFailover returns a store over two. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on a negative option.
func NewFailover(primary, standby Store, opts *FailoverOptions) (*Failover, error) {
	if isNil(primary) || isNil(standby) {
		return nil, invalid("failover needs a primary and a standby store")
	}
	var o FailoverOptions
	if opts != nil {
		o = *opts
	}
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.RetryEvery = cmp.Or(o.RetryEvery, time.Second)
	o.Limit = cmp.Or(o.Limit, 100_000)
	if o.Timeout < 0 || o.RetryEvery < 0 || o.Limit < 0 {
		return nil, invalid("negative failover option")
	}
	return &Failover{primary: primary, standby: standby, opts: o, asking: make(map[asked]int),
		grants: make(map[owned]grant), learnt: make(map[owned]*completion), mirrors: make(map[owned]*completion)}, nil
}

// Run does what is due until ctx ends, and returns nil then. Without it, what is
// due waits for the next call.
func (f *Failover) Run(ctx context.Context) error {
	for pause(ctx, f.opts.RetryEvery) == nil {
		if f.begin() {
			f.catchUp()
		}
	}
	return nil
}

// HandBack tells both stores now what they do not know yet. The error says what
// is left: some completions could not be told, and die with this process.
func (f *Failover) HandBack(ctx context.Context) error {
	f.handBack(ctx)
	for left := f.Stats().Waiting; left > 0; {
		f.mirror(ctx)
		before := left
		if left = f.Stats().Waiting; left >= before {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down || len(f.learnt)+len(f.mirrors) > 0 {
		return fmt.Errorf("%w: %d completions are not written back and %d not mirrored", ErrUnavailable, len(f.learnt), len(f.mirrors))
	}
	return nil
}

// Stats returns a snapshot.
func (f *Failover) Stats() FailoverStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Down, s.Since, s.Shared = f.down, f.since, f.opts.Shared
	s.Running, s.Unwritten, s.Waiting = len(f.grants), len(f.learnt), len(f.mirrors)
	return s
}

type owned struct{ scope, id string }

// An asked ID is one that a store may be about to grant.
type asked struct {
	owned
	standby bool
}

// A grant is a claim that was not settled yet.
type grant struct {
	token       uint64
	nonce       [16]byte
	fingerprint [32]byte
	attempt     int
	standby     bool
	until       time.Time
}

// A completion is an effect that has happened and that a store does not know of.
type completion struct {
	params      Params
	fingerprint [32]byte
	result      []byte
	token       uint64   // under which it was completed
	primary     bool     // the token is of a claim of the primary
	nonce       [16]byte // of the ask that tells it, so that it can be sent twice
}

// A probe is a step that changes nothing, where the primary failed last.
type probe struct {
	params Params
	id     string
}

// fail counts a step that the primary gave no answer to. After two in a row the
// standby is in charge.
func (f *Failover) fail(p Params, id string, cause error) {
	f.mu.Lock()
	f.failures++
	f.probe = probe{p, id}
	switched := f.failures >= 2 && !f.down
	if switched {
		f.down, f.since, f.tried = true, time.Now(), time.Now()
		f.stats.Failovers++
	}
	f.mu.Unlock()
	if switched && f.opts.OnTransition != nil {
		f.opts.OnTransition(true, cause)
	}
}

func (f *Failover) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = 0
}
