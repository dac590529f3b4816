package seqgen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Next returns the next number of a key, in the mode of the generator. For a key
// that is used much, [Generator.Key] saves the look-up.
//
// In mode Block it returns without any I/O, and without looking at ctx, while
// there are numbers left of what was reserved; the next block is reserved in the
// background before they run out.
//
// No number was assigned when it returns an error: [ErrStale] when another process
// has taken the key, [*ModeError], [*RolledBackError], [ErrExhausted],
// [ErrInvalid], [ErrFull], [ErrClosed], the context's error, or [ErrUnavailable]
// when the store or the witness gave no answer. A number that the store did
// reserve then becomes a certain void as soon as the store answers again, or in
// mode Block is handed out later.
func (g *Generator) Next(ctx context.Context, key string) (Position, error) {
	for range 3 {
		s, err := g.sequence(key)
		if err != nil {
			return Position{}, err
		}
		p, err := s.Next(ctx)
		if err == nil || !errors.Is(err, ErrClosed) || g.closed.Load() || !s.gone() {
			return p, err
		}
	}
	return Position{}, fmt.Errorf("%w: %s, again and again; no number was assigned", ErrClosed, short(key))
}

// Key returns the handle of a key, which is the same for all callers. It does no
// I/O. The errors are [ErrInvalid], [ErrFull] and [ErrClosed].
func (g *Generator) Key(key string) (*Sequence, error) {
	s, err := g.sequence(key)
	if err == nil && s.gone() {
		s, err = g.fresh(key)
	}
	return s, err
}

func (g *Generator) sequence(key string) (*Sequence, error) {
	if g.bound {
		return nil, errBound
	}
	if s := g.keys.find(key); s != nil && !s.gone() {
		return s, nil
	}
	return g.fresh(key)
}

var errBound = invalid("a view bound to a transaction has NextTx only")

// fresh finds or makes the sequence of a key.
func (c *core) fresh(key string) (*Sequence, error) {
	if err := validateKey(key); err != nil {
		return nil, err
	}
	if c.closed.Load() {
		return nil, fmt.Errorf("%w: the generator", ErrClosed)
	}
	s := c.keys.get(key, func() *Sequence { return newSequence(c, key) }, c.opts.Mode != Block)
	switch {
	case s == nil && c.closed.Load():
		return nil, fmt.Errorf("%w: the generator", ErrClosed)
	case s == nil:
		return nil, fmt.Errorf("%w: %d are open; close some", ErrFull, c.opts.MaxKeys)
	}
	return s, nil
}

// NextTx returns the next number of a key and assigns it in the caller's
// transaction. It works on a view only; see [Generator.With]:
//
//	n, err := numbers.With(store.Tx(tx)).NextTx(ctx, key)
//
// From this call to the end of the transaction, every other transaction that wants
// a number of the key waits. The number is assigned when the transaction commits;
// when it does not, the next one gets it. After an error, roll back.
//
// The errors are those of [Generator.Next]. After the commit, tell
// [Generator.Observe] of the number if the store may go back behind it.
func (g *Generator) NextTx(ctx context.Context, key string) (Position, error) {
	if !g.bound {
		return Position{}, invalid("NextTx needs a view that is bound to a transaction: With(store.Tx(tx))")
	}
	if err := validateKey(key); err != nil {
		return Position{}, err
	}
	a := Ask{Key: key, Mode: Gapless, N: 1, Nonce: newNonce()}
	s, err := g.fresh(key)
	if err == nil || errors.Is(err, ErrFull) { // then s is nil
		a.Seen, err = g.highest(ctx, key, s)
	}
	if err != nil {
		return Position{}, gaveUp(ctx, "number of "+short(key), err)
	}
	grants, err := reserve(ctx, g.store, g.params(), []Ask{a})
	if err != nil {
		grants = []Grant{{Err: err}}
	}
	switch n := grants[0]; {
	case n.Err == nil:
		g.counts.gapless.Add(1)
		return Position{n.Epoch, n.Lo}, nil
	case ctx.Err() != nil && errors.Is(n.Err, ctx.Err()):
		return Position{}, gaveUp(ctx, "number of "+short(key), n.Err)
	default:
		return Position{}, g.failed(&a, n)
	}
}

// Observe tells the generator, and its witness if there is one, of a position that
// is known to have been assigned: by a transaction that has committed, or by
// another process whose message arrived. A store that has gone back behind it will
// be found out.
func (g *Generator) Observe(ctx context.Context, key string, p Position) error {
	if err := validateKey(key); err != nil {
		return err
	}
	if p.Epoch < 1 || p.Epoch > MaxNumber || p.Number < 1 || p.Number > MaxNumber {
		return invalid("position %v, not 1/1 to 2^63-1/2^63-1", p)
	}
	s, err := g.fresh(key)
	if err != nil {
		return err
	}
	s.observe(p)
	if g.opts.Witness == nil {
		return nil
	}
	errs := g.raise(ctx, []Change{{Kind: KindRaise, Key: key, Epoch: p.Epoch, Hi: p.Number}})
	if errs[0] != nil {
		return gaveUp(ctx, "observe a number of "+short(key), errs[0])
	}
	return nil
}

// Open takes a key in mode Block, from whichever process owns it, and reserves a
// first block. What is left of a block that this generator has of the key is
// returned before. Next opens a key by itself the first time, and the first time
// after it was closed, and never else: after [ErrStale] decide whether this process
// should have the key.
func (g *Generator) Open(ctx context.Context, key string) error {
	if g.opts.Mode != Block {
		return invalid("only mode %v has owners, this generator is in mode %v", Block, g.opts.Mode)
	}
	return g.onSequence(key, func(s *Sequence) error { return s.open(ctx) })
}

// onSequence calls step with the sequence of a key, and with the next one when that
// was closed meanwhile.
func (g *Generator) onSequence(key string, step func(*Sequence) error) error {
	for range 3 {
		s, err := g.sequence(key)
		if err != nil {
			return err
		}
		if err = step(s); err == nil || !errors.Is(err, ErrClosed) || g.closed.Load() || !s.gone() {
			return err
		}
	}
	return fmt.Errorf("%w: %s, again and again; nothing was changed", ErrClosed, short(key))
}

// Bump opens a new epoch of the key, which begins at 1 and may have another mode,
// and returns it. In mode Block the owner is fenced: it may hand out what it has
// reserved in the old epoch, and gets [ErrStale] then. What this generator itself
// has left is returned before.
//
// The new epoch is above every one that the store has or the generator or its
// witness has seen, so Bump is also the way out of [ErrRolledBack] and of [ErrExhausted]. When it
// returns [ErrUnavailable], the epoch may have been opened: call it again, and the
// same generator gets the same one.
func (g *Generator) Bump(ctx context.Context, key string) (epoch uint64, err error) {
	if err := validateKey(key); err != nil {
		return 0, err
	}
	if g.bound {
		return g.bumpTx(ctx, key)
	}
	err = g.onSequence(key, func(s *Sequence) error {
		epoch, err = s.bump(ctx)
		return err
	})
	return epoch, err
}

// bumpTx opens a new epoch in the caller's transaction.
func (g *Generator) bumpTx(ctx context.Context, key string) (uint64, error) {
	var seen Position
	s, err := g.fresh(key)
	if err == nil || errors.Is(err, ErrFull) { // then s is nil
		seen, err = g.highest(ctx, key, s)
	}
	var outcomes []Outcome
	if err == nil {
		outcomes, err = settle(ctx, g.store, g.params(), []Change{{Kind: KindBump, Key: key, Epoch: seen.Epoch, Nonce: newNonce()}})
	}
	if err == nil {
		err = outcomes[0].Err
	}
	if err != nil {
		return 0, gaveUp(ctx, "bump "+short(key), err)
	}
	g.voided(key, outcomes[0].Void, Orphaned, Bumped)
	return outcomes[0].Epoch, nil
}

// Voids lists the voids of a key and an epoch that have a number in from to to, in
// ascending order and at most 1000 of them: after a full page, go on behind the Hi
// of its last. They are not cut to those limits.
func (g *Generator) Voids(ctx context.Context, key string, epoch, from, to uint64) ([]Void, error) {
	if err := validateKey(key); err != nil {
		return nil, err
	}
	if epoch < 1 || epoch > MaxNumber || from < 1 || to < from || to > MaxNumber {
		return nil, invalid("voids of epoch %d from %d to %d", epoch, from, to)
	}
	voids, err := g.store.Voids(ctx, VoidQuery{Scope: g.opts.Scope, Key: key, Epoch: epoch, From: from, To: to, Limit: maxPage})
	if err != nil {
		return nil, gaveUp(ctx, "voids of "+short(key), err)
	}
	return voids, nil
}

const maxPage = 1000

// Look returns what the store has of a key. In mode Block, Last is the end of the
// last block, which need not have been handed out.
func (g *Generator) Look(ctx context.Context, key string) (State, error) {
	if err := validateKey(key); err != nil {
		return State{}, err
	}
	states, err := look(ctx, g.store, g.opts.Scope, []string{key})
	if err == nil {
		err = states[0].Err
	}
	if err != nil {
		return State{}, gaveUp(ctx, "look at "+short(key), err)
	}
	return states[0], nil
}

// Close returns what is left of all blocks, waits for the reservation that is under
// way, and records what else is void. Calls of Next that wait behind that reservation
// get [ErrClosed], and from then on the generator assigns no numbers. A nil error
// means that this process leaves no hole that is not recorded; after another one,
// call Close again. Its context must not be the one whose end stops the service: what
// has ended returns nothing.
func (g *Generator) Close(ctx context.Context) error {
	if g.bound {
		return errBound
	}
	g.closed.Store(true)
	g.keys.close()
	return errors.Join(g.closeAll(ctx, g.keys.list()), g.drain(ctx), g.flush(ctx))
}

// CloseIdle closes the keys that have not been used for d, as far as it can tell:
// it compares with what it saw when it was called before. Call it every d or so.
// It returns how many it closed. A handle of a closed key answers [ErrClosed]; what
// the generator was told of the key by [Generator.Observe] is forgotten. A key that
// the store gave no answer for stays open, and [Generator.Next] returns its rest
// before it reserves more.
func (g *Generator) CloseIdle(ctx context.Context, d time.Duration) (closed int, err error) {
	if d < 0 {
		return 0, invalid("idle for %v", d)
	}
	var idle []*Sequence
	for _, s := range g.keys.list() {
		if s.idleFor(d) {
			idle = append(idle, s)
		}
	}
	err = g.closeAll(ctx, idle)
	for _, s := range idle {
		if s.gone() {
			closed++
		}
	}
	return closed, err
}
