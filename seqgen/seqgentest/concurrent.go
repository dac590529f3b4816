package seqgentest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/seqgen"
)

// Many callers at once.
var concurrentCases = []testCase{
	{name: "ConcurrentAsksShareNoNumber", run: concurrentAsks},
	{name: "ConcurrentCopiesOfAnAskAreOne", run: concurrentCopies},
	{name: "ConcurrentOwners", run: concurrentOwners},
	{name: "ConcurrentBatchesInOppositeOrder", run: oppositeOrder},
	{name: "ConcurrentBumps", run: concurrentBumps},
}

// rounds is how often each caller of a case does what it does. Sent twice, no step
// may have so many others between its two sendings that the log forgets it: all
// callers together then make at most LogSize of them.
func (e *env) rounds(once, twice int) int {
	if e.twice {
		return twice
	}
	return once
}

// A hand is a range that somebody got.
type hand struct{ lo, hi uint64 }

// noHoles checks that hands cover 1 to n, each number once.
func (e *env) noHoles(hands []hand) {
	e.Helper()
	slices.SortFunc(hands, func(a, b hand) int { return int(int64(a.lo - b.lo)) })
	next := uint64(1)
	for _, h := range hands {
		if h.lo != next {
			e.Fatalf("a grant begins at %d, want %d: a number was granted twice or not at all", h.lo, next)
		}
		next = h.hi + 1
	}
}

func concurrentAsks(e *env) {
	callers, each := 8, e.rounds(25, 2)
	var mu sync.Mutex
	var hands []hand
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var before uint64
			for n := range each {
				gs, err := e.store.Reserve(context.Background(), e.p, []seqgen.Ask{single("key", 1+(c+n)%3)})
				if err != nil || gs[0].Err != nil {
					e.Errorf("Reserve: %v, %v", gs, err)
					return
				}
				if gs[0].Lo <= before {
					e.Errorf("a caller got %d after %d", gs[0].Lo, before)
				}
				before = gs[0].Hi
				mu.Lock()
				hands = append(hands, hand{gs[0].Lo, gs[0].Hi})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	e.noHoles(hands)
}

func concurrentCopies(e *env) {
	for range 10 {
		a := single("key", 3)
		before := e.look("key").Last
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				gs, err := e.store.Reserve(context.Background(), e.p, []seqgen.Ask{a})
				if err != nil || gs[0].Err != nil || gs[0].Lo != before+1 || gs[0].Hi != before+3 {
					e.Errorf("a copy of an ask was answered %+v, %v, want %d to %d", gs, err, before+1, before+3)
				}
			})
		}
		wg.Wait()
		e.wantAt("key", 1, before+3)
	}
}

// concurrentOwners lets owners take a key from each other while they reserve and
// return. Every number must end up with one of them, or be handed out anew after
// its return.
func concurrentOwners(e *env) {
	owners, rounds := 4, e.rounds(12, 4)
	var mu sync.Mutex
	used := map[uint64]int{}
	var wg sync.WaitGroup
	for owner := range owners {
		wg.Go(func() {
			for range rounds {
				gs, err := e.store.Reserve(context.Background(), e.p, []seqgen.Ask{open("key", 5)})
				if err != nil || gs[0].Err != nil {
					e.Errorf("open: %v, %v", gs, err)
					return
				}
				g := gs[0]
				use := g.Lo + 2
				mu.Lock()
				for n := g.Lo; n <= use; n++ {
					if other, twice := used[n]; twice {
						e.Errorf("number %d was used by owners %d and %d", n, other, owner)
					}
					used[n] = owner
				}
				mu.Unlock()
				out, err := e.store.Settle(context.Background(), e.p, []seqgen.Change{giveBack("key", g, use+1)})
				if err != nil || out[0].Err != nil {
					e.Errorf("return: %v, %v", out, err)
					return
				}
			}
		})
	}
	wg.Wait()
	last := e.look("key").Last
	void := map[uint64]bool{}
	for _, v := range e.allVoids("key", 1) {
		if v.Kind == orphaned {
			// The used part of a rest that was orphaned stays so.
			for n := v.Lo; n <= v.Hi; n++ {
				if _, ok := used[n]; !ok {
					e.Errorf("%d is orphaned, and nobody used it", n)
				}
			}
			continue
		}
		for n := v.Lo; n <= v.Hi; n++ {
			if _, ok := used[n]; ok {
				e.Errorf("%d is certainly void, and was used", n)
			}
			void[n] = true
		}
	}
	for n := uint64(1); n <= last; n++ {
		if _, ok := used[n]; !ok && !void[n] {
			e.Errorf("%d of %d was not used, and is not void", n, last)
		}
	}
}

// oppositeOrder would find stores that lock keys in the order of a batch.
func oppositeOrder(e *env) {
	rounds := e.rounds(10, 4)
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for range rounds {
				var asks []seqgen.Ask
				for n := range 10 {
					asks = append(asks, single(fmt.Sprint("key-", n), 1))
				}
				if c%2 == 0 {
					slices.Reverse(asks)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				gs, err := e.store.Reserve(ctx, e.p, asks)
				cancel()
				if err != nil {
					e.Errorf("Reserve: %v", err)
					return
				}
				for _, g := range gs {
					if g.Err != nil {
						e.Errorf("Reserve: %v", g.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	for n := range 10 {
		e.wantAt(fmt.Sprint("key-", n), 1, uint64(4*rounds))
	}
}

func concurrentBumps(e *env) {
	var mu sync.Mutex
	epochs := map[uint64]bool{}
	var wg sync.WaitGroup
	callers, rounds := e.rounds(6, 4), e.rounds(4, 2)
	for range callers {
		wg.Go(func() {
			for range rounds {
				out, err := e.store.Settle(context.Background(), e.p, []seqgen.Change{bump("key", 0)})
				if err != nil || out[0].Err != nil {
					e.Errorf("bump: %v, %v", out, err)
					return
				}
				mu.Lock()
				if epochs[out[0].Epoch] {
					e.Errorf("epoch %d was opened twice", out[0].Epoch)
				}
				epochs[out[0].Epoch] = true
				mu.Unlock()
				gs, err := e.store.Reserve(context.Background(), e.p, []seqgen.Ask{open("key", 1)})
				if err != nil || gs[0].Err != nil && !errors.Is(gs[0].Err, seqgen.ErrStale) {
					e.Errorf("open: %v, %v", gs, err)
					return
				}
			}
		})
	}
	wg.Wait()
	e.wantAt("key", uint64(callers*rounds), e.look("key").Last)
}
