package reconcile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are called at the events they name, from the goroutines of callers and of Run,
// after the event. They must not block. Fields may be added. Keys are personal data: see
// what you log.
type Hooks struct {
	// Settled is called for every settlement that was sent, with what became of it: nil,
	// ErrStale, ErrEnded, or another error when its fate is not known. Renewals are not
	// reported. Result is left out.
	Settled func(ctx context.Context, account string, s Settlement, err error)
	// Outage is called when the remote has taken nothing and told nothing three times in a
	// row, whichever operations that was about, and when it answers again.
	Outage func(ctx context.Context, begun bool, lasted time.Duration)
	// LeaseLost is called when a running call was cancelled because its lease was lost.
	LeaseLost func(ctx context.Context, key string, cause error)
}

// Stats are what a ledger has counted since New; see [Ledger.Counts] for what its store
// keeps.
type Stats struct {
	// Sent counts calls, Resent those that were not the first of their operation, Probes the
	// questions to the remote.
	Sent, Resent, Probes uint64
	// Settlements that were applied, by what they led to. Reviews are those that wait for
	// a person, Deferred looks without news.
	Accepted, Confirmed, Failed, Unknown, Reviews, Deferred uint64
	// ResentConfirmed counts operations that were confirmed by a call that was not the
	// first: against Resent, how often sending again is of use.
	ResentConfirmed uint64
	// Receipts were applied; Strays are of no operation, as yet; Contradictions say
	// something else than what is recorded.
	Receipts, Strays, Contradictions uint64
	// Resolved counts the decisions of persons, Refused those that were not allowed.
	Resolved, Refused uint64
	// Stale counts settlements that came too late, LeasesLost calls that were cancelled,
	// Errors steps that the store gave no answer to.
	Stale, LeasesLost, Errors uint64
	// Unanswered counts calls and probes without answer; Streak are the last ones in a
	// row, and Outage is since when, if they are enough to call it one.
	Unanswered uint64
	Streak     int
	Outage     time.Duration
	// Waiting is the number of single calls that wait for the store.
	Waiting int
}

type counts struct {
	sent, resent, probes                    atomic.Uint64
	verbs                                   [VerbForget + 1]atomic.Uint64
	resentConfirmed, strays, contradictions atomic.Uint64
	refused                                 atomic.Uint64
	stale, leasesLost, errors, unanswered   atomic.Uint64
}

// Stats returns a snapshot.
func (l *Ledger) Stats() Stats {
	c := &l.counts
	streak, since := l.outage.now()
	return Stats{
		Sent: c.sent.Load(), Resent: c.resent.Load(), Probes: c.probes.Load(),
		Accepted: c.verbs[VerbAccept].Load(), Confirmed: c.verbs[VerbConfirm].Load(), Failed: c.verbs[VerbFail].Load(),
		Unknown: c.verbs[VerbDoubt].Load(), Reviews: c.verbs[VerbAsk].Load(), Deferred: c.verbs[VerbDefer].Load(),
		ResentConfirmed: c.resentConfirmed.Load(),
		Receipts:        c.verbs[VerbReceipt].Load(), Strays: c.strays.Load(), Contradictions: c.contradictions.Load(),
		Resolved: c.verbs[VerbResolve].Load(), Refused: c.refused.Load(),
		Stale: c.stale.Load(), LeasesLost: c.leasesLost.Load(), Errors: c.errors.Load(),
		Unanswered: c.unanswered.Load(), Streak: streak, Outage: since, Waiting: l.begins.Len(),
	}
}

// settled counts the fate of a settlement of a turn and tells of it.
func (l *Ledger) settled(ctx context.Context, t *turn, s Settlement, err error) {
	if err == nil && s.Verb == VerbConfirm && s.By == "call" && t.resent {
		l.counts.resentConfirmed.Add(1)
	}
	l.tell(ctx, t.entry.Account, s, err)
	switch {
	case s.Verb == VerbAsk && err == nil:
		l.warn(ctx, "a person has to resolve an operation", s.Key, "reason", s.Note)
	case errors.Is(err, ErrStale) && s.By == "call":
		l.warn(ctx, "a call ended after its operation had been taken over", s.Key, "said", s.Verb)
	case err != nil && !errors.Is(err, ErrEnded):
		l.warn(ctx, "what became of an operation is not recorded", s.Key, "said", s.Verb, "error", err)
	}
}

func (l *Ledger) tell(ctx context.Context, account string, s Settlement, err error) {
	switch {
	case err == nil:
		l.counts.verbs[s.Verb].Add(1)
	case errors.Is(err, ErrStale):
		l.counts.stale.Add(1)
	case !final(err):
		l.counts.errors.Add(1)
	}
	if h := l.opts.Hooks; h != nil && h.Settled != nil {
		s.Result = nil
		h.Settled(ctx, account, s, err)
	}
}

func (l *Ledger) leaseLost(t *turn, cause error) {
	l.counts.leasesLost.Add(1)
	ctx := context.Background()
	l.warn(ctx, "a running call lost its lease and is cancelled", t.entry.Key, "error", cause)
	if h := l.opts.Hooks; h != nil && h.LeaseLost != nil {
		h.LeaseLost(ctx, t.entry.Key, cause)
	}
}

// An outage is when the remote gives no answer, whichever operation it is asked about. It
// says nothing about any of them. Its clock is the process's, and paces Run and nothing
// else.
type outage struct {
	mu     sync.Mutex
	streak int
	since  time.Time
	next   time.Time // when Run tries again
}

// outageAfter is how many answers have to be missing in a row.
const outageAfter = 3

func (o *outage) unanswered(l *Ledger, ctx context.Context) {
	l.counts.unanswered.Add(1)
	o.mu.Lock()
	now := time.Now()
	if o.streak == 0 {
		o.since = now
	}
	o.streak++
	begun := o.streak == outageAfter
	o.next = now.Add(min(l.opts.pause(o.streak-outageAfter+1), maxPause))
	o.mu.Unlock()
	if begun {
		l.tellOutage(ctx, true, 0)
	}
}

// maxPause is the longest time in which Run tries nothing during an outage.
const maxPause = time.Minute

func (o *outage) answered(l *Ledger, ctx context.Context) {
	o.mu.Lock()
	over := o.streak >= outageAfter
	lasted := time.Since(o.since)
	o.streak, o.next = 0, time.Time{}
	o.mu.Unlock()
	if over {
		l.tellOutage(ctx, false, lasted)
	}
}

// now returns the streak, and since when there is an outage.
func (o *outage) now() (streak int, since time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streak >= outageAfter {
		since = max(time.Since(o.since), 1)
	}
	return o.streak, since
}

// pause returns how long Run has to wait, and whether it may then take one operation
// only, to see whether the remote answers.
func (o *outage) pause() (wait time.Duration, one bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streak < outageAfter {
		return 0, false
	}
	return time.Until(o.next), true
}

// trying keeps everybody else from trying for as long as the one that was taken may take; an
// answer, or that there was none, ends that.
func (o *outage) trying(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streak >= outageAfter {
		o.next = time.Now().Add(d)
	}
}

func (l *Ledger) tellOutage(ctx context.Context, begun bool, lasted time.Duration) {
	if l.opts.Logger != nil {
		msg := "reconcile: the remote gives no answer; operations wait, and none is given to a person for that"
		if !begun {
			msg = "reconcile: the remote answers again"
		}
		l.opts.Logger.WarnContext(ctx, msg, "kind", l.opts.Kind, "lasted", lasted)
	}
	if h := l.opts.Hooks; h != nil && h.Outage != nil {
		h.Outage(ctx, begun, lasted)
	}
}
