package seqgen

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Sequence is the handle of one key, from [Generator.Key]. Its methods are safe
// for concurrent use.
type Sequence struct {
	c    *core
	key  string
	dead atomic.Bool // closed, and accounted for: another may take its place

	mu         sync.Mutex
	next, hi   uint64 // what is left of the blocks: none if next is above hi
	refillAt   uint64 // handing out this number, or a higher one, begins a refill
	epoch      uint64
	token      uint64 // of this owner; 0: the key was not taken yet
	base       uint64 // numbers from here to next were handed out and not yet counted
	closed     bool
	failed     error    // no refill helps: the key is lost
	mustReturn bool     // the rest was given up for an opening, and the store did not answer
	reserved   Position // the highest reserved for this generator, less what it returned
	observed   Position // the highest it was told of, which was assigned: never lowered
	bumping    [16]byte // the nonce of a bump that was not answered
	step       *step    // under way
	waiting    int
	refill     *refillState

	idleNext  uint64
	idleSince time.Time
}

// A step is something that only one goroutine at a time does for a key.
type step struct {
	done chan struct{}
	err  error // set before done is closed
}

func newSequence(c *core, key string) *Sequence {
	s := &Sequence{c: c, key: key, next: 1, base: 1, refillAt: never}
	if c.opts.Mode == Block {
		s.refill = &refillState{size: c.opts.Block}
	}
	return s
}

// never is above every number.
const never = math.MaxUint64

// Next is [Generator.Next] for the key of the handle.
func (s *Sequence) Next(ctx context.Context) (Position, error) {
	if s.refill == nil {
		return s.nextSingle(ctx)
	}
	s.mu.Lock()
	if s.next > s.hi {
		s.mu.Unlock()
		return s.await(ctx)
	}
	p := Position{s.epoch, s.next}
	s.next++
	if p.Number >= s.refillAt {
		s.beginRefill()
	}
	s.mu.Unlock()
	return p, nil
}

// await takes a number once a refill has brought some.
func (s *Sequence) await(ctx context.Context) (Position, error) {
	var began time.Time
	var failure error
	for {
		s.mu.Lock()
		switch {
		case s.next <= s.hi:
			p := Position{s.epoch, s.next}
			s.next++
			if p.Number >= s.refillAt {
				s.beginRefill()
			}
			s.mu.Unlock()
			if !began.IsZero() {
				s.c.waited(ctx, s.key, time.Since(began))
			}
			return p, nil
		case s.closed && s.step != nil && !s.c.closed.Load(): // it is being closed, or stays open after all
		case s.closed:
			failure = s.closedError()
		case s.failed != nil:
			failure = s.failed
		}
		if failure != nil {
			s.mu.Unlock()
			return Position{}, failure
		}
		st := s.step
		if st == nil {
			st = s.beginRefill()
		}
		s.waiting++
		s.mu.Unlock()
		if began.IsZero() {
			began = time.Now()
		}
		select {
		case <-st.done:
			failure = st.err
		case <-ctx.Done():
			failure = gaveUp(ctx, "number of "+short(s.key), ctx.Err())
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}
}

func (s *Sequence) closedError() error {
	return fmt.Errorf("%w: %s; no number was assigned", ErrClosed, short(s.key))
}

// Close returns what is left of the block and releases the memory of the key. The
// handle answers [ErrClosed] from then on, to everybody who has it; [Generator.Key]
// makes a new one. After [ErrUnavailable] or the context's error the handle is still
// open: call Close again. Closing a closed handle does nothing.
func (s *Sequence) Close(ctx context.Context) error {
	return s.c.closeAll(ctx, []*Sequence{s})
}

// gone says that the sequence is closed and another may take its place.
func (s *Sequence) gone() bool { return s.dead.Load() }

// seen returns the highest position that the store must have. The sequence is
// locked.
func (s *Sequence) seen() Position { return higher(s.reserved, s.observed) }

// observe notes that a position was assigned.
func (s *Sequence) observe(p Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = higher(s.observed, p)
}

// acquire waits until no step is under way and begins one.
func (s *Sequence) acquire(ctx context.Context) (*step, error) {
	for {
		s.mu.Lock()
		under := s.step
		if under == nil {
			st := s.begin()
			s.mu.Unlock()
			return st, nil
		}
		s.mu.Unlock()
		select {
		case <-under.done:
		case <-ctx.Done():
			return nil, gaveUp(ctx, "wait for a step for "+short(s.key), ctx.Err())
		}
	}
}

// begin begins a step. The sequence is locked and has none.
func (s *Sequence) begin() *step {
	s.step = &step{done: make(chan struct{})}
	return s.step
}

func (s *Sequence) end(st *step, err error) {
	s.mu.Lock()
	s.step = nil
	s.mu.Unlock()
	st.err = err
	close(st.done)
}

// count moves what was handed out to the common counter, and returns the rest. The
// sequence is locked.
func (s *Sequence) count() {
	s.c.counts.block.Add(s.next - s.base)
	s.base = s.next
}

func (s *Sequence) idleFor(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	busy := s.waiting > 0 || s.step != nil
	if s.next != s.idleNext || busy || s.idleSince.IsZero() {
		s.idleNext, s.idleSince = s.next, now
		return d == 0 && !busy
	}
	return now.Sub(s.idleSince) >= d
}
