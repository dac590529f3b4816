package merge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// However many give up, each item that was sent is answered or is an orphan, and
// gets the answer to itself.
func TestEveryItemIsAccountedFor(t *testing.T) {
	for _, width := range []int{0, 1, 3} {
		t.Run(fmt.Sprint("width ", width), func(t *testing.T) { everyItemIsAccountedFor(t, width) })
	}
}

func everyItemIsAccountedFor(t *testing.T, width int) {
	var sent, answered, orphans, abreast atomic.Int64
	m := &Merger[int, int]{
		Max:   7,
		Width: width,
		Call: func(_ context.Context, items []int, _ func(int) bool) ([]int, error) {
			now := abreast.Add(1)
			defer abreast.Add(-1)
			if now > int64(max(width, 1)) {
				t.Errorf("%d calls at once", now)
			}
			sent.Add(int64(len(items)))
			if rand.IntN(4) == 0 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			}
			return append([]int(nil), items...), nil
		},
		Orphan: func(item, answer int, err error) {
			if answer != item || err != nil {
				t.Errorf("item %d was answered %d, %v", item, answer, err)
			}
			orphans.Add(1)
		},
	}
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				item := worker*1000 + i
				answer, err := m.Do(ctx, item)
				cancel()
				if err == nil {
					answered.Add(1)
					if answer != item {
						t.Errorf("item %d was answered %d", item, answer)
					}
				}
			}
		})
	}
	wg.Wait()
	for busy := true; busy; { // calls of those who have given up
		m.mu.Lock()
		busy = m.running > 0
		m.mu.Unlock()
		runtime.Gosched()
	}
	if s, a, o := sent.Load(), answered.Load(), orphans.Load(); s != a+o {
		t.Errorf("%d items were sent, %d were answered and %d are orphans", s, a, o)
	}
}
