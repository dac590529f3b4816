package dlqtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What can be listed and counted.
var readCases = []testCase{
	{name: "ListSelects", run: listSelects},
	{name: "ListSelectsByTime", run: listTimes},
	{name: "ListPages", run: listPages},
	{name: "ListOfHeads", run: listHeads},
	{name: "GroupsCountUnresolvedLetters", run: groupsCount},
	{name: "AGroupBeginsAndEnds", run: groupsTimes},
	{name: "GroupsPage", run: groupsPage},
	{name: "TotalsCountByState", run: totalsCount},
	{name: "TotalsPage", run: totalsPage},
}

func listSelects(e *env) {
	e.letters("k", "a", "b")
	e.letters("other", "c")
	l := letter("d", "other")
	l.Failure = failure(printB, "else")
	e.answered(dlq.Added, l)
	for _, c := range e.claimable("a", "c") {
		if c.Record.ID == "a" {
			e.applied(resolve(c))
		} else {
			e.applied(review(c))
		}
	}
	e.wantIn(dlq.Query{}, "a", "b", "c", "d")
	e.wantIn(dlq.Query{State: dlq.StateWaiting}, "b", "d")
	e.wantIn(dlq.Query{State: dlq.StateReview}, "c")
	e.wantIn(dlq.Query{State: dlq.StateResolved}, "a")
	e.wantIn(dlq.Query{State: dlq.StateDiscarded})
	e.wantIn(dlq.Query{Key: "k"}, "a", "b")
	e.wantIn(dlq.Query{ID: "c"}, "c")
	e.wantIn(dlq.Query{Fingerprint: printA}, "a", "b", "c")
	e.wantIn(dlq.Query{Fingerprint: printB}, "d")
	e.wantIn(dlq.Query{Key: "other", Fingerprint: printA}, "c")
	e.wantIn(dlq.Query{Key: "other", State: dlq.StateWaiting, Fingerprint: printB}, "d")
	e.wantIn(dlq.Query{Key: "k", State: dlq.StateReview})
	e.wantIn(dlq.Query{ID: "c", Key: "k"})
	e.wantIn(dlq.Query{Job: "none"})
	e.wantIn(dlq.Query{Stream: "unknown"})
}

func listTimes(e *env) {
	e.letters("k", "a")
	e.tick()
	e.letters("k", "b")
	e.tick()
	e.letters("k", "c")
	at := e.record("b").Put
	e.wantIn(dlq.Query{From: at}, "b", "c")
	e.wantIn(dlq.Query{Until: at}, "a")
	e.wantIn(dlq.Query{From: at, Until: at.Add(time.Microsecond)}, "b")
	e.wantIn(dlq.Query{From: at, Until: at})
}

func listPages(e *env) {
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("l%02d", i)
		e.letters(fmt.Sprint("k", i%3), id)
		want = append(want, id)
	}
	for _, n := range []int{1, 7, 24, 25, 26} {
		e.wantIn(dlq.Query{N: n}, want...)
		e.wantIn(dlq.Query{N: n, Key: "k1"}, every(want, 1, 3)...)
		e.wantIn(dlq.Query{N: n, State: dlq.StateWaiting, Fingerprint: printA}, want...)
	}
	seq := e.record("l10").Seq
	e.wantIn(dlq.Query{After: seq}, want[11:]...)
}

func every(all []string, from, step int) (some []string) {
	for i := from; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

func listHeads(e *env) {
	e.letters("k", "a")
	e.does(dlq.ChangeEdit, "a")
	rs := e.list(dlq.Query{Heads: true})
	whole := e.record("a")
	if len(rs) != 1 || rs[0].Body != nil || rs[0].Original != nil {
		e.Fatalf("the head of a letter is %+v", rs)
	}
	whole.Body, whole.Original = nil, nil
	if describeRecord(rs[0]) != describeRecord(whole) {
		e.Fatalf("the head is\n%s, want\n%s", describeRecord(rs[0]), describeRecord(whole))
	}
}

func groupsCount(e *env) {
	e.letters("k", "a", "b", "c")
	l := letter("d", "k")
	l.Failure = failure(printB, "else")
	e.answered(dlq.Added, l)
	e.answered(dlq.Added, parked("e", "k"))
	e.reviewed("a")
	want := func(waitA, reviewA, waitB int) {
		e.Helper()
		g := e.groups()
		if len(g) != 2 || g[0].Stream != stream || g[0].Fingerprint != printA || g[0].Waiting != waitA || g[0].Review != reviewA ||
			g[1].Fingerprint != printB || g[1].Waiting != waitB || g[1].Review != 0 {
			e.Fatalf("the groups are %+v, want %d and %d in the first, %d in the second", g, waitA, reviewA, waitB)
		}
	}
	want(2, 1, 1)
	e.does(dlq.ChangeSkip, "b")
	want(1, 2, 1)
	e.does(dlq.ChangeApprove, "a")
	want(2, 1, 1)
	e.applied(resolve(e.claim("a")))
	want(1, 1, 1)
	again := letter("c", "k")
	again.Failure = failure(printB, "else")
	e.answered(dlq.Duplicate, again)
	want(0, 1, 2)
	e.does(dlq.ChangeForget, "b")
	if g := e.groups(); len(g) != 1 || g[0].Fingerprint != printB {
		e.Fatalf("the groups are %+v, want one", g)
	}
}

func groupsTimes(e *env) {
	e.letters("k", "a")
	first := e.record("a").Put
	g := e.groups()[0]
	if !g.First.Equal(first) || !g.Last.Equal(first) {
		e.Fatalf("a group that began at %v is %+v", first, g)
	}
	e.letters("k", "b")
	second := e.record("b").Put
	if g := e.groups()[0]; !g.First.Equal(first) || !g.Last.Equal(second) {
		e.Fatalf("a group with letters of %v and %v is %+v", first, second, g)
	}
	e.applied(retry(e.claim("a"), longLease))
	third := e.groups()[0].Last
	if g := e.groups()[0]; !g.First.Equal(first) || !third.After(second) {
		e.Fatalf("a group one of whose letters failed after %v is %+v", second, g)
	}
	e.tick()
	e.does(dlq.ChangeDiscard, "a")
	e.does(dlq.ChangeDiscard, "b")
	e.tick()
	e.letters("k", "c")
	if g := e.groups(); len(g) != 1 || !g[0].First.Equal(e.record("c").Put) {
		e.Fatalf("a group that ended and began again is %+v", g)
	}
}

func groupsPage(e *env) {
	for i := range 7 {
		l := letter(fmt.Sprint("l", i), "")
		l.Failure.Fingerprint = fmt.Sprintf("%02x", 7-i)
		e.answered(dlq.Added, l)
	}
	var got []string
	for after := ""; ; {
		gs, err := e.store.Groups(context.Background(), stream, after, 3)
		if err != nil {
			e.Fatal(err)
		}
		for _, g := range gs {
			got = append(got, g.Fingerprint)
			after = g.Fingerprint
		}
		if len(gs) < 3 {
			break
		}
	}
	if !slices.Equal(got, []string{"01", "02", "03", "04", "05", "06", "07"}) {
		e.Fatalf("the groups are %q", got)
	}
}

func totalsCount(e *env) {
	e.wantTotals(0, 0, 0, 0, 0)
	e.letters("k", "a", "b")
	e.letters("other", "c")
	if t := e.wantTotals(3, 0, 0, 0, 0); t.Oldest <= 0 {
		e.Fatalf("the oldest of three letters is %v old", t.Oldest)
	}
	for _, c := range e.claimable("a", "c") {
		e.applied(resolve(c))
	}
	e.does(dlq.ChangeReject, "b")
	if t := e.wantTotals(0, 0, 2, 0, 1); t.Oldest != 0 {
		e.Fatalf("the oldest of no letters is %v old", t.Oldest)
	}
}

func totalsPage(e *env) {
	for i := range 5 {
		l := letter("a", "")
		l.Stream = fmt.Sprint("s", 5-i)
		e.answered(dlq.Added, l)
	}
	var got []string
	for after := ""; ; {
		ts, err := e.store.Totals(context.Background(), after, 2)
		if err != nil {
			e.Fatal(err)
		}
		for _, t := range ts {
			got = append(got, t.Stream)
			after = t.Stream
		}
		if len(ts) < 2 {
			break
		}
	}
	if !slices.Equal(got, []string{"s1", "s2", "s3", "s4", "s5"}) {
		e.Fatalf("the totals are of %q", got)
	}
}

// What is forgotten, and when.
var sweepCases = []testCase{
	{name: "NothingIsForgottenEarly", run: sweepEarly},
	{name: "EndedLettersAreForgotten", run: sweepEnded},
	{name: "UnresolvedLettersAreKept", run: sweepUnresolved},
	{name: "EntriesAreForgotten", run: sweepEntries},
	{name: "EndedJobsAreForgotten", run: sweepJobs},
	{name: "NothingIsForgottenASecondEarly", run: sweepOnTime},
	{name: "AnEmptyLaneIsKeptWhileItsLeaseRuns", run: sweepLanes},
	{name: "SweepIsBounded", run: sweepBounded, once: true},
}

func sweepEarly(e *env) {
	e.letters("k", "a")
	e.applied(resolve(e.claim("a")))
	e.letters("k", "b")
	e.does(dlq.ChangeDiscard, "b")
	e.wait()
	if n, _ := e.sweep(); n != 0 {
		e.Fatalf("%d things were forgotten early", n)
	}
	e.wantIn(dlq.Query{}, "a", "b")
	if len(e.audit(dlq.AuditQuery{})) != 1 {
		e.Fatal("an entry was forgotten early")
	}
}

func sweepEnded(e *env) {
	e.p.Retention = e.short
	e.letters("k", "a")
	e.applied(resolve(e.claim("a")))
	e.letters("k", "b", "c")
	e.does(dlq.ChangeDiscard, "b")
	e.does(dlq.ChangeReject, "c")
	e.wait()
	if n, ok := e.sweep(); ok && n != 3 {
		e.Fatalf("Sweep removed %d letters, want 3", n)
	} else if !ok {
		e.Skip("the store is no Sweeper")
	}
	e.wantIn(dlq.Query{})
	e.wantTotals(0, 0, 0, 0, 0)
	e.letters("k", "a")
	e.claim("a")
}

func sweepUnresolved(e *env) {
	e.p.Retention = time.Microsecond
	e.letters("k", "a", "b")
	e.reviewed("a")
	e.letters("other", "c")
	e.claim("c")
	e.wait()
	e.sweep()
	e.wantTotals(2, 1, 0, 0, 0)
	if len(e.groups()) != 1 {
		e.Fatalf("the groups are %+v", e.groups())
	}
}

func sweepEntries(e *env) {
	e.letters("k", "a")
	e.does(dlq.ChangeApprove, "a")
	e.p.Audit = e.short
	note := change(dlq.ChangeNote, e.record("a"))
	e.changed(note)
	e.wait()
	if n, ok := e.sweep(); ok && n != 1 {
		e.Fatalf("Sweep removed %d entries, want 1", n)
	} else if !ok {
		e.Skip("the store is no Sweeper")
	}
	if got := e.audit(dlq.AuditQuery{}); len(got) != 1 || got[0].Verb != "approve" {
		e.Fatalf("what is left of two entries is %+v", got)
	}
	e.wantTotals(1, 0, 0, 0, 0)
}

func sweepJobs(e *env) {
	e.p.Retention = e.short
	ended := job("ended")
	ended.Ended = true
	e.save(ended)
	e.save(job("running"))
	e.p.Retention = longRetention
	kept := job("kept")
	kept.Ended = true
	e.save(kept)
	e.wait()
	if _, ok := e.sweep(); !ok {
		e.Skip("the store is no Sweeper")
	}
	js, err := e.store.Jobs(context.Background(), stream, "", 10)
	if err != nil || len(js) != 2 || js[0].ID != "kept" || js[1].ID != "running" {
		e.Fatalf("the jobs that are left are %+v, %v", js, err)
	}
}

func sweepOnTime(e *env) {
	if !e.virtual {
		e.Skip("it needs a clock that stands still")
	}
	e.p.Retention, e.p.Audit = time.Minute, time.Minute
	e.letters("k", "a")
	e.does(dlq.ChangeDiscard, "a")
	j := job("j")
	j.Ended = true
	e.save(j)
	e.alert(stream, printA, time.Minute)
	e.sleep(59 * time.Second)
	if n, ok := e.sweep(); ok && n != 0 {
		e.Fatalf("a second early, %d things were forgotten", n)
	} else if !ok {
		e.Skip("the store is no Sweeper")
	}
	e.progress("j")
	if e.alert(stream, printA, time.Minute) {
		e.Fatal("a second early, an alarm was forgotten")
	}
	e.sleep(2 * time.Second)
	if n, _ := e.sweep(); n != 2 {
		e.Fatalf("%d things were forgotten, want a letter and an entry", n)
	}
	if js, err := e.store.Jobs(context.Background(), stream, "", 10); err != nil || len(js) != 0 {
		e.Fatalf("the jobs that are left are %+v, %v", js, err)
	}
}

func sweepLanes(e *env) {
	for _, k := range []dlq.ChangeKind{dlq.ChangeForget, dlq.ChangeDiscard, dlq.ChangeSkip} {
		e.p.Retention = time.Microsecond
		id := k.String()
		e.letters(id, id)
		c := e.claim(id)
		e.does(k, id)
		e.wait()
		e.sweep()
		e.applied(release(c))
	}
}

func sweepBounded(e *env) {
	s, ok := e.store.(dlq.Sweeper)
	if !ok {
		e.Skip("the store is no Sweeper")
	}
	e.p.Retention = e.short
	for i := range 20 {
		e.letters("k", fmt.Sprint("l", i))
		e.does(dlq.ChangeDiscard, fmt.Sprint("l", i))
	}
	e.wait()
	total := 0
	for range 200 {
		n, err := s.Sweep(context.Background(), 3)
		if err != nil || n > 3 {
			e.Fatalf("Sweep of 3 removed %d, %v", n, err)
		}
		total += n
	}
	if total != 20 {
		e.Fatalf("many sweeps removed %d letters, want 20", total)
	}
	if n, err := s.Sweep(context.Background(), 0); err == nil {
		e.Fatalf("Sweep of none removed %d and returned no error", n)
	}
}
