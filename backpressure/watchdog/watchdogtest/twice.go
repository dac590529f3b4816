package watchdogtest

import (
	"context"
	"errors"
	"testing"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// A twiceStore sends every step twice, as a client does whose connection broke
// before the first answer came. It reports where the two answers differ although the
// specification says they agree.
type twiceStore struct {
	watchdog.Store
	t *testing.T
}

func (s *twiceStore) Beat(ctx context.Context, p watchdog.Params, beats []watchdog.Beat) ([]watchdog.Ack, error) {
	s.t.Helper()
	first, err := s.Store.Beat(ctx, p, beats)
	if err != nil || len(first) != len(beats) {
		return first, err
	}
	second, err := s.Store.Beat(ctx, p, beats)
	if err != nil || len(second) != len(beats) {
		return second, err
	}
	times := map[string]int{}
	for _, b := range beats {
		times[b.Name]++
	}
	for i, a := range first {
		if b := second[i]; times[beats[i].Name] == 1 && (a.Token != b.Token || !errors.Is(b.Err, a.Err) || (a.Err == nil) != (b.Err == nil)) {
			s.t.Errorf("the beat of %q was answered %+v, and sent again %+v", beats[i].Name, a, b)
		}
	}
	return first, nil
}

func (s *twiceStore) Act(ctx context.Context, scope string, actions []watchdog.Action) ([]watchdog.Outcome, error) {
	s.t.Helper()
	first, err := s.Store.Act(ctx, scope, actions)
	if err != nil || len(first) != len(actions) {
		return first, err
	}
	second, err := s.Store.Act(ctx, scope, actions)
	if err != nil || len(second) != len(actions) {
		return second, err
	}
	times := map[string]int{}
	for _, a := range actions {
		times[a.Name]++
	}
	for i, a := range first {
		b := second[i]
		if times[actions[i].Name] > 1 || errors.Is(a.Err, watchdog.ErrBusy) || errors.Is(a.Err, watchdog.ErrChanged) {
			continue // time, and what stood behind it in the batch, may have changed it
		}
		if a.Claim != b.Claim || a.Attempt != b.Attempt || a.First != b.First || !errors.Is(b.Err, a.Err) || (a.Err == nil) != (b.Err == nil) {
			s.t.Errorf("the %v of %q was answered %+v, and sent again %+v", actions[i].Kind, actions[i].Name, a, b)
		}
	}
	return first, nil
}
