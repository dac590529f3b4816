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

	// Refused is called for every delivery that was answered with 503, since the
	// store did not take it; the provider sends it again.
	Refused func(ctx context.Context, provider string, err error)

	// Worked is called when a handler has returned and its outcome is settled, with
	// the time the handler took, and the error if the settlement was not applied.
	Worked func(ctx context.Context, r Record, o Outcome, took time.Duration, err error)

	// LeaseLost is called when a running handler is cancelled because the lease of
	// its key was lost.
	LeaseLost func(c Claim, cause error)
}

// Stats are what a box and its views have counted since New.
type Stats struct {
	// Arrivals by answer.
	Accepted, Duplicates, Conflicts, Quarantined uint64
	// Rejected are deliveries that were not accepted, by reason. Refused are those
	// that the store did not take.
	Rejected map[Reason]uint64
	Refused  uint64
	// Handler runs by outcome, as far as they were settled. A failed run that was
	// the last attempt counts as Dead, whatever its outcome.
	Done, Retried, Dead, GivenToQuarantine uint64
	// Panics are handler runs that panicked; they are counted by outcome, too.
	Panics uint64
	// Stale counts settlements that came too late, LeasesLost handlers that were
	// cancelled, Errors steps that the store gave no answer to.
	Stale, LeasesLost, Errors uint64
	// Running is the number of keys that are being worked by this box.
	Running int
	// LongestWait is the longest time between the acceptance of an event and its
	// first attempt.
	LongestWait time.Duration
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
		Done: n.settled[KindDone].Load(), Retried: n.settled[KindRetry].Load(),
		Dead: n.settled[KindDead].Load(), GivenToQuarantine: n.settled[KindQuarantine].Load(),
		Panics: n.panics.Load(), Stale: n.stale.Load(), LeasesLost: n.leasesLost.Load(), Errors: n.errors.Load(),
		Running: int(n.running.Load()), LongestWait: time.Duration(n.wait.Load()),
	}
}

// maxReasons is how many reasons are counted apart.
const maxReasons = 64

type counts struct {
	answers           [Quarantined + 1]atomic.Uint64
	settled           [KindExtend + 1]atomic.Uint64
	refused, panics   atomic.Uint64
	stale, leasesLost atomic.Uint64
	errors            atomic.Uint64
	running, wait     atomic.Int64

	mu       sync.Mutex
	rejected map[Reason]uint64 // reasons are a bounded set
}

// orphan counts what was stored for a caller that gave up.
func (b *Box) orphan(arrivals []Arrival, answers []Answer, err error) {
	if err == nil {
		b.accepted(arrivals, answers)
	}
}

// accepted counts the answers to arrivals, and wakes the workers.
func (b *Box) accepted(arrivals []Arrival, answers []Answer) {
	fresh := false
	for i, a := range answers {
		b.counts.answers[a].Add(1)
		e := &arrivals[i].Event
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

func (b *Box) refused(ctx context.Context, provider string, err error) {
	b.counts.refused.Add(1)
	b.warn(ctx, "a delivery could not be stored and is refused; the provider sends it again", "provider", provider, "error", err)
	if h := b.opts.Hooks; h != nil && h.Refused != nil {
		h.Refused(ctx, provider, err)
	}
}

// worked counts a handler run and the fate of its settlement.
func (b *Box) worked(ctx context.Context, r Record, o Outcome, s Settlement, took time.Duration, err error) {
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
	if err == nil && (s.Kind == KindDead || s.Kind == KindQuarantine) {
		b.warn(ctx, "an event was given up on; its record has the reason",
			"provider", r.Provider, "type", r.Type, "id", short(r.ID), "outcome", o.String(), "attempts", r.Attempts)
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
	if r.Attempts != 1 {
		return
	}
	for old := b.counts.wait.Load(); int64(r.Age) > old; old = b.counts.wait.Load() {
		if b.counts.wait.CompareAndSwap(old, int64(r.Age)) {
			return
		}
	}
}
