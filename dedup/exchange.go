package dedup

import (
	"context"
	"errors"
	"time"
)

// How a guard talks to its store: each step is sent again when no answer came,
// which is safe because stores recognise a nonce and a token.

// believeAfter is how long a guard doubts the answer "another transaction is
// about to claim" after it had no answer to its first sending: the other
// transaction may be its own, on a connection that broke.
const believeAfter = 100 * time.Millisecond

// ask sends asks and sends those without an answer once more.
func (g *Guard) ask(ctx context.Context, p Params, asks []Ask) ([]Claim, error) {
	claims, err := g.store.Claim(ctx, p, asks)
	again := unanswered(asks, claims, err)
	if len(again) == 0 || ctx.Err() != nil || errors.Is(err, ErrInvalid) {
		return claims, err
	}
	if claims == nil {
		claims = make([]Claim, len(asks))
		for i := range asks {
			claims[i] = Claim{ID: asks[i].ID, Err: err}
		}
	}
	for start := time.Now(); ; {
		rest := make([]Ask, len(again))
		for i, n := range again {
			rest[i] = asks[n]
		}
		answers, err := g.store.Claim(ctx, p, rest)
		if err != nil && len(again) == len(asks) {
			return nil, err
		}
		var doubted []int
		for i, n := range again {
			if err != nil {
				claims[n].Err = err
				continue
			}
			claims[n] = answers[i]
			if answers[i].State == InFlight && answers[i].Left == 0 {
				doubted = append(doubted, n)
			}
		}
		if err != nil || len(doubted) == 0 || time.Since(start) >= believeAfter || pause(ctx, believeAfter/10) != nil {
			return claims, nil
		}
		again = doubted
	}
}

// unanswered returns the places of the asks that have no answer.
func unanswered(asks []Ask, claims []Claim, err error) (places []int) {
	for i := range asks {
		if err != nil || claims[i].Err != nil {
			places = append(places, i)
		}
	}
	return places
}

// mergedClaim answers the joined single calls of many goroutines. A stampede of
// duplicates becomes one ask; the others are told what it will find.
func (g *Guard) mergedClaim(complete bool) func(context.Context, []Ask) ([]Claim, error) {
	return func(ctx context.Context, asks []Ask) ([]Claim, error) {
		if len(asks) == 1 {
			return g.ask(ctx, g.params(complete), asks)
		}
		leader := make(map[Request]int, len(asks)) // place in unique
		places := make([]int, len(asks))
		unique := make([]Ask, 0, len(asks))
		for i, a := range asks {
			n, ok := leader[a.Request]
			if !ok {
				n = len(unique)
				leader[a.Request] = n
				unique = append(unique, a)
			}
			places[i] = n
		}
		claims, err := g.ask(ctx, g.params(complete), unique)
		if err != nil || len(unique) == len(asks) {
			return claims, err
		}
		answers := make([]Claim, len(asks))
		told := make([]bool, len(unique))
		for i, n := range places {
			answers[i] = claims[n]
			if told[n] {
				answers[i] = follower(claims[n], complete)
			}
			told[n] = true
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

// orphan releases what was granted to a caller that gave up.
func (g *Guard) orphan(_ Ask, c Claim) {
	if c.State == Acquired {
		go g.release([]Settlement{c.Release()})
	}
}

// undo finds out what was granted to a caller that gave up in the middle of a
// batch, and releases it.
func (g *Guard) undo(asks []Ask, claims []Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.SettleTimeout)
	defer cancel()
	if claims == nil || len(unanswered(asks, claims, nil)) > 0 {
		var err error
		if claims, err = g.ask(ctx, g.params(false), asks); err != nil {
			g.warn(ctx, "a caller gave up; its claims stay in flight until their leases lapse", asks[0].ID, err)
			return
		}
	}
	var s []Settlement
	for _, c := range claims {
		if c.Err == nil && c.State == Acquired {
			s = append(s, c.Release())
		}
	}
	g.release(s)
}

func (g *Guard) release(s []Settlement) {
	for i, err := range g.settle(context.Background(), s) {
		if err != nil {
			g.warn(context.Background(), "a caller gave up; its claim stays in flight until its lease lapses", s[i].ID, err)
		}
	}
}

// mergedSettle answers the joined single settlements of many goroutines.
func (g *Guard) mergedSettle(_ context.Context, s []Settlement) ([]error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.SettleTimeout)
	defer cancel()
	errs, err := g.settleUntil(ctx, s)
	if errs == nil && err == nil {
		errs = make([]error, len(s))
	}
	return errs, err
}

// settleUntil sends settlements until each is answered or ctx ends.
func (g *Guard) settleUntil(ctx context.Context, s []Settlement) ([]error, error) {
	wait := 10 * time.Millisecond
	for {
		errs, err := g.store.Settle(ctx, g.params(false), s)
		if err == nil && !anyUnanswered(errs) || errors.Is(err, ErrInvalid) {
			return errs, err
		}
		if pause(ctx, wait) != nil {
			return errs, err
		}
		wait = min(2*wait, time.Second)
	}
}

func anyUnanswered(errs []error) bool {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrStale) {
			return true
		}
	}
	return false
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
