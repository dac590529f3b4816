package inbox

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are functions that a box calls at the events they name, on the goroutine
// at which it happens and outside of its locks; they must not block, and must not
// panic: some run on goroutines of the box's, where that ends the process. Each may
// be nil. Events hold IDs and payloads, which are personal data: see what you log.
// Fields may be added.
type Hooks struct {
	// Accepted is called for every event that was answered, and for every body that
	// was put into quarantine, whose type is "raw".
	Accepted func(e Event, a Answer)

	// Rejected is called for every delivery that was not accepted.
	Rejected func(ctx context.Context, provider string, r Reason)

	// Refused is called for every delivery that was answered with 503, since the store
	// did not take it or HandlerOptions.Refuse said so; the provider sends it again.
	Refused func(ctx context.Context, provider string, err error)

	// Answered is called for every request to a [Handler] when it has been answered,
	// with the status and the time since its headers were read. That of a delivery
	// that was stored, 200, is the latency of acknowledgement.
	Answered func(ctx context.Context, provider string, status int, took time.Duration)

	// Worked is called when a handler has returned and its outcome is settled, with
	// the time the handler took, and the error if the settlement was not applied. If it
	// was, the record has the state in which it is now, which is StateDead also when
	// the last attempt has failed, and the failures up to this one.
	Worked func(ctx context.Context, r Record, o Outcome, took time.Duration, err error)

	// Acted is called for what an [Operator] was asked to do: with who did it and nil,
	// or the error. It is [ErrUnauthorized], and there is no actor, if it was refused.
	Acted func(ctx context.Context, i Intent, actor string, err error)

	// LeaseLost is called when a running handler is cancelled because the lease of
	// its key was lost.
	LeaseLost func(c Claim, cause error)
}

// Stats are what a box and its views have counted since New.
type Stats struct {
	// Arrivals by answer.
	Accepted, Duplicates, Conflicts, Quarantined uint64
	// Rejected are deliveries that were not accepted, by reason. Refused are those
	// that the store or HandlerOptions.Refuse did not take. Acknowledged are those that
	// were stored and answered with success, LongestAnswer the longest time this took.
	Rejected      map[Reason]uint64
	Refused       uint64
	Acknowledged  uint64
	LongestAnswer time.Duration
	// Handler runs by outcome, as far as they were settled. A failed run that was
	// the last attempt counts as Dead, whatever its outcome.
	Done, Retried, Dead, GivenToQuarantine, Unknown uint64
	// Panics are handler runs that panicked; they are counted by outcome, too.
	Panics uint64
	// DeadLettersFailed counts the events that were not given up, since
	// WorkOptions.DeadLetter failed, Unopened the bodies that could not be had. Both
	// are tried again.
	DeadLettersFailed, Unopened uint64
	// Actions counts what operators did, Unauthorized what they were refused.
	Actions, Unauthorized uint64
	// Stale counts settlements that came too late, LeasesLost handlers that were
	// cancelled, Errors steps that the store gave no answer to.
	Stale, LeasesLost, Errors uint64
	// Running is the number of keys that are being worked by this box.
	Running int
	// LongestWait is the longest time between the acceptance of an event and its
	// first attempt, LongestRun the longest time that a handler took.
	LongestWait, LongestRun time.Duration
}

// Stats returns a snapshot.
func (b *Box) Stats() Stats {
	n := &b.counts
	n.mu.Lock()
	rejected := maps.Clone(n.rejected)
	n.mu.Unlock()
	return Stats{
		Accepted: n.answers[Accepted].Load(), Duplicates: n.answers[Duplicate].Load(),
		Conflicts: n.answers[Conflict].Load(), Quarantined: n.answers[Quarantined].Load(),
		Rejected: rejected, Refused: n.refused.Load(),
		Acknowledged: n.acknowledged.Load(), LongestAnswer: n.longestAnswer.load(),
		Done: n.settled[KindDone].Load(), Retried: n.settled[KindRetry].Load(),
		Dead: n.settled[KindDead].Load(), GivenToQuarantine: n.settled[KindQuarantine].Load(),
		Unknown:           n.settled[KindUnknown].Load(),
		DeadLettersFailed: n.deadLetters.Load(), Unopened: n.unopened.Load(),
		Actions: n.actions.Load(), Unauthorized: n.unauthorized.Load(),
		Panics: n.panics.Load(), Stale: n.stale.Load(), LeasesLost: n.leasesLost.Load(), Errors: n.errors.Load(),
		Running: int(n.running.Load()), LongestWait: n.longestWait.load(), LongestRun: n.longestRun.load(),
	}
}

// maxReasons is how many reasons are counted apart.
const maxReasons = 64

type counts struct {
	answers                 [Quarantined + 1]atomic.Uint64
	settled                 [KindUnknown + 1]atomic.Uint64
	refused, panics         atomic.Uint64
	stale, leasesLost       atomic.Uint64
	errors                  atomic.Uint64
	acknowledged            atomic.Uint64
	deadLetters, unopened   atomic.Uint64
	actions, unauthorized   atomic.Uint64
	running                 atomic.Int64
	longestWait, longestRun longest
	longestAnswer           longest

	mu       sync.Mutex
	rejected map[Reason]uint64 // reasons are a bounded set
}

// longest is the greatest of the durations that were noted.
type longest struct{ n atomic.Int64 }

func (l *longest) load() time.Duration { return time.Duration(l.n.Load()) }

func (l *longest) note(d time.Duration) {
	for old := l.n.Load(); int64(d) > old; old = l.n.Load() {
		if l.n.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// orphan counts what was stored for a caller that gave up.
func (b *Box) orphan(in batch, answers []Answer, err error) {
	if err == nil {
		b.accepted(in, answers)
	}
}

// accepted counts the answers to arrivals, and wakes the workers.
func (b *Box) accepted(in batch, answers []Answer) {
	fresh := false
	for i, a := range answers {
		b.counts.answers[a].Add(1)
		e := &in.arrivals[i].Event
		if in.events != nil {
			e = &in.events[i]
		}
		switch a {
		case Accepted:
			fresh = true
		case Conflict:
			b.warn(context.Background(), "an event is known with another payload; both are kept, the second is not worked",
				"provider", e.Provider, "type", e.Type, "id", short(e.ID))
		case Quarantined:
			b.warn(context.Background(), "a body could not be decoded and is kept in quarantine",
				"provider", e.Provider, "bytes", len(e.Payload), "id", short(e.ID))
		}
		if h := b.opts.Hooks; h != nil && h.Accepted != nil {
			h.Accepted(*e, a)
		}
	}
	if fresh && !b.bound {
		b.Wake()
	}
}

func (b *Box) rejected(ctx context.Context, provider string, r Reason) {
	b.counts.mu.Lock()
	if _, known := b.counts.rejected[r]; !known && len(b.counts.rejected) >= maxReasons {
		r = BadBody // a source that makes up reasons does not fill the memory
	}
	b.counts.rejected[r]++
	b.counts.mu.Unlock()
	if h := b.opts.Hooks; h != nil && h.Rejected != nil {
		h.Rejected(ctx, provider, r)
	}
}

// answered counts the answer to a request.
func (b *Box) answered(ctx context.Context, provider string, status int, stored bool, took time.Duration) {
	if stored {
		b.counts.acknowledged.Add(1)
		b.counts.longestAnswer.note(took)
	}
	if h := b.opts.Hooks; h != nil && h.Answered != nil {
		h.Answered(ctx, provider, status, took)
	}
}

func (b *Box) refused(ctx context.Context, provider string, err error) {
	b.counts.refused.Add(1)
	b.warn(ctx, "a delivery could not be stored and is refused; the provider sends it again", "provider", provider, "error", err)
	if h := b.opts.Hooks; h != nil && h.Refused != nil {
		h.Refused(ctx, provider, err)
	}
}

// worked counts a handler run and the fate of its settlement.
func (b *Box) worked(ctx context.Context, r Record, o Outcome, s Settlement, took time.Duration, err error) {
	b.counts.longestRun.note(took)
	if state := s.Kind.state(); err == nil && state != 0 {
		r.State = state
	}
	if err == nil && s.Failures != nil {
		r.LastError, r.Failures = s.Error, s.Failures
	}
	switch {
	case err == nil:
		b.counts.settled[s.Kind].Add(1)
	case errors.Is(err, ErrStale):
		b.counts.stale.Add(1)
		b.warn(ctx, "a handler ran after the lease of its key was lost; the event may be worked more than once",
			"provider", r.Provider, "type", r.Type, "id", short(r.ID), "outcome", o.String())
	default:
		b.counts.errors.Add(1)
		b.warn(ctx, "a handler ran, but its outcome is not known to be recorded; the event may be worked more than once",
			"provider", r.Provider, "type", r.Type, "id", short(r.ID), "outcome", o.String(), "error", err)
	}
	switch {
	case err != nil:
	case s.Kind == KindDead || s.Kind == KindQuarantine:
		b.warn(ctx, "an event was given up on; its record has the reason",
			"provider", r.Provider, "type", r.Type, "id", short(r.ID), "outcome", o.String(), "attempts", r.Attempts)
	case s.Kind == KindUnknown:
		b.warn(ctx, "a handler could not tell whether the effect of an event happened; a person has to look",
			"provider", r.Provider, "type", r.Type, "id", short(r.ID), "attempts", r.Attempts)
	}
	if h := b.opts.Hooks; h != nil && h.Worked != nil {
		h.Worked(ctx, r, o, took, err)
	}
}

func (b *Box) leaseLost(c Claim, cause error) {
	b.counts.leasesLost.Add(1)
	b.warn(context.Background(), "the lease of a key was lost and its handler is cancelled", "stream", c.Stream, "key", short(c.Key), "error", cause)
	if h := b.opts.Hooks; h != nil && h.LeaseLost != nil {
		h.LeaseLost(c, cause)
	}
}

// waited notes how long an event waited for its first attempt.
func (b *Box) waited(r Record) {
	if r.Attempts == 1 {
		b.counts.longestWait.note(r.Age)
	}
}
