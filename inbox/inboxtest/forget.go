package inboxtest

import (
	"context"

	"github.com/pawl-go/pawl/inbox"
)

var forgetCases = []testCase{
	{name: "ForgetRemovesEveryRecord", run: forgetRemovesEvery},
	{name: "ForgottenByAPersonIsNew", run: forgottenByPersonIsNew},
	{name: "ForgetOfAPendingLetsTheNextPass", run: forgetOfPending},
	{name: "ForgetOfTheOnlyPendingLeavesNothing", run: forgetOfOnlyPending},
	{name: "ForgetOfWhatIsWorkedMakesItsWorkerStale", run: forgetOfWorked},
	{name: "ForgetLeavesTheKeyToItsOwner", run: forgetAndAskAgain, once: true},
	{name: "ForgottenAndAcceptedAgainIsAnother", run: forgottenAndAccepted},
	{name: "SettlementOfAForgottenRecordLeavesTheNext", run: settleOfForgotten},
	{name: "ForgetLeavesOthers", run: forgetLeavesOthers},
}

func forgetRemovesEvery(e *env) {
	a := arrival("a", "k")
	a.Streams = []string{stream, "second"}
	e.accepted(a)
	e.answered(inbox.Conflict, arrivalOf("a", "k", "other"))
	c := e.claim("k")
	e.applied(done(c, "a"), release(c))
	e.answered(inbox.Quarantined, raw("raw"))
	e.changed(change(inbox.ChangeForget, "a"), change(inbox.ChangeForget, "raw"))
	if got := append(e.get("a"), e.get("raw")...); len(got) != 0 {
		e.Fatalf("forgotten events have the records %+v", got)
	}
	e.wantTotals(0, 0, 0, 0, 0, 0)
	ask := newAsk()
	ask.Stream = "second"
	if got := e.ask(ask).Claims; len(got) != 0 {
		e.Fatalf("a forgotten record can be claimed: %+v", got)
	}
	for _, s := range []inbox.State{inbox.StatePending, inbox.StateDone, inbox.StateQuarantined, inbox.StateConflict} {
		if got := e.in(s); len(got) != 0 {
			e.Fatalf("%q are listed as %v", got, s)
		}
	}
	for _, q := range []inbox.Query{{MessageID: a.MessageID, N: 10}, {ExternalID: a.ExternalID, N: 10}} {
		if got := e.list(q); len(got) != 0 {
			e.Fatalf("forgotten records are found: %+v", got)
		}
	}
	e.changed(change(inbox.ChangeForget, "a"))
}

func forgottenByPersonIsNew(e *env) {
	r := e.ended(inbox.KindDead, "a")
	e.answered(inbox.Conflict, arrivalOf("a", "a", "other"))
	e.forget(r)
	e.tick()
	e.accepted(arrivalOf("a", "a", "other")) // the digest is forgotten, too
	next := e.wantState("a", inbox.StatePending, 0)
	if next.Seq <= r.Seq || next.LastError != "" || len(next.Failures) > 0 || len(next.Actions) > 0 || !next.Received.After(r.Received) {
		e.Fatalf("after %+v was forgotten, a new arrival has the record %+v", r, next)
	}
	c := e.claim("a")
	e.applied(done(c, "a"), release(c))
}

func forgetOfPending(e *env) {
	e.events("k", "a", "b", "c")
	e.forget(e.record("a"))
	c := e.claim("k")
	e.wantRecords(c, "b", "c")
	e.forget(e.record("c"))
	e.applied(done(c, "b"), release(c))
	e.nothing()
	e.wantTotals(0, 1, 0, 0, 0, 0)
}

func forgetOfOnlyPending(e *env) {
	e.events("k", "a")
	e.forget(e.record("a"))
	if got := e.ask(newAsk()); len(got.Claims) != 0 || got.Next != 0 {
		e.Fatalf("with nothing pending a claim got %+v", got)
	}
	e.events("k", "b")
	e.wantRecords(e.claim("k"), "b")
}

func forgetOfWorked(e *env) {
	for _, k := range allKinds {
		id := k.String()
		if k == inbox.KindRelease || k == inbox.KindExtend { // they are about the key
			continue
		}
		e.events(id, id, "next to "+id)
		c := e.claim(id)
		e.forget(e.record(id))
		e.stale(settlement(k, c, id))
		e.nothing() // the key stays claimed
		e.applied(settlement(inbox.KindExtend, c, ""))
		e.applied(begin(c, "next to "+id), done(c, "next to "+id), release(c))
		if got := e.get(id); len(got) != 0 {
			e.Fatalf("a stale %v brought back the records %+v", k, got)
		}
	}
}

func forgetAndAskAgain(e *env) {
	e.events("k", "a")
	a := newAsk()
	c := e.ask(a).Claims[0]
	e.forget(e.record("a"))
	again, err := e.store.Claim(context.Background(), a)
	if err != nil || len(again.Claims) != 1 || again.Claims[0].Token != c.Token || len(again.Claims[0].Records) != 0 {
		e.Fatalf("an ask sent again got %+v, %v; want the key without records", again, err)
	}
	e.applied(release(c))
	e.nothing()
}

func settleOfForgotten(e *env) {
	e.events("k", "a", "b")
	c := e.claim("k")
	old := c.Records[1].Seq
	e.forget(e.record("b"))
	e.accepted(arrivalOf("b", "k", "other"))
	next := begin(c, "b")
	next.Seq = old
	e.applied(done(c, "a"))
	e.stale(next)
	e.applied(release(c))
	c = e.claim("k")
	e.wantRecords(c, "b")
	for _, k := range []inbox.Kind{inbox.KindBegin, inbox.KindRetry, inbox.KindDone, inbox.KindDead, inbox.KindQuarantine, inbox.KindUnknown} {
		s := settlement(k, c, "b")
		s.Seq = old
		e.stale(s)
	}
	e.wantState("b", inbox.StatePending, 1)
	end := done(c, "b")
	end.Seq = c.Records[0].Seq
	e.applied(end)
	e.applied(end, release(c))
	end.Seq = old
	e.stale(end)
}

func forgottenAndAccepted(e *env) {
	for k := range ends {
		id := k.String()
		e.events(id, id)
		c := e.claim(id)
		e.forget(e.record(id))
		e.events(id, id)
		e.stale(settlement(k, c, id), retry(c, id, 0)) // it was not begun under the token
		e.wantState(id, inbox.StatePending, 0)
		e.nothing()
		e.applied(begin(c, id), done(c, id), release(c)) // unless its owner begins it
		e.wantState(id, inbox.StateDone, 1)
	}
}

func forgetLeavesOthers(e *env) {
	for _, id := range []string{"a", "A", "a/b", "aa"} {
		e.events("k", id)
	}
	e.answered(inbox.Conflict, arrivalOf("aa", "k", "other"))
	e.forget(e.record("a"))
	c := e.claim("k")
	e.wantRecords(c, "A", "a/b", "aa")
	e.wantTotals(3, 0, 0, 0, 1, 0)
}
