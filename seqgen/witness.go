package seqgen

import (
	"context"
	"errors"
	"fmt"
)

// The witness is a store that is only ever raised, lowered by what was returned,
// and looked at: so it knows how far the main store must be. It is looked at before
// every reservation, because other processes may have raised it meanwhile.

// errUnasked says that an ask was not sent, because the witness did not say how far
// the key is.
var errUnasked = errors.New("the witness did not answer")

// A witnessed position is how far the witness knows a key to be at the moment. It
// is never kept: a return lowers it.
type witnessed struct {
	Position
	token uint64 // of the owner that raised it
	err   error
}

// lookWitness finds out how far the witness knows keys to be.
func (c *core) lookWitness(ctx context.Context, keys []string) []witnessed {
	known := c.lookOnce(ctx, keys)
	for i := range known {
		if known[i].err != nil && ctx.Err() == nil {
			return c.lookOnce(ctx, keys)
		}
	}
	return known
}

func (c *core) lookOnce(ctx context.Context, keys []string) []witnessed {
	known := make([]witnessed, len(keys))
	states, err := look(ctx, c.opts.Witness, c.opts.Scope, keys)
	for i := range known {
		failure := err
		if failure == nil {
			failure = states[i].Err
		}
		if failure != nil {
			known[i].err = fmt.Errorf("%w: %w", errUnasked, failure)
			continue
		}
		known[i].Position, known[i].token = Position{states[i].Epoch, states[i].Last}, states[i].Token
	}
	return known
}

// highest returns the highest position of a key that is known to be reserved: to
// its sequence, which may be nil, and to the witness.
func (c *core) highest(ctx context.Context, key string, s *Sequence) (p Position, err error) {
	if c.opts.Witness != nil {
		known := c.lookWitness(ctx, []string{key})[0]
		if known.err != nil {
			return Position{}, known.err
		}
		p = known.Position
	}
	if s != nil {
		s.mu.Lock()
		p = higher(p, s.seen())
		s.mu.Unlock()
	}
	return p, nil
}

// overtaken says whether the witness knows of numbers of a block, or behind it, that
// are another owner's. If the store has gone back since the block was granted, they
// may be the same numbers.
func (c *core) overtaken(ctx context.Context, key string, g *Grant) (bool, error) {
	known := c.lookWitness(ctx, []string{key})[0]
	return known.token != g.Token && known.Compare(Position{g.Epoch, g.Lo}) >= 0, known.err
}

// raise tells the witness how far keys are. It returns one error for each.
func (c *core) raise(ctx context.Context, changes []Change) []error {
	errs := c.tellWitness(ctx, changes)
	for _, err := range errs {
		if err != nil && ctx.Err() == nil {
			return c.tellWitness(ctx, changes) // once more, which changes nothing for the others
		}
	}
	return errs
}

func (c *core) tellWitness(ctx context.Context, changes []Change) []error {
	errs := make([]error, len(changes))
	outcomes, err := settle(ctx, c.opts.Witness, c.params(), changes)
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = outcomes[i].Err
		}
	}
	return errs
}
