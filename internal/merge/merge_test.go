package merge

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// double answers each item with its double and remembers the sizes of the calls.
type double struct {
	mu    sync.Mutex
	sizes []int
	gate  chan struct{} // each call waits for it
}

func (d *double) call(ctx context.Context, items []int, _ func(int) bool) ([]int, error) {
	select {
	case <-d.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sizes = append(d.sizes, len(items))
	answers := make([]int, len(items))
	for i, n := range items {
		answers[i] = 2 * n
	}
	return answers, nil
}

func TestCallsJoinWhileOneIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{gate: make(chan struct{})}
		m := &Merger[int, int]{Call: d.call, Max: 40}
		var wg sync.WaitGroup
		ask := func(n int) {
			wg.Go(func() {
				if got, err := m.Do(t.Context(), n); got != 2*n || err != nil {
					t.Errorf("Do(%d) = %d, %v", n, got, err)
				}
			})
		}
		ask(1)
		synctest.Wait() // the first is under way, alone
		for n := range 100 {
			ask(n)
		}
		synctest.Wait()
		close(d.gate)
		wg.Wait()
		if want := []int{1, 40, 40, 20}; !equal(d.sizes, want) {
			t.Errorf("calls of %v, want %v", d.sizes, want)
		}
	})
}

type wide int

func (w wide) MergeWidth() int { return int(w) }

func TestWidthOf(t *testing.T) {
	for store, want := range map[any]int{nil: 1, 5: 1, wide(-1): 1, wide(0): 1, wide(1): 1, wide(3): 3, wide(8): 8, wide(9): 8} {
		if got := WidthOf(store); got != want {
			t.Errorf("WidthOf(%T %v) = %d, want %d", store, store, got, want)
		}
	}
}

// As many calls as the width says are under way at once; what comes meanwhile joins.
func TestWidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{gate: make(chan struct{})}
		m := &Merger[int, int]{Call: d.call, Width: 2}
		var wg sync.WaitGroup
		ask := func(n int) {
			wg.Go(func() {
				if got, err := m.Do(t.Context(), n); got != 2*n || err != nil {
					t.Errorf("Do(%d) = %d, %v", n, got, err)
				}
			})
			synctest.Wait()
		}
		for n := range 22 { // the first two are under way, each alone
			ask(n)
		}
		if n := m.Len(); n != 20 {
			t.Errorf("%d items wait, want 20", n)
		}
		d.gate <- struct{}{} // one of them is answered, and all who wait are the next
		synctest.Wait()
		if n := m.Len(); n != 0 {
			t.Errorf("%d items wait behind the third call", n)
		}
		ask(22) // there is no place for it
		if n := m.Len(); n != 1 {
			t.Errorf("%d items wait, want 1", n)
		}
		close(d.gate)
		wg.Wait()
		if want := []int{1, 1, 1, 20}; !equal(slices.Sorted(slices.Values(d.sizes)), want) {
			t.Errorf("calls of %v, want %v in some order", d.sizes, want)
		}
		synctest.Wait()
		ask(50) // a merger that was idle begins again
		synctest.Wait()
		wg.Wait()
	})
}

// A call that ends its goroutine takes no place of the width with it.
func TestWidthAfterAnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Merger[int, int]{Width: 2, Call: func(_ context.Context, items []int, _ func(int) bool) ([]int, error) {
			if items[0] < 0 {
				runtime.Goexit()
			}
			return items, nil
		}}
		for range 5 {
			var wg sync.WaitGroup
			for n := -3; n < 4; n++ {
				wg.Go(func() {
					if _, err := m.Do(t.Context(), n); n >= 0 && err != nil && !errors.Is(err, errNoReturn) {
						t.Errorf("Do(%d): %v", n, err)
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			if m.running != 0 {
				t.Fatalf("%d calls are under way when all were answered", m.running)
			}
		}
		if n, err := m.Do(t.Context(), 7); n != 7 || err != nil {
			t.Error(n, err)
		}
	})
}

func echo(_ context.Context, items []int, _ func(int) bool) ([]int, error) { return items, nil }

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestGivingUpSpoilsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{gate: make(chan struct{})}
		var orphans atomic.Int32
		m := &Merger[int, int]{Call: d.call, Orphan: func(item, answer int, err error) {
			if item != 1 || answer != 2 || err != nil {
				t.Errorf("orphan %d, %d", item, answer)
			}
			orphans.Add(1)
		}}
		short, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		do := func(ctx context.Context, n int, want error) {
			wg.Go(func() {
				if _, err := m.Do(ctx, n); !errors.Is(err, want) {
					t.Errorf("Do(%d): %v, want %v", n, err, want)
				}
			})
			synctest.Wait()
		}
		do(short, 1, context.Canceled) // is sent
		do(short, 7, context.Canceled) // is waiting
		do(t.Context(), 3, nil)
		cancel()
		synctest.Wait()
		close(d.gate)
		wg.Wait()
		synctest.Wait()
		if orphans.Load() != 1 {
			t.Errorf("%d orphans, want the one that was sent", orphans.Load())
		}
		if want := []int{1, 1}; !equal(d.sizes, want) {
			t.Errorf("calls of %v: what was given up before it was sent must not be sent", d.sizes)
		}
		if _, err := m.Do(short, 1); !errors.Is(err, context.Canceled) || len(d.sizes) != 2 {
			t.Errorf("a cancelled call was sent: %v", err)
		}
	})
}

func TestErrorsAndTimeoutReachEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{gate: make(chan struct{})}
		m := &Merger[int, int]{Call: d.call, Timeout: time.Second}
		start := time.Now()
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() {
				if _, err := m.Do(t.Context(), n); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &double{gate: make(chan struct{})}
		m := &Merger[int, int]{Call: d.call, Limit: 3}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = m.Do(t.Context(), 0) })
		synctest.Wait() // is sent
		for n := range 3 {
			wg.Go(func() {
				if _, err := m.Do(t.Context(), n); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := m.Do(t.Context(), 9); !errors.Is(err, ErrFull) || m.Len() != 3 {
			t.Errorf("got %v with %d waiting", err, m.Len())
		}
		close(d.gate)
		wg.Wait()
	})
}

func TestNothingRunsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Merger[int, int]{Call: echo}
		for n := range 10 {
			if got, err := m.Do(t.Context(), n); got != n || err != nil {
				t.Errorf("got %d, %v", got, err)
			}
		}
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running > 0 || m.queue != nil {
			t.Error("still running")
		}
	})
}

// A call knows whose callers have given up.
func TestCallSeesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var waits []bool
		m := &Merger[int, int]{Call: func(_ context.Context, items []int, w func(int) bool) ([]int, error) {
			<-gate
			for i := range items {
				waits = append(waits, w(i))
			}
			return items, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = m.Do(ctx, 1) })
		synctest.Wait() // it is sent
		wg.Go(func() { _, _ = m.Do(t.Context(), 2) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(gate)
		wg.Wait()
		if len(waits) != 2 || waits[0] == waits[1] {
			t.Errorf("got %v, want one of two", waits)
		}
	})
}

// A call that ends its goroutine, or answers too little, is an error for its
// items and for no others.
func TestBrokenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Merger[int, int]{Call: func(_ context.Context, items []int, _ func(int) bool) ([]int, error) {
			switch items[0] {
			case 1:
				runtime.Goexit()
			case 2:
				return nil, nil
			}
			return items, nil
		}}
		for n, want := range []bool{true, false, false, true} {
			if _, err := m.Do(t.Context(), n); (err == nil) != want {
				t.Errorf("Do(%d): %v", n, err)
			}
		}
	})
}

func BenchmarkMerge64(b *testing.B) {
	m := &Merger[int, int]{Call: echo}
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = m.Do(context.Background(), 1)
		}
	})
}
