package seqgen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How mode Block gets its blocks.

// refillState is what only steps of a sequence touch.
type refillState struct {
	size    int           // of the next block
	began   time.Time     // the last refill
	took    time.Duration // the last refill
	ask     *Ask          // sent, and not answered
	granted *Grant        // answered, and not witnessed
}

// beginRefill starts a refill in the background unless a step is under way. The
// sequence is locked.
func (s *Sequence) beginRefill() *step {
	if s.step != nil {
		return s.step
	}
	s.refillAt = never
	st := s.begin()
	go func() {
		st.err = errEnded
		defer func() { s.end(st, st.err) }()
		st.err = s.refillNow()
	}()
	return st
}

var errEnded = errors.New("seqgen: the store ended the goroutine")

// refillNow gets another block, or takes the key and gets the first.
func (s *Sequence) refillNow() error {
	ctx := context.Background()
	s.mu.Lock()
	mustReturn := s.mustReturn
	s.mu.Unlock()
	if mustReturn {
		if err := s.giveBack(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	g := s.refill.granted
	if g == nil {
		var err error
		if g, err = s.reserveBlock(ctx); err != nil {
			return s.refillFailed(err)
		}
	} else if over, err := s.c.overtaken(ctx, s.key, g); err != nil {
		return s.refillFailed(err)
	} else if over {
		return s.refillFailed(s.c.failed(&Ask{Key: s.key, Mode: Block}, Grant{Err: ErrStale}))
	}
	if s.c.opts.Witness != nil {
		raise := Change{Kind: KindRaise, Key: s.key, Epoch: g.Epoch, Hi: g.Hi, Token: g.Token}
		if errs := s.c.raise(ctx, []Change{raise}); errs[0] != nil {
			s.refill.granted = g
			return s.refillFailed(fmt.Errorf("the witness of %s: %w", short(s.key), errs[0]))
		}
	}
	s.refill.granted = nil
	s.publish(g, began)
	return nil
}

func (s *Sequence) reserveBlock(ctx context.Context) (*Grant, error) {
	s.mu.Lock()
	if s.refill.ask == nil {
		s.refill.ask = &Ask{Key: s.key, Mode: Block, Nonce: newNonce(), Token: s.token, Open: s.token == 0}
		s.refill.ask.N = min(max(s.refill.size, 2*s.waiting), s.c.opts.MaxBlock)
	}
	a := s.refill.ask
	a.Seen, a.Used = s.seen(), s.next-1
	s.mu.Unlock()
	g, err := s.c.blocks.Do(ctx, *a)
	if err == nil {
		err = g.Err
	}
	if !final(err) {
		return nil, err
	}
	s.refill.ask = nil
	if err != nil {
		return nil, err
	}
	s.c.voided(s.key, g.Orphaned, Orphaned, TakenOver)
	return &g, nil
}

// reserveBlocks answers the joined calls of reserveBlock.
func (c *core) reserveBlocks(ctx context.Context, asks []Ask, _ func(int) bool) ([]Grant, error) {
	grants := c.ask(ctx, asks)
	for i := range grants {
		if g := &grants[i]; g.Err != nil && final(g.Err) {
			g.Err = c.failed(&asks[i], *g)
		}
	}
	return grants, nil
}

// publish hands a block over to Next.
func (s *Sequence) publish(g *Grant, began time.Time) {
	s.mu.Lock()
	s.count()
	if g.Epoch != s.epoch || g.Lo != s.hi+1 || s.next > s.hi { // a block that goes on leaves the rest as it is
		s.next, s.base = g.Lo, g.Lo
	}
	s.epoch, s.token, s.hi = g.Epoch, g.Token, g.Hi
	s.reserved = higher(s.reserved, Position{g.Epoch, g.Hi})
	s.resize(began, s.waiting > 0)
	left := s.hi - s.next + 1
	s.refillAt = s.next + left/2
	if s.closed || s.c.opts.MaxBlock == 1 {
		s.refillAt = never
	}
	s.mu.Unlock()
}

// resize doubles the block when the last one was used up within a few times of
// what a reservation takes, and halves it when it lasted very long.
func (s *Sequence) resize(began time.Time, awaited bool) {
	r := s.refill
	now := time.Now()
	lasted := began.Sub(r.began)
	known := !r.began.IsZero()
	r.took, r.began = max(now.Sub(began), 50*time.Microsecond), began
	switch {
	case known && (awaited || lasted < 16*r.took):
		r.size = min(2*r.size, s.c.opts.MaxBlock)
	case known && lasted > 1000*r.took && lasted > time.Minute:
		r.size = max(r.size/2, s.c.opts.Block)
	}
}

// refillFailed notes what a refill's failure means for the numbers that are left,
// and returns it.
func (s *Sequence) refillFailed(err error) error {
	s.mu.Lock()
	lost := false
	switch {
	case errors.Is(err, ErrStale):
		s.failed, lost = err, true
	case errors.Is(err, ErrRolledBack): // what is left may have been given to others since
		s.failed, lost = err, true
		s.drop()
	case errors.Is(err, ErrMode), errors.Is(err, ErrExhausted):
	case s.next <= s.hi: // try again when half of the rest is gone
		s.refillAt = s.next + (s.hi-s.next+1)/2
	}
	s.mu.Unlock()
	if lost {
		s.c.lost(s.key, err)
		return err
	}
	if !final(err) {
		s.c.counts.errors.Add(1)
	}
	return unavailable("reserve a block of "+short(s.key), err)
}

// drop stops handing out what is left. The sequence is locked.
func (s *Sequence) drop() {
	s.hi, s.refillAt = s.next-1, never
}

// open gives back what is left and takes the key.
func (s *Sequence) open(ctx context.Context) error {
	st, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.end(st, nil)
		return s.closedError()
	}
	s.mu.Unlock()
	go func() { // it goes on when the caller gives up
		st.err = errEnded
		defer func() { s.end(st, st.err) }()
		if st.err = s.giveBack(context.Background()); st.err == nil {
			st.err = s.refillNow()
		}
	}()
	select {
	case <-st.done:
		return st.err
	case <-ctx.Done():
		return gaveUp(ctx, "open "+short(s.key), ctx.Err())
	}
}

// giveBack returns what is left, so that the next refill takes the key anew. The
// caller has begun a step.
func (s *Sequence) giveBack(ctx context.Context) error {
	s.mu.Lock()
	s.drop()
	s.mustReturn = true
	s.mu.Unlock()
	if err := s.c.giveBackAll(ctx, []*Sequence{s})[0]; !final(err) {
		return err
	}
	return nil
}

// returnChange is what gives the rest back to the store: nothing if there is
// nothing to give. The sequence is locked and hands nothing out.
func (s *Sequence) returnChange() (Change, bool) {
	switch {
	case s.refill == nil, errors.Is(s.failed, ErrRolledBack):
		return Change{}, false
	case s.token != 0:
		return Change{Kind: KindReturn, Key: s.key, Epoch: s.epoch, Token: s.token, Lo: s.next, Reason: Returned}, true
	case s.refill.granted != nil:
		g := s.refill.granted
		return Change{Kind: KindReturn, Key: s.key, Epoch: g.Epoch, Token: g.Token, Lo: g.Lo, Reason: Unwitnessed}, true
	case s.refill.ask != nil:
		return Change{Kind: KindAbandon, Key: s.key, Nonce: s.refill.ask.Nonce, Reason: Abandoned}, true
	}
	return Change{}, false
}

// returned notes that the rest was given back. The sequence is locked.
func (s *Sequence) returned() {
	s.count()
	if s.token != 0 && s.reserved.Epoch == s.epoch {
		s.reserved.Number = min(s.reserved.Number, s.next-1)
	}
	s.token, s.failed, s.mustReturn = 0, nil, false
	s.next, s.base, s.hi = 1, 1, 0
	if s.refill != nil {
		s.refill.ask, s.refill.granted = nil, nil
	}
}

// bump opens a new epoch.
func (s *Sequence) bump(ctx context.Context) (uint64, error) {
	st, err := s.acquire(ctx)
	if err != nil {
		return 0, err
	}
	epoch, err := s.bumpNow(ctx)
	s.end(st, err)
	return epoch, err
}

func (s *Sequence) bumpNow(ctx context.Context) (uint64, error) {
	seen, err := s.c.highest(ctx, s.key, s)
	if err != nil {
		return 0, gaveUp(ctx, "bump "+short(s.key), err)
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, s.closedError()
	}
	if s.refill != nil {
		if err := s.giveBack(ctx); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	if s.bumping == ([16]byte{}) {
		s.bumping = newNonce()
	}
	change := Change{Kind: KindBump, Key: s.key, Epoch: seen.Epoch, Nonce: s.bumping}
	s.mu.Unlock()
	o := s.c.settleAll(ctx, []Change{change})[0]
	if final(o.Err) {
		s.mu.Lock()
		s.bumping = [16]byte{}
		if o.Err == nil {
			s.reserved = higher(s.reserved, Position{Epoch: o.Epoch})
		}
		s.mu.Unlock()
	}
	if o.Err != nil {
		return 0, gaveUp(ctx, "bump "+short(s.key), o.Err)
	}
	s.c.voided(s.key, o.Void, Orphaned, Bumped)
	return o.Epoch, nil
}
