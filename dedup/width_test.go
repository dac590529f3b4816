package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawl-go/pawl/dedup"
)

// A wide store says how many joined calls may be under way at once.
type wide struct {
	dedup.Store
	width int
}

func (w wide) MergeWidth() int { return w.width }

// As many claims and settlements are under way at once as the store asks for, within
// 1 and 8; a store that asks for nothing has one at a time, and a failover asks for
// what its primary does.
func TestMergeWidth(t *testing.T) {
	mem := dedup.NewMemory()
	failover := func(primary dedup.Store) dedup.Store {
		f, err := dedup.NewFailover(primary, dedup.NewMemory(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, row := range map[string]struct {
		wrap func(dedup.Store) dedup.Store
		want int
		one  bool // it erases one ID at a time
	}{
		"not said":        {func(s dedup.Store) dedup.Store { return s }, 1, false},
		"none":            {func(s dedup.Store) dedup.Store { return wide{s, 0} }, 1, false},
		"three":           {func(s dedup.Store) dedup.Store { return wide{s, 3} }, 3, false},
		"too many":        {func(s dedup.Store) dedup.Store { return wide{s, 99} }, 8, false},
		"failover":        {func(s dedup.Store) dedup.Store { return failover(wide{s, 3}) }, 3, true},
		"narrow failover": {failover, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var claims, settlements int // under way
				open := make(chan struct{})
				count := func(n *int) {
					mu.Lock()
					*n++
					mu.Unlock()
					<-open
				}
				s := &patched{Store: mem}
				s.claim = func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
					count(&claims)
					return mem.Claim(ctx, p, asks)
				}
				s.settle = func(ctx context.Context, p dedup.Params, x []dedup.Settlement) ([]error, error) {
					count(&settlements)
					return mem.Settle(ctx, p, x)
				}
				g := newGuard(t, row.wrap(s), &dedup.Options{Scope: "w"})
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() { _, _ = g.Claim(t.Context(), dedup.Request{ID: fmt.Sprint(i)}) })
					synctest.Wait()
				}
				want := 0
				if !row.one {
					want = row.want
					for i := range 10 {
						wg.Go(func() { _ = g.Forget(t.Context(), fmt.Sprint("other", i)) })
						synctest.Wait()
					}
				}
				if claims != row.want || settlements != want {
					t.Errorf("%d claims and %d settlements are under way at once, want %d and %d", claims, settlements, row.want, want)
				}
				close(open)
				wg.Wait()
			})
		})
	}
}
