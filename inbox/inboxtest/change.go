package inboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/inbox"
)

// What a person changes, whatever the kind.
var changeCases = []testCase{
	{name: "ChangeOfNothingIsNotFound", run: changeOfNothing},
	{name: "ChangeInAnotherStateIsRefused", run: changeInAnotherState},
	{name: "ChangeIsForAllRecordsOfTheEvent", run: changeIsForAll},
	{name: "ChangeWithANumberIsForOneRecord", run: changeIsForOne},
	{name: "ChangeKeepsWhoAndWhy", run: changeKeepsWhoAndWhy},
	{name: "ActionsAreTheLast", run: actionsAreTheLast},
	{name: "SameNonceChangesOnce", run: sameNonceChangesOnce, once: true},
	{name: "AnotherNonceChangesAgain", run: anotherNonceChangesAgain},
	{name: "BatchOfChangesIsAppliedInOrder", run: changesInOrder, once: true},
	{name: "BatchOfChangesAnswersEach", run: changesAnswerEach},
	{name: "AppliedChangesReturnNoErrors", run: appliedChanges},
	{name: "ResolvedIsDone", run: resolvedIsDone},
	{name: "ResolveOfADoneRecordIsRefused", run: resolveOfDone},
}

var allChanges = []inbox.ChangeKind{inbox.ChangeReplay, inbox.ChangeResolve, inbox.ChangeRedact, inbox.ChangeForget}

// change makes a change of a new call about all records of an event.
func change(k inbox.ChangeKind, id string) inbox.Change {
	c := inbox.Change{Kind: k, ID: "p/" + id, Actor: "alice", Reason: "to see " + k.String()}
	rand.Read(c.Nonce[:])
	return c
}

// changeOne makes a change of one record.
func changeOne(k inbox.ChangeKind, r inbox.Record) inbox.Change {
	c := change(k, "")
	c.ID, c.Seq = r.ID, r.Seq
	return c
}

// change sends changes in one batch and returns one error for each.
func (e *env) change(c ...inbox.Change) []error {
	e.Helper()
	errs, err := e.store.Change(context.Background(), e.p, c)
	if err != nil {
		e.Fatalf("Change of %d: %v", len(c), err)
	}
	if errs == nil {
		return make([]error, len(c))
	}
	if len(errs) != len(c) {
		e.Fatalf("Change of %d returned %d errors, want one for each or a nil slice", len(c), len(errs))
	}
	return errs
}

// changed sends changes that must all be applied.
func (e *env) changed(c ...inbox.Change) {
	e.Helper()
	for i, err := range e.change(c...) {
		if err != nil {
			e.Fatalf("%v of %q, number %d (%d of %d), was not applied: %v", c[i].Kind, c[i].ID, c[i].Seq, i, len(c), err)
		}
	}
}

// refused sends changes that must all fail with an error.
func (e *env) refused(want error, c ...inbox.Change) {
	e.Helper()
	for i, err := range e.change(c...) {
		if !errors.Is(err, want) {
			e.Fatalf("%v of %q, number %d (%d of %d), was answered %v, want %v", c[i].Kind, c[i].ID, c[i].Seq, i, len(c), err, want)
		}
	}
}

// ended ends a new event of a key of its own, which is free afterwards.
func (e *env) ended(k inbox.Kind, id string) inbox.Record {
	e.Helper()
	e.events(id, id)
	c := e.claim(id)
	e.applied(settlement(k, c, id), release(c))
	return e.record(id)
}

func changeOfNothing(e *env) {
	r := e.ended(inbox.KindDead, "a")
	for _, k := range allChanges[:3] {
		absent := changeOne(k, r)
		absent.Seq++
		foreign := changeOne(k, r)
		foreign.ID = "p/absent"
		e.refused(inbox.ErrNotFound, change(k, "absent"), absent, foreign)
	}
	e.changed(change(inbox.ChangeForget, "absent"))
	if after := e.record("a"); len(after.Actions) != 0 || after.State != inbox.StateDead || after.Seq != r.Seq {
		e.Fatalf("changes of other records made of %+v the record %+v", r, after)
	}
}

func changeInAnotherState(e *env) {
	e.events("pending", "pending")
	before := e.record("pending")
	for _, k := range allChanges[:3] {
		e.refused(inbox.ErrState, change(k, "pending"), changeOne(k, before))
	}
	after := e.wantState("pending", inbox.StatePending, 0)
	if len(after.Actions) != 0 || after.Seq != before.Seq || after.Form != before.Form || len(after.Payload) == 0 {
		e.Fatalf("changes that were refused made of %+v the record %+v", before, after)
	}
	c := e.claim("pending") // while it is worked, it is pending, too
	for _, k := range allChanges[:3] {
		e.refused(inbox.ErrState, change(k, "pending"))
	}
	e.applied(done(c, "pending"), release(c))
}

func changeIsForAll(e *env) {
	a := arrival("a", "k")
	a.Streams = []string{stream, "second", "third"}
	e.accepted(a)
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	for _, s := range []string{stream, "second"} {
		ask := newAsk()
		ask.Stream = s
		c := e.ask(ask).Claims[0]
		e.applied(settlement(inbox.KindDead, c, "a"), release(c))
	}
	e.changed(change(inbox.ChangeReplay, "a"))
	e.wantTotals(3, 0, 0, 0, 1, 0) // the third was pending anyhow, and a conflict is never worked
	for _, r := range e.get("a") {
		if want := r.Stream == stream || r.Stream == "second"; (len(r.Actions) == 1) != want {
			e.Fatalf("the record of stream %q that is %v has the actions %+v; want one: %t", r.Stream, r.State, r.Actions, want)
		}
	}
}

func changeIsForOne(e *env) {
	a := arrival("a", "k")
	a.Streams = []string{stream, "second"}
	e.accepted(a)
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	for _, s := range a.Streams {
		ask := newAsk()
		ask.Stream = s
		c := e.ask(ask).Claims[0]
		e.applied(settlement(inbox.KindDead, c, "a"), release(c))
	}
	rs := e.get("a")
	e.changed(changeOne(inbox.ChangeResolve, rs[1]))
	e.wantTotals(0, 1, 1, 0, 1, 0)
	e.changed(changeOne(inbox.ChangeRedact, rs[2]))
	e.refused(inbox.ErrState, changeOne(inbox.ChangeReplay, rs[2])) // a conflict has no stream
	e.changed(changeOne(inbox.ChangeReplay, rs[0]))
	e.wantTotals(1, 1, 0, 0, 1, 0)
	for _, r := range e.get("a") {
		if len(r.Actions) != 1 || (r.Form == inbox.FormRedacted) != (r.State == inbox.StateConflict) {
			e.Fatalf("after a change of each the records of an event include %+v", r)
		}
	}
}

func changeKeepsWhoAndWhy(e *env) {
	e.ended(inbox.KindDead, "a")
	first := change(inbox.ChangeResolve, "a")
	first.Actor, first.Reason = strings.Repeat("é", 128), strings.Repeat("r", inbox.MaxError)
	second := change(inbox.ChangeRedact, "a")
	second.Actor, second.Reason = `o'hara "\$1;--`, "漢字 \n\t{}[]"
	third := change(inbox.ChangeRedact, "a")
	third.Actor, third.Reason = "a", "b"
	for _, c := range []inbox.Change{first, second, third} {
		e.tick()
		e.changed(c)
	}
	r := e.record("a")
	if len(r.Actions) != 3 {
		e.Fatalf("after three changes the record has the actions %+v", r.Actions)
	}
	last := r.Received
	for i, c := range []inbox.Change{first, second, third} {
		if a := r.Actions[i]; a.Kind != c.Kind || a.Actor != c.Actor || a.Reason != c.Reason || !a.At.After(last) {
			e.Fatalf("the change %+v is kept as %+v, behind %v", c, a, last)
		}
		last = r.Actions[i].At
	}
	r.Actions[0].Actor = "changed"
	if got := e.record("a").Actions[0].Actor; got != first.Actor {
		e.Fatalf("the store gave out its own actions: %q", got)
	}
}

func actionsAreTheLast(e *env) {
	e.ended(inbox.KindDead, "a")
	const more = 3
	for i := range inbox.MaxActions + more {
		c := change(inbox.ChangeRedact, "a")
		c.Reason = fmt.Sprint("reason ", i)
		e.changed(c)
	}
	as := e.record("a").Actions
	if len(as) != inbox.MaxActions || as[0].Reason != fmt.Sprint("reason ", more) ||
		as[len(as)-1].Reason != fmt.Sprint("reason ", inbox.MaxActions+more-1) {
		e.Fatalf("after %d changes the record keeps the %d actions %+v", inbox.MaxActions+more, len(as), as)
	}
}

func sameNonceChangesOnce(e *env) {
	for _, k := range allChanges[:3] {
		id := k.String()
		r := e.ended(inbox.KindDead, id)
		c := change(k, id)
		e.changed(c)
		before := e.record(id)
		e.tick()
		e.changed(c)
		e.changed(c, c)
		if after := e.record(id); after.Seq != before.Seq || ageless(after) != ageless(before) {
			e.Fatalf("the repeated %v changed the record from %+v to %+v", k, before, after)
		}
		e.forget(r)
	}
	r := e.ended(inbox.KindDead, "a") // the replay of one record gives it another number
	c := changeOne(inbox.ChangeReplay, r)
	e.changed(c)
	e.changed(c)
	again := e.wantState("a", inbox.StatePending, 0)
	if again.Seq <= r.Seq || len(again.Actions) != 1 {
		e.Fatalf("a replay sent twice made of %+v the record %+v", r, again)
	}
	claim := e.claim("a")
	e.changed(c) // while it is worked,
	e.applied(settlement(inbox.KindDead, claim, "a"), release(claim))
	e.changed(c) // and when it has ended once more
	e.wantState("a", inbox.StateDead, 1)
	e.nothing()
}

// ageless describes a record without its age.
func ageless(r inbox.Record) string {
	r.Age = 0
	return describeRecords([]inbox.Record{r})
}

// forget removes an event.
func (e *env) forget(r inbox.Record) {
	e.Helper()
	c := change(inbox.ChangeForget, "")
	c.ID = r.ID
	e.changed(c)
}

func anotherNonceChangesAgain(e *env) {
	for round := 1; round <= 3; round++ {
		if round == 1 {
			e.events("k", "a")
		} else {
			e.changed(change(inbox.ChangeReplay, "a"))
		}
		c := e.claim("k")
		e.applied(settlement(inbox.KindDead, c, "a"), release(c))
		if got := e.wantState("a", inbox.StateDead, 1); len(got.Actions) != round-1 {
			e.Fatalf("after %d replays the record has the actions %+v", round-1, got.Actions)
		}
	}
}

func changesInOrder(e *env) {
	e.ended(inbox.KindDead, "a")
	errs := e.change(
		change(inbox.ChangeResolve, "a"), change(inbox.ChangeResolve, "a"), change(inbox.ChangeReplay, "a"),
		change(inbox.ChangeRedact, "a"), change(inbox.ChangeForget, "a"), change(inbox.ChangeReplay, "a"),
	)
	for i, want := range []error{nil, inbox.ErrState, nil, inbox.ErrState, nil, inbox.ErrNotFound} {
		if !errors.Is(errs[i], want) {
			e.Fatalf("change %d of a batch returned %v, want %v", i, errs[i], want)
		}
	}
}

func changesAnswerEach(e *env) {
	e.ended(inbox.KindDead, "a")
	e.ended(inbox.KindUnknown, "b")
	e.events("k", "pending")
	errs := e.change(
		change(inbox.ChangeReplay, "absent"), change(inbox.ChangeReplay, "a"), change(inbox.ChangeResolve, "pending"),
		change(inbox.ChangeResolve, "b"), change(inbox.ChangeForget, "other"),
	)
	for i, want := range []error{inbox.ErrNotFound, nil, inbox.ErrState, nil, nil} {
		if !errors.Is(errs[i], want) {
			e.Fatalf("change %d of a batch returned %v, want %v", i, errs[i], want)
		}
	}
	e.wantTotals(2, 1, 0, 0, 0, 0)
}

func appliedChanges(e *env) {
	e.ended(inbox.KindDead, "a")
	errs, err := e.store.Change(e.Context(), e.p, []inbox.Change{change(inbox.ChangeResolve, "a"), change(inbox.ChangeForget, "b")})
	if errs != nil || err != nil {
		e.Fatalf("a batch that was applied returned %v and %v, want nil and nil", errs, err)
	}
}

func resolvedIsDone(e *env) {
	e.ended(inbox.KindDead, "dead")
	e.ended(inbox.KindQuarantine, "quarantine")
	e.ended(inbox.KindUnknown, "unknown")
	e.ended(inbox.KindDone, "conflict")
	e.answered(inbox.Conflict, arrivalOf("conflict", "conflict", "other"))
	e.answered(inbox.Quarantined, raw("raw"))
	e.tick()
	for _, id := range []string{"dead", "quarantine", "unknown", "conflict", "raw"} {
		rs := e.get(id)
		before := rs[len(rs)-1]
		e.changed(changeOne(inbox.ChangeResolve, before))
		rs = e.get(id)
		r := rs[len(rs)-1]
		if r.State != inbox.StateDone || r.Seq != before.Seq || !r.Settled.After(before.Settled) || r.Expires.Sub(r.Settled) != longRetention {
			e.Fatalf("the record %+v that was resolved is %+v", before, r)
		}
		if string(r.Payload) != string(before.Payload) || r.Attempts != before.Attempts {
			e.Fatalf("the record %+v that was resolved is %+v", before, r)
		}
	}
	e.nothing()
	e.wantTotals(0, 6, 0, 0, 0, 0)
	e.answered(inbox.Duplicate, arrival("dead", "dead"))
	if got := e.in(inbox.StateDone); !slices.Contains(got, "raw") || !slices.Contains(got, "unknown") {
		e.Fatalf("done are %q", got)
	}
}

func resolveOfDone(e *env) {
	r := e.ended(inbox.KindDone, "a")
	e.tick()
	e.refused(inbox.ErrState, change(inbox.ChangeResolve, "a"), changeOne(inbox.ChangeResolve, r))
	if after := e.record("a"); !after.Expires.Equal(r.Expires) || len(after.Actions) != 0 {
		e.Fatalf("a resolution that was refused made of %+v the record %+v", r, after)
	}
}
