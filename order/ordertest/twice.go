package ordertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/order"
)

// A twiceStore sends every step twice, as a client does whose connection broke
// before the first answer came. It returns the answer that the caller of one
// sending would have had, and reports where the other is not what the
// specification says.
type twiceStore struct {
	order.Store
	t       *testing.T
	virtual bool
}

func (s *twiceStore) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	s.t.Helper()
	first, err := s.Store.Push(ctx, p, arrivals)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Push(ctx, p, arrivals)
	if err != nil || len(first) != len(second) {
		return second, err
	}
	for i, a := range first {
		want := a.State
		if want == order.Buffered || want == order.Late {
			want = order.Duplicate // it finds its own message
		}
		if second[i].State != want || second[i].Key != a.Key || second[i].Position != a.Position {
			s.t.Fatalf("%s %v was answered %s at %v, and sent again %s at %v", arrivals[i].Key, arrivals[i].Position,
				arrivedName(a.State), a.Position, arrivedName(second[i].State), second[i].Position)
		}
	}
	return first, nil
}

func (s *twiceStore) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	s.t.Helper()
	first, err := s.Store.Claim(ctx, p, a)
	if err != nil || !s.virtual && a.Lease < time.Minute {
		return first, err
	}
	second, err := s.Store.Claim(ctx, p, a)
	if err != nil {
		return second, err
	}
	if len(first.Claims) != len(second.Claims) {
		s.t.Fatalf("an ask was answered with the keys %q, and sent again with %q", keysOf(first.Claims), keysOf(second.Claims))
	}
	for _, c := range first.Claims {
		i := slices.IndexFunc(second.Claims, func(o order.Claim) bool { return o.Key == c.Key })
		if i < 0 || !sameClaim(c, second.Claims[i]) {
			s.t.Fatalf("an ask was answered with %+v, and sent again with %+v", first.Claims, second.Claims)
		}
	}
	return first, nil
}

// sameClaim compares what does not depend on when the second was sent.
func sameClaim(a, b order.Claim) bool {
	if a.Token != b.Token || a.Epoch != b.Epoch || a.More != b.More || (a.Gap == nil) != (b.Gap == nil) || len(a.Run) != len(b.Run) {
		return false
	}
	for i, m := range a.Run {
		if b.Run[i].Position != m.Position || b.Run[i].Attempt != m.Attempt {
			return false
		}
	}
	attempts := map[order.Position]int{}
	for _, m := range a.Late {
		attempts[m.Position] = m.Attempt
	}
	for _, m := range b.Late {
		if attempts[m.Position] != m.Attempt {
			return false
		}
	}
	return len(a.Late) == len(b.Late)
}

func (s *twiceStore) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
	s.t.Helper()
	first, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return first, err
	}
	second, err := s.Store.Settle(ctx, p, settlements)
	if err != nil {
		return nil, err
	}
	if len(settlements) > 1 && slices.ContainsFunc(settlements, func(t order.Settlement) bool {
		return t.Kind == order.KindExtend || t.Kind == order.KindForget
	}) {
		return first, nil // what comes behind them may rightly make them stale
	}
	for i, t := range settlements {
		if a, b := errorAt(first, i), errorAt(second, i); (a == nil) != (b == nil) {
			s.t.Fatalf("the %s was answered %v, and sent again %v", settlementName(t), a, b)
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
