package seqgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// closeAll closes sequences: what they have left is returned in a few batches. One
// that the store gives no answer for stays open, unless the generator is closed. It
// sorts seqs: those who close take the steps of many keys, and so must do it in one
// order.
func (c *core) closeAll(ctx context.Context, seqs []*Sequence) error {
	var failed failures
	slices.SortFunc(seqs, func(a, b *Sequence) int { return cmp.Compare(a.key, b.key) })
	var closing []*Sequence
	var steps []*step
	for _, s := range seqs {
		if s.gone() {
			continue
		}
		st, err := s.acquire(ctx)
		if err != nil {
			failed.add(err)
			continue
		}
		s.mu.Lock()
		s.closed = true
		s.drop()
		s.mu.Unlock()
		closing, steps = append(closing, s), append(steps, st)
	}
	for i, err := range c.giveBackAll(ctx, closing) {
		s := closing[i]
		if final(err) {
			s.dead.Store(true)
			c.keys.remove(s)
		} else {
			s.mu.Lock()
			s.closed = c.closed.Load()
			s.mustReturn = true // before the next block is reserved
			s.mu.Unlock()
		}
		failed.add(err)
		s.end(steps[i], nil)
	}
	return failed.join()
}

// giveBackAll returns what is left of sequences that hand nothing out any more,
// each in a step of its own. An error that is final says that there was nothing to
// return.
func (c *core) giveBackAll(ctx context.Context, seqs []*Sequence) []error {
	errs := make([]error, len(seqs))
	var changes []Change
	var of []int
	for i, s := range seqs {
		s.mu.Lock()
		change, needed := s.returnChange()
		if !needed {
			s.returned()
		}
		s.mu.Unlock()
		if needed {
			changes, of = append(changes, change), append(of, i)
		}
	}
	if c.opts.Witness != nil {
		changes, of = c.lowerWitness(ctx, changes, of, errs)
	}
	if len(changes) == 0 {
		return errs
	}
	for n, o := range c.settleAll(ctx, changes) {
		s, change := seqs[of[n]], changes[n]
		if !final(o.Err) {
			errs[of[n]] = fmt.Errorf("%w: return the rest of %s: %w; it is returned by the next call that needs the key or closes it, or orphaned",
				ErrUnavailable, short(s.key), o.Err)
			continue
		}
		if o.Err == nil {
			c.counts.returned.Add(1)
			c.voided(s.key, o.Void, Certain, change.Reason)
		} else {
			if errors.Is(o.Err, ErrRolledBack) {
				o.Err = &RolledBackError{Key: s.key, Stored: o.Stored, Seen: Position{change.Epoch, change.Lo - 1}}
			}
			c.warn("a rest could not be returned", s.key, o.Err)
			errs[of[n]] = o.Err
		}
		s.mu.Lock()
		s.returned()
		s.mu.Unlock()
	}
	return errs
}

// lowerWitness takes back from the witness what the main store will have taken
// back. It comes first: a witness that knows less than it might is harmless, one
// that knows more than the store would stop everybody.
func (c *core) lowerWitness(ctx context.Context, changes []Change, of []int, errs []error) ([]Change, []int) {
	var returns []Change
	for _, change := range changes {
		if change.Kind == KindReturn {
			returns = append(returns, change)
		}
	}
	if len(returns) == 0 {
		return changes, of
	}
	lowered := map[string]error{}
	for i, err := range c.raise(ctx, returns) {
		lowered[returns[i].Key] = err
	}
	var left []Change
	var places []int
	for i, change := range changes {
		if err := lowered[change.Key]; !final(err) {
			errs[of[i]] = fmt.Errorf("%w: the witness of %s: %w; nothing was returned", ErrUnavailable, short(change.Key), err)
			continue
		}
		left, places = append(left, change), append(places, of[i])
	}
	return left, places
}

// failures joins the first errors of many.
type failures struct {
	errs []error
	n    int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	if f.n++; len(f.errs) < 10 {
		f.errs = append(f.errs, err)
	}
}

func (f *failures) join() error {
	if f.n > len(f.errs) {
		return errors.Join(append(f.errs, fmt.Errorf("seqgen: and %d errors more", f.n-len(f.errs)))...)
	}
	return errors.Join(f.errs...)
}
