package ordertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/order"
)

// Many callers at once.
var concurrentCases = []testCase{
	{name: "ConcurrentPushesStoreOne", run: concurrentPushes, once: true},
	{name: "ConcurrentPushesOfOneKey", run: concurrentOneKey, once: true},
	{name: "ConcurrentAssignmentsAreUnbroken", run: concurrentAssign, once: true},
	{name: "ConcurrentAssignmentsOfOneID", run: concurrentAssignOne, once: true},
	{name: "ConcurrentClaimsShareTheKeys", run: concurrentClaims, once: true},
	{name: "ConcurrentTakeoversElectOne", run: concurrentTakeovers, once: true},
	{name: "ConcurrentWorkersKeepTheOrder", run: concurrentWorkers, once: true},
}

const callers = 8

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

// pushed is a push in a goroutine of its own.
func (e *env) pushed(arrivals ...order.Arrival) ([]order.Answer, bool) {
	answers, err := e.store.Push(context.Background(), e.p, arrivals)
	if err != nil || len(answers) != len(arrivals) {
		e.Errorf("Push returned %d answers and %v", len(answers), err)
		return nil, false
	}
	for _, a := range answers {
		if a.Err != nil {
			e.Errorf("Push: %v", a.Err)
			return nil, false
		}
	}
	return answers, true
}

func concurrentPushes(e *env) {
	for round := range uint64(10) {
		states := make([]order.Arrived, callers)
		together(func(i int) {
			if a, ok := e.pushed(at("k", 1, round+1), at(fmt.Sprint("of ", i), 1, round+1)); ok {
				states[i] = a[0].State
			}
		})
		slices.Sort(states)
		if states[0] != order.Buffered || states[1] != order.Duplicate || states[callers-1] != order.Duplicate {
			e.Fatalf("concurrent pushes of one message were answered %v, want buffered once", states)
		}
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: 11, Buffered: 10})
}

func concurrentOneKey(e *env) {
	const each = 20
	together(func(i int) {
		for n := range uint64(each) {
			if a, ok := e.pushed(at("k", 1, n*callers+uint64(i)+1)); ok && a[0].State != order.Buffered {
				e.Errorf("a new number was answered %s", arrivedName(a[0].State))
			}
		}
	})
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: callers*each + 1, Buffered: callers * each})
	a := newAsk()
	a.Messages = callers * each
	if c := e.claimAs("k", a); len(c.Run) != callers*each {
		e.Fatalf("the run has %d messages, want %d", len(c.Run), callers*each)
	}
}

func concurrentAssign(e *env) {
	const each = 10
	var mu sync.Mutex
	var numbers []uint64
	together(func(i int) {
		for n := range each {
			a, ok := e.pushed(assigned("k", fmt.Sprint(i, " ", n)))
			if !ok || a[0].State != order.Buffered {
				e.Errorf("an assigned message was answered %+v", a)
				return
			}
			mu.Lock()
			numbers = append(numbers, a[0].Position.Number)
			mu.Unlock()
		}
	})
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != uint64(i+1) {
			e.Fatalf("the numbers assigned are %v", numbers)
		}
	}
	e.wantLedger("k", order.Ledger{Epoch: 1, Cursor: 1, Head: callers*each + 1, Buffered: callers * each})
}

func concurrentAssignOne(e *env) {
	for round := range 5 {
		got := make([]order.Answer, callers)
		together(func(i int) {
			if a, ok := e.pushed(assigned("k", fmt.Sprint("operation ", round))); ok {
				got[i] = a[0]
			}
		})
		buffered := 0
		for _, a := range got {
			if a.State == order.Buffered {
				buffered++
			}
			if a.Position != (order.Position{Epoch: 1, Number: uint64(round + 1)}) {
				e.Fatalf("one operation got the positions %+v", got)
			}
		}
		if buffered != 1 {
			e.Fatalf("one operation was stored %d times: %+v", buffered, got)
		}
	}
}

func concurrentClaims(e *env) {
	const keys = 60
	for i := range keys {
		e.buffered(fmt.Sprint("k", i), 1)
	}
	var mu sync.Mutex
	var got []string
	together(func(int) {
		for range 3 * keys {
			a := newAsk()
			a.Keys = 3
			c, err := e.store.Claim(context.Background(), e.p, a)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			mu.Lock()
			got = append(got, keysOf(c.Claims)...)
			all := len(got) >= keys
			mu.Unlock()
			if all {
				return
			}
		}
	})
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); len(got) != keys || n != keys {
		e.Fatalf("%d keys were claimed %d times, %d of them different", keys, len(got), n)
	}
}

func concurrentTakeovers(e *env) {
	for round := range 10 {
		key := fmt.Sprint("k", round)
		e.buffered(key, 1)
		first := e.lapsed(key)
		var mu sync.Mutex
		var owners []order.Claim
		settled := false
		together(func(i int) {
			if i == 0 {
				errs, err := e.store.Settle(context.Background(), e.p, []order.Settlement{deliver(first, 2), release(first)})
				if err != nil {
					e.Errorf("Settle: %v", err)
				}
				settled = errorAt(errs, 0) == nil
				return
			}
			c, err := e.store.Claim(context.Background(), e.p, newAsk())
			if err != nil {
				e.Errorf("Claim: %v", err)
			}
			mu.Lock()
			owners = append(owners, c.Claims...)
			mu.Unlock()
		})
		if len(owners) > 1 || settled == (len(owners) == 1) {
			e.Fatalf("a lapsed key was taken by %d owners, and its first could still deliver: %t; want exactly one of them",
				len(owners), settled)
		}
		for _, c := range owners {
			e.applied(deliver(c, 2), release(c))
		}
		e.wantLedger(key, order.Ledger{Epoch: 1, Cursor: 2, Head: 2, Delivered: 1})
	}
}

func concurrentWorkers(e *env) {
	const keys, messages = 5, 24
	var mu sync.Mutex
	worked := map[string][]uint64{}
	ended := func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, w := range worked {
			n += len(w)
		}
		return n >= keys*messages
	}
	together(func(i int) {
		if i < 3 { // of eight callers three push, shuffled
			for n := range uint64(messages / 3) {
				for k := range keys {
					e.pushed(at(fmt.Sprint("k", k), 1, n*3+[]uint64{2, 3, 1}[i]))
				}
			}
			return
		}
		for tries := 0; !ended() && tries < 10_000; tries++ {
			a := newAsk()
			a.Keys, a.Messages = 1, 5
			got, err := e.store.Claim(context.Background(), e.p, a)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			if len(got.Claims) == 0 {
				e.tick()
				continue
			}
			c := got.Claims[0]
			mu.Lock()
			worked[c.Key] = append(worked[c.Key], numbersOf(c.Run)...)
			mu.Unlock()
			s := []order.Settlement{deliver(c, c.Run[len(c.Run)-1].Position.Number+1), release(c)}
			if errs, err := e.store.Settle(context.Background(), e.p, s); errs != nil || err != nil {
				e.Errorf("Settle by the owner of %q: %v, %v", c.Key, errs, err)
				return
			}
		}
	})
	for k := range keys {
		key := fmt.Sprint("k", k)
		if w := worked[key]; len(w) != messages || !slices.IsSorted(w) {
			e.Fatalf("the messages of key %q were worked as %v", key, w)
		}
		e.wantLedger(key, order.Ledger{Epoch: 1, Cursor: messages + 1, Head: messages + 1, Delivered: messages})
	}
}
