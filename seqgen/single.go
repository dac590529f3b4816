package seqgen

import (
	"context"
	"errors"
	"fmt"
)

// How mode Single gets its numbers: calls that arrive while a step is under way
// form the next one, with one reservation for each key.

func (s *Sequence) nextSingle(ctx context.Context) (Position, error) {
	switch {
	case s.gone():
		return Position{}, s.closedError()
	case s.c.opts.Mode == Gapless:
		return Position{}, invalid("the generator is in mode %v, which has NextTx only", Gapless)
	}
	n, err := s.c.singles.Do(ctx, s)
	if err != nil {
		return Position{}, gaveUp(ctx, "number of "+short(s.key), err)
	}
	if n.err != nil {
		return Position{}, n.err
	}
	s.c.counts.single.Add(1)
	return n.Position, nil
}

// A share is what the calls of one key get together.
type share struct {
	seq   *Sequence
	n     int
	grant Grant
	taken uint64
}

// A number is the answer to one call.
type number struct {
	Position
	err error
}

// nextSingles answers the joined calls of Next. Its error is for all of them; what
// goes wrong for one key is the answer to the callers of that key.
func (c *core) nextSingles(ctx context.Context, calls []*Sequence, _ func(int) bool) ([]number, error) {
	if c.closed.Load() { // nothing is reserved behind the call that drain waits for
		return nil, fmt.Errorf("%w: the generator; no number was assigned", ErrClosed)
	}
	shares, place := sharesOf(calls)
	if c.later.waiting() { // while the log still has the nonces of what was abandoned
		c.sendLater(ctx)
	}
	asks := make([]Ask, len(shares))
	for i, sh := range shares {
		sh.seq.mu.Lock()
		asks[i] = Ask{Key: sh.seq.key, Mode: Single, N: sh.n, Nonce: newNonce(), Seen: sh.seq.seen()}
		sh.seq.mu.Unlock()
	}
	grants := c.ask(ctx, asks)
	for i := range grants {
		shares[i].grant = grants[i]
		if err := grants[i].Err; err != nil {
			shares[i].grant.Err = c.failed(&asks[i], grants[i])
			if !final(err) && !errors.Is(err, errUnasked) {
				c.doLater(Change{Kind: KindAbandon, Key: asks[i].Key, Nonce: asks[i].Nonce, Reason: Abandoned})
			}
		}
	}
	c.witnessShares(ctx, shares)
	for i := range shares {
		if sh := &shares[i]; sh.grant.Err == nil {
			sh.seq.mu.Lock()
			sh.seq.reserved = higher(sh.seq.reserved, Position{sh.grant.Epoch, sh.grant.Hi})
			sh.seq.mu.Unlock()
		}
	}
	answers := make([]number, len(calls))
	for i := range calls {
		answers[i].Position, answers[i].err = shares[place[i]].take()
	}
	return answers, nil
}

func sharesOf(calls []*Sequence) (shares []share, place []int) {
	place = make([]int, len(calls))
	if len(calls) == 1 {
		return []share{{seq: calls[0], n: 1}}, place
	}
	byKey := make(map[string]int, len(calls))
	for i, s := range calls {
		at, ok := byKey[s.key]
		if !ok {
			at = len(shares)
			byKey[s.key] = at
			shares = append(shares, share{seq: s})
		}
		shares[at].n++
		place[i] = at
	}
	return shares, place
}

// take gives the next of the share's numbers to a caller.
func (sh *share) take() (Position, error) {
	g := &sh.grant
	if g.Err != nil {
		return Position{}, g.Err
	}
	n := g.Lo + sh.taken
	if n > g.Hi {
		return Position{}, fmt.Errorf("%w: %s, the epoch ends at %d; Bump opens another", ErrExhausted, short(sh.seq.key), uint64(MaxNumber))
	}
	sh.taken++
	return Position{g.Epoch, n}, nil
}

// witnessShares tells the witness of what was granted, before it is handed out.
func (c *core) witnessShares(ctx context.Context, shares []share) {
	if c.opts.Witness == nil {
		return
	}
	var raises []Change
	var of []*share
	for i := range shares {
		if g := &shares[i].grant; g.Err == nil {
			raises = append(raises, Change{Kind: KindRaise, Key: shares[i].seq.key, Epoch: g.Epoch, Hi: g.Hi})
			of = append(of, &shares[i])
		}
	}
	if len(raises) == 0 {
		return
	}
	for i, err := range c.raise(ctx, raises) {
		if err == nil {
			continue
		}
		g := &of[i].grant
		c.counts.errors.Add(1)
		c.doLater(Change{Kind: KindVoid, Key: of[i].seq.key, Epoch: g.Epoch, Lo: g.Lo, Hi: g.Hi, Reason: Unwitnessed})
		g.Err = unavailable("the witness of "+short(of[i].seq.key), err)
	}
}

// drain waits until no reservation of a closed generator is under way, and the
// numbers of callers that gave up are about to be recorded. Its call stands behind
// all that were made before the generator was closed.
func (c *core) drain(ctx context.Context) error {
	if c.opts.Mode != Single {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.SettleTimeout)
	defer cancel()
	if _, err := c.singles.Do(ctx, nil); !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: a reservation is under way: %w; close again", ErrUnavailable, err)
	}
	return nil
}

// orphaned takes care of a number whose caller gave up.
func (c *core) orphaned(s *Sequence, n number, err error) {
	if err == nil && n.err == nil {
		c.doLater(Change{Kind: KindVoid, Key: s.key, Epoch: n.Epoch, Lo: n.Number, Hi: n.Number, Reason: GaveUp})
	}
}
