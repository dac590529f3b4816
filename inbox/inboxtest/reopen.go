package inboxtest

import (
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// What is there after the store was closed and opened.
var reopenCases = []testCase{
	{name: "ReopenKeepsWhatWasAccepted", run: reopenKeepsAccepted},
	{name: "ReopenKeepsClaims", run: reopenKeepsClaims},
	{name: "ReopenKeepsSettlements", run: reopenKeepsSettlements},
	{name: "ReopenKeepsChanges", run: reopenKeepsChanges},
}

// reopen closes the store and opens it again, and says whether it can be.
func (e *env) reopen() bool {
	e.Helper()
	if e.c.Reopen == nil {
		e.Skip("Config.Reopen is nil: the store is not durable")
	}
	if twice, ok := e.store.(*twiceStore); ok {
		twice.Store = e.c.Reopen(e.T, twice.Store)
	} else {
		e.store = e.c.Reopen(e.T, e.store)
	}
	return true
}

func reopenKeepsAccepted(e *env) {
	e.events("k", "a", "b")
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.answered(inbox.Quarantined, raw("raw"))
	before := e.record("b")
	e.reopen()
	e.wantTotals(2, 0, 0, 1, 1, 0)
	if after := e.record("b"); after.Seq != before.Seq || !after.Received.Equal(before.Received) {
		e.Fatalf("the record %+v is %+v after the store was opened again", before, after)
	}
	e.answered(inbox.Duplicate, arrival("a", "k"))
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.answered(inbox.Quarantined, raw("raw"))
	e.events("k", "c")
	e.wantRecords(e.claim("k"), "a", "b", "c")
}

func reopenKeepsClaims(e *env) {
	e.events("k", "a", "b")
	e.events("late", "x")
	for _, c := range e.claims() {
		if c.Key == "late" {
			e.applied(retry(c, "x", longLease))
		} else {
			e.applied(release(c))
		}
	}
	a := newAsk()
	c := e.ask(a).Claims[0]
	e.reopen()
	e.nothing() // one is claimed, the other not due
	again := e.ask(a).Claims
	if len(again) != 1 || again[0].Token != c.Token || again[0].Records[0].Attempts != 2 {
		e.Fatalf("an ask sent again after the store was opened again got %+v, want %+v", again, c)
	}
	e.applied(done(c, "a"), begin(c, "b"), done(c, "b"), release(c))
	if r := e.record("x"); r.LastError != "it failed" || r.Next.IsZero() {
		e.Fatalf("a record that failed is %+v after the store was opened again", r)
	}
}

func reopenKeepsSettlements(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(done(c, "a"), begin(c, "b"), settlement(inbox.KindDead, c, "b"), release(c))
	e.reopen()
	e.applied(done(c, "a"), release(c)) // the answer was lost with the process
	e.nothing()
	e.wantTotals(0, 1, 1, 0, 0, 0)
	if got := e.in(inbox.StateDead); !slices.Equal(got, []string{"b"}) {
		e.Fatalf("dead are %q after the store was opened again", got)
	}
	e.answered(inbox.Duplicate, arrival("b", "k"))
	e.tick()
	e.events("k", "d")
	if next := e.claim("k"); next.Token <= c.Token {
		e.Fatalf("after the store was opened again an owner has token %d, want more than %d", next.Token, c.Token)
	}
}

func reopenKeepsChanges(e *env) {
	e.accepted(full("a"))
	c := e.claim("a")
	e.applied(settlement(inbox.KindUnknown, c, "a"), release(c))
	e.ended(inbox.KindDead, "b")
	e.ended(inbox.KindDead, "c")
	redaction, replay := change(inbox.ChangeRedact, "a"), change(inbox.ChangeReplay, "b")
	e.changed(redaction, replay, change(inbox.ChangeForget, "c"))
	a, b := e.record("a"), e.record("b")
	e.reopen()
	e.wantTotals(1, 0, 0, 0, 0, 1)
	e.changed(redaction, replay) // the answer was lost with the process
	for id, before := range map[string]inbox.Record{"a": a, "b": b} {
		if after := e.record(id); after.Seq != before.Seq || ageless(after) != ageless(before) {
			e.Fatalf("the record %+v is %+v after the store was opened again", before, after)
		}
	}
	if got := len(e.get("c")); got != 0 {
		e.Fatalf("a forgotten event has %d records after the store was opened again", got)
	}
	e.wantRecords(e.claim("b"), "b")
}
