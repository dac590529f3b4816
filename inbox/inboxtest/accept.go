package inboxtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/inbox"
)

// What arrivals are answered, and what is stored.
var acceptCases = []testCase{
	{name: "NewIsAcceptedAndPending", run: newIsAccepted},
	{name: "EveryEventOfABatchIsStored", run: everyEventIsStored},
	{name: "RepeatedAcceptFindsItsRecords", run: repeatedAccept, once: true},
	{name: "DuplicateChangesNothing", run: duplicateChangesNothing},
	{name: "DuplicateOfSettledIsDuplicate", run: duplicateOfSettled},
	{name: "DuplicateWithinABatch", run: duplicateWithinBatch},
	{name: "EveryStreamHasARecord", run: everyStreamHasARecord},
	{name: "RawIsQuarantined", run: rawIsQuarantined},
	{name: "RawAgainIsQuarantinedOnce", run: rawAgain},
	{name: "EmptyBatchIsNothing", run: emptyBatch},
	{name: "CancelledContextIsAnError", run: cancelledContext},
}

// Arrivals whose ID is known with another digest.
var conflictCases = []testCase{
	{name: "OtherDigestIsConflict", run: otherDigestIsConflict},
	{name: "ConflictDoesNotChangeTheFirst", run: conflictKeepsTheFirst},
	{name: "ConflictIsNeverWorked", run: conflictIsNeverWorked},
	{name: "ConflictIsKeptOnceForADigest", run: conflictIsKeptOnce},
	{name: "ConflictsOfAnIDAreBounded", run: conflictsAreBounded},
	{name: "ConflictWithinABatch", run: conflictWithinBatch},
	{name: "ConflictWithRaw", run: conflictWithRaw},
}

func newIsAccepted(e *env) {
	e.accepted(arrival("a", "k"))
	r := e.wantState("a", inbox.StatePending, 0)
	if r.Stream != stream || r.Seq == 0 || r.LastError != "" {
		e.Fatalf("a new record has stream %q, number %d and last error %q", r.Stream, r.Seq, r.LastError)
	}
	if !r.Settled.IsZero() || !r.Expires.IsZero() || !r.Next.IsZero() || !r.Deleted.IsZero() || r.Received.IsZero() {
		e.Fatalf("a new record has the times %v, %v, %v, %v and was received at %v", r.Settled, r.Expires, r.Next, r.Deleted, r.Received)
	}
	e.wantTotals(1, 0, 0, 0, 0, 0)
	e.wantRecords(e.claim("k"), "a")
}

func everyEventIsStored(e *env) {
	n := cmp.Or(e.c.Many, 1000)
	arrivals := make([]inbox.Arrival, n)
	for i := range arrivals {
		arrivals[i] = arrival(fmt.Sprintf("event-%04d", i), fmt.Sprintf("key-%d", i%7))
	}
	e.accepted(arrivals...)
	e.wantTotals(n, 0, 0, 0, 0, 0)
	rs := e.list(inbox.Query{State: inbox.StatePending, N: n})
	if len(rs) != n {
		e.Fatalf("%d of %d events are listed", len(rs), n)
	}
	for i, r := range rs { // in the order of the batch
		if r.ID != arrivals[i].ID || string(r.Payload) != string(arrivals[i].Payload) {
			e.Fatalf("record %d is %q, want %q", i, r.ID, arrivals[i].ID)
		}
	}
	a := newAsk()
	a.Events = n
	worked := 0
	for _, c := range e.ask(a).Claims {
		worked += len(c.Records)
	}
	if worked != n {
		e.Fatalf("%d of %d events can be worked", worked, n)
	}
}

func repeatedAccept(e *env) {
	batch := []inbox.Arrival{arrival("a", "k"), arrival("b", "k"), raw("body")}
	if got := e.accept(batch...); !slices.Equal(got, []inbox.Answer{inbox.Accepted, inbox.Accepted, inbox.Quarantined}) {
		e.Fatalf("a batch was answered %v", got)
	}
	for range 2 {
		if got := e.accept(batch...); !slices.Equal(got, []inbox.Answer{inbox.Duplicate, inbox.Duplicate, inbox.Quarantined}) {
			e.Fatalf("the batch sent again was answered %v", got)
		}
	}
	e.wantTotals(2, 0, 0, 1, 0, 0)
}

func duplicateChangesNothing(e *env) {
	e.events("k", "a", "b")
	before := e.record("a")
	e.tick()
	other := arrival("a", "k")
	other.Key, other.Type, other.Streams = "another", "another", []string{"another"} // the digest decides
	e.answered(inbox.Duplicate, other)
	if after := e.record("a"); after.Seq != before.Seq || after.Key != "k" || after.Type != "t" || !after.Received.Equal(before.Received) {
		e.Fatalf("a duplicate changed the record to %+v", after)
	}
	e.wantTotals(2, 0, 0, 0, 0, 0)
	e.wantRecords(e.claim("k"), "a", "b")
}

func duplicateOfSettled(e *env) {
	for _, k := range []inbox.Kind{inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown} {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.answered(inbox.Duplicate, arrival(id, id)) // while it is worked,
		e.applied(settlement(k, c, id), release(c))
		e.answered(inbox.Duplicate, arrival(id, id)) // and after.
		e.nothing()
	}
	e.wantTotals(0, 1, 1, 1, 0, 1)
}

func duplicateWithinBatch(e *env) {
	got := e.accept(arrival("a", "k"), arrival("b", "k"), arrival("a", "k"), arrival("a", "k"))
	if want := []inbox.Answer{inbox.Accepted, inbox.Accepted, inbox.Duplicate, inbox.Duplicate}; !slices.Equal(got, want) {
		e.Fatalf("a batch with a repeated event was answered %v, want %v", got, want)
	}
	e.wantRecords(e.claim("k"), "a", "b")
}

func everyStreamHasARecord(e *env) {
	a := arrival("a", "k")
	a.Streams = []string{"crm", "routing"}
	e.accepted(a, arrival("b", "k"))
	rs := e.get("a")
	if len(rs) != 2 || rs[0].Stream != "crm" || rs[1].Stream != "routing" {
		e.Fatalf("an event of two streams has the records %+v", rs)
	}
	e.wantTotals(3, 0, 0, 0, 0, 0)
	ask := newAsk()
	ask.Stream = "crm"
	crm := e.ask(ask).Claims
	if len(crm) != 1 {
		e.Fatalf("the stream crm has %d keys to claim, want 1", len(crm))
	}
	e.wantRecords(crm[0], "a")
	e.applied(done(crm[0], "a"), release(crm[0]))
	ask = newAsk()
	ask.Stream = "routing"
	routing := e.ask(ask).Claims // the other stream goes its own way
	if len(routing) != 1 || routing[0].Records[0].Attempts != 1 {
		e.Fatalf("the stream routing has the claims %+v, want one of a first attempt", routing)
	}
	e.answered(inbox.Duplicate, a)
	e.wantTotals(2, 1, 0, 0, 0, 0)
	e.wantRecords(e.claim("k"), "b")
}

func rawIsQuarantined(e *env) {
	e.answered(inbox.Quarantined, raw("body"))
	r := e.wantState("body", inbox.StateQuarantined, 0)
	if r.Stream != "" || r.LastError != "no events in it" || r.Settled.IsZero() || r.Expires.IsZero() {
		e.Fatalf("a body in quarantine has the record %+v", r)
	}
	e.nothing()
	e.wantTotals(0, 0, 0, 1, 0, 0)
}

func rawAgain(e *env) {
	e.answered(inbox.Quarantined, raw("body"))
	e.answered(inbox.Quarantined, raw("body"))
	if got := e.accept(raw("other"), raw("other")); got[0] != inbox.Quarantined || got[1] != inbox.Quarantined {
		e.Fatalf("a body twice in a batch was answered %v", got)
	}
	if got := e.in(inbox.StateQuarantined); !slices.Equal(got, []string{"body", "other"}) {
		e.Fatalf("in quarantine are %q", got)
	}
}

func emptyBatch(e *env) {
	if got := e.accept(); len(got) != 0 {
		e.Fatalf("an empty batch was answered %v", got)
	}
	e.applied()
	e.changed()
	e.nothing()
	e.wantTotals(0, 0, 0, 0, 0, 0)
}

func cancelledContext(e *env) {
	e.events("k", "a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.store.Accept(ctx, e.p, []inbox.Arrival{arrival("b", "k")}); err == nil {
		e.Error("Accept with a context that has ended returned no error")
	}
	if _, err := e.store.Claim(ctx, newAsk()); err == nil {
		e.Error("Claim with a context that has ended returned no error")
	}
	if _, err := e.store.Settle(ctx, e.p, []inbox.Settlement{{Kind: inbox.KindRelease, Stream: stream, Key: "k", Token: 1}}); err == nil {
		e.Error("Settle with a context that has ended returned no error")
	}
	if _, err := e.store.Change(ctx, e.p, []inbox.Change{change(inbox.ChangeForget, "a")}); err == nil {
		e.Error("Change with a context that has ended returned no error")
	}
	if _, err := e.store.List(ctx, inbox.Query{State: inbox.StatePending, N: 1}); err == nil {
		e.Error("List with a context that has ended returned no error")
	}
	if _, err := e.store.Totals(ctx); err == nil {
		e.Error("Totals with a context that has ended returned no error")
	}
	e.accept(arrival("a", "k"), arrival("b", "k")) // stored by now, whether or not they were before
	c := e.claim("k")
	if ids := idsOf(c.Records); len(ids) != 2 {
		e.Fatalf("after steps whose context had ended the key has the events %q", ids)
	}
}

func otherDigestIsConflict(e *env) {
	e.events("k", "a")
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	rs := e.get("a")
	if len(rs) != 2 || rs[0].State != inbox.StatePending || rs[1].State != inbox.StateConflict {
		e.Fatalf("an event in conflict has the records %+v", rs)
	}
	if c := rs[1]; string(c.Payload) != "other" || c.Stream != "" || c.Settled.IsZero() || c.Expires.IsZero() {
		e.Fatalf("the arrival in conflict has the record %+v", c)
	}
	if got := e.in(inbox.StateConflict); !slices.Equal(got, []string{"a"}) {
		e.Fatalf("in conflict are %q", got)
	}
	e.wantTotals(1, 0, 0, 0, 1, 0)
}

func conflictKeepsTheFirst(e *env) {
	e.events("k", "a")
	before := e.record("a")
	e.answered(inbox.Conflict, arrivalOf("a", "elsewhere", "other"))
	after := e.get("a")[0]
	if after.Seq != before.Seq || string(after.Payload) != "payload of a" || after.Key != "k" || after.State != inbox.StatePending {
		e.Fatalf("a conflict changed the first record to %+v", after)
	}
	e.answered(inbox.Duplicate, arrival("a", "k")) // the first digest is still the first
	c := e.claim("k")
	e.wantRecords(c, "a")
	if got := string(c.Records[0].Payload); got != "payload of a" {
		e.Fatalf("the event is worked with the payload %q", got)
	}
	e.applied(done(c, "a"), release(c))
	e.answered(inbox.Conflict, arrivalOf("a", "k", "third"))
	e.answered(inbox.Duplicate, arrival("a", "k"))
}

func conflictIsNeverWorked(e *env) {
	e.events("k", "a")
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.nothing()
	e.wantTotals(0, 1, 0, 0, 1, 0)
}

func conflictIsKeptOnce(e *env) {
	e.events("k", "a")
	for range 3 {
		e.answered(inbox.Conflict, arrivalOf("a", "k", "second"))
		e.answered(inbox.Conflict, arrivalOf("a", "k", "third"))
	}
	if rs := e.get("a"); len(rs) != 3 || string(rs[1].Payload) != "second" || string(rs[2].Payload) != "third" {
		e.Fatalf("an event with two other payloads has the records %+v", rs)
	}
	e.wantTotals(1, 0, 0, 0, 2, 0)
}

func conflictsAreBounded(e *env) {
	e.events("k", "a")
	for i := range inbox.MaxConflicts + 3 {
		e.answered(inbox.Conflict, arrivalOf("a", "k", fmt.Sprint("other ", i)))
	}
	if rs := e.get("a"); len(rs) != 1+inbox.MaxConflicts {
		e.Fatalf("an event with many other payloads has %d records, want %d", len(rs), 1+inbox.MaxConflicts)
	}
	e.wantTotals(1, 0, 0, 0, inbox.MaxConflicts, 0)
}

func conflictWithinBatch(e *env) {
	got := e.accept(arrival("a", "k"), arrivalOf("a", "k", "other"), arrival("a", "k"), arrivalOf("a", "k", "other"))
	if want := []inbox.Answer{inbox.Accepted, inbox.Conflict, inbox.Duplicate, inbox.Conflict}; !slices.Equal(got, want) {
		e.Fatalf("a batch with a conflict was answered %v, want %v", got, want)
	}
	e.wantTotals(1, 0, 0, 0, 1, 0)
}

func conflictWithRaw(e *env) {
	e.answered(inbox.Quarantined, raw("a"))
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	e.answered(inbox.Duplicate, arrivalOf("a", "k", "payload of a"))
	e.nothing()
	e.wantTotals(0, 0, 0, 1, 1, 0)
}
