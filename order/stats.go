package order

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Hooks are functions that a buffer calls at the events they name, on the
// goroutine at which it happens; they must not block, must not call the buffer, and
// must not panic: some run on goroutines of the buffer's, where that ends the
// process. Each may be nil. Messages hold keys and payloads, which are personal
// data: see what you log. Fields may be added.
type Hooks struct {
	// Pushed is called for every message that was answered, Unordered included.
	Pushed func(ctx context.Context, m Message, a Answer)

	// Delivered is called for every message whose delivery is recorded; m.Age is how
	// long it had waited when it was handed over.
	Delivered func(ctx context.Context, m Message)

	// Failed is called for every message, also late ones, whose handler failed, with
	// whether it is parked now.
	Failed func(ctx context.Context, m Message, err error, parked bool)

	// GapOpened is called when something is first done about a gap: not for one that
	// closes before. GapAlerted is called when it is time to tell somebody, GapAsked
	// after a re-send was asked for, GapSkipped when it was given up after its time.
	GapOpened  func(ctx context.Context, g Gap)
	GapAlerted func(ctx context.Context, g Gap)
	GapAsked   func(ctx context.Context, g Gap, err error)
	GapSkipped func(ctx context.Context, key string, epoch, from, to uint64)

	// Settled is called for every settlement that was sent, with what became of it:
	// nil, ErrStale or ErrNotFound, or another error when its fate is not known.
	// Renewals are not reported.
	Settled func(ctx context.Context, s Settlement, err error)

	// LeaseLost is called when a running handler is cancelled because the lease of
	// its key was lost.
	LeaseLost func(c Claim, cause error)

	// Unavailable is called when Options.OnUnavailable takes over and when the store
	// answers again.
	Unavailable func(down bool)
}

// Stats are what a buffer and its views have counted since New.
type Stats struct {
	// Messages pushed, by answer.
	Buffered, Duplicate, Conflict, Late, StaleEpoch, Full, TooFar, Unordered uint64
	// Delivered are messages whose delivery is recorded, LateDelivered late ones. Those
	// of an epoch that was abandoned meanwhile are not among them.
	Delivered, LateDelivered uint64
	// Failed are handler runs that failed, Panics those of them that panicked. Lost
	// are those of Failed whose message is not tried again, in AtMostOnce.
	Failed, Panics, Lost uint64
	// Retried, Parked and LateParked are settlements of failed messages; Resumed and
	// Dropped are what a person decided.
	Retried, Parked, LateParked, Resumed, Dropped uint64
	// Gaps: Opened, Alerted and Asked as in Hooks; Skipped are gaps, and
	// SkippedNumbers numbers (void ones not included), given up after their time;
	// Voided are void ranges that were noted, Resolved what a person decided.
	GapsOpened, GapsAlerted, GapsAsked, GapsSkipped, SkippedNumbers, Voided, GapsResolved uint64
	// Stale counts settlements that came too late, LeasesLost keys whose handlers
	// were cancelled, Errors steps that the store gave no answer to, Callbacks
	// failures of Voids and Resend, and of panics of any function of the options.
	Stale, LeasesLost, Errors, Callbacks uint64
	// Reported are deliveries outside of the buffer that the store was told of,
	// Unreported those that it is still to be told of, and Forgotten those that it
	// will not be told of: each will be a gap.
	Reported, Forgotten uint64
	Unreported          int
	// Running is the number of keys that this buffer works, Waiting the number of
	// calls of Push that wait for the store.
	Running, Waiting int
	// LongestWait is the longest time between the push of a message and its first
	// attempt.
	LongestWait time.Duration
}

// Stats returns a snapshot.
func (b *Buffer) Stats() Stats {
	n := &b.counts
	k := func(k Kind) uint64 { return n.settled[k].Load() }
	return Stats{
		Buffered: n.answers[Buffered].Load(), Duplicate: n.answers[Duplicate].Load(), Conflict: n.answers[Conflict].Load(),
		Late: n.answers[Late].Load(), StaleEpoch: n.answers[StaleEpoch].Load(), Full: n.answers[Full].Load(),
		TooFar: n.answers[TooFar].Load(), Unordered: n.answers[Unordered].Load(),
		Delivered: n.delivered.Load(), LateDelivered: k(KindLate),
		Failed: n.failed.Load(), Panics: n.panics.Load(), Lost: n.lost.Load(),
		Retried: k(KindRetry), Parked: k(KindPark), LateParked: k(KindLatePark), Resumed: k(KindResume), Dropped: k(KindDrop),
		GapsOpened: n.opened.Load(), GapsAlerted: n.alerted.Load(), GapsAsked: n.asked.Load(),
		GapsSkipped: k(KindSkip), SkippedNumbers: n.skipped.Load(), Voided: k(KindVoid), GapsResolved: k(KindResolve),
		Stale: n.stale.Load(), LeasesLost: n.leasesLost.Load(), Errors: n.errors.Load(), Callbacks: n.callbacks.Load(),
		Reported: k(KindUnordered), Forgotten: n.forgotten.Load(), Unreported: int(b.outage.count.Load()),
		Running: int(n.running.Load()), Waiting: b.pushes.Len(), LongestWait: time.Duration(n.wait.Load()),
	}
}

type counts struct {
	answers                      [Unordered + 1]atomic.Uint64
	settled                      [KindForget + 1]atomic.Uint64
	delivered, skipped           atomic.Uint64
	failed, panics, lost         atomic.Uint64
	opened, alerted, asked       atomic.Uint64
	stale, leasesLost            atomic.Uint64
	errors, callbacks, forgotten atomic.Uint64
	running, wait                atomic.Int64
}

// pushed counts an answer.
func (b *Buffer) pushed(ctx context.Context, m *Arrival, a *Answer) {
	b.counts.answers[min(a.State, Unordered)].Add(1)
	if a.State == Conflict {
		b.warn(ctx, "a number was pushed with another content; the first stays", "key", short(m.Key), "epoch", m.Position.Epoch, "number", m.Position.Number)
	}
	if h := b.opts.Hooks; h != nil && h.Pushed != nil {
		h.Pushed(ctx, m.Message, *a)
	}
}

// delivered counts messages whose delivery is recorded.
func (b *Buffer) delivered(ctx context.Context, ms []Message) {
	b.counts.delivered.Add(uint64(len(ms)))
	h := b.opts.Hooks
	var longest time.Duration
	for i := range ms {
		if ms[i].Attempt == 1 {
			longest = max(longest, ms[i].Age)
		}
		if h != nil && h.Delivered != nil {
			h.Delivered(ctx, ms[i])
		}
	}
	for old := b.counts.wait.Load(); int64(longest) > old; old = b.counts.wait.Load() {
		if b.counts.wait.CompareAndSwap(old, int64(longest)) {
			return
		}
	}
}

// failed counts a message whose handler failed.
func (b *Buffer) failed(ctx context.Context, m *Message, err error, parked bool) {
	b.counts.failed.Add(1)
	if parked {
		b.warn(ctx, "a message is parked; a person resumes or drops it", "key", short(m.Key), "epoch", m.Position.Epoch,
			"number", m.Position.Number, "attempt", m.Attempt, "late", m.Late)
	}
	if h := b.opts.Hooks; h != nil && h.Failed != nil {
		h.Failed(ctx, *m, err, parked)
	}
}

// failedOnce counts a message that is not tried again.
func (b *Buffer) failedOnce(ctx context.Context, m *Message, err error) {
	b.counts.lost.Add(1)
	b.warn(ctx, "a handler failed in the mode AtMostOnce; its message is not tried again", "key", short(m.Key),
		"epoch", m.Position.Epoch, "number", m.Position.Number)
	b.failed(ctx, m, err, false)
}

// settled counts the fate of a settlement.
func (b *Buffer) settled(ctx context.Context, s Settlement, err error) {
	switch {
	case err == nil:
		b.counts.settled[min(s.Kind, KindForget)].Add(1)
	case s.Kind == KindSkip && errors.Is(err, ErrStale):
		b.counts.stale.Add(1)
		b.warn(ctx, "a gap was not skipped, because something of it arrived or its key was lost", "key", short(s.Key), "epoch", s.Epoch, "from", s.From, "to", s.To)
	case errors.Is(err, ErrStale):
		b.counts.stale.Add(1)
		b.warn(ctx, "a worker had lost its key; what it did may be done again", "step", s.Kind.String(), "key", short(s.Key))
	case !final(err):
		b.counts.errors.Add(1)
		b.warn(ctx, "it is not known whether a step was recorded", "step", s.Kind.String(), "key", short(s.Key), "error", err)
	}
	if h := b.opts.Hooks; h != nil && h.Settled != nil {
		h.Settled(ctx, s, err)
	}
}

// skipped counts a gap that was given up, and its numbers but for the voids that
// were settled before, which are in ascending order.
func (b *Buffer) skipped(ctx context.Context, s Settlement, before []Settlement) {
	numbers, at := s.To-s.From, s.From
	for _, v := range before {
		if from, to := max(v.From, at), min(v.To, s.To); v.Kind == KindVoid && from < to {
			numbers, at = numbers-(to-from), to
		}
	}
	b.counts.skipped.Add(numbers)
	b.warn(ctx, "numbers did not come in time and are skipped; a person resolves the record", "key", short(s.Key), "epoch", s.Epoch, "from", s.From, "to", s.To)
	if h := b.opts.Hooks; h != nil && h.GapSkipped != nil {
		h.GapSkipped(ctx, s.Key, s.Epoch, s.From, s.To)
	}
}

// gapBegun counts a gap that nothing was done about before.
func (b *Buffer) gapBegun(ctx context.Context, g Gap) {
	if g.Alerted || g.Asked > 0 {
		return
	}
	b.counts.opened.Add(1)
	if h := b.opts.Hooks; h != nil && h.GapOpened != nil {
		h.GapOpened(ctx, g)
	}
}

func (b *Buffer) gapAlerted(ctx context.Context, g Gap) {
	b.gapBegun(ctx, g)
	b.counts.alerted.Add(1)
	b.warn(ctx, "numbers are missing and hold up their key", "key", short(g.Key), "epoch", g.Epoch, "from", g.From, "to", g.To, "age", g.Age)
	if h := b.opts.Hooks; h != nil && h.GapAlerted != nil {
		h.GapAlerted(ctx, g)
	}
}

func (b *Buffer) gapAsked(ctx context.Context, g Gap, err error) {
	b.gapBegun(ctx, g)
	b.counts.asked.Add(1)
	if h := b.opts.Hooks; h != nil && h.GapAsked != nil {
		h.GapAsked(ctx, g, err)
	}
}

func (b *Buffer) leaseLost(c Claim, cause error) {
	b.counts.leasesLost.Add(1)
	b.warn(context.Background(), "the lease of a key was lost and its handler is cancelled", "key", short(c.Key), "error", cause)
	if h := b.opts.Hooks; h != nil && h.LeaseLost != nil {
		h.LeaseLost(c, cause)
	}
}

// unavailableNow notes that the store stopped answering, or began again.
func (b *Buffer) unavailableNow(down bool) {
	if down {
		b.warn(context.Background(), "the store does not answer; messages are handed over without order")
	} else {
		b.warn(context.Background(), "the store answers again")
	}
	if h := b.opts.Hooks; h != nil && h.Unavailable != nil {
		h.Unavailable(down)
	}
}
