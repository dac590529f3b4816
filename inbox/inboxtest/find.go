package inboxtest

import (
	"math"
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// Finding records by what they name.
var findCases = []testCase{
	{name: "FindByMessageID", run: findByMessageID},
	{name: "FindByExternalID", run: findByExternalID},
	{name: "FindPages", run: findPages},
	{name: "FindIsExact", run: findIsExact},
	{name: "TheFirstFieldOfAQueryCounts", run: firstFieldCounts},
	{name: "OutsideIsListedWhenItErases", run: outsideIsListed},
	{name: "OutsidePages", run: outsidePages},
}

// of makes an arrival with a message ID and an external ID.
func of(id, message, external string) inbox.Arrival {
	a := arrival(id, "key of "+message)
	a.MessageID, a.ExternalID = message, external
	return a
}

// found lists the events that a query selects.
func (e *env) found(q inbox.Query) []string {
	e.Helper()
	q.N = 100
	return idsOf(e.list(q))
}

func (e *env) wantFound(q inbox.Query, ids ...string) {
	e.Helper()
	if got := e.found(q); !slices.Equal(got, ids) {
		e.Fatalf("the query %+v found %q, want %q", q, got, ids)
	}
}

func findByMessageID(e *env) {
	e.accepted(of("sent", "m1", "x1"), of("other", "m2", "x1"), of("delivered", "m1", ""), of("none", "", ""))
	two := of("two", "m3", "x3")
	two.Streams = []string{stream, "second"}
	e.accepted(two)
	conflict := arrivalOf("sent", "elsewhere", "other")
	conflict.MessageID = "m1"
	e.answered(inbox.Conflict, conflict)
	c := e.claimOf("key of m1")
	e.applied(done(c, "sent"), release(c))
	e.wantFound(inbox.Query{MessageID: "m1"}, "sent", "delivered", "sent")
	e.wantFound(inbox.Query{MessageID: "m2"}, "other")
	e.wantFound(inbox.Query{MessageID: "m3"}, "two", "two")
	e.wantFound(inbox.Query{MessageID: "x1"})
	e.changed(changeOne(inbox.ChangeReplay, e.get("sent")[0])) // it has another number now
	e.wantFound(inbox.Query{MessageID: "m1"}, "delivered", "sent", "sent")
}

func findByExternalID(e *env) {
	e.accepted(of("a", "m1", "order 1"), of("b", "m2", "order 2"), of("c", "m3", "order 1"), of("d", "order 1", ""))
	e.wantFound(inbox.Query{ExternalID: "order 1"}, "a", "c")
	e.wantFound(inbox.Query{ExternalID: "order 2"}, "b")
	e.wantFound(inbox.Query{ExternalID: "order 3"})
	r := e.list(inbox.Query{ExternalID: "order 2", N: 1})[0]
	if r.ExternalID != "order 2" || r.MessageID != "m2" || string(r.Payload) != "payload of b" {
		e.Fatalf("a record was found as %+v", r)
	}
}

func findPages(e *env) {
	const n = 25
	var ids []string
	for i := range n {
		id := string(rune('a' + i))
		ids = append(ids, id)
		e.accepted(of(id, "m", "x"), of("no "+id, "another m", "another x"))
	}
	e.wantPages(inbox.Query{MessageID: "m"}, ids)
	e.wantPages(inbox.Query{ExternalID: "x"}, ids)
}

// wantPages lists in pages of several sizes.
func (e *env) wantPages(q inbox.Query, want []string) {
	e.Helper()
	for _, size := range []int{1, 7, len(want), len(want) + 1} {
		q.After, q.N = 0, size
		var got []string
		for {
			page := e.list(q)
			got = append(got, idsOf(page)...)
			if len(page) < size {
				break
			}
			q.After = page[len(page)-1].Seq
		}
		if !slices.Equal(got, want) {
			e.Fatalf("pages of %d of %+v list %q, want %q", size, q, got, want)
		}
	}
	q.After = math.MaxUint64
	if rest := e.list(q); len(rest) != 0 {
		e.Fatalf("%d records are listed behind the last number there can be", len(rest))
	}
}

func findIsExact(e *env) {
	names := []string{"m", "M", "m ", "m\x01", "é", "e\u0301", "m%", "%", "*", "m:", "'"}
	for i, n := range names {
		e.accepted(of(string(rune('a'+i)), n, n))
	}
	for i, n := range names {
		e.wantFound(inbox.Query{MessageID: n}, string(rune('a'+i)))
		e.wantFound(inbox.Query{ExternalID: n}, string(rune('a'+i)))
	}
}

func firstFieldCounts(e *env) {
	d := e.ended(inbox.KindDead, "d")
	e.accepted(of("a", "m1", "x1"), of("b", "m2", "x2"), of("c", "m3", "x3"))
	e.wantFound(inbox.Query{ID: d.ID, MessageID: "m1", ExternalID: "x2", State: inbox.StatePending, Outside: true}, "d")
	e.wantFound(inbox.Query{MessageID: "m1", ExternalID: "x2", State: inbox.StateDead, Outside: true}, "a")
	e.wantFound(inbox.Query{ExternalID: "x2", State: inbox.StateDead, Outside: true}, "b")
	e.wantFound(inbox.Query{State: inbox.StateDead, Outside: true}, "d")
}

func outsideIsListed(e *env) {
	outside := func(id string) {
		e.Helper()
		a := arrival(id, id)
		a.Form = inbox.FormOutside
		e.accepted(a)
	}
	e.p.Bodies = e.short // and long for what is not done
	for k := range ends {
		outside(k.String())
		c := e.claimOf(k.String())
		e.applied(settlement(k, c, c.Key), release(c))
	}
	e.ended(inbox.KindDone, "inside")
	outside("pending")
	if e.virtual {
		e.wantFound(inbox.Query{Outside: true})
	}
	e.wait()
	e.wantFound(inbox.Query{Outside: true}, "done")
	e.changed(change(inbox.ChangeResolve, "unknown"))
	e.wait()
	e.wantFound(inbox.Query{Outside: true}, e.bySeq("done", "unknown")...)
	e.changed(change(inbox.ChangeReplay, "unknown"))
	e.wantFound(inbox.Query{Outside: true}, "done")
	e.changed(change(inbox.ChangeRedact, "done"))
	e.wantFound(inbox.Query{Outside: true}) // nothing is outside any more
	c := e.claimOf("unknown")
	e.p.Keep = e.short
	e.applied(settlement(inbox.KindDead, c, "unknown"), release(c))
	e.wait()
	e.wantFound(inbox.Query{Outside: true}, "unknown")
}

// bySeq sorts events with one record each.
func (e *env) bySeq(ids ...string) []string {
	e.Helper()
	slices.SortFunc(ids, func(a, b string) int { return int(e.record(a).Seq) - int(e.record(b).Seq) })
	return ids
}

func outsidePages(e *env) {
	e.briefly()
	const n = 15
	var ids []string
	for i := range n {
		id := string(rune('a' + i))
		a := raw(id)
		if i%3 > 0 {
			a.Form = inbox.FormOutside
			ids = append(ids, id)
		}
		e.answered(inbox.Quarantined, a)
	}
	e.wait()
	e.wantPages(inbox.Query{Outside: true}, ids)
}
