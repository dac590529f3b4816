package dedup_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Answers of a store that are none, and one that is doubted.

// A store that breaks its contract is an error, on a guard and on a view; it is
// never read as an answer.
func TestAnswersThatAreNone(t *testing.T) {
	short := func(context.Context, dedup.Params, []dedup.Ask) ([]dedup.Claim, error) { return nil, nil }
	long := func(_ context.Context, _ dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		return make([]dedup.Claim, len(asks)+1), nil
	}
	zero := func(_ context.Context, _ dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		return make([]dedup.Claim, len(asks)), nil
	}
	beyond := func(_ context.Context, _ dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		claims := make([]dedup.Claim, len(asks))
		for i := range claims {
			claims[i].State = dedup.Unknown + 1
		}
		return claims, nil
	}
	for name, answer := range map[string]func(context.Context, dedup.Params, []dedup.Ask) ([]dedup.Claim, error){
		"too few": short, "too many": long, "no state": zero, "no such state": beyond,
	} {
		t.Run(name, func(t *testing.T) {
			store := &patched{Store: dedup.NewMemory(), claim: answer}
			guard := newGuard(t, store, nil)
			for _, g := range []*dedup.Guard{guard, guard.With(store)} {
				err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { t.Error("ran"); return nil })
				wantErr(t, err, dedup.ErrUnavailable)
				first, err := g.FirstSeen(t.Context(), "b")
				wantErr(t, err, dedup.ErrUnavailable)
				if first[0] {
					t.Error("read as new")
				}
				claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "c"}, {ID: "d"}})
				if err == nil {
					err = claims[1].Err
				}
				wantErr(t, err, dedup.ErrUnavailable)
			}
			if n := guard.Stats().Errors; n == 0 {
				t.Error("not counted")
			}
		})
	}
}

func TestSettlementAnswersThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &patched{Store: dedup.NewMemory(), settle: func(context.Context, dedup.Params, []dedup.Settlement) ([]error, error) {
			return []error{}, nil
		}}
		guard := newGuard(t, store, nil)
		a, b := claim(t, guard, "a"), claim(t, guard, "b")
		for _, g := range []*dedup.Guard{guard, guard.With(store)} {
			wantErr(t, g.Settle(t.Context(), a.Complete(nil), b.Complete(nil)), dedup.ErrUnavailable)
		}
	})
}

// In a batch, what has an answer keeps it when the rest has none.
func TestABatchKeepsTheAnswersItHas(t *testing.T) {
	m := dedup.NewMemory()
	store := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		claims := make([]dedup.Claim, len(asks))
		for i := range asks {
			if asks[i].ID == "bad" {
				claims[i] = dedup.Claim{ID: "bad", Err: errLost}
			} else if c, err := m.Claim(ctx, p, asks[i:i+1]); err == nil {
				claims[i] = c[0]
			}
		}
		return claims, nil
	}}
	g := newGuard(t, store, nil)
	claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "a"}, {ID: "bad"}, {ID: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, claims[0], dedup.Acquired)
	wantState(t, claims[2], dedup.Acquired)
	wantErr(t, claims[1].Err, dedup.ErrUnavailable)
	wantErr(t, claims[1].Err, errLost)
	first, err := g.FirstSeen(t.Context(), "d", "bad")
	wantErr(t, err, dedup.ErrUnavailable)
	if !first[0] || first[1] {
		t.Errorf("first seen: %v", first)
	}
	if n := g.Stats().Errors; n != 2 {
		t.Errorf("Errors is %d, want 2", n)
	}
}

// A refusing store answers "in flight, for how long is not known" while another
// transaction is about to claim, as the first sending of a claim may be.
type refusing struct {
	*patched
	sent, refusals int
	lose           bool // the first answer
}

func newRefusing(lose bool, refusals int) *refusing {
	m := dedup.NewMemory()
	r := &refusing{refusals: refusals, lose: lose}
	r.patched = &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
		r.sent++
		if r.lose && r.sent == 1 {
			return nil, errLost
		}
		if r.refusals > 0 {
			r.refusals--
			return []dedup.Claim{{State: dedup.InFlight, ID: asks[0].ID}}, nil
		}
		return m.Claim(ctx, p, asks)
	}}
	return r
}

// After a lost answer the other transaction may be the guard's own, on a
// connection that broke: it asks again for a while before it believes it.
func TestInFlightIsDoubtedAfterALostAnswer(t *testing.T) {
	for _, row := range []struct {
		name     string
		lose     bool
		refusals int
		want     dedup.State
		atMost   time.Duration
	}{
		{"its own transaction ends", true, 3, dedup.Acquired, 50 * time.Millisecond},
		{"another's does not end", true, 1000, dedup.InFlight, 120 * time.Millisecond},
		{"no answer was lost", false, 1, dedup.InFlight, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newRefusing(row.lose, row.refusals)
				g := newGuard(t, store, nil)
				start := time.Now()
				wantState(t, claim(t, g, "a"), row.want)
				if d := time.Since(start); d > row.atMost {
					t.Errorf("took %v, want at most %v", d, row.atMost)
				}
				if row.want == dedup.InFlight && row.lose && store.sent < 5 {
					t.Errorf("believed after %d sendings", store.sent)
				}
			})
		})
	}
}

// Of goroutines that ask together for one new ID, one is told that it is first.
func TestFirstSeenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &flaky{Store: dedup.NewMemory(), block: gate}
		g := newGuard(t, store, nil)
		var mu sync.Mutex
		firsts := 0
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				first, err := g.FirstSeen(t.Context(), "same")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if first[0] {
					firsts++
				}
			})
		}
		synctest.Wait()
		store.set(func(f *flaky) { f.block = nil })
		close(gate)
		wg.Wait()
		if firsts != 1 || store.asked > 2 {
			t.Errorf("%d were first, in %d asks", firsts, store.asked)
		}
		if s := g.Stats(); s.Acquired != 1 || s.Done != 19 {
			t.Errorf("stats %+v", s)
		}
	})
}
