package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Many callers at once.
var concurrentCases = []testCase{
	{name: "ConcurrentArrivalsStoreOne", run: concurrentArrivals, once: true},
	{name: "ConcurrentClaimsShareTheKeys", run: concurrentClaims, once: true},
	{name: "ConcurrentTakeoversElectOne", run: concurrentTakeovers, once: true},
	{name: "ConcurrentWorkersKeepTheOrder", run: concurrentWorkers, once: true},
	{name: "ConcurrentFailuresStayPending", run: concurrentFailures, once: true},
	{name: "ConcurrentReplaysReplayOnce", run: concurrentReplays, once: true},
	{name: "ConcurrentForgettingLeavesNothing", run: concurrentForgetting, once: true},
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

func concurrentArrivals(e *env) {
	for round := range 10 {
		id := fmt.Sprint("event ", round)
		answers := make([]inbox.Answer, callers)
		together(func(i int) {
			got, err := e.store.Accept(context.Background(), e.p, []inbox.Arrival{arrival(id, "k"), arrival(fmt.Sprint(id, " of ", i), "k")})
			if err != nil || len(got) != 2 || got[1] != inbox.Accepted {
				e.Errorf("Accept returned %v and %v", got, err)
				return
			}
			answers[i] = got[0]
		})
		slices.Sort(answers)
		if answers[0] != inbox.Accepted || answers[1] != inbox.Duplicate || answers[callers-1] != inbox.Duplicate {
			e.Fatalf("concurrent arrivals of one event were answered %v, want accepted once", answers)
		}
	}
	e.wantTotals(10*(callers+1), 0, 0, 0, 0, 0)
}

func concurrentClaims(e *env) {
	const keys = 60
	for i := range keys {
		e.events(fmt.Sprint("k", i), fmt.Sprint("a", i))
	}
	var mu sync.Mutex
	owners := map[string]int{}
	together(func(int) {
		for {
			a := newAsk()
			a.Keys = 3
			c, err := e.store.Claim(context.Background(), a)
			if err != nil {
				e.Errorf("Claim: %v", err)
			}
			if len(c.Claims) == 0 {
				return
			}
			mu.Lock()
			for _, k := range c.Claims {
				owners[k.Key]++
			}
			mu.Unlock()
		}
	})
	if len(owners) != keys {
		e.Fatalf("%d of %d keys were claimed", len(owners), keys)
	}
	for k, n := range owners {
		if n != 1 {
			e.Fatalf("the key %q has %d owners", k, n)
		}
	}
}

func concurrentTakeovers(e *env) {
	for round := range 10 {
		key := fmt.Sprint("k", round)
		e.events(key, key)
		first := e.lapsed(key)
		var mu sync.Mutex
		var owners []inbox.Claim
		var settled bool
		together(func(i int) {
			if i == 0 { // its first owner comes back at the same moment
				errs, err := e.store.Settle(context.Background(), e.p, []inbox.Settlement{done(first, key)})
				settled = err == nil && (errs == nil || errs[0] == nil)
				return
			}
			c, err := e.store.Claim(context.Background(), newAsk())
			if err != nil {
				e.Errorf("Claim: %v", err)
			}
			mu.Lock()
			owners = append(owners, c.Claims...)
			mu.Unlock()
		})
		if len(owners) > 1 || settled == (len(owners) == 1) {
			e.Fatalf("a lapsed key was taken by %d owners, and its first could still end the record: %t; want exactly one of them",
				len(owners), settled)
		}
		for _, c := range owners {
			e.applied(done(c, key), release(c))
		}
		if settled {
			e.applied(release(first))
		}
	}
	e.wantTotals(0, 10, 0, 0, 0, 0)
}

func concurrentWorkers(e *env) {
	const keys, events = 5, 12
	for i := range events {
		for k := range keys {
			e.events(fmt.Sprint("k", k), fmt.Sprintf("%d-%02d", k, i))
		}
	}
	var mu sync.Mutex
	worked := map[string][]string{}
	together(func(int) {
		for {
			a := newAsk()
			a.Keys, a.Events = 1, 3
			got, err := e.store.Claim(context.Background(), a)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			if len(got.Claims) == 0 {
				if t, err := e.store.Totals(context.Background()); err != nil || t.Pending == 0 {
					return
				}
				e.tick()
				continue
			}
			c := got.Claims[0]
			for i, r := range c.Records {
				mu.Lock()
				worked[c.Key] = append(worked[c.Key], idsOf([]inbox.Record{r})...)
				mu.Unlock()
				s := []inbox.Settlement{done(c, idsOf([]inbox.Record{r})[0]), release(c)}
				if i+1 < len(c.Records) {
					s[1] = begin(c, idsOf(c.Records[i+1 : i+2])[0])
				}
				if errs, err := e.store.Settle(context.Background(), e.p, s); errs != nil || err != nil {
					e.Errorf("Settle by the owner of %q: %v, %v", c.Key, errs, err)
					return
				}
			}
		}
	})
	for k, ids := range worked {
		if len(ids) != events || !slices.IsSorted(ids) {
			e.Fatalf("the events of key %q were worked as %q", k, ids)
		}
	}
	e.wantTotals(0, keys*events, 0, 0, 0, 0)
}

// concurrentFailures counts and lists what is pending while all of it fails. Whoever waits for nothing to be pending must not be told so.
func concurrentFailures(e *env) {
	const keys = 400
	arrivals := make([]inbox.Arrival, keys)
	for i := range arrivals {
		arrivals[i] = arrival(fmt.Sprint("a", i), fmt.Sprint("k", i))
	}
	e.accepted(arrivals...)
	var working sync.WaitGroup
	working.Add(callers / 2)
	failed := make(chan struct{})
	go func() { working.Wait(); close(failed) }()
	together(func(i int) {
		if i < callers/2 {
			defer working.Done()
			e.failAll(keys * 2 / callers)
			return
		}
		for {
			t, err := e.store.Totals(context.Background())
			if err != nil || t.Pending != keys {
				e.Errorf("while records fail, Totals says %+v and %v, want %d that are pending", t, err, keys)
			}
			rs, err := e.store.List(context.Background(), inbox.Query{State: inbox.StatePending, N: 2 * keys})
			if err != nil || len(rs) != keys {
				e.Errorf("while records fail, List returns %d that are pending and %v, want %d", len(rs), err, keys)
			}
			if closed(failed) || e.Failed() {
				return
			}
		}
	})
}

// failAll claims keys one by one and settles n records, each as failed.
func (e *env) failAll(n int) {
	for n > 0 && !e.Failed() {
		a := newAsk()
		a.Keys = 1
		got, err := e.store.Claim(context.Background(), a)
		if err != nil {
			e.Errorf("Claim: %v", err)
			return
		}
		if len(got.Claims) == 0 { // the others hold what there is
			e.tick()
			continue
		}
		c := got.Claims[0]
		n--
		if errs, err := e.store.Settle(context.Background(), e.p, []inbox.Settlement{retry(c, idsOf(c.Records)[0], time.Minute)}); errs != nil || err != nil {
			e.Errorf("Settle by the owner of %q: %v, %v", c.Key, errs, err)
			return
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func concurrentReplays(e *env) {
	for round := range 5 {
		id := fmt.Sprint("event ", round)
		r := e.ended(inbox.KindDead, id)
		same := change(inbox.ChangeReplay, id)
		applied := make([]bool, callers)
		together(func(i int) {
			c := same
			if i >= 2 { // others have the same wish
				c = change(inbox.ChangeReplay, id)
			}
			errs, err := e.store.Change(context.Background(), e.p, []inbox.Change{c})
			if err != nil || errs != nil && errs[0] != nil && !errors.Is(errs[0], inbox.ErrState) {
				e.Errorf("Change returned %v and %v", errs, err)
			}
			applied[i] = err == nil && (errs == nil || errs[0] == nil)
		})
		n := 0
		for _, ok := range applied[1:] { // the first two are one call
			if ok {
				n++
			}
		}
		after := e.wantState(id, inbox.StatePending, 0)
		if n != 1 || applied[0] != applied[1] || len(after.Actions) != 1 || after.Seq <= r.Seq {
			e.Fatalf("of concurrent replays %v were applied, and made of %+v the record %+v; want one", applied, r, after)
		}
		e.forget(r)
	}
}

// concurrentForgetting forgets an event while its worker ends it, and others of
// its key arrive.
func concurrentForgetting(e *env) {
	for round := range 5 {
		key := fmt.Sprint("k", round)
		e.events(key, key)
		c := e.claim(key)
		forget := change(inbox.ChangeForget, key)
		together(func(i int) {
			var err error
			switch i {
			case 0:
				_, err = e.store.Settle(context.Background(), e.p, []inbox.Settlement{done(c, key)})
			case 1, 2:
				var errs []error
				if errs, err = e.store.Change(context.Background(), e.p, []inbox.Change{forget}); errs != nil {
					e.Errorf("Change returned %v", errs)
				}
			default:
				_, err = e.store.Accept(context.Background(), e.p, []inbox.Arrival{arrival(fmt.Sprint(key, " ", i), key)})
			}
			if err != nil {
				e.Errorf("caller %d: %v", i, err)
			}
		})
		if got := e.get(key); len(got) != 0 {
			e.Fatalf("a forgotten event has the records %+v", got)
		}
		e.wantTotals(callers-3, 0, 0, 0, 0, 0)
		e.stale(done(c, key), retry(c, key, 0))
		e.applied(release(c))
		next := e.claim(key)
		if len(next.Records) != callers-3 {
			e.Fatalf("of %d events that arrived meanwhile, a claim brought %q", callers-3, idsOf(next.Records))
		}
		for _, r := range next.Records {
			e.forget(r)
		}
		e.applied(release(next))
	}
	e.nothing()
}
