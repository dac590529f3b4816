package inboxtest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Outcomes that nobody knows.
var outcomeCases = []testCase{
	{name: "UnknownDoesNotExpire", run: unknownDoesNotExpire},
	{name: "UnknownMayBeReplayed", run: unknownMayBeReplayed},
	{name: "UnknownMayBeResolved", run: unknownMayBeResolved},
}

// The attempts that failed.
var failureCases = []testCase{
	{name: "FailuresAreKeptAsGiven", run: failuresAreKept},
	{name: "FailuresAreReplaced", run: failuresAreReplaced},
	{name: "DoneKeepsTheFailures", run: doneKeepsTheFailures},
	{name: "FailuresAreNotShared", run: failuresAreNotShared},
	{name: "StaleFailuresAreNotKept", run: staleFailures},
}

// How bodies are kept.
var formCases = []testCase{
	{name: "FormIsKept", run: formIsKept},
	{name: "FormOfTheFirstIsKept", run: formOfTheFirst},
}

func unknownDoesNotExpire(e *env) {
	r := e.ended(inbox.KindUnknown, "a")
	if r.State != inbox.StateUnknown || r.Settled.IsZero() || !r.Expires.IsZero() || !r.Erases.IsZero() || !r.Next.IsZero() {
		e.Fatalf("an unknown record is %+v", r)
	}
	e.wantTotals(0, 0, 0, 0, 0, 1)
	e.nothing()
}

func unknownMayBeReplayed(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	e.applied(settlement(inbox.KindUnknown, c, "a"), begin(c, "b"), done(c, "b"), release(c)) // its key goes on
	e.changed(change(inbox.ChangeReplay, "a"))
	e.wantTotals(1, 1, 0, 0, 0, 0)
	c = e.claim("k")
	e.wantRecords(c, "a")
	e.applied(done(c, "a"), release(c))
	if r := e.wantState("a", inbox.StateDone, 1); r.Expires.Sub(r.Settled) != longRetention {
		e.Fatalf("a record that was unknown and is done is %+v", r)
	}
}

func unknownMayBeResolved(e *env) {
	e.ended(inbox.KindUnknown, "a")
	e.changed(change(inbox.ChangeResolve, "a"))
	r := e.wantState("a", inbox.StateDone, 1)
	if r.Expires.Sub(r.Settled) != longRetention || r.Erases.IsZero() {
		e.Fatalf("a record that was unknown and was resolved is %+v", r)
	}
	e.wantTotals(0, 1, 0, 0, 0, 0)
}

// failures makes a list of n.
func failures(n int) []inbox.Failure {
	list := make([]inbox.Failure, n)
	for i := range list {
		list[i] = inbox.Failure{Attempt: 1 + i*i, At: failedAt.Add(time.Duration(i) * time.Hour), Error: fmt.Sprint("failure ", i)}
	}
	return list
}

func (e *env) wantFailures(r inbox.Record, want []inbox.Failure) {
	e.Helper()
	got := append([]inbox.Failure{}, r.Failures...)
	for i := range got {
		got[i].At = got[i].At.UTC()
	}
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		e.Fatalf("the record %q has the failures\n%+v, want\n%+v", r.ID, got, want)
	}
}

func failuresAreKept(e *env) {
	list := failures(inbox.MaxFailures)
	list[1].Error = strings.Repeat("é", inbox.MaxError/2)
	list[2].Error = `'"\$1;--{}[],` + "\r\n\t\x01"
	list[3].Error = ""
	list[4].Attempt = 1_000_000
	for _, k := range []inbox.Kind{inbox.KindRetry, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown} {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		s := settlement(k, c, id)
		s.Failures = list
		e.applied(s)
		e.wantFailures(e.record(id), list)
		if k == inbox.KindRetry {
			c = e.claim(id)
			e.wantFailures(c.Records[0], list)
		}
		e.applied(release(c))
		if k == inbox.KindRetry {
			e.forget(e.record(id))
		}
	}
}

func failuresAreReplaced(e *env) {
	e.events("k", "a")
	for _, n := range []int{1, 2, 8, 3, 0, 1} {
		s := retry(e.claim("k"), "a", 0)
		s.Failures = failures(n)
		e.applied(s)
		e.wantFailures(e.record("a"), s.Failures)
	}
	c := e.claim("k")
	s := settlement(inbox.KindDead, c, "a")
	s.Failures = failures(2)
	e.applied(s, release(c))
	e.wantFailures(e.record("a"), s.Failures)
	e.changed(change(inbox.ChangeReplay, "a"))
	c = e.claim("k")
	s = settlement(inbox.KindUnknown, c, "a")
	s.Failures = nil
	e.applied(s, release(c))
	e.wantFailures(e.record("a"), nil)
}

func doneKeepsTheFailures(e *env) {
	e.events("k", "a")
	s := retry(e.claim("k"), "a", 0)
	s.Failures = failures(3)
	e.applied(s)
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.wantFailures(e.wantState("a", inbox.StateDone, 2), s.Failures)
}

func failuresAreNotShared(e *env) {
	e.events("k", "a")
	s := retry(e.claim("k"), "a", 0)
	s.Failures = failures(2)
	e.applied(s)
	s.Failures[0].Error = "changed"
	first := e.record("a")
	e.wantFailures(first, failures(2))
	first.Failures[1].Error = "changed"
	e.wantFailures(e.record("a"), failures(2))
}

func staleFailures(e *env) {
	e.events("k", "a")
	first := e.lapsed("k")
	second := e.claim("k")
	s := settlement(inbox.KindDead, first, "a")
	s.Failures = failures(2)
	e.stale(s)
	e.wantFailures(e.record("a"), nil)
	e.applied(done(second, "a"), release(second))
	e.stale(s)
	e.wantFailures(e.record("a"), nil)
}

func formIsKept(e *env) {
	for _, f := range []inbox.Form{0, inbox.FormSealed, inbox.FormOutside, inbox.FormSealed | inbox.FormOutside} {
		id := fmt.Sprint("form ", f)
		want := func(where string, r inbox.Record) {
			e.Helper()
			if r.Form != f || string(r.Payload) != "payload of "+id {
				e.Fatalf("%s a body of form %d has the form %d: %+v", where, f, r.Form, r)
			}
		}
		a := arrival(id, id)
		a.Form = f
		e.accepted(a)
		want("listed", e.record(id))
		c := e.claim(id)
		want("claimed", c.Records[0])
		e.applied(settlement(inbox.KindDead, c, id), release(c))
		want("when it ended", e.record(id))
		e.changed(change(inbox.ChangeReplay, id))
		want("replayed", e.record(id))
		c = e.claim(id)
		want("claimed again", c.Records[0])
		e.applied(done(c, id), release(c))
		id = fmt.Sprint("raw ", f)
		a = raw(id)
		a.Form = f
		e.answered(inbox.Quarantined, a)
		want("in quarantine", e.record(id))
	}
}

func formOfTheFirst(e *env) {
	a := arrival("a", "k")
	a.Form = inbox.FormSealed
	e.accepted(a)
	again := arrival("a", "k")
	again.Form = inbox.FormOutside
	e.answered(inbox.Duplicate, again)
	other := arrivalOf("a", "k", "other")
	other.Form = inbox.FormOutside
	e.answered(inbox.Conflict, other)
	rs := e.get("a")
	if len(rs) != 2 || rs[0].Form != inbox.FormSealed || rs[1].Form != inbox.FormOutside {
		e.Fatalf("an event has the records %+v", rs)
	}
}
