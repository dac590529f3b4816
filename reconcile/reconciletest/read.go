package reconciletest

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

var readCases = []testCase{
	{name: "ListSelects", run: func(e *env) {
		e.populate()
		for _, c := range []struct {
			q    reconcile.Query
			want []string
		}{
			{reconcile.Query{}, []string{"accepted", "again", "confirmed", "failed", "review", "started", "unknown"}},
			{reconcile.Query{Open: true}, []string{"accepted", "again", "review", "started", "unknown"}},
			{reconcile.Query{Review: true}, []string{"review"}},
			{reconcile.Query{State: reconcile.Unknown}, []string{"review", "unknown"}},
			{reconcile.Query{Account: "other"}, []string{"unknown"}},
			{reconcile.Query{Key: "failed"}, []string{"failed"}},
			{reconcile.Query{After: "failed", N: 2}, []string{"review", "started"}},
			{reconcile.Query{After: "unknown"}, nil},
			{reconcile.Query{State: reconcile.Confirmed, Open: true}, nil},
		} {
			if got := keys(e.list(c.q)); !slices.Equal(got, c.want) {
				e.Errorf("%+v selects %q, want %q", c.q, got, c.want)
			}
		}
	}},
	{name: "ListIsInByteOrder", run: func(e *env) {
		for _, k := range []string{"b", "a", "B", "é", "a\u00a0", "z"} {
			e.start(k)
		}
		if got, want := keys(e.list(reconcile.Query{})), []string{"B", "a", "a\u00a0", "b", "z", "é"}; !slices.Equal(got, want) {
			e.Fatalf("listed %q, want %q", got, want)
		}
	}},
	{name: "CountsAddUp", run: func(e *env) {
		e.populate()
		cs, err := e.store.Counts(context.Background(), e.p.Kind, "", true, 10)
		if err != nil || len(cs) != 2 {
			e.Fatalf("%d accounts, %v", len(cs), err)
		}
		for i := range cs {
			if cs[i].Oldest <= 0 {
				e.Fatalf("oldest %v", cs[i].Oldest)
			}
			cs[i].Oldest = 0
		}
		want := []reconcile.Counts{
			{Account: "acct", Started: 1, Accepted: 1, Confirmed: 1, Failed: 2, Waiting: 1, Unknown: 1, Review: 1},
			{Account: "other", Unknown: 1},
		}
		if !slices.Equal(cs, want) {
			e.Fatalf("counted %+v, want %+v", cs, want)
		}
		if r := cs[0].SuccessRate(); r != 0.5 {
			e.Fatalf("success rate %v", r)
		}
		page, err := e.store.Counts(context.Background(), e.p.Kind, "acct", false, 1)
		if err != nil || len(page) != 1 || page[0].Account != "other" {
			e.Fatalf("behind acct: %+v, %v", page, err)
		}
	}},
	{name: "WaitingIsCounted", run: func(e *env) {
		waiting := func(n, failed int) {
			e.Helper()
			cs, err := e.store.Counts(context.Background(), e.p.Kind, "", true, 10)
			if err != nil || len(cs) != 1 || cs[0].Waiting != n || cs[0].Failed != failed {
				e.Fatalf("counted %+v, %v; want %d waiting of %d failed", cs, err, n, failed)
			}
		}
		again := func(key string, d time.Duration) reconcile.Settlement {
			s := with(reconcile.VerbFail, e.start(key))
			s.Again, s.Delay = true, d
			return s
		}
		e.begin(e.p, later("later"), later("told"), later("sent"))
		e.begin(e.p, later("alone"))
		waiting(4, 4)
		e.ok(again("due", long), again("never", 0))
		waiting(5, 6)
		e.doubt("slow")
		e.tick()
		claimed := e.claim(e.p, 10)
		if len(claimed) != 5 {
			e.Fatalf("claimed %q", keys(claimed))
		}
		e.ok(reconcile.Settlement{Verb: reconcile.VerbFail, Key: "slow", Token: e.get("slow").Token, Again: true, Delay: long})
		waiting(6, 7)
		e.ok(receipt("told", reconcile.Failed))
		waiting(5, 7)
		e.ok(with(reconcile.VerbSend, e.get("sent")))
		e.ok(with(reconcile.VerbConfirm, e.get("sent")))
		waiting(4, 6)
		e.ok(reconcile.Settlement{Verb: reconcile.VerbForget, Key: "alone"})
		waiting(3, 5)
		e.want(e.p, "due", reconcile.Send, reconcile.Started)
		waiting(2, 4)
	}},
	{name: "ResentIsCounted", run: func(e *env) {
		for _, k := range []string{"a", "b"} {
			e.doubt(k)
			look := e.claimOne(e.p, k)
			v := reconcile.VerbConfirm
			if k == "b" {
				v = reconcile.VerbFail
			}
			e.ok(with(reconcile.VerbSend, look))
			e.ok(with(v, look))
		}
		cs, err := e.store.Counts(context.Background(), e.p.Kind, "", true, 10)
		if err != nil || len(cs) != 1 || cs[0].Resent != 2 || cs[0].ResentConfirmed != 1 {
			e.Fatalf("counted %+v, %v", cs, err)
		}
	}},
}

// populate makes one operation in each situation.
func (e *env) populate() {
	e.Helper()
	e.start("started")
	e.ok(with(reconcile.VerbAccept, e.start("accepted")), with(reconcile.VerbConfirm, e.start("confirmed")),
		with(reconcile.VerbFail, e.start("failed")), with(reconcile.VerbAsk, e.start("review")))
	a := ask("unknown")
	a.Account = "other"
	e.ok(with(reconcile.VerbDoubt, e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)))
	again := resolve(e.start("again"), reconcile.Failed)
	again.Again = true
	e.ok(again)
	e.tick()
}
