package dlqtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// Many callers at once.
var concurrentCases = []testCase{
	{name: "ConcurrentPutsAddOne", run: concurrentPuts, once: true},
	{name: "ConcurrentClaimsShareTheLanes", run: concurrentClaims, once: true},
	{name: "ConcurrentTakeoversElectOne", run: concurrentTakeovers, once: true},
	{name: "ConcurrentWorkersKeepTheOrder", run: concurrentWorkers, once: true},
	{name: "ConcurrentSavesElectOne", run: concurrentSaves, once: true},
	{name: "ConcurrentAlarmsElectOne", run: concurrentAlarms, once: true},
	{name: "ConcurrentCopiesOfAChange", run: concurrentChanges, once: true},
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

func concurrentPuts(e *env) {
	for round := range 10 {
		id := fmt.Sprint("letter ", round)
		answers := make([]dlq.Answer, callers)
		together(func(i int) {
			got, err := e.store.Put(context.Background(), e.p, []dlq.Put{letter(id, "k"), letter(fmt.Sprint(id, " of ", i), "k")})
			if err != nil || len(got) != 2 || got[1] != dlq.Added {
				e.Errorf("Put returned %v and %v", got, err)
				return
			}
			answers[i] = got[0]
		})
		slices.Sort(answers)
		if answers[0] != dlq.Added || answers[1] != dlq.Duplicate || answers[callers-1] != dlq.Duplicate {
			e.Fatalf("concurrent letters of one ID were answered %v, want added once", answers)
		}
		if n := e.record(id).Log.Total(); n != callers {
			e.Fatalf("%d failures are %d in the log", callers, n)
		}
	}
	e.wantTotals(10*(callers+1), 0, 0, 0, 0)
	if g := e.groups(); len(g) != 1 || g[0].Waiting != 10*(callers+1) {
		e.Fatalf("the groups are %+v", g)
	}
}

func concurrentClaims(e *env) {
	const lanes = 60
	for i := range lanes {
		e.answered(dlq.Added, letter(fmt.Sprint("l", i), fmt.Sprint("k", i)))
	}
	var mu sync.Mutex
	owners := map[string]int{}
	together(func(int) {
		for {
			a := newAsk()
			a.N = 3
			c, err := e.store.Claim(context.Background(), a)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			mu.Lock()
			for _, k := range c.Claims {
				owners[k.Lane]++
			}
			done := len(owners) == lanes
			mu.Unlock()
			if done || len(c.Claims) == 0 {
				return
			}
		}
	})
	for lane, n := range owners {
		if n != 1 {
			e.Fatalf("the lane %q has %d owners", lane, n)
		}
	}
	for _, c := range e.ask(newAsk()).Claims { // a claim may come back short while others are at it
		owners[c.Lane]++
	}
	if len(owners) != lanes {
		e.Fatalf("%d of %d lanes were claimed", len(owners), lanes)
	}
}

func concurrentTakeovers(e *env) {
	e.letters("k", "a")
	old := e.lapsed("a")
	var mu sync.Mutex
	var winners []dlq.Claim
	together(func(int) {
		c, err := e.store.Claim(context.Background(), newAsk())
		if err != nil {
			e.Errorf("Claim: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		winners = append(winners, c.Claims...)
	})
	if len(winners) != 1 || winners[0].Token <= old.Token {
		e.Fatalf("a lapsed lane was taken over by %+v", winners)
	}
	e.wantState("a", dlq.StateWaiting, 2)
}

func concurrentWorkers(e *env) {
	const keys, each = 5, 12
	for i := range each {
		for k := range keys {
			e.answered(dlq.Added, letter(fmt.Sprintf("l%02d of %d", i, k), fmt.Sprint("k", k)))
		}
	}
	var mu sync.Mutex
	worked := map[string][]string{}
	running := map[string]bool{}
	together(func(int) {
		for {
			a := newAsk()
			a.N = 2
			c, err := e.store.Claim(context.Background(), a)
			if err != nil {
				e.Errorf("Claim: %v", err)
				return
			}
			for _, k := range c.Claims {
				mu.Lock()
				if running[k.Lane] {
					e.Errorf("two letters of lane %q are worked at a time", k.Lane)
				}
				running[k.Lane] = true
				worked[k.Lane] = append(worked[k.Lane], k.Record.ID)
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				running[k.Lane] = false
				mu.Unlock()
				if errs, err := e.store.Settle(context.Background(), e.p, []dlq.Settlement{resolve(k)}); err != nil || errs != nil {
					e.Errorf("Settle: %v, %v", errs, err)
					return
				}
			}
			mu.Lock()
			n := 0
			for _, ids := range worked {
				n += len(ids)
			}
			mu.Unlock()
			if n >= keys*each {
				return
			}
			if len(c.Claims) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	for lane, ids := range worked {
		if len(ids) != each || !slices.IsSorted(ids) {
			e.Fatalf("the lane %q was worked as %q", lane, ids)
		}
	}
	e.wantTotals(0, 0, keys*each, 0, 0)
}

func concurrentSaves(e *env) {
	var mu sync.Mutex
	won := 0
	together(func(int) {
		if _, err := e.store.SaveJob(context.Background(), e.p, job("j")); err == nil {
			mu.Lock()
			won++
			mu.Unlock()
		}
	})
	if won != 1 {
		e.Fatalf("a job was created %d times", won)
	}
}

func concurrentAlarms(e *env) {
	var mu sync.Mutex
	won := 0
	together(func(int) {
		first, err := e.store.Alert(context.Background(), []dlq.Alarm{{Nonce: nonce(), Stream: stream, Fingerprint: printA, Window: longLease}})
		if err != nil {
			e.Errorf("Alert: %v", err)
		} else if first[0] {
			mu.Lock()
			won++
			mu.Unlock()
		}
	})
	if won != 1 {
		e.Fatalf("%d alarms at once were the first", won)
	}
}

func concurrentChanges(e *env) {
	e.save(job("j"))
	e.letters("k", "a")
	e.reviewed("a")
	c := change(dlq.ChangeApprove, e.record("a"))
	c.Job = "j"
	together(func(int) {
		if errs, err := e.store.Change(context.Background(), e.p, []dlq.Change{c}); err != nil || errorAt(errs, 0) != nil {
			e.Errorf("Change: %v, %v", errs, err)
		}
	})
	e.wantCounts("j", 1, 0, 0, 0)
	if n := len(e.audit(dlq.AuditQuery{})); n != 1 {
		e.Fatalf("copies of one change are %d entries", n)
	}
}

// What is there after the store was closed and opened.
var reopenCases = []testCase{
	{name: "ReopenKeepsLetters", run: reopenLetters},
	{name: "ReopenKeepsClaims", run: reopenClaims},
	{name: "ReopenKeepsWhatPersonsDid", run: reopenChanges},
}

// reopen closes the store and opens it again.
func (e *env) reopen() {
	e.Helper()
	if e.c.Reopen == nil {
		e.Skip("Config.Reopen is nil: the store is not durable")
	}
	if twice, ok := e.store.(*twiceStore); ok {
		twice.Store = e.c.Reopen(e.T, twice.Store)
	} else {
		e.store = e.c.Reopen(e.T, e.store)
	}
}

func reopenLetters(e *env) {
	l := letter("a", "k")
	e.answered(dlq.Added, l)
	e.tick()
	e.letters("k", "b")
	e.applied(retry(e.claim("a"), 0))
	before, groups := describeRecords(e.list(dlq.Query{})), describeGroups(e.groups())
	e.reopen()
	if after := describeRecords(e.list(dlq.Query{})); after != before || describeGroups(e.groups()) != groups {
		e.Fatalf("the letters\n%s\nare\n%s\nafter the store was opened again", before, after)
	}
	e.answered(dlq.Added, l)
	e.answered(dlq.Duplicate, letter("b", "k"))
	e.letters("k", "c")
	for _, id := range []string{"a", "b", "c"} {
		e.applied(resolve(e.claim(id)))
	}
	e.wantTotals(0, 0, 3, 0, 0)
}

func reopenClaims(e *env) {
	e.letters("k", "a", "b")
	a := newAsk()
	c := e.ask(a).Claims[0]
	e.reopen()
	e.nothing()
	if again := e.ask(a).Claims; len(again) != 1 || again[0].Token != c.Token || again[0].Record.Tries != 1 {
		e.Fatalf("a claim sent again after the store was opened again got %+v", again)
	}
	e.applied(resolve(c))
	e.reopen()
	e.applied(resolve(c))
	if d := e.claim("b"); d.Token <= c.Token {
		e.Fatalf("the token %d follows %d", d.Token, c.Token)
	}
}

func reopenChanges(e *env) {
	e.letters("k", "a", "b")
	e.save(job("j"))
	e.released("j", "a")
	skip := change(dlq.ChangeSkip, e.record("b"))
	e.changed(skip)
	if !e.alert(stream, printA, longLease) {
		e.Fatal("the first alarm was not the first")
	}
	entries, before := fmt.Sprint(e.audit(dlq.AuditQuery{})), describeJob(e.progress("j"))
	e.reopen()
	if after := fmt.Sprint(e.audit(dlq.AuditQuery{})); after != entries || describeJob(e.progress("j")) != before {
		e.Fatalf("the audit\n%s\nis\n%s\nafter the store was opened again", entries, after)
	}
	e.changed(skip)
	if e.alert(stream, printA, longLease) {
		e.Fatal("an alarm was the first again after the store was opened again")
	}
	e.applied(resolve(e.claim("a")))
	e.wantCounts("j", 1, 1, 0, 0)
	e.does(dlq.ChangeApprove, "b")
	e.claim("b")
}
