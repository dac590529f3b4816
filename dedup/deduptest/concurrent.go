package deduptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/pawl-go/pawl/dedup"
)

// Many callers at once.
var concurrentCases = []testCase{
	{name: "ConcurrentAsksElectOne", run: concurrentAsksElectOne, once: true},
	{name: "ConcurrentBatchesElectOne", run: concurrentBatchesElectOne, once: true},
	{name: "ConcurrentFirstSeenElectsOne", run: concurrentFirstSeenElectsOne, once: true},
	{name: "ConcurrentAsksAfterLapseElectOne", run: concurrentAsksAfterLapse, once: true},
	{name: "ConcurrentAsksAfterReleaseElectOne", run: concurrentAsksAfterRelease, once: true},
	{name: "ConcurrentOwnersAreNumbered", run: concurrentOwnersAreNumbered, once: true},
	{name: "ConcurrentSettlementsApplyOne", run: concurrentSettlements, once: true},
	{name: "LateOwnerAndNextOwnerNeverBothWin", run: lateOwnerAndNextOwner, once: true},
}

const callers = 16

// together runs f once for each caller, all at the same moment.
func together(f func(caller int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// tryClaim is claim for goroutines: it reports an error and goes on.
func (e *env) tryClaim(p dedup.Params, asks ...dedup.Ask) []dedup.Claim {
	e.Helper()
	cs, err := e.store.Claim(context.Background(), p, asks)
	if err != nil || len(cs) != len(asks) {
		e.Errorf("Claim of %d asks returned %d claims and the error %v", len(asks), len(cs), err)
		return nil
	}
	for _, c := range cs {
		if c.Err != nil {
			e.Errorf("Claim of %q: %v", c.ID, c.Err)
		}
	}
	return cs
}

// elect lets all callers ask for one ID and checks that one of them gets it, and
// the others are told the given state.
func (e *env) elect(p dedup.Params, id string, attempt int, others dedup.State) dedup.Claim {
	e.Helper()
	answers := make([]dedup.Claim, callers)
	together(func(i int) {
		if cs := e.tryClaim(p, newAsk(id)); cs != nil {
			answers[i] = cs[0]
		}
	})
	var owner dedup.Claim
	owners := 0
	for _, c := range answers {
		switch c.State {
		case dedup.Acquired:
			owner = c
			owners++
		case others, dedup.InFlight: // in flight: the owner had not quite come
		default:
			e.Errorf("a concurrent ask for %q was answered %v, want %v", id, c.State, others)
		}
	}
	if owners != 1 {
		e.Fatalf("%d of %d concurrent asks for %q acquired it, want 1", owners, callers, id)
	}
	return e.wantAcquired(owner, attempt)
}

func concurrentAsksElectOne(e *env) {
	for round := range 15 {
		id := fmt.Sprintf("round-%d", round)
		c := e.elect(e.p, id, 1, dedup.InFlight)
		e.applied(c.Complete([]byte("r")))
		e.wantDone(e.probe(id), []byte("r"))
	}
}

func concurrentFirstSeenElectsOne(e *env) {
	for round := range 15 {
		id := fmt.Sprintf("round-%d", round)
		e.elect(firstSeenParams(e.p), id, 1, dedup.Done)
		e.wantDone(e.probe(id), nil)
	}
}

func concurrentAsksAfterLapse(e *env) {
	const rounds = 8
	for round := range rounds {
		e.acquire(e.shortLease(e.p), fmt.Sprintf("round-%d", round))
	}
	e.wait()
	for round := range rounds {
		c := e.elect(e.p, fmt.Sprintf("round-%d", round), 2, dedup.InFlight)
		e.applied(c.Complete(nil))
	}
}

func concurrentAsksAfterRelease(e *env) {
	c := e.acquire(e.p, "released")
	for round := range 15 {
		e.applied(c.Release())
		c = e.elect(e.p, "released", round+2, dedup.InFlight)
	}
}

// concurrentBatchesElectOne sends overlapping batches in random orders. Stores
// that lock in the order of the batch deadlock here.
func concurrentBatchesElectOne(e *env) {
	const ids, rounds = 40, 4
	for round := range rounds {
		var acquired [ids]atomic.Int32
		together(func(int) {
			order := rand.Perm(ids)
			asks := make([]dedup.Ask, ids)
			for i, n := range order {
				asks[i] = newAsk(fmt.Sprintf("round-%d-id-%d", round, n))
			}
			for i, c := range e.tryClaim(e.p, asks...) {
				switch c.State {
				case dedup.Acquired:
					acquired[order[i]].Add(1)
				case dedup.InFlight:
				default:
					e.Errorf("a concurrent ask for %q was answered %v, want %v", c.ID, c.State, dedup.InFlight)
				}
			}
		})
		for n := range ids {
			if got := acquired[n].Load(); got != 1 {
				e.Fatalf("%d of %d concurrent batches acquired ID %d, want 1", got, callers, n)
			}
		}
	}
}

// concurrentOwnersAreNumbered lets all callers claim and release a few IDs again
// and again, while one of them lists what is held. However they interleave, the
// owners of an ID are numbered without a gap and their tokens rise.
func concurrentOwnersAreNumbered(e *env) {
	ids := []string{"a", "b", "c"}
	var mu sync.Mutex
	tokens := map[string]map[int]uint64{"a": {}, "b": {}, "c": {}}
	together(func(caller int) {
		for i := range 30 {
			if caller == 0 {
				if _, err := e.store.Held(context.Background(), e.p.Scope, "", 10); err != nil {
					e.Errorf("Held: %v", err)
				}
				continue
			}
			for _, c := range e.tryClaim(e.p, newAsk(ids[(caller+i)%len(ids)])) {
				if c.State != dedup.Acquired {
					continue
				}
				mu.Lock()
				if _, twice := tokens[c.ID][c.Attempt]; twice {
					e.Errorf("two owners of %q are both attempt %d", c.ID, c.Attempt)
				}
				tokens[c.ID][c.Attempt] = c.Token
				mu.Unlock()
				if !e.trySettle(c.Release()) {
					e.Errorf("attempt %d of %q could not release it", c.Attempt, c.ID)
				}
			}
		}
	})
	for id, of := range tokens {
		for attempt := 1; attempt <= len(of); attempt++ {
			if of[attempt] <= of[attempt-1] {
				e.Errorf("attempt %d of %q got token %d, and the one before it %d", attempt, id, of[attempt], of[attempt-1])
			}
		}
	}
}

// concurrentSettlements lets the copies of one owner's call end the claim in
// three ways at once: one way wins, and its copies all succeed.
func concurrentSettlements(e *env) {
	kinds := []dedup.Kind{dedup.KindComplete, dedup.KindRelease}
	for round := range 15 {
		c := e.acquire(e.p, fmt.Sprintf("round-%d", round))
		var applied [2]atomic.Int32
		together(func(i int) {
			if e.trySettle(settlementOf(kinds[i%2], c, "r")) {
				applied[i%2].Add(1)
			}
		})
		completed, released := applied[0].Load(), applied[1].Load()
		if completed+released != callers/2 || completed != 0 && released != 0 {
			e.Fatalf("of %d completions and as many releases at once, %d and %d were applied, want all of one kind",
				callers/2, completed, released)
		}
		if completed != 0 {
			e.wantDone(e.probe(c.ID), []byte("r"))
		} else {
			e.wantAcquired(e.probe(c.ID), 2)
		}
	}
}

// trySettle is settle for goroutines: it says whether the settlement was applied.
func (e *env) trySettle(s dedup.Settlement) bool {
	e.Helper()
	errs, err := e.store.Settle(context.Background(), e.p, []dedup.Settlement{s})
	if err == nil {
		err = errorAt(errs, 0)
	}
	if err != nil && !errors.Is(err, dedup.ErrStale) {
		e.Errorf("%v of %q: %v", s.Kind, s.ID, err)
	}
	return err == nil
}

// lateOwnerAndNextOwner lets the owner of a lapsed claim complete it while
// others ask for it.
func lateOwnerAndNextOwner(e *env) {
	const rounds = 10
	var owners [rounds]dedup.Claim
	for round := range rounds {
		owners[round] = e.acquire(e.shortLease(e.p), fmt.Sprintf("round-%d", round))
	}
	e.wait()
	for _, owner := range owners {
		var completed, acquired atomic.Int32
		together(func(i int) {
			if i == callers/2 {
				if e.trySettle(owner.Complete([]byte("late"))) {
					completed.Add(1)
				}
				return
			}
			for _, c := range e.tryClaim(e.p, newAsk(owner.ID)) {
				if c.State == dedup.Acquired {
					acquired.Add(1)
				}
			}
		})
		if completed.Load()+acquired.Load() != 1 {
			e.Fatalf("of the late owner of %q and %d others, %d completed and %d acquired it, want one winner",
				owner.ID, callers-1, completed.Load(), acquired.Load())
		}
	}
}
