package inboxtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A twiceStore sends every step twice, as a client does whose connection broke
// before the first answer came. It returns the answer that the caller of one
// sending would have had, and reports where the other is not what the
// specification says.
type twiceStore struct {
	inbox.Store
	t       *testing.T
	virtual bool
}

func (s *twiceStore) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	s.t.Helper()
	first, err := s.Store.Accept(ctx, p, arrivals)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Accept(ctx, p, arrivals)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	for i, a := range first {
		if a == inbox.Accepted {
			a = inbox.Duplicate // it finds its own records
		}
		if second[i] != a {
			s.t.Fatalf("the arrival %q was answered %v, and sent again %v", arrivals[i].ID, first[i], second[i])
		}
	}
	return first, nil
}

func (s *twiceStore) Claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	s.t.Helper()
	first, err := s.Store.Claim(ctx, a)
	if err != nil || !s.virtual && a.Lease < time.Minute {
		return first, err
	}
	second, err := s.Store.Claim(ctx, a)
	if err != nil {
		return second, err
	}
	if len(first.Claims) != len(second.Claims) {
		s.t.Fatalf("an ask was answered with the keys %q, and sent again with %q", keysOf(first.Claims), keysOf(second.Claims))
	}
	for _, c := range first.Claims {
		i := slices.IndexFunc(second.Claims, func(o inbox.Claim) bool { return o.Key == c.Key })
		if i < 0 || second.Claims[i].Token != c.Token || second.Claims[i].More != c.More ||
			!slices.Equal(idsOf(second.Claims[i].Records), idsOf(c.Records)) ||
			attempts(second.Claims[i]) != attempts(c) {
			s.t.Fatalf("an ask was answered with %+v, and sent again with %+v", first.Claims, second.Claims)
		}
	}
	return first, nil
}

// attempts is how often the first record of a claim was begun.
func attempts(c inbox.Claim) int {
	if len(c.Records) == 0 {
		return 0
	}
	return c.Records[0].Attempts
}

func (s *twiceStore) Settle(ctx context.Context, p inbox.Params, settlements []inbox.Settlement) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return nil, err
	}
	// Of several settlements of one key, an earlier one may rightly answer
	// otherwise the second time: a begin is stale once its record was ended.
	times := map[string]int{}
	for _, one := range settlements {
		times[one.Key]++
	}
	for i, one := range settlements {
		if a, b := errorAt(first, i), errorAt(second, i); times[one.Key] == 1 && (a == nil) != (b == nil) {
			s.t.Fatalf("the %v of %q was answered %v, and sent again %v", one.Kind, one.ID, a, b)
		}
	}
	return first, nil
}

func (s *twiceStore) Change(ctx context.Context, p inbox.Params, changes []inbox.Change) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Change(ctx, p, changes)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Change(ctx, p, changes)
	if err != nil {
		return nil, err
	}
	// Of several changes of one event, an earlier one is no longer its last.
	times := map[string]int{}
	for _, one := range changes {
		times[one.ID]++
	}
	for i, one := range changes {
		if a, b := errorAt(first, i), errorAt(second, i); times[one.ID] == 1 && (a == nil) != (b == nil) {
			s.t.Fatalf("the %v of %q was answered %v, and sent again %v", one.Kind, one.ID, a, b)
		}
	}
	return first, nil
}

func errorAt(errs []error, i int) error {
	if i >= len(errs) {
		return nil
	}
	return errs[i]
}
