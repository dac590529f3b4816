package seqgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// How a generator talks to its store: each step is sent again when no answer came,
// which is safe because stores recognise a nonce and a token.

func newNonce() (n [16]byte) {
	a, b := rand.Uint64(), rand.Uint64() // ChaCha8, seeded by the system: unique, not secret
	for i := range 8 {
		n[i], n[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return n
}

// ask sends asks, and sends some once more: those without an answer, and those that
// are behind the witness alone, which is also what a rest looks like that its owner
// returned in between. What has no answer then has an Err that is not final; with
// errUnasked it was never sent. Each Seen is raised to what the witness knows.
func (c *core) ask(ctx context.Context, asks []Ask) []Grant {
	began := time.Now()
	own := slices.Clone(asks)
	grants := c.askOnce(ctx, asks)
	var again []int
	for i := range grants {
		g := &grants[i]
		unanswered := !final(g.Err) && !errors.Is(g.Err, errUnasked)
		if unanswered || errors.Is(g.Err, ErrRolledBack) && g.Stored.Compare(own[i].Seen) >= 0 {
			again = append(again, i)
		}
	}
	if len(again) > 0 && ctx.Err() == nil {
		rest := make([]Ask, len(again))
		for i, place := range again {
			rest[i] = own[place]
		}
		for i, g := range c.askOnce(ctx, rest) {
			place := again[i]
			if errors.Is(g.Err, errUnasked) && !final(grants[place].Err) {
				continue // it may have been applied the first time
			}
			grants[place], asks[place].Seen = g, rest[i].Seen
		}
	}
	c.reserved(asks, grants, time.Since(began))
	return grants
}

// askOnce looks at the witness, and sends the asks of which it knows.
func (c *core) askOnce(ctx context.Context, asks []Ask) []Grant {
	if c.opts.Witness == nil {
		return c.send(ctx, asks)
	}
	keys := make([]string, len(asks))
	for i := range asks {
		keys[i] = asks[i].Key
	}
	grants := make([]Grant, len(asks))
	var sent []Ask
	var of []int
	for i, known := range c.lookWitness(ctx, keys) {
		if known.err != nil {
			grants[i].Err = known.err
			continue
		}
		asks[i].Seen = higher(asks[i].Seen, known.Position)
		sent, of = append(sent, asks[i]), append(of, i)
	}
	if len(sent) > 0 {
		for i, g := range c.send(ctx, sent) {
			grants[of[i]] = g
		}
	}
	return grants
}

func (c *core) send(ctx context.Context, asks []Ask) []Grant {
	grants, err := reserve(ctx, c.main, c.params(), asks)
	if err != nil {
		grants = make([]Grant, len(asks))
		for i := range grants {
			grants[i].Err = err
		}
	}
	return grants
}

// reserve asks a store, and takes an answer that is none for what it is.
func reserve(ctx context.Context, s Store, p Params, asks []Ask) ([]Grant, error) {
	grants, err := s.Reserve(ctx, p, asks)
	if err != nil {
		return nil, err
	}
	if len(grants) != len(asks) {
		return nil, fmt.Errorf("the store answered %d of %d asks", len(grants), len(asks))
	}
	for i := range grants {
		g := &grants[i]
		if g.Err == nil && (g.Epoch < 1 || g.Lo < 1 || g.Hi < g.Lo || g.Hi > MaxNumber || g.Hi-g.Lo >= uint64(asks[i].N)) {
			g.Err = fmt.Errorf("the store answered an ask for %d numbers with %d to %d of epoch %d", asks[i].N, g.Lo, g.Hi, g.Epoch)
		}
	}
	return grants, nil
}

// settle sends changes, and takes an answer that is none for what it is.
func settle(ctx context.Context, s Store, p Params, changes []Change) ([]Outcome, error) {
	outcomes, err := s.Settle(ctx, p, changes)
	if err == nil && len(outcomes) != len(changes) {
		return nil, fmt.Errorf("the store answered %d of %d changes", len(outcomes), len(changes))
	}
	return outcomes, err
}

func look(ctx context.Context, s Store, scope string, keys []string) ([]State, error) {
	states, err := s.Look(ctx, scope, keys)
	if err == nil && len(states) != len(keys) {
		return nil, fmt.Errorf("the store answered %d of %d keys", len(states), len(keys))
	}
	return states, err
}

// maxBatch is how many changes are sent in one call.
const maxBatch = 512

// settleAll sends changes again and again until they are answered, ctx ends, or
// Options.SettleTimeout has passed.
func (c *core) settleAll(ctx context.Context, changes []Change) []Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.opts.SettleTimeout)
	defer cancel()
	outcomes := make([]Outcome, len(changes))
	left := make([]int, len(changes))
	for i := range left {
		left[i] = i
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var unanswered []int
		for len(left) > 0 {
			part := left[:min(len(left), maxBatch)]
			left = left[len(part):]
			batch := make([]Change, len(part))
			for i, place := range part {
				batch[i] = changes[place]
			}
			answers, err := settle(ctx, c.main, c.params(), batch)
			for i, place := range part {
				if err != nil {
					outcomes[place] = Outcome{Err: err}
				} else {
					outcomes[place] = answers[i]
				}
				if !final(outcomes[place].Err) {
					c.counts.errors.Add(1)
					unanswered = append(unanswered, place)
				}
			}
		}
		if left = unanswered; len(left) == 0 || pause(ctx, wait) != nil {
			return outcomes
		}
	}
}

// later holds what has to be recorded and that no caller waits for.
type later struct {
	mu      sync.Mutex
	pending []Change
	sending int  // of those that were taken out of pending
	working bool // a timer is set, or its function runs
}

// laterMost is how many changes wait to be recorded at most.
const laterMost = 10_000

// doLater records a change in the background, however long the store takes to
// answer. Between its attempts there is a timer and no goroutine.
func (c *core) doLater(change Change) {
	l := &c.later
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending)+l.sending >= laterMost {
		c.counts.unrecorded.Add(1)
		c.warn("too much waits to be recorded; a hole stays without a void", change.Key, nil)
		return
	}
	l.pending = append(l.pending, change)
	if !l.working {
		l.working = true
		time.AfterFunc(0, func() { c.workLater(10 * time.Millisecond) })
	}
}

func (l *later) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) > 0
}

func (c *core) workLater(wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.SettleTimeout)
	defer cancel()
	for c.sendLater(ctx) {
		wait = 10 * time.Millisecond
	}
	l := &c.later
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.working = len(l.pending) > 0; l.working {
		time.AfterFunc(wait, func() { c.workLater(min(2*wait, 5*time.Second)) })
	}
}

// sendLater sends a batch of what waits, and says whether there was an answer.
func (c *core) sendLater(ctx context.Context) (answered bool) {
	l := &c.later
	l.mu.Lock()
	batch := l.pending[:min(len(l.pending), maxBatch):min(len(l.pending), maxBatch)]
	l.pending = l.pending[len(batch):]
	l.sending += len(batch)
	l.mu.Unlock()
	if len(batch) == 0 {
		return false
	}
	outcomes, err := settle(ctx, c.main, c.params(), batch)
	var again []Change
	for i, change := range batch {
		switch {
		case err != nil || !final(outcomes[i].Err):
			c.counts.errors.Add(1)
			again = append(again, change)
		case outcomes[i].Err != nil:
			c.counts.unrecorded.Add(1)
			c.warn("a hole could not be recorded as void", change.Key, outcomes[i].Err)
		default:
			c.voided(change.Key, outcomes[i].Void, Certain, change.Reason)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, again...)
	l.sending -= len(batch)
	return len(again) < len(batch)
}

// flush waits until nothing is left to be recorded.
func (c *core) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.SettleTimeout)
	defer cancel()
	for {
		c.later.mu.Lock()
		n := len(c.later.pending) + c.later.sending
		c.later.mu.Unlock()
		if n == 0 {
			return nil
		}
		if !c.sendLater(ctx) && pause(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("%w: %d voids are not recorded; close again", ErrUnavailable, n)
		}
	}
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

// failed counts what the store answered instead of numbers, and gives it the data
// that a caller needs.
func (c *core) failed(a *Ask, g Grant) error {
	switch err := g.Err; {
	case errors.Is(err, errUnasked):
		c.counts.errors.Add(1)
		return unavailable("number of "+short(a.Key), err)
	case errors.Is(err, ErrMode):
		c.counts.mode.Add(1)
		return &ModeError{Key: a.Key, Asked: a.Mode, Stored: g.Mode}
	case errors.Is(err, ErrRolledBack):
		c.counts.rolledBack.Add(1)
		e := &RolledBackError{Key: a.Key, Stored: g.Stored, Seen: a.Seen}
		if a.Mode != Block { // which tells of a lost key
			c.lost(a.Key, e)
		}
		return e
	case errors.Is(err, ErrStale):
		c.counts.stale.Add(1)
		return fmt.Errorf("%w: %s; no number was assigned; Open takes it back", err, short(a.Key))
	case errors.Is(err, ErrExhausted):
		c.counts.exhausted.Add(1)
		return fmt.Errorf("%w: %s, the epoch ends at %d; Bump opens another", err, short(a.Key), uint64(MaxNumber))
	case errors.Is(err, ErrFull), errors.Is(err, ErrInvalid):
		return fmt.Errorf("%w (number of %s)", err, short(a.Key))
	default:
		c.counts.errors.Add(1)
		return unavailable("number of "+short(a.Key), err)
	}
}
