package inboxtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// Listing and counting.
var listCases = []testCase{
	{name: "ListSelectsAState", run: listSelectsAState},
	{name: "ListPages", run: listPages},
	{name: "ListOfAnEventPages", run: listOfAnEvent},
	{name: "SeqRisesInTheOrderOfAcceptance", run: seqRises},
	{name: "TotalsFollow", run: totalsFollow},
	{name: "OldestIsOfTheFirstPending", run: oldestIsOfTheFirst},
	{name: "AgeCountsFromAcceptance", run: ageCounts},
}

func listSelectsAState(e *env) {
	for _, s := range []string{"pending", "done", "dead", "quarantine", "unknown"} {
		e.events(s, s)
	}
	for _, c := range e.claims() {
		switch c.Key {
		case "done":
			e.applied(done(c, c.Key), release(c))
		case "dead":
			e.applied(settlement(inbox.KindDead, c, c.Key), release(c))
		case "quarantine":
			e.applied(settlement(inbox.KindQuarantine, c, c.Key), release(c))
		case "unknown":
			e.applied(settlement(inbox.KindUnknown, c, c.Key), release(c))
		default:
			e.applied(release(c))
		}
	}
	e.answered(inbox.Quarantined, raw("raw"))
	e.answered(inbox.Conflict, arrivalOf("done", "done", "other"))
	for s, want := range map[inbox.State][]string{
		inbox.StatePending:     {"pending"},
		inbox.StateDone:        {"done"},
		inbox.StateDead:        {"dead"},
		inbox.StateQuarantined: {"quarantine", "raw"},
		inbox.StateConflict:    {"done"},
		inbox.StateUnknown:     {"unknown"},
	} {
		if got := e.in(s); !slices.Equal(got, want) {
			e.Fatalf("%v are listed as %v, want %v", got, s, want)
		}
		for _, r := range e.list(inbox.Query{State: s, N: 10}) {
			if r.State != s {
				e.Fatalf("a record that is %v is listed as %v", r.State, s)
			}
		}
	}
}

func listPages(e *env) {
	const n = 25
	for i := range n {
		id := fmt.Sprintf("event-%02d", i)
		e.events(id, id)
	}
	for _, c := range e.claims() {
		e.applied(settlement(inbox.KindDead, c, c.Key), release(c))
	}
	for i := range n {
		e.events("k", fmt.Sprintf("pending-%02d", i))
	}
	for _, s := range []inbox.State{inbox.StateDead, inbox.StatePending} {
		for _, size := range []int{1, 7, n, n + 1} {
			var after uint64
			seen := 0
			for {
				page := e.list(inbox.Query{State: s, After: after, N: size})
				seen += len(page)
				if len(page) < size {
					break
				}
				after = page[len(page)-1].Seq
			}
			if rest := e.list(inbox.Query{State: s, After: math.MaxUint64, N: size}); len(rest) != 0 {
				e.Fatalf("%d records are listed as %v behind the last number there can be", len(rest), s)
			}
			if seen != n {
				e.Fatalf("pages of %d list %d records as %v, want %d", size, seen, s, n)
			}
		}
	}
}

func listOfAnEvent(e *env) {
	a := arrival("a", "k")
	a.Streams = []string{"one", "three", "two"}
	e.accepted(a)
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	all := e.get("a")
	if len(all) != 4 {
		e.Fatalf("an event of three streams and a conflict has %d records", len(all))
	}
	for i, r := range all {
		var after uint64
		if i > 0 {
			after = all[i-1].Seq
		}
		page := e.list(inbox.Query{ID: "p/a", After: after, N: 1})
		if len(page) != 1 || page[0].Seq != r.Seq || page[0].Stream != r.Stream {
			e.Fatalf("page %d of an event's records is %+v, want %+v", i, page, r)
		}
	}
}

func seqRises(e *env) {
	var last uint64
	for _, id := range []string{"c", "a", "b"} {
		e.events(id, id)
		if r := e.record(id); r.Seq <= last {
			e.Fatalf("a later record has the number %d, want more than %d", r.Seq, last)
		} else {
			last = r.Seq
		}
	}
}

func totalsFollow(e *env) {
	e.wantTotals(0, 0, 0, 0, 0, 0)
	e.events("k", "a", "b", "c", "d")
	e.wantTotals(4, 0, 0, 0, 0, 0)
	c := e.claim("k")
	e.wantTotals(4, 0, 0, 0, 0, 0)
	e.applied(done(c, "a"), begin(c, "b"))
	e.wantTotals(3, 1, 0, 0, 0, 0)
	e.applied(settlement(inbox.KindDead, c, "b"), begin(c, "c"))
	e.wantTotals(2, 1, 1, 0, 0, 0)
	e.applied(settlement(inbox.KindQuarantine, c, "c"), begin(c, "d"))
	e.wantTotals(1, 1, 1, 1, 0, 0)
	e.applied(retry(c, "d", longLease))
	e.wantTotals(1, 1, 1, 1, 0, 0)
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.answered(inbox.Duplicate, arrival("a", "k"))
	e.answered(inbox.Quarantined, raw("raw"))
	e.wantTotals(1, 1, 1, 2, 1, 0)
	e.events("l", "x")
	l := e.claim("l")
	e.applied(settlement(inbox.KindUnknown, l, "x"), release(l))
	e.wantTotals(1, 1, 1, 2, 1, 1)
}

func oldestIsOfTheFirst(e *env) {
	if t := e.wantTotals(0, 0, 0, 0, 0, 0); t.Oldest != 0 {
		e.Fatalf("the oldest of nothing is %v old", t.Oldest)
	}
	e.events("k", "a", "b")
	e.sleep(e.short)
	e.events("l", "x")
	if t := e.wantTotals(3, 0, 0, 0, 0, 0); t.Oldest < e.short*9/10 {
		e.Fatalf("the oldest pending record is %v old, want %v", t.Oldest, e.short)
	}
	for _, c := range e.claims() {
		if c.Key == "k" {
			e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), release(c))
		}
	}
	if t := e.wantTotals(1, 2, 0, 0, 0, 0); e.virtual && t.Oldest >= e.short {
		e.Fatalf("when the older ones are done, the oldest pending record is %v old, want less than %v", t.Oldest, e.short)
	}
}

func ageCounts(e *env) {
	e.events("k", "a")
	e.sleep(e.short)
	for _, r := range []inbox.Record{e.record("a"), e.claim("k").Records[0]} {
		if r.Age < e.short*9/10 || e.c.Bubble && r.Age != e.short {
			e.Fatalf("after %v a record has the age %v", e.short, r.Age)
		}
	}
}
