package retry_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// A budget of a tenth lets a tenth of the calls retry, and those that it refuses
// have waited for nothing and lost nothing (failsafe-go: all had slept, and none
// kept its cause).
func TestBudgetRefusesAtOnceAndKeepsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetOptions{Share: 0.1, Floor: 0.1}) // the floor is one retry in 10 s
		p := policy(t, retry.Options{Budget: b, MaxAttempts: 4})
		var calls, refused, waited atomic.Int64
		start := time.Now()
		var all sync.WaitGroup
		gate := make(chan struct{})
		for range 1000 {
			all.Go(func() {
				first := true
				err := retry.Do(t.Context(), p, func(context.Context) error {
					if calls.Add(1); first {
						<-gate // so that all calls are counted before any fails
						first = false
					}
					return err1
				})
				e, ok := errors.AsType[*retry.Error](err)
				if !ok || !errors.Is(err, err1) {
					t.Errorf("the cause is lost: %v", err)
					return
				}
				if e.Reason == retry.StopBudget {
					refused.Add(1)
					if e.Made == 1 && time.Since(start) > 0 {
						waited.Add(1)
					}
				}
			})
		}
		synctest.Wait()
		close(gate)
		all.Wait()
		if retries := calls.Load() - 1000; retries != 101 {
			t.Errorf("%d retries of 1000 calls, want 101", retries)
		}
		if refused.Load() != 1000 || waited.Load() != 0 {
			t.Errorf("%d refused, %d of them waited", refused.Load(), waited.Load())
		}
		got, want := b.Stats(), retry.BudgetStats{Calls: 1000, Spent: 101, Allowed: 101, Refused: 1000}
		got.Allowed = math.Round(got.Allowed)
		if got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// A caller with one call at a time has the share and the floor as well
// (failsafe-go #106: only calls under way counted).
func TestBudgetOfOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetOptions{Share: 0.5, Floor: 0.5}) // 5 in a window of 10 s
		p := policy(t, retry.Options{Budget: b, MaxAttempts: 2, Backoff: retry.Constant(0)})
		calls := 0
		for range 20 {
			_ = retry.Do(t.Context(), p, failing(&calls, err1))
		}
		if retries := calls - 20; retries != 15 {
			t.Errorf("%d retries of 20 calls, want 20/2 + 5", retries)
		}
		time.Sleep(10 * time.Second) // nothing of it is left
		calls = 0
		for range 20 {
			_ = retry.Do(t.Context(), p, failing(&calls, err1))
		}
		if retries := calls - 20; retries != 15 {
			t.Errorf("a window later: %d retries of 20 calls, want 15", retries)
		}
	})
}

// What was not used does not add up: an hour of calls leaves a window's share.
func TestBudgetExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetOptions{Share: 0.1, Floor: 0.1})
		p := policy(t, retry.Options{Budget: b, MaxAttempts: 2, Backoff: retry.Constant(0)})
		for range 3600 {
			_ = retry.Do(t.Context(), p, succeed)
			time.Sleep(time.Second)
		}
		if s := b.Stats(); s.Calls < 9 || s.Calls > 10 {
			t.Errorf("%d calls in the window, want those of 10 s", s.Calls)
		}
		calls := 0
		for range 1000 {
			_ = retry.Do(t.Context(), p, failing(&calls, err1))
		}
		if retries := calls - 1000; retries < 100 || retries > 102 {
			t.Errorf("%d retries, want a tenth of 1009 and the floor of one", retries)
		}
		time.Sleep(time.Hour)
		if s := b.Stats(); s.Calls != 0 || s.Spent != 0 {
			t.Errorf("an hour later: %+v", s)
		}
	})
}

// 0.29 times 100 is 28.999999999999996 to a processor, and 29 to a reader.
func TestBudgetRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetOptions{Share: 0.29, Floor: 1e-300})
		twice := policy(t, retry.Options{MaxAttempts: 2, Backoff: retry.Constant(0), Budget: b})
		for n := range 100 {
			if n < 71 {
				_ = retry.Do(t.Context(), twice, succeed)
			} else {
				_ = retry.Do(t.Context(), twice, failing(new(int), err1))
			}
		}
		if s := b.Stats(); s.Spent != 29 {
			t.Errorf("%+v, want 29 spent", s)
		}
	})
}

func TestBudgetCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			err  error
			want int
		}{{err1, 10}, {retry.Transient(err1), 5}, {retry.Throttled(err1), 2}} {
			b := budget(t, retry.BudgetOptions{Share: 1e-9, Cost: retry.Cost{Transient: 2, Throttled: 4}})
			p := policy(t, retry.Options{Budget: b, MaxAttempts: 100, Backoff: retry.Constant(0), Throttled: retry.Constant(0)})
			calls := 0
			e := stopped(t, retry.Do(t.Context(), p, failing(&calls, tt.err)))
			if e.Reason != retry.StopBudget || calls-1 != tt.want {
				t.Errorf("%v: %d retries for the floor of 10, want %d", e.Attempts[0].Class, calls-1, tt.want)
			}
		}
	})
}

// A retry that another bound forbids costs nothing, and neither does one that was
// cancelled before it began.
func TestBudgetIsSpentOnRetriesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, retry.BudgetOptions{})
		calls := 0
		for _, o := range []retry.Options{{MaxAttempts: 1}, {MaxElapsed: 1}, {MaxServerWait: 1}} {
			o.Budget = b
			_ = retry.Do(t.Context(), policy(t, o), failing(&calls, retry.After(err1, 2)))
		}
		_ = retry.Do(t.Context(), policy(t, retry.Options{Budget: b}), failing(&calls, retry.Permanent(err1)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_ = retry.Do(ctx, policy(t, retry.Options{Budget: b}), failing(&calls, err1))
		if s := b.Stats(); s.Spent != 0 || s.Calls != 5 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
		for _, wait := range []time.Duration{time.Second, 30 * time.Second} { // within the window and beyond it
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(wait, cancel)
			p := policy(t, retry.Options{Budget: b, Backoff: retry.Constant(40 * time.Second)})
			if e := stopped(t, retry.Do(ctx, p, failing(&calls, err1))); e.Reason != retry.StopCancelled {
				t.Error(e)
			}
			if s := b.Stats(); s.Spent != 0 {
				t.Errorf("cancelled after %v: %+v", wait, s)
			}
		}
	})
}

func TestBudgetOptions(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, o := range map[string]retry.BudgetOptions{
		"negative share":  {Share: -0.1},
		"NaN share":       {Share: nan},
		"infinite share":  {Share: inf},
		"share above 10":  {Share: 10.1},
		"negative floor":  {Floor: -1},
		"NaN floor":       {Floor: nan},
		"infinite floor":  {Floor: inf},
		"huge floor":      {Floor: math.MaxFloat64},
		"negative window": {Window: -time.Second},
		"short window":    {Window: time.Millisecond},
		"long window":     {Window: forever},
		"negative cost":   {Cost: retry.Cost{Transient: -1}},
		"NaN cost":        {Cost: retry.Cost{Throttled: nan}},
		"infinite cost":   {Cost: retry.Cost{Unknown: inf}},
	} {
		if b, err := retry.NewBudget(&o); !errors.Is(err, retry.ErrInvalid) || b != nil {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
	if _, err := retry.NewBudget(nil); err != nil {
		t.Error(err)
	}
}

// A budget of any numbers is refused or holds.
func TestBudgetOfAnyNumbers(t *testing.T) {
	testBudget(t, 0.2, 1, int64(10*time.Second), 1, 1, 1, 100)
	testBudget(t, math.NaN(), math.Inf(1), math.MaxInt64, math.Inf(-1), 0, math.Copysign(0, -1), 1)
	testBudget(t, 10, 1e6, int64(time.Hour), 1e6, 5e-324, 1e-9, 1000)
	r, accepted := newNumbers(), 0
	for range 20_000 {
		if testBudget(t, r.float(), r.float(), r.int(), r.float(), r.float(), r.float(), 50) {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("%d budgets were accepted: the numbers try too little", accepted)
	}
}

func testBudget(t *testing.T, share, floor float64, window int64, unknown, transient, throttled float64, calls int) (accepted bool) {
	o := retry.BudgetOptions{Share: share, Floor: floor, Window: time.Duration(window),
		Cost: retry.Cost{Unknown: unknown, Transient: transient, Throttled: throttled}}
	synctest.Test(t, func(t *testing.T) { // where no call expires before its retry
		b, err := retry.NewBudget(&o)
		if err != nil {
			if !errors.Is(err, retry.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		accepted = true
		p := policy(t, retry.Options{Budget: b, MaxAttempts: 3, Backoff: retry.Constant(0), Throttled: retry.Constant(0)})
		for n := range calls {
			made := 0
			_ = retry.Do(t.Context(), p, failing(&made, []error{err1, retry.Transient(err1), retry.Throttled(err1)}[n%3]))
			if s := b.Stats(); made < 1 || made > 3 || s.Spent > s.Allowed || s.Spent < 0 {
				t.Fatalf("%d attempts, %+v with %+v", made, s, o)
			}
		}
	})
	return accepted
}
