package dlqtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// A twiceStore sends every step twice, as a client does whose connection broke before
// the first answer came. It returns the answer that the caller of one sending would
// have had, and reports where the other is not what the specification says.
type twiceStore struct {
	dlq.Store
	t       *testing.T
	virtual bool
}

func (s *twiceStore) Put(ctx context.Context, p dlq.Params, letters []dlq.Put) ([]dlq.Answer, error) {
	s.t.Helper()
	first, err := s.Store.Put(ctx, p, letters)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Put(ctx, p, letters)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	times := map[string]int{} // of several of one ID, an earlier one is no longer the last
	for _, l := range letters {
		times[l.Stream+l.ID]++
	}
	for i, l := range letters {
		if times[l.Stream+l.ID] == 1 && first[i] != second[i] {
			s.t.Fatalf("the letter %q was answered %v, and sent again %v", l.ID, first[i], second[i])
		}
	}
	return first, nil
}

func (s *twiceStore) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
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
		s.t.Fatalf("an ask was answered with the letters %q, and sent again with %q", claimedIDs(first.Claims), claimedIDs(second.Claims))
	}
	for _, c := range first.Claims {
		i := slices.IndexFunc(second.Claims, func(o dlq.Claim) bool { return o.Lane == c.Lane })
		if i < 0 || second.Claims[i].Token != c.Token || second.Claims[i].Record.Seq != c.Record.Seq || second.Claims[i].Record.Tries != c.Record.Tries {
			s.t.Fatalf("an ask was answered with %+v, and sent again with %+v", first.Claims, second.Claims)
		}
	}
	return first, nil
}

func (s *twiceStore) Settle(ctx context.Context, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return nil, err
	}
	times := map[string]int{} // of several of one lane, an earlier one is no longer the last
	for _, one := range settlements {
		times[one.Lane]++
	}
	for i, one := range settlements {
		// An extension is not the last settlement, and stale when the lane was released.
		if a, b := errorAt(first, i), errorAt(second, i); times[one.Lane] == 1 && (a == nil) != (b == nil) {
			s.t.Fatalf("the %v of lane %q was answered %v, and sent again %v", one.Kind, one.Lane, a, b)
		}
	}
	return first, nil
}

func (s *twiceStore) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Change(ctx, p, changes)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Change(ctx, p, changes)
	if err != nil {
		return nil, err
	}
	for i, one := range changes {
		if a, b := errorAt(first, i), errorAt(second, i); a == nil && b != nil {
			s.t.Fatalf("the %v of %q was applied, and sent again answered %v", one.Kind, one.ID, b)
		}
	}
	return first, nil
}

func (s *twiceStore) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	s.t.Helper()
	first, err := s.Store.SaveJob(ctx, p, j)
	second, again := s.Store.SaveJob(ctx, p, j)
	if fmt.Sprint(first) != fmt.Sprint(second) || !errors.Is(again, err) {
		s.t.Fatalf("the save of job %q was answered %+v (%v), and sent again %+v (%v)", j.ID, first, err, second, again)
	}
	return first, err
}

func (s *twiceStore) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	s.t.Helper()
	first, err := s.Store.Alert(ctx, alarms)
	if err != nil || len(alarms) != 1 {
		return first, err
	}
	second, err := s.Store.Alert(ctx, alarms)
	if err != nil || !slices.Equal(first, second) {
		s.t.Fatalf("alarms were answered %v, and sent again %v (%v)", first, second, err)
	}
	return first, nil
}

func errorAt(errs []error, i int) error {
	if i >= len(errs) {
		return nil
	}
	return errs[i]
}
