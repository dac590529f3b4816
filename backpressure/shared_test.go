package backpressure_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/backpressure"
)

// A fakeStore admits by the number of tokens that a test puts in.
type fakeStore struct {
	mu     sync.Mutex
	tokens int
	err    error
	delay  time.Duration
	calls  atomic.Int64
}

func (f *fakeStore) Take(ctx context.Context, lines []backpressure.LineOptions, asks []backpressure.Ask) ([]backpressure.Answer, error) {
	f.calls.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	answers := make([]backpressure.Answer, len(asks))
	for i, a := range asks {
		if answers[i].Admit = f.tokens >= a.Cost; answers[i].Admit {
			f.tokens -= a.Cost
		} else {
			answers[i].RetryAfter = time.Duration(float64(a.Cost)/lines[a.Line].Rate*1e9) * time.Nanosecond
		}
	}
	return answers, nil
}

func (f *fakeStore) set(change func(*fakeStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func sharedLine(t testing.TB, store backpressure.SharedStore, change func(*backpressure.SharedOptions)) (*backpressure.SharedLine, *backpressure.Shared) {
	t.Helper()
	o := &backpressure.SharedOptions{Lines: []backpressure.LineOptions{{Name: "im", Rate: 100, Burst: 100}}, Processes: 4}
	if change != nil {
		change(o)
	}
	s, err := backpressure.NewShared(store, o)
	require.NoError(t, err)
	l, err := s.Line("im")
	require.NoError(t, err)
	return l, s
}

func TestSharedAsksItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{tokens: 5}
		l, s := sharedLine(t, store, nil)
		require.True(t, l.Allow(t.Context(), 5).Admit)
		v := l.Allow(t.Context(), 5)
		require.Equal(t, backpressure.Verdict{Reason: backpressure.NoTokens, RetryAfter: 50 * time.Millisecond}, v)
		for _, cost := range []int{0, -1, 101, math.MaxInt} {
			require.Equal(t, backpressure.CostInvalid, l.Allow(t.Context(), cost).Reason)
			require.ErrorIs(t, l.Wait(t.Context(), cost), backpressure.ErrInvalid)
		}
		require.EqualValues(t, 2, store.calls.Load())
		require.Equal(t, backpressure.SharedStats{Admitted: 1, Refused: 9}, s.Stats())
	})
}

// What each policy does when the store fails, and that the store is not asked by
// everybody as long as it does.
func TestSharedStoreDown(t *testing.T) {
	for _, c := range []struct {
		policy   backpressure.OnDown
		admitted int // of a thousand calls in the first second
		reason   backpressure.Reason
	}{
		{backpressure.LocalShare, 25 + 25, backpressure.NoTokens},
		{backpressure.Open, 1000, backpressure.NoReason},
		{backpressure.Closed, 0, backpressure.StoreDown},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &fakeStore{tokens: 1000, err: errors.New("connection refused")}
			l, s := sharedLine(t, store, func(o *backpressure.SharedOptions) { o.OnDown = c.policy })
			admitted := 0
			for range 1000 {
				if v := l.Allow(t.Context(), 1); v.Admit {
					admitted++
				} else {
					require.Equal(t, c.reason, v.Reason)
				}
				time.Sleep(time.Millisecond)
			}
			require.InDelta(t, c.admitted, admitted, 1, c.policy.String())
			require.Less(t, store.calls.Load(), int64(10))
			require.True(t, s.Stats().IsDown)
			require.EqualValues(t, 1000, s.Stats().Down)

			store.set(func(f *fakeStore) { f.err = nil })
			time.Sleep(5 * time.Second)
			require.True(t, l.Allow(t.Context(), 100).Admit)
			require.False(t, s.Stats().IsDown)
		})
	}
}

// A hundred calls that fail together are one failure: the store is asked again soon.
func TestSharedFailuresTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{tokens: 10, delay: time.Millisecond, err: errors.New("down")}
		l, s := sharedLine(t, store, nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { l.Allow(t.Context(), 1) })
		}
		wg.Wait()
		require.True(t, s.Stats().IsDown)
		store.set(func(f *fakeStore) { f.err = nil })
		time.Sleep(100 * time.Millisecond)
		l.Allow(t.Context(), 1)
		require.False(t, s.Stats().IsDown)
	})
}

// A store that hangs costs a call its timeout, and the next ones nothing.
func TestSharedStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{delay: time.Hour}
		l, _ := sharedLine(t, store, nil)
		start := time.Now()
		require.True(t, l.Allow(t.Context(), 1).Admit)
		require.Equal(t, 250*time.Millisecond, time.Since(start))
		require.True(t, l.Allow(t.Context(), 1).Admit)
		require.Equal(t, 250*time.Millisecond, time.Since(start))
		require.Equal(t, backpressure.StoreDown, l.Allow(t.Context(), 26).Reason, "more than the share holds")

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, backpressure.Expired, l.Allow(ctx, 1).Reason)
	})
}

// A caller that gives up while it asks whether the store is back leaves the question
// to the next one.
func TestSharedProbeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{tokens: 10, err: errors.New("down")}
		l, s := sharedLine(t, store, nil)
		l.Allow(t.Context(), 1)
		store.set(func(f *fakeStore) { f.delay = 100 * time.Millisecond })
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Equal(t, backpressure.Expired, l.Allow(ctx, 1).Reason)
		time.Sleep(time.Second)
		store.set(func(f *fakeStore) { f.delay, f.err = 0, nil })
		require.True(t, l.Allow(t.Context(), 1).Admit)
		require.False(t, s.Stats().IsDown)
	})
}

func TestSharedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		l, _ := sharedLine(t, store, func(o *backpressure.SharedOptions) { o.MaxWaiters = 3 })
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		cancelled, cancel := context.WithCancel(t.Context())
		for i := range 3 {
			wg.Go(func() {
				ctx := t.Context()
				if i == 1 {
					ctx = cancelled
				}
				if l.Wait(ctx, 1) == nil {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		err := l.Wait(t.Context(), 1)
		var refused *backpressure.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, backpressure.QueueFull, refused.Verdict.Reason)
		require.Equal(t, backpressure.Queued, l.Allow(t.Context(), 1).Reason)
		cancel()
		synctest.Wait()
		store.set(func(f *fakeStore) { f.tokens = 2 })
		wg.Wait()
		require.Equal(t, []int{0, 2}, order)

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, l.Wait(ctx, 1), context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "the tokens are there in 10 ms")
	})
}

// Concurrent calls share a call of the store.
func TestSharedMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{tokens: 1000, delay: time.Millisecond}
		l, _ := sharedLine(t, store, nil)
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { require.True(t, l.Allow(t.Context(), 1).Admit) })
		}
		wg.Wait()
		require.Less(t, store.calls.Load(), int64(20))
	})
}

func TestSharedOptions(t *testing.T) {
	lines := []backpressure.LineOptions{{Name: "im", Rate: 100}}
	for name, o := range map[string]*backpressure.SharedOptions{
		"nil": nil, "no processes": {Lines: lines}, "policy": {Lines: lines, OnDown: 3},
		"processes": {Lines: lines, Processes: -1}, "timeout": {Lines: lines, Processes: 1, Timeout: 1},
		"waiters": {Lines: lines, Processes: 1, MaxWaiters: -1},
		"rate":    {Lines: []backpressure.LineOptions{{Name: "im", Rate: 1e8}}, Processes: 1},
		"NaN":     {Lines: []backpressure.LineOptions{{Name: "im", Rate: math.NaN()}}, Processes: 1},
	} {
		_, err := backpressure.NewShared(&fakeStore{}, o)
		require.ErrorIs(t, err, backpressure.ErrInvalid, name)
	}
	for _, store := range []backpressure.SharedStore{nil, (*fakeStore)(nil)} {
		_, err := backpressure.NewShared(store, &backpressure.SharedOptions{Lines: lines, Processes: 1})
		require.ErrorIs(t, err, backpressure.ErrInvalid)
	}
	_, s := sharedLine(t, &fakeStore{}, nil)
	_, err := s.Line("sms")
	require.ErrorIs(t, err, backpressure.ErrInvalid)
}
