package dedup

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Failover is a [Store] that keeps refusing duplicates while its primary store
// is down, by asking a standby instead.
//
// While the primary works, all claims are its own, and completions are mirrored
// to the standby, behind the caller's back and as well as possible. When the
// primary gives no answer twice in a row, the standby grants claims under Rerun
// and answers FirstSeen. When the primary answers again, everything that this
// process completed meanwhile is written back to it before it is trusted.
//
// What is refused during the outage depends on the standby. One that all
// processes share refuses every duplicate of what was mirrored or completed
// since. A private one (a [Memory], a bbolt file) refuses what this process has
// seen; two processes may then each run the same ID once. FailoverOptions.Shared
// says which it is, and Stats repeats it.
//
// What is not guaranteed: during a partition that only some processes see, and
// between the hand-backs of two processes, an ID may be granted twice; that is
// counted in FailoverStats.Twice when a hand-back meets it. A process that dies
// in an outage takes with it what it had not written back. Fingerprints are not
// mirrored with a completion, so conflicts with messages completed before the
// outage go unnoticed during it.
//
// Claims under the policy [Hold] are never granted by a standby: they fail as
// long as the primary does. Held lists the primary's. Forget erases in both
// stores and fails while the primary is down.
type Failover struct {
	primary, standby Store
	opts             FailoverOptions

	mu      sync.Mutex
	down    bool
	since   time.Time // of the last transition
	tried   time.Time // the last attempt to hand back
	busy    bool      // a hand-back or mirroring is under way
	grants  map[owned]grant
	learnt  map[owned]completion // completed without the primary's knowledge
	mirrors []mirror             // completed on the primary, to be told to the standby
	stats   FailoverStats
}

// FailoverOptions set up a [Failover].
type FailoverOptions struct {
	// Shared states that all processes use the same standby. It changes nothing but
	// what Stats reports.
	Shared bool
	// RetryEvery is how often the primary is tried again during an outage, at the
	// occasion of a call. Zero means one second.
	RetryEvery time.Duration
	// Limit is how many completions are remembered for writing back, and how many
	// wait to be mirrored. At the limit an outage's claims fail, because they could
	// not be handed back, and mirroring skips. Zero means 1,000,000.
	Limit int
	// OnTransition is called at every switch, with whether the standby is now in
	// charge and the error that caused it; nil error when the primary is back.
	OnTransition func(down bool, cause error)
}

// FailoverStats are what a [Failover] has counted since it was made.
type FailoverStats struct {
	Down        bool
	Since       time.Time // of the last transition; zero if none
	Shared      bool
	Failovers   uint64 // transitions to the standby
	HandBacks   uint64 // transitions to the primary
	Granted     uint64 // claims granted by the standby
	Mirrored    uint64 // completions told to the standby
	Unmirrored  uint64 // completions that could not be told to it
	WrittenBack uint64 // completions told to the primary after an outage
	Twice       uint64 // of those, IDs that the primary had meanwhile granted to another
	Pending     int    // completions not yet written back
}

// NewFailover returns a store over two. Nil options mean defaults.
func NewFailover(primary, standby Store, opts *FailoverOptions) (*Failover, error) {
	if isNil(primary) || isNil(standby) {
		return nil, invalid("failover needs a primary and a standby store")
	}
	var o FailoverOptions
	if opts != nil {
		o = *opts
	}
	o.RetryEvery = or(o.RetryEvery, time.Second)
	o.Limit = or(o.Limit, 1_000_000)
	if o.RetryEvery < 0 || o.Limit < 0 {
		return nil, invalid("negative failover option")
	}
	return &Failover{primary: primary, standby: standby, opts: o,
		grants: make(map[owned]grant), learnt: make(map[owned]completion)}, nil
}

// Stats returns a snapshot.
func (f *Failover) Stats() FailoverStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Down, s.Since, s.Shared, s.Pending = f.down, f.since, f.opts.Shared, len(f.learnt)
	return s
}

// Claim implements [Store].
func (f *Failover) Claim(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	if p.OnLapse == Hold && !p.Complete {
		return f.primary.Claim(ctx, p, asks)
	}
	defer f.background()
	claims := make([]Claim, len(asks))
	rest, places, down := f.known(p, asks, claims)
	if len(rest) == 0 {
		return claims, nil
	}
	ask := f.fromPrimary
	if down {
		ask = f.standby.Claim
	}
	answers, err := ask(ctx, p, rest)
	switch {
	case err == nil:
		f.granted(p, rest, answers, down)
		for i, place := range places {
			claims[place] = answers[i]
		}
		return claims, nil
	case down || ctx.Err() != nil || errors.Is(err, ErrInvalid):
		return nil, err
	}
	f.fail(err)
	return f.Claim(ctx, p, asks)
}

// Settle implements [Store]. A claim is settled with the store that granted it.
func (f *Failover) Settle(ctx context.Context, p Params, s []Settlement) ([]error, error) {
	defer f.background()
	errs := make([]error, len(s))
	var atPrimary, atStandby []int
	f.mu.Lock()
	for i := range s {
		g, running := f.grants[owned{p.Scope, s[i].ID}]
		if running && g.standby && g.token == s[i].Token && s[i].Kind != KindForget {
			atStandby = append(atStandby, i)
		} else {
			atPrimary = append(atPrimary, i)
		}
		if s[i].Kind == KindForget {
			f.drop(owned{p.Scope, s[i].ID})
		}
	}
	f.mu.Unlock()
	settleAt(ctx, f.standby, p, s, atStandby, errs)
	settleAt(ctx, f.primary, p, s, atPrimary, errs)

	f.mu.Lock()
	for _, i := range atStandby {
		f.settled(p, s[i], errs[i], true)
	}
	for _, i := range atPrimary {
		f.settled(p, s[i], errs[i], false)
	}
	f.mu.Unlock()
	f.rescue(ctx, p, s, atPrimary, errs)
	for _, err := range errs {
		if err != nil {
			return errs, nil
		}
	}
	return nil, nil
}

// Held implements [Store].
func (f *Failover) Held(ctx context.Context, scope, after string, n int) ([]Claim, error) {
	return f.primary.Held(ctx, scope, after, n)
}

type owned struct{ scope, id string }

// A grant is a claim that was not settled yet.
type grant struct {
	token   uint64
	nonce   [16]byte
	standby bool
	until   time.Time
}

// A completion is what the primary has still to be told: a claim of the
// standby's, or, with a token, the settlement of one of its own.
type completion struct {
	params Params
	result []byte
	token  uint64
	nonce  [16]byte // of the ask that tells it, so that it can be sent twice
}

func newCompletion(p Params, s Settlement) completion {
	return completion{params: p, result: append([]byte(nil), s.Result...), nonce: newNonce()}
}

type mirror struct {
	owned
	completion
}

// known answers what this process knows without asking: what it completed while
// the primary was down, and what runs under the grant of the store that is not
// asked. It returns the other asks with their places.
func (f *Failover) known(p Params, asks []Ask, claims []Claim) (rest []Ask, places []int, down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	full := f.down && len(f.learnt) >= f.opts.Limit
	for i, a := range asks {
		id := owned{p.Scope, a.ID}
		g, running := f.grants[id]
		switch c, completed := f.learnt[id]; {
		case completed:
			claims[i] = Claim{State: Done, ID: a.ID, Attempt: 1, Result: append([]byte{}, c.result...)}
		case running && g.standby != f.down && g.until.After(now) && g.nonce == a.Nonce:
			claims[i] = Claim{State: Acquired, ID: a.ID, Token: g.token, Attempt: 1, Left: g.until.Sub(now)}
		case running && g.standby != f.down && g.until.After(now):
			claims[i] = Claim{State: InFlight, ID: a.ID, Attempt: 1, Left: g.until.Sub(now)}
		case full:
			claims[i] = Claim{ID: a.ID, Err: ErrFull}
		default:
			rest, places = append(rest, a), append(places, i)
		}
	}
	return rest, places, f.down
}

// fromPrimary asks twice before it gives up; any ask without an answer counts.
func (f *Failover) fromPrimary(ctx context.Context, p Params, asks []Ask) (claims []Claim, err error) {
	for range 2 {
		if claims, err = f.primary.Claim(ctx, p, asks); err != nil {
			continue
		}
		for _, c := range claims {
			if c.Err != nil && !errors.Is(c.Err, ErrFull) {
				err = c.Err
			}
		}
		if err == nil {
			return claims, nil
		}
	}
	return nil, err
}

// fail makes the standby grant from now on.
func (f *Failover) fail(cause error) {
	f.mu.Lock()
	again := f.down
	if !again {
		f.down, f.since, f.tried = true, time.Now(), time.Now()
		f.stats.Failovers++
	}
	f.mu.Unlock()
	if !again && f.opts.OnTransition != nil {
		f.opts.OnTransition(true, cause)
	}
}

// granted notes who runs what, and what FirstSeen completed.
func (f *Failover) granted(p Params, asks []Ask, claims []Claim, standby bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for i, c := range claims {
		if c.Err != nil || c.State != Acquired {
			continue
		}
		if standby {
			f.stats.Granted++
		}
		id := owned{p.Scope, c.ID}
		switch {
		case !p.Complete:
			f.grants[id] = grant{token: c.Token, nonce: asks[i].Nonce, standby: standby, until: now.Add(c.Left)}
		case standby:
			f.learnt[id] = newCompletion(p, Settlement{})
		default:
			f.mirror(id, newCompletion(p, Settlement{}))
		}
	}
	looked := 0
	for id, g := range f.grants { // owners that vanished must not pile up
		if g.until.Before(now) {
			delete(f.grants, id)
		}
		if looked++; looked > 2+len(claims) {
			break
		}
	}
}

// mirror queues a completion for the standby. f.mu is held.
func (f *Failover) mirror(id owned, c completion) {
	if len(f.mirrors) >= f.opts.Limit {
		f.stats.Unmirrored++
		return
	}
	f.mirrors = append(f.mirrors, mirror{id, c})
}

// settleAt sends the settlements at some places and puts the answers there.
func settleAt(ctx context.Context, store Store, p Params, s []Settlement, places []int, errs []error) {
	if len(places) == 0 {
		return
	}
	batch := make([]Settlement, len(places))
	for i, place := range places {
		batch[i] = s[place]
	}
	answers, err := store.Settle(ctx, p, batch)
	for i, place := range places {
		errs[place] = err
		if err == nil && answers != nil {
			errs[place] = answers[i]
		}
	}
}

// settled notes what a settlement changed. f.mu is held.
func (f *Failover) settled(p Params, s Settlement, err error, atStandby bool) {
	if err != nil || s.Kind == KindForget {
		return
	}
	id := owned{p.Scope, s.ID}
	g, running := f.grants[id]
	if running = running && g.token == s.Token; running {
		delete(f.grants, id)
	}
	switch {
	case s.Kind == KindExtend && running:
		g.until = time.Now().Add(s.Lease)
		f.grants[id] = g
	case s.Kind == KindComplete && atStandby:
		f.learnt[id] = newCompletion(p, s)
	case s.Kind == KindComplete && p.OnLapse == Rerun:
		f.mirror(id, newCompletion(p, s))
	}
}

// rescue takes care of effects that have happened under claims of a primary that
// is gone: the standby can refuse their duplicates until the primary is told.
// Forgetting erases at the standby, too.
func (f *Failover) rescue(ctx context.Context, p Params, s []Settlement, places []int, errs []error) {
	var lost []mirror
	var lostAt, forgotten []int
	for _, i := range places {
		f.mu.Lock()
		_, learnt := f.learnt[owned{p.Scope, s[i].ID}]
		f.mu.Unlock()
		switch {
		case s[i].Kind == KindForget:
			forgotten = append(forgotten, i)
		case s[i].Kind != KindComplete || errs[i] == nil || p.OnLapse == Hold:
		case errors.Is(errs[i], ErrStale) && learnt:
			errs[i] = nil // completed at the standby before, and sent again
		case !errors.Is(errs[i], ErrStale):
			c := newCompletion(p, s[i])
			c.token = s[i].Token
			lost, lostAt = append(lost, mirror{owned{p.Scope, s[i].ID}, c}), append(lostAt, i)
		}
	}
	for i, err := range f.tell(ctx, f.standby, lost) {
		if err == nil {
			errs[lostAt[i]] = nil
			f.mu.Lock()
			f.learnt[lost[i].owned] = lost[i].completion
			delete(f.grants, lost[i].owned)
			f.mu.Unlock()
		}
	}
	if len(forgotten) > 0 {
		also := make([]error, len(s))
		settleAt(ctx, f.standby, p, s, forgotten, also)
		for _, i := range forgotten {
			errs[i] = errors.Join(errs[i], also[i])
		}
	}
}

// drop forgets an ID here. f.mu is held.
func (f *Failover) drop(id owned) {
	delete(f.learnt, id)
	delete(f.grants, id)
	kept := f.mirrors[:0:0]
	for _, m := range f.mirrors {
		if m.owned != id {
			kept = append(kept, m)
		}
	}
	f.mirrors = kept
}
