package dedup

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
)

// The methods of a Store, as a Failover has them.

// Claim implements [Store].
func (f *Failover) Claim(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	if p.OnLapse == Hold {
		return f.primary.Claim(ctx, p, asks)
	}
	defer f.background()
	claims := make([]Claim, len(asks))
	rest, places, down := f.known(p, asks, claims)
	if len(rest) == 0 {
		return claims, nil
	}
	var answers []Claim
	var err error
	if down {
		answers, err = f.standby.Claim(ctx, p, rest)
	} else {
		answers, err = f.askPrimary(ctx, p, rest)
	}
	f.asked(p, rest, answers, down)
	if err == nil {
		for i, place := range places {
			claims[place] = answers[i]
		}
		return claims, nil
	}
	if !down && ctx.Err() == nil && !errors.Is(err, ErrInvalid) && f.isDown() {
		return f.Claim(ctx, p, asks)
	}
	return nil, err
}

// MergeWidth is that of the primary.
func (f *Failover) MergeWidth() int { return merge.WidthOf(f.primary) }

var _ Widener = (*Failover)(nil)

// known answers what this process knows without asking: what it has completed,
// and what it runs under the grant of the store that is not asked. It returns the
// other asks with their places.
func (f *Failover) known(p Params, asks []Ask, claims []Claim) (rest []Ask, places []int, down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for i, a := range asks {
		id := owned{p.Scope, a.ID}
		c := f.learnt[id]
		if c == nil && f.down {
			c = f.mirrors[id]
		}
		g, running := f.grants[id]
		elsewhere := running && g.standby != f.down && g.until.After(now)
		switch {
		case c != nil:
			claims[i] = c.answer(p, a)
		case elsewhere && differ(g.fingerprint, a.Fingerprint):
			claims[i] = Claim{State: Conflict, ID: a.ID, Attempt: g.attempt}
		case elsewhere && g.nonce == a.Nonce:
			claims[i] = Claim{State: Acquired, ID: a.ID, Token: g.token, Attempt: g.attempt, Left: g.until.Sub(now)}
		case elsewhere:
			claims[i] = Claim{State: InFlight, ID: a.ID, Attempt: g.attempt, Left: g.until.Sub(now)}
		case f.asking[asked{id, !f.down}] > 0: // the other store may be about to grant it
			claims[i] = Claim{State: InFlight, ID: a.ID}
		case f.down && len(f.learnt) >= f.opts.Limit:
			claims[i] = Claim{ID: a.ID, Err: ErrFull}
		default:
			rest, places = append(rest, a), append(places, i)
			f.asking[asked{id, f.down}]++
		}
	}
	return rest, places, f.down
}

// answer is what an ask is answered by a completion.
func (c *completion) answer(p Params, a Ask) Claim {
	switch {
	case differ(c.fingerprint, a.Fingerprint):
		return Claim{State: Conflict, ID: a.ID, Attempt: 1}
	case p.Complete && c.nonce == a.Nonce:
		return Claim{State: Acquired, ID: a.ID, Token: c.token, Attempt: 1}
	}
	return Claim{State: Done, ID: a.ID, Attempt: 1, Result: append([]byte{}, c.result...)}
}

func differ(a, b [32]byte) bool { return a != b && a != zero && b != zero }

// askPrimary asks twice before it gives up; any ask without an answer counts.
func (f *Failover) askPrimary(ctx context.Context, p Params, asks []Ask) (claims []Claim, err error) {
	for range 2 {
		var id string
		if claims, id, err = f.askOnce(ctx, p, asks); err == nil {
			f.answered()
			return claims, nil
		}
		if errors.Is(err, ErrInvalid) {
			return nil, err
		}
		f.fail(p, id, err)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, err
}

func (f *Failover) askOnce(ctx context.Context, p Params, asks []Ask) (claims []Claim, failed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	if claims, err = f.primary.Claim(ctx, p, asks); err != nil {
		return nil, asks[0].ID, err
	}
	if places := unanswered(asks, claims, nil); len(places) > 0 {
		return nil, asks[places[0]].ID, claims[places[0]].Err
	}
	return claims, "", nil
}

// asked notes who runs what, and what FirstSeen completed.
func (f *Failover) asked(p Params, asks []Ask, claims []Claim, standby bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for i, a := range asks {
		id := owned{p.Scope, a.ID}
		at := asked{id, standby}
		if f.asking[at]--; f.asking[at] <= 0 {
			delete(f.asking, at)
		}
		if claims == nil || claims[i].Err != nil || claims[i].State != Acquired {
			continue
		}
		c := claims[i]
		if standby {
			f.stats.Granted++
		}
		if !p.Complete {
			f.grants[id] = grant{token: c.Token, nonce: a.Nonce, fingerprint: a.Fingerprint, attempt: c.Attempt,
				standby: standby, until: now.Add(c.Left)}
			continue
		}
		f.note(id, &completion{params: p, fingerprint: a.Fingerprint, token: c.Token, primary: !standby, nonce: a.Nonce}, standby)
	}
	looked := 0
	for id, g := range f.grants { // owners that vanished must not pile up
		if g.until.Before(now) {
			delete(f.grants, id)
		}
		if looked++; looked > 2+len(asks) {
			break
		}
	}
}

// note remembers a completion for the store that does not know of it. f.mu is
// held.
func (f *Failover) note(id owned, c *completion, forPrimary bool) {
	switch {
	case forPrimary:
		f.learnt[id] = c
	case f.mirrors[id] == nil && len(f.mirrors) >= f.opts.Limit:
		f.stats.Unmirrored++
	default:
		f.mirrors[id] = c
	}
}

func (f *Failover) isDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

// Settle implements [Store]. A claim is settled with the store that granted it.
func (f *Failover) Settle(ctx context.Context, p Params, s []Settlement) ([]error, error) {
	if p.OnLapse == Hold {
		return f.primary.Settle(ctx, p, s)
	}
	defer f.background()
	errs := make([]error, len(s))
	var atPrimary, atStandby, forgotten, retained []int
	f.mu.Lock()
	for i := range s {
		id := owned{p.Scope, s[i].ID}
		g, running := f.grants[id]
		c := f.learnt[id]
		switch {
		case s[i].Kind == KindForget:
			forgotten = append(forgotten, i)
		case s[i].Kind == KindRetain:
			retained = append(retained, i)
		case c != nil && c.token == s[i].Token && s[i].Kind == KindComplete:
			// Applied before, and not yet written back.
		case running && g.standby && g.token == s[i].Token:
			atStandby = append(atStandby, i)
		default:
			atPrimary = append(atPrimary, i)
		}
	}
	f.mu.Unlock()
	settleAt(ctx, f.standby, p, s, atStandby, errs)
	f.settlePrimary(ctx, p, s, atPrimary, errs)
	f.forget(ctx, p, s, forgotten, errs)
	f.retain(ctx, p, s, retained, errs)

	f.mu.Lock()
	for _, i := range atStandby {
		f.settled(p, s[i], errs[i], true)
	}
	for _, i := range atPrimary {
		f.settled(p, s[i], errs[i], false)
	}
	f.mu.Unlock()
	for _, err := range errs {
		if err != nil {
			return errs, nil
		}
	}
	return nil, nil
}

// settlePrimary settles claims of the primary. When it is down, effects that have
// happened are told to the standby, which can refuse their duplicates until the
// primary is told, and effects that run keep their leases in this process.
func (f *Failover) settlePrimary(ctx context.Context, p Params, s []Settlement, places []int, errs []error) {
	if len(places) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	settleAt(limited, f.primary, p, s, places, errs)
	failed := false
	for _, i := range places {
		if !final(errs[i]) {
			f.fail(p, s[i].ID, errs[i])
			failed = true
			break
		}
	}
	if !failed {
		f.answered()
		return
	}
	if !f.isDown() {
		return // the guard sends again
	}
	var lost []told
	var lostAt []int
	f.mu.Lock()
	for _, i := range places {
		id := owned{p.Scope, s[i].ID}
		g, running := f.grants[id]
		ours := running && g.token == s[i].Token
		switch {
		case final(errs[i]):
		case s[i].Kind == KindExtend && ours:
			errs[i] = nil
		case s[i].Kind == KindComplete && len(f.learnt)+len(lost) < f.opts.Limit:
			c := newCompletion(p, s[i], g, true)
			lost, lostAt = append(lost, told{id, c}), append(lostAt, i)
		}
	}
	f.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	f.telling.Lock()
	defer f.telling.Unlock()
	for n, err := range f.tell(ctx, false, lost) {
		switch i := lostAt[n]; {
		case err == nil:
			errs[i] = nil
			f.mu.Lock()
			f.learnt[lost[n].owned] = lost[n].completion
			f.mu.Unlock()
		case errors.Is(err, errDone):
			errs[i] = ErrStale // another owner completed it at the standby
		}
	}
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
	if err != nil {
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
	case s.Kind == KindComplete && f.learnt[id] == nil:
		f.note(id, newCompletion(p, s, g, !atStandby), atStandby)
	}
}

func newCompletion(p Params, s Settlement, g grant, primary bool) *completion {
	c := &completion{params: p, result: append([]byte(nil), s.Result...), token: s.Token, primary: primary, nonce: newNonce()}
	if g.token == s.Token {
		c.fingerprint = g.fingerprint
	}
	return c
}

// forget erases IDs here and in both stores, one after the other with telling, so
// that nothing is told of them afterwards.
func (f *Failover) forget(ctx context.Context, p Params, s []Settlement, places []int, errs []error) {
	if len(places) == 0 {
		return
	}
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	for _, i := range places {
		id := owned{p.Scope, s[i].ID}
		delete(f.learnt, id)
		delete(f.mirrors, id)
		delete(f.grants, id)
	}
	f.mu.Unlock()
	settleAt(ctx, f.standby, p, s, places, errs)
	also := make([]error, len(s))
	settleAt(ctx, f.primary, p, s, places, also)
	for _, i := range places {
		errs[i] = errors.Join(errs[i], also[i])
	}
}

// retain makes IDs stay longer in both stores, and with what the stores are still to
// be told, one after the other with telling. A primary that is down is not asked.
func (f *Failover) retain(ctx context.Context, p Params, s []Settlement, places []int, errs []error) {
	if len(places) == 0 {
		return
	}
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	for _, i := range places {
		id := owned{p.Scope, s[i].ID}
		for _, c := range []*completion{f.learnt[id], f.mirrors[id]} {
			if c != nil {
				c.params.Retention = max(c.params.Retention, s[i].Retention) // from when it is told
			}
		}
	}
	down := f.down
	f.mu.Unlock()
	settleAt(ctx, f.standby, p, s, places, errs)
	also := make([]error, len(s))
	if down {
		for _, i := range places {
			also[i] = errPrimaryDown
		}
	} else {
		ctx, cancel := context.WithTimeout(ctx, f.opts.Timeout)
		defer cancel()
		settleAt(ctx, f.primary, p, s, places, also)
	}
	for _, i := range places {
		errs[i] = errors.Join(errs[i], also[i])
	}
}

var errPrimaryDown = errors.New("dedup: the primary store is down")

// Held implements [Store].
func (f *Failover) Held(ctx context.Context, scope, after string, n int) ([]Claim, error) {
	return f.primary.Held(ctx, scope, after, n)
}
