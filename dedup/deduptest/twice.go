package deduptest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// A twiceStore sends every step twice, as a client does whose connection broke
// before the first answer came, and returns the second answer. It reports where
// the two differ although the specification says they agree.
type twiceStore struct {
	dedup.Store
	t       *testing.T
	virtual bool
}

func (s *twiceStore) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	s.t.Helper()
	first, err := s.Store.Claim(ctx, p, asks)
	if err != nil || s.mayEnd(p) {
		return first, err
	}
	second, err := s.Store.Claim(ctx, p, asks)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	last := map[string]int{}
	for i, a := range asks {
		last[a.ID] = i
	}
	for i, a := range first {
		b := second[i]
		if a.State != dedup.Acquired && i < last[a.ID] {
			continue // an ask behind it may have acquired the ID: the next attempt, or done
		}
		if a.Err != nil || b.Err != nil {
			continue // the caller of Claim looks at b
		}
		if a.State != b.State || a.Token != b.Token || a.Attempt != b.Attempt || !bytes.Equal(a.Result, b.Result) {
			s.t.Fatalf("the ask of %q was answered %v (token %d, attempt %d), and sent again %v (token %d, attempt %d)",
				a.ID, a.State, a.Token, a.Attempt, b.State, b.Token, b.Attempt)
		}
	}
	return second, nil
}

func (s *twiceStore) Settle(ctx context.Context, p dedup.Params, ss []dedup.Settlement) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Settle(ctx, p, ss)
	if err != nil || s.mayEnd(p) {
		return first, err
	}
	second, err := s.Store.Settle(ctx, p, ss)
	if err != nil {
		return nil, err
	}
	// Two settlements of one ID may rightly answer otherwise the second time: an
	// extension is stale once the completion behind it was applied.
	times := map[string]int{}
	for _, st := range ss {
		times[st.ID]++
	}
	for i, st := range ss {
		if a, b := errorAt(first, i), errorAt(second, i); times[st.ID] == 1 && (a == nil) != (b == nil) {
			s.t.Fatalf("the %v of %q was answered %v, and sent again %v", st.Kind, st.ID, a, b)
		}
	}
	return first, nil
}

// mayEnd says that what the step makes can end between the two sendings, which
// then rightly differ.
func (s *twiceStore) mayEnd(p dedup.Params) bool {
	return !s.virtual && (p.Lease < time.Minute || p.Retention < time.Minute)
}

func errorAt(errs []error, i int) error {
	if i >= len(errs) {
		return nil
	}
	return errs[i]
}
