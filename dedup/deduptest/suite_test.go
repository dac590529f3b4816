package deduptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
)

func TestMemoryInBubbles(t *testing.T) {
	deduptest.Run(t, deduptest.Config{
		New:    func(*testing.T) dedup.Store { return dedup.NewMemory() },
		Bubble: true,
	})
}

// The form in which stores on real servers are tested.
func TestMemoryOnTheRealClock(t *testing.T) {
	deduptest.Run(t, deduptest.Config{
		New: func(*testing.T) dedup.Store { return dedup.NewMemory() },
	})
}

func BenchmarkMemory(b *testing.B) {
	deduptest.Bench(b, func(*testing.B) dedup.Store { return dedup.NewMemory() })
}

var params = dedup.Params{Scope: "faulty", Lease: time.Minute, Retention: time.Hour}

func TestFaultyBeforeTheStep(t *testing.T) {
	down := errors.New("down")
	var failure error
	s := &deduptest.Faulty{Store: dedup.NewMemory(), Before: func(deduptest.Step) error { return failure }}
	failure = down
	wantClaimError(t, s, ask("a", 1), down)
	failure = nil
	owner := wantState(t, s, ask("a", 2), dedup.Acquired) // the first ask claimed nothing
	failure = down
	wantSettleError(t, s, owner.Complete(nil), down)
	if _, err := s.Held(context.Background(), "faulty", "", 1); !errors.Is(err, down) {
		t.Fatalf("Held returned %v, want %v", err, down)
	}
	failure = nil
	wantState(t, s, ask("a", 3), dedup.InFlight) // and nothing was completed
}

func TestFaultyAfterTheStep(t *testing.T) {
	lost := errors.New("lost")
	var failure error
	var last deduptest.Step
	s := &deduptest.Faulty{Store: dedup.NewMemory(), After: func(s deduptest.Step) error { last = s; return failure }}
	failure = lost
	wantClaimError(t, s, ask("a", 1), lost)
	if len(last.Asks) != 1 || last.Asks[0].ID != "a" || last.Params.Scope != "faulty" {
		t.Fatalf("the hook was told of %+v", last)
	}
	failure = nil
	wantState(t, s, ask("a", 2), dedup.InFlight) // the first ask has claimed it
	owner := wantState(t, s, ask("a", 1), dedup.Acquired)
	failure = lost
	wantSettleError(t, s, owner.Complete(nil), lost)
	failure = nil
	wantState(t, s, ask("a", 2), dedup.Done)
}

func TestLoseReplies(t *testing.T) {
	s := deduptest.LoseReplies(dedup.NewMemory())
	wantClaimError(t, s, ask("a", 1), deduptest.ErrReplyLost)
	owner := wantState(t, s, ask("a", 1), dedup.Acquired)
	wantClaimError(t, s, ask("a", 2), deduptest.ErrReplyLost)
	wantState(t, s, ask("a", 2), dedup.InFlight)
	wantSettleError(t, s, owner.Extend(time.Hour), deduptest.ErrReplyLost)
	wantSettleError(t, s, owner.Extend(time.Hour), nil)
	wantSettleError(t, s, owner.Complete([]byte("r")), deduptest.ErrReplyLost)
	wantSettleError(t, s, owner.Complete([]byte("r")), nil)
	wantState(t, s, ask("a", 2), dedup.Done)
	if _, err := s.Held(context.Background(), "faulty", "", 1); err != nil {
		t.Fatalf("Held, which changes nothing, returned %v", err)
	}
}

func ask(id string, nonce byte) dedup.Ask {
	return dedup.Ask{Request: dedup.Request{ID: id}, Nonce: [16]byte{nonce}}
}

func wantState(t *testing.T, s dedup.Store, a dedup.Ask, want dedup.State) dedup.Claim {
	t.Helper()
	cs, err := s.Claim(context.Background(), params, []dedup.Ask{a})
	if err != nil || cs[0].State != want {
		t.Fatalf("Claim returned %v, %v; want %v", cs, err, want)
	}
	return cs[0]
}

func wantClaimError(t *testing.T, s dedup.Store, a dedup.Ask, want error) {
	t.Helper()
	if cs, err := s.Claim(context.Background(), params, []dedup.Ask{a}); !errors.Is(err, want) || cs != nil {
		t.Fatalf("Claim returned %v, %v; want only the error %v", cs, err, want)
	}
}

func wantSettleError(t *testing.T, s dedup.Store, one dedup.Settlement, want error) {
	t.Helper()
	if errs, err := s.Settle(context.Background(), params, []dedup.Settlement{one}); !errors.Is(err, want) || errs != nil {
		t.Fatalf("Settle returned %v, %v; want only the error %v", errs, err, want)
	}
}

// A service is tested against a store whose every reply is lost once: the guard
// asks again with the same nonce, and the effect happens once.
func ExampleLoseReplies() {
	guard, err := dedup.New(deduptest.LoseReplies(dedup.NewMemory()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		err := guard.Do(context.Background(), dedup.Request{ID: "order-7"}, func(context.Context) error {
			fmt.Println("charged")
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output: charged
}

// A service is tested against a store that is down.
func ExampleFaulty() {
	store := &deduptest.Faulty{
		Store:  dedup.NewMemory(),
		Before: func(deduptest.Step) error { return errors.New("no connection") },
	}
	guard, err := dedup.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = guard.Do(context.Background(), dedup.Request{ID: "order-7"}, func(context.Context) error {
		fmt.Println("charged")
		return nil
	})
	fmt.Println("acknowledge:", err == nil)
	// Output: acknowledge: false
}
