package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Claim asks whether the caller may run the effect of the message, and says so
// in Claim.State; see [State] for the five answers. An acquired claim is the
// caller's to settle: [Guard.Settle] with Complete, Release, Hold, or Extend
// before Left has passed. [Guard.Do] does all of that.
//
// A fingerprint that differs from the stored one is answered Conflict. When
// either is zero, nothing is compared.
//
// The error is [ErrInvalid] for a bad request, [ErrFull] when the store has no
// room, the context's error, or [ErrUnavailable] when the store gave no answer;
// it is never to be read as Acquired. After the last two the claim may have been
// granted all the same: ask again, and the answer is Acquired, or InFlight until
// the lease has lapsed. What was granted to a caller that gave up is released in
// the background; under Hold also what was granted to a caller that had no
// answer, if the store answers before the lease has lapsed. If it does not, the
// ID is held.
func (g *Guard) Claim(ctx context.Context, r Request) (Claim, error) {
	if err := r.validate(); err != nil {
		return Claim{}, err
	}
	return g.claimOne(ctx, &Ask{Request: r, Nonce: newNonce()}, false)
}

// ClaimBatch claims many messages in as few round trips as the store needs. The
// claims stand in the order of the requests; each has its own answer, and one
// whose Err is set has none: [Guard.Claim] says what that means. An invalid
// request fails the call before anything is sent. A message that stands in the
// batch twice is answered in order: Acquired, then InFlight.
func (g *Guard) ClaimBatch(ctx context.Context, rs []Request) ([]Claim, error) {
	asks := make([]Ask, len(rs))
	for i, r := range rs {
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("%w (request %d of %d)", err, i+1, len(rs))
		}
		asks[i] = Ask{Request: r, Nonce: newNonce()}
	}
	return g.claimMany(ctx, asks, false)
}

// FirstSeen says for each ID whether it has not been seen before, and marks it
// as done in the same step: the classic SET NX EX. It is for effects that may be
// lost but not repeated, because a caller that dies between this call and its
// effect has marked an effect that never happened; where that matters use
// [Guard.Do]. An ID that another owner holds counts as seen.
//
// With an error, an ID that is reported as first is the caller's; of the others
// nothing is known, and a repeated call may report them as seen although the
// lost one marked them.
func (g *Guard) FirstSeen(ctx context.Context, ids ...string) ([]bool, error) {
	asks := make([]Ask, len(ids))
	for i, id := range ids {
		r := Request{ID: id}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("%w (ID %d of %d)", err, i+1, len(ids))
		}
		asks[i] = Ask{Request: r, Nonce: newNonce()}
	}
	first := make([]bool, len(ids))
	var claims []Claim
	var err error
	if len(asks) == 1 {
		var c Claim
		c, err = g.claimOne(ctx, &asks[0], true)
		claims = []Claim{c}
	} else {
		claims, err = g.claimMany(ctx, asks, true)
	}
	for i, c := range claims {
		first[i] = c.State == Acquired
		if c.Err != nil && err == nil {
			err = c.Err
		}
	}
	return first, err
}

// Settle says what became of claims: c.Complete(result), c.Release(), c.Hold(),
// or c.Extend(d). It ignores the end of ctx, because a settlement that is not
// sent leaves the message in flight until its lease lapses, and tries again for
// up to Options.SettleTimeout when the store does not answer.
//
// The error joins one [*SettleError] for each settlement that failed, with
// [ErrStale] when the claim was no longer the caller's, or [ErrUnavailable] when
// it is not known whether the settlement was applied; repeating it is safe.
// [*ResultSizeError] and [ErrInvalid] are returned before anything is sent.
func (g *Guard) Settle(ctx context.Context, s ...Settlement) error {
	for i := range s {
		if err := s[i].validate(g.opts.ResultSize); err != nil {
			return &SettleError{Index: i, Err: err}
		}
	}
	errs := g.settle(ctx, s)
	var failed []error
	for i, err := range errs {
		if err != nil {
			failed = append(failed, &SettleError{Index: i, Err: err})
		}
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// Held lists at most n claims that are Unknown, ordered by ID, beginning behind
// the ID after; the empty string begins at the first. Find out what happened to
// each, then settle it: c.Complete(result) or c.Release(). For a guard that is
// used with [DoValue] the result is the value as JSON; without one, every
// duplicate gets ErrResult.
//
// Neither settlement runs the effect: after a release, the next delivery does. If
// the sender will not send the message again, hand it to Do yourself. A guard
// keeps no messages, and an ID that nobody settles is kept for ever.
//
// An owner that was only slow and settles another way later gets ErrStale; if it
// completes too, it succeeds and your result stays. A claim whose Err is set
// cannot be read: its store's package says what to do.
func (g *Guard) Held(ctx context.Context, after string, n int) ([]Claim, error) {
	if n < 1 || n > maxPage {
		return nil, invalid("page of %d, not 1 to %d", n, maxPage)
	}
	claims, err := g.store.Held(ctx, g.opts.Scope, after, n)
	if err != nil {
		return nil, gaveUp(ctx, "list held claims", err)
	}
	return claims, nil
}

// HeldStats counts the claims that are Unknown, up to limit, and returns the age
// of the oldest among those counted.
func (g *Guard) HeldStats(ctx context.Context, limit int) (n int, oldest time.Duration, err error) {
	if limit < 1 {
		return 0, 0, invalid("limit of %d", limit)
	}
	for after := ""; n < limit; {
		page, err := g.Held(ctx, after, min(maxPage, limit-n))
		if err != nil || len(page) == 0 {
			return n, oldest, err
		}
		for _, c := range page {
			oldest = max(oldest, c.Age)
		}
		n += len(page)
		after = page[len(page)-1].ID
	}
	return n, oldest, nil
}

const maxPage = 1000

// Forget erases IDs with their results and fingerprints, for a person's right to
// be forgotten. Their owners, if any, are stale from then on. It also forgets
// that the effect has happened: a forgotten ID is new, and a late duplicate of it
// runs the effect again.
func (g *Guard) Forget(ctx context.Context, ids ...string) error {
	s := make([]Settlement, len(ids))
	for i, id := range ids {
		s[i] = Settlement{Kind: KindForget, ID: id}
	}
	return g.Settle(ctx, s...)
}

// Retain makes IDs whose effect has happened remembered for at least d from now, so
// that they outlive Options.Retention: for a message that is put aside and may be
// tried again after that. It never shortens a retention.
//
// An ID whose effect has not happened, or is not known to have, is left as it is, and
// none is made known: it stays free, in flight or held, as it was. An ID that is
// completed afterwards has the retention of its guard; call Retain again, well before
// d has passed. It fails with [ErrInvalid] unless d is at least a millisecond and at
// most [MaxDuration], and otherwise as [Guard.Settle] does. Repeating it is safe.
func (g *Guard) Retain(ctx context.Context, d time.Duration, ids ...string) error {
	s := make([]Settlement, len(ids))
	for i, id := range ids {
		s[i] = Settlement{Kind: KindRetain, ID: id, Retention: d}
	}
	return g.Settle(ctx, s...)
}

// claimOne asks for one ID and counts the answer.
func (g *Guard) claimOne(ctx context.Context, a *Ask, complete bool) (Claim, error) {
	c, err := g.askOne(ctx, a, complete)
	if err == nil {
		err = c.Err
	}
	if err != nil {
		err = gaveUp(ctx, "claim "+short(a.ID), err)
		g.failed(err)
		return Claim{ID: a.ID, Err: err}, err
	}
	g.counted(ctx, c)
	return c, nil
}

func (g *Guard) askOne(ctx context.Context, a *Ask, complete bool) (Claim, error) {
	switch {
	case g.bound:
		claims, err := g.claim(ctx, g.params(complete), []Ask{*a})
		if err != nil {
			return Claim{}, err
		}
		return claims[0], nil
	case g.memory != nil:
		if err := ctx.Err(); err != nil {
			return Claim{}, err
		}
		return g.memory.claimOne(g.params(complete), a), nil
	case complete:
		return g.firsts.Do(ctx, *a)
	}
	c, err := g.claims.Do(ctx, *a)
	if c.Err = cmp.Or(err, c.Err); c.Err != nil && ctx.Err() == nil {
		g.disown(*a, c, false)
	}
	return c, c.Err
}

// claimMany asks for a batch and counts the answers.
func (g *Guard) claimMany(ctx context.Context, asks []Ask, complete bool) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, gaveUp(ctx, "claim", err)
	}
	if len(asks) == 0 {
		return nil, nil
	}
	var claims []Claim
	var err error
	if g.bound || g.memory != nil {
		claims, err = g.claim(ctx, g.params(complete), asks)
	} else {
		claims, err = g.ask(ctx, g.params(complete), asks)
		if len(unanswered(asks, claims, err)) > 0 && !complete {
			gone := ctx.Err() != nil
			for i, a := range asks {
				c := Claim{Err: err}
				if err == nil {
					c = claims[i]
				}
				if gone || c.Err != nil {
					g.disown(a, c, gone)
				}
			}
			err = cmp.Or(ctx.Err(), err) // who gave up is told of no claim, and owns none
		}
	}
	if err != nil {
		err = gaveUp(ctx, fmt.Sprintf("claim of %d IDs", len(asks)), err)
		g.failed(err)
		return nil, err
	}
	for i := range claims {
		if c := &claims[i]; c.Err != nil {
			*c = Claim{ID: c.ID, Err: gaveUp(ctx, "claim "+short(c.ID), c.Err)}
			g.failed(c.Err)
		} else {
			g.counted(ctx, *c)
		}
	}
	return claims, nil
}

// settle sends settlements until they are answered or the timeout ends, names
// what failed, and counts. It returns one error for each, or nil when all were
// applied.
func (g *Guard) settle(ctx context.Context, s []Settlement) []error {
	errs := g.sendAll(ctx, s)
	for i := range s {
		if errs == nil {
			g.settled(ctx, s[i], nil)
			continue
		}
		if err := errs[i]; errors.Is(err, ErrStale) {
			errs[i] = fmt.Errorf("%w: %s %s; nothing was changed", err, s[i].Kind, short(s[i].ID))
		} else if err != nil {
			errs[i] = unavailable(s[i].Kind.String()+" "+short(s[i].ID), err)
			g.failed(errs[i])
		}
		g.settled(ctx, s[i], errs[i])
	}
	return errs
}

func (g *Guard) sendAll(ctx context.Context, s []Settlement) []error {
	if len(s) == 0 {
		return nil
	}
	if !g.bound && g.memory == nil {
		return g.settler.Settle(s...)
	}
	if !g.bound {
		ctx = context.Background()
	}
	errs, err := g.send(ctx, s)
	if err != nil {
		errs = make([]error, len(s))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}
