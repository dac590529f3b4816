package merge

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// However many give up, each item that was sent is answered or is an orphan, and
// gets the answer to itself.
func TestEveryItemIsAccountedFor(t *testing.T) {
	var sent, answered, orphans atomic.Int64
	m := &Merger[int, int]{
		Max: 7,
		Call: func(_ context.Context, items []int, _ func(int) bool) ([]int, error) {
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
	if _, err := m.Do(context.Background(), -1); err != nil { // behind all others
		t.Fatal(err)
	}
	if s, a, o := sent.Load(), answered.Load()+1, orphans.Load(); s != a+o {
		t.Errorf("%d items were sent, %d were answered and %d are orphans", s, a, o)
	}
}
