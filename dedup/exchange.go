package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// How a guard talks to its store: each step is sent again when no answer came,
// which is safe because stores recognise a nonce and a token.

const (
	// believeAfter is how long a guard doubts the answer "another transaction is
	// about to claim" after it had no answer to its first sending: the other
	// transaction may be its own, on a connection that broke.
	believeAfter = 100 * time.Millisecond

	// disownMost is how many claims a guard tries to release at once for callers
	// that are gone.
	disownMost = 10_000
)

func newNonce() (n [16]byte) {
	a, b := rand.Uint64(), rand.Uint64() // ChaCha8, seeded by the system: unique, not secret
	for i := range 8 {
		n[i], n[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return n
}

// ask sends asks, and sends those without an answer once more.
func (g *Guard) ask(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	claims, err := g.claim(ctx, p, asks)
	again := unanswered(asks, claims, err)
	if len(again) == 0 || ctx.Err() != nil || errors.Is(err, ErrInvalid) {
		return claims, err
	}
	if claims == nil {
		claims = make([]Claim, len(asks))
	}
	for start := time.Now(); ; {
		rest := make([]Ask, len(again))
		for i, place := range again {
			rest[i] = asks[place]
		}
		answers, err := g.claim(ctx, p, rest)
		if err != nil && len(again) == len(asks) {
			return nil, err
		}
		var doubted []int
		for i, place := range again {
			if err != nil {
				claims[place] = Claim{ID: asks[place].ID, Err: err}
				continue
			}
			claims[place] = answers[i]
			if answers[i].State == InFlight && answers[i].Left == 0 {
				doubted = append(doubted, place)
			}
		}
		if err != nil || len(doubted) == 0 || time.Since(start) >= believeAfter || pause(ctx, believeAfter/10) != nil {
			return claims, nil
		}
		again = doubted
	}
}

// claim asks the store, and takes an answer that is none for what it is.
func (g *Guard) claim(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	claims, err := g.store.Claim(ctx, p, asks)
	if err != nil {
		return nil, err
	}
	if len(claims) != len(asks) {
		return nil, fmt.Errorf("the store answered %d of %d asks", len(claims), len(asks))
	}
	for i := range claims {
		if c := &claims[i]; c.Err == nil && (c.State < Acquired || c.State > Unknown) {
			c.Err = fmt.Errorf("the store answered with state %d", c.State)
		}
	}
	return claims, nil
}

// unanswered returns the places of the asks that have no answer.
func unanswered(asks []Ask, claims []Claim, err error) (places []int) {
	for i := range asks {
		if err != nil || claims[i].Err != nil && !errors.Is(claims[i].Err, ErrFull) {
			places = append(places, i)
		}
	}
	return places
}

// mergedClaim answers the joined single calls of many goroutines. A stampede of
// duplicates becomes one ask, whose grant goes to the first that still waits for
// it; the others are told what they would find.
func (g *Guard) mergedClaim(complete bool) func(context.Context, []Ask, func(int) bool) ([]Claim, error) {
	return func(ctx context.Context, asks []Ask, waits func(int) bool) ([]Claim, error) {
		if len(asks) == 1 {
			return g.ask(ctx, g.params(complete), asks)
		}
		place := make(map[Request]int, len(asks)) // of a request in unique
		unique := make([]Ask, 0, len(asks))
		for _, a := range asks {
			if _, ok := place[a.Request]; !ok {
				place[a.Request] = len(unique)
				unique = append(unique, a)
			}
		}
		claims, err := g.ask(ctx, g.params(complete), unique)
		if err != nil || len(unique) == len(asks) {
			return claims, err
		}
		answers := make([]Claim, len(asks))
		for i, a := range asks {
			answers[i] = follower(claims[place[a.Request]], complete)
		}
		for i, a := range asks {
			if n := place[a.Request]; n >= 0 && waits(i) {
				answers[i] = claims[n]
				place[a.Request] = -1
			}
		}
		for i, a := range asks { // all have given up: the first, so that it is released
			if n := place[a.Request]; n >= 0 {
				answers[i] = claims[n]
				place[a.Request] = -1
			}
		}
		return answers, nil
	}
}

// follower is the answer to a duplicate that was asked together with the ask
// that was answered c.
func follower(c Claim, complete bool) Claim {
	if c.State != Acquired {
		return c
	}
	if complete {
		return Claim{State: Done, ID: c.ID, Attempt: c.Attempt, Result: []byte{}}
	}
	return Claim{State: InFlight, ID: c.ID, Attempt: c.Attempt, Left: c.Left}
}

// orphan takes care of the claim of a caller that gave up.
func (g *Guard) orphan(a Ask, c Claim, err error) {
	c.Err = cmp.Or(err, c.Err)
	g.disown(a, c, true)
}

// disown releases what was granted, or may have been granted, to a caller that
// will not hear of it. Where that is not known it finds out, if the caller gave
// up, since the store is then likely to be well, and under Hold, where the claim
// would be held for ever; otherwise the lease will lapse.
func (g *Guard) disown(a Ask, c Claim, gaveUp bool) {
	known := c.Err == nil
	worth := known && c.State == Acquired || !known && (gaveUp || g.opts.OnLapse == Hold)
	if !worth || errors.Is(c.Err, ErrInvalid) || errors.Is(c.Err, ErrFull) {
		return
	}
	if g.disowning.Add(1) > disownMost {
		g.disowning.Add(-1)
		g.warn(context.Background(), "too many callers gave up; a claim stays until its lease lapses", a.ID, c.Err)
		return
	}
	lapse := time.Now().Add(g.opts.Lease)
	time.AfterFunc(0, func() { g.findOut(a, c, lapse, 10*time.Millisecond) })
}

// findOut asks for a claim with its own nonce until the store answers or the
// lease has lapsed, and releases it. Between its attempts there is a timer and no
// goroutine.
func (g *Guard) findOut(a Ask, c Claim, lapse time.Time, wait time.Duration) {
	ctx := context.Background()
	if c.Err != nil {
		c = g.askAlone(a)
	}
	switch {
	case c.Err != nil && time.Now().Before(lapse):
		time.AfterFunc(wait, func() { g.findOut(a, c, lapse, min(2*wait, 5*time.Second)) })
		return
	case c.Err != nil:
		g.warn(ctx, "a caller gave up or had no answer; under Hold its claim is held now", a.ID, c.Err)
	case c.State == Acquired:
		if errs := g.settle(ctx, []Settlement{c.Release()}); errs != nil && errs[0] != nil {
			g.warn(ctx, "a caller gave up; its claim stays until its lease lapses", a.ID, errs[0])
		}
	}
	g.disowning.Add(-1)
}

// askAlone asks for one claim by itself. Joined with others of the same message
// it might be answered by the nonce of another, and what it was granted would be
// found by nobody.
func (g *Guard) askAlone(a Ask) Claim {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.SettleTimeout)
	defer cancel()
	claims, err := g.ask(ctx, g.params(false), []Ask{a})
	if err != nil {
		return Claim{ID: a.ID, Err: err}
	}
	return claims[0]
}

// send settles a batch, and takes an answer that is none for what it is.
func (g *Guard) send(ctx context.Context, s []Settlement) ([]error, error) {
	errs, err := g.store.Settle(ctx, g.params(false), s)
	if err == nil && errs != nil && len(errs) != len(s) {
		return nil, fmt.Errorf("the store answered %d of %d settlements", len(errs), len(s))
	}
	return errs, err
}

// final says that sending a settlement again would not change its answer.
func final(err error) bool {
	return err == nil || errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid)
}

// extend renews the leases of runs.
func (g *Guard) extend(ctx context.Context, runs []*run) ([]error, error) {
	s := make([]Settlement, len(runs))
	for i, r := range runs {
		s[i] = r.claim.Extend(g.opts.Lease)
	}
	return g.send(ctx, s)
}

// pause waits for d or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
