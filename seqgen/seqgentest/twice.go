package seqgentest

import (
	"context"
	"errors"
	"testing"

	"github.com/pawl-go/pawl/seqgen"
)

// A twiceStore sends every step twice, as a client does whose connection broke
// before the first answer came. It reports where the two answers differ although
// the specification says they agree.
type twiceStore struct {
	seqgen.Store
	t *testing.T
}

func (s *twiceStore) Reserve(ctx context.Context, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	s.t.Helper()
	first, err := s.Store.Reserve(ctx, p, asks)
	if err != nil || len(first) != len(asks) {
		return first, err
	}
	second, err := s.Store.Reserve(ctx, p, asks)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	for i, a := range first {
		b := second[i]
		if a.Err != nil { // what stood behind it in the batch may have changed its answer
			continue
		}
		if b.Err != nil || a.Epoch != b.Epoch || a.Lo != b.Lo || a.Hi != b.Hi || a.Token != b.Token {
			s.t.Errorf("the ask of %q was answered %d to %d of epoch %d (token %d), and sent again %d to %d of epoch %d (token %d, %v)",
				asks[i].Key, a.Lo, a.Hi, a.Epoch, a.Token, b.Lo, b.Hi, b.Epoch, b.Token, b.Err)
		}
	}
	return first, nil
}

func (s *twiceStore) Settle(ctx context.Context, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	s.t.Helper()
	first, err := s.Store.Settle(ctx, p, changes)
	if err != nil || len(first) != len(changes) {
		return first, err
	}
	second, err := s.Store.Settle(ctx, p, changes)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	times := map[string]int{}
	for _, c := range changes {
		times[c.Key]++
	}
	for i, c := range changes {
		a, b := first[i], second[i]
		if times[c.Key] == 1 && (a.Epoch != b.Epoch || !errors.Is(b.Err, a.Err) || (a.Err == nil) != (b.Err == nil)) {
			s.t.Errorf("the %v of %q was answered with epoch %d (%v), and sent again with epoch %d (%v)", c.Kind, c.Key, a.Epoch, a.Err, b.Epoch, b.Err)
		}
	}
	return first, nil
}
