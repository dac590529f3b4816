package seqgen

import (
	"context"
	"fmt"
)

// The witness is a store that is only ever raised, lowered by what was returned,
// and looked at: so it knows how far the main store must be.

// askWitness finds out, for keys used the first time, how far the witness knows
// them to be.
func (c *core) askWitness(ctx context.Context, seqs []*Sequence) error {
	if c.opts.Witness == nil {
		return nil
	}
	var asked []*Sequence
	var keys []string
	for _, s := range seqs {
		s.mu.Lock()
		if !s.asked {
			asked, keys = append(asked, s), append(keys, s.key)
		}
		s.mu.Unlock()
	}
	if len(keys) == 0 {
		return nil
	}
	states, err := look(ctx, c.opts.Witness, c.opts.Scope, keys)
	for i := range states {
		if err == nil {
			err = states[i].Err
		}
	}
	if err != nil {
		return fmt.Errorf("%w: the witness: %w; no number was assigned", ErrUnavailable, err)
	}
	for i, s := range asked {
		s.saw(Position{states[i].Epoch, states[i].Last})
		s.mu.Lock()
		s.asked = true
		s.mu.Unlock()
	}
	return nil
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
