package watchdogtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// What a heartbeat leaves behind.
var beatCases = []testCase{
	{name: "JoinMakesARecord", run: joinMakesARecord},
	{name: "BeatsSayWhatTheWorkerSays", run: beatsSay},
	{name: "RepeatedBeatChangesNothing", run: repeatedBeat, once: true},
	{name: "LateBeatChangesNothing", run: lateBeat},
	{name: "UnknownWorkerIsGone", run: unknownWorker},
	{name: "FullScopeRefusesNewWorkers", run: fullScope},
	{name: "LeavingIsListed", run: leaving},
	{name: "BeatAfterLeavingChangesNothing", run: afterLeaving},
	{name: "AllNamesAndDetails", run: allNames},
	{name: "LargestNumbers", run: largestNumbers},
	{name: "BatchAnswersInOrder", run: beatBatch},
	{name: "NameTwiceInABatch", run: beatTwiceInABatch},
}

func joinMakesARecord(e *env) {
	before := e.list("", 10)
	e.tick()
	w := e.instance("w")
	w.last.Join = true
	token := w.ok(w.beat()).Token
	r := e.look("w")
	if r.Token != token || r.Seq != 1 || r.Interval != interval || r.Said != watchdog.Flowing || r.Position != 1 || r.Pending != 1 || !r.Busy || r.Left {
		e.Fatalf("the beat %+v with token %d made the record %+v", w.last, token, r)
	}
	if !r.JoinedAt.Equal(r.BeatAt) || !r.StateAt.Equal(r.BeatAt) || !r.BeatAt.After(before.Now) || r.BeatAt.After(e.list("", 1).Now) {
		e.Fatalf("a worker that has just joined has the times %v, %v and %v", r.JoinedAt, r.StateAt, r.BeatAt)
	}
	if r.Stalled != 0 || r.Quiet != 0 || r.Running != 0 || r.Attempts != 0 || r.GivenUp || r.Claim != 0 || !r.NextAt.IsZero() || !r.ActedAt.IsZero() {
		e.Fatalf("a new record is %+v", r)
	}
	if least := uint64(before.Now.UnixMicro()); token < least {
		e.Fatalf("the first token is %d, below the store's time, %d", token, least)
	}
}

func beatsSay(e *env) {
	w := e.join("w")
	first := e.look("w")
	r := w.next(func(b *watchdog.Beat) {
		b.State, b.Detail, b.Position, b.Pending, b.Busy, b.Interval = watchdog.WaitingGap, "42 is missing", 41, 7, false, 2*interval
	})
	if r.Said != watchdog.WaitingGap || r.Detail != "42 is missing" || r.Position != 41 || r.Pending != 7 || r.Busy || r.Interval != 2*interval || r.Seq != 2 {
		e.Fatalf("the beat %+v made the record %+v", w.last, r)
	}
	if r.Token != first.Token || !r.JoinedAt.Equal(first.JoinedAt) || !r.BeatAt.After(first.BeatAt) {
		e.Fatalf("a beat of the same instance changed the record from %+v to %+v", first, r)
	}
}

func repeatedBeat(e *env) {
	w := e.join("w")
	before := w.next()
	e.tick()
	if a := w.ok(e.beat(w.last)); a.Token != before.Token {
		e.Fatalf("a beat sent again was answered with token %d, want %d", a.Token, before.Token)
	}
	joined := w.last
	joined.Join = true
	w.ok(e.beat(joined))
	if after := e.look("w"); after != before {
		e.Fatalf("a beat sent again changed the record from %+v to %+v", before, after)
	}
}

func lateBeat(e *env) {
	w := e.join("w")
	late := w.last
	w.next()
	before := w.next(func(b *watchdog.Beat) { b.Position = 9 })
	e.tick()
	late.Seq = 2
	if a := w.ok(e.beat(late)); a.Token != before.Token {
		e.Fatalf("a late beat was answered with token %d, want %d", a.Token, before.Token)
	}
	if after := e.look("w"); after != before {
		e.Fatalf("a late beat changed the record from %+v to %+v", before, after)
	}
}

func unknownWorker(e *env) {
	w := e.instance("w")
	e.refused("a beat of an unknown worker", w.beat().Err, watchdog.ErrGone)
	if _, found := e.find("w"); found {
		e.Fatalf("a beat that does not join made a record")
	}
}

func fullScope(e *env) {
	e.p.Most = 2
	a, b := e.join("a"), e.join("b")
	c := e.instance("c")
	c.last.Join = true
	e.refused("the third worker of two", c.beat().Err, watchdog.ErrFull)
	if _, found := e.find("c"); found {
		e.Fatalf("a worker that was refused has a record")
	}
	a.next()
	b.next()
	e.join("b") // a new instance needs no room
	other := e.p
	e.p.Scope = newScope()
	e.join("c") // another scope is not full
	e.p = other
	e.applied(watchdog.Action{Kind: watchdog.KindForget, Name: "a"})
	c.ok(c.beat())
}

func leaving(e *env) {
	w := e.join("w")
	r := w.next(func(b *watchdog.Beat) { b.Leave = true })
	if !r.Left || r.Seq != 2 {
		e.Fatalf("a worker that left has the record %+v", r)
	}
	again := e.join("w")
	if r := e.look("w"); r.Left || r.Token <= again.ok(again.beat()).Token-1 && r.Left {
		e.Fatalf("a new instance of a worker that left has the record %+v", r)
	}
}

func afterLeaving(e *env) {
	w := e.join("w")
	before := w.next(func(b *watchdog.Beat) { b.Leave = true })
	e.tick()
	w.last.Leave = false
	if a := w.ok(w.beat()); a.Token != before.Token {
		e.Fatalf("a beat after leaving was answered with token %d, want %d", a.Token, before.Token)
	}
	if after := e.look("w"); after != before {
		e.Fatalf("a beat after leaving changed the record from %+v to %+v", before, after)
	}
}

func allNames(e *env) {
	names := []string{"a", "a b", "a:b", "a\n", "{a}", "%s", "'; --", `\`, "客户", "\x01", strings.Repeat("n", watchdog.MaxName), strings.Repeat("客", watchdog.MaxName/3)}
	details := []string{"", " ", " two  spaces ", "{}", "详情", strings.Repeat("d", watchdog.MaxDetail), "1 2 3", `\x00`, "'", "\t", "-", "nil"}
	for i, name := range names {
		e.join(name, func(b *watchdog.Beat) { b.Detail, b.Position = details[i], uint64(i+1) })
	}
	for i, name := range names {
		if r := e.look(name); r.Detail != details[i] || r.Position != uint64(i+1) {
			e.Fatalf("%q has the detail %q and position %d, want %q and %d", name, r.Detail, r.Position, details[i], i+1)
		}
		e.granted(e.take(name, time.Hour, 5), 1)
	}
	if n := len(e.list("", 1000).Records); n != len(names) {
		e.Fatalf("%d names have %d records", len(names), n)
	}
}

func largestNumbers(e *env) {
	const most = watchdog.MaxNumber
	w := e.join("w", func(b *watchdog.Beat) {
		b.Seq, b.Position, b.Pending, b.Turns, b.Handler = most-3, most, most, most, most
	})
	r := e.look("w")
	if r.Seq != most-3 || r.Position != most || r.Pending != most {
		e.Fatalf("the record is %+v", r)
	}
	if r := w.next(func(b *watchdog.Beat) { b.Position = most - 1 }); r.Stalled != 0 || r.Seq != most-2 || r.Position != most-1 || r.Running == 0 {
		e.Fatalf("a position that is another by one, at one handler, made the record %+v", r)
	}
	if r := w.next(func(b *watchdog.Beat) { b.Handler = most - 1 }); r.Running != 0 || r.Stalled == 0 {
		e.Fatalf("a handler that is another by one made the record %+v", r)
	}
	if a := e.take("w", watchdog.MaxDuration, 5); a.Seq != most-1 {
		e.Fatalf("the last beat was %d", a.Seq)
	} else {
		a.Seq--
		e.unchanged(a, watchdog.ErrChanged)
		a.Seq++
		e.granted(a, 1)
	}
}

func beatBatch(e *env) {
	known := e.join("known")
	var batch []watchdog.Beat
	for i := range 20 {
		b := e.instance(fmt.Sprint(i)).last
		b.Join, b.Seq, b.Position = i%3 == 0, 1, uint64(i)
		batch = append(batch, b)
	}
	known.last.Seq++
	batch = append(batch, known.last)
	for i, a := range e.beats(e.p, batch...) {
		if want := i%3 == 0 || i == 20; (a.Err == nil) != want {
			e.Fatalf("beat %d of a batch was answered %v", i, a.Err)
		}
	}
	for i := 0; i < 20; i += 3 {
		if r := e.look(fmt.Sprint(i)); r.Position != uint64(i) {
			e.Fatalf("%d has the record %+v", i, r)
		}
	}
	if e.beats(e.p); len(e.act()) != 0 {
		e.Fatalf("a batch of nothing was answered with something")
	}
}

func beatTwiceInABatch(e *env) {
	one := e.instance("w").last
	one.Join, one.Seq = true, 1
	two := one
	two.Seq, two.Position = 2, 5
	other := e.instance("w").last
	other.Join, other.Seq, other.Position = true, 1, 6
	acks := e.beats(e.p, one, two, other, two)
	if acks[0].Err != nil || acks[0].Token != acks[1].Token || acks[2].Token <= acks[1].Token {
		e.Fatalf("beats of one name in a batch were answered %+v", acks)
	}
	e.refused("the beat of the instance that was replaced", acks[3].Err, watchdog.ErrFenced)
	if r := e.look("w"); r.Token != acks[2].Token || r.Position != 6 {
		e.Fatalf("the record is %+v, want that of the second instance", r)
	}
}
