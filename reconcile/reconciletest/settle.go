package reconciletest

import (
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/reconcile"
)

var owners = []reconcile.Verb{
	reconcile.VerbAccept, reconcile.VerbConfirm, reconcile.VerbFail, reconcile.VerbDoubt,
	reconcile.VerbDefer, reconcile.VerbAsk, reconcile.VerbSend, reconcile.VerbExtend,
}

var settleCases = []testCase{
	{name: "EachVerb", run: func(e *env) {
		for verb, want := range map[reconcile.Verb]reconcile.State{
			reconcile.VerbAccept: reconcile.Accepted, reconcile.VerbConfirm: reconcile.Confirmed, reconcile.VerbFail: reconcile.Failed,
			reconcile.VerbDoubt: reconcile.Unknown, reconcile.VerbAsk: reconcile.Unknown,
		} {
			k := verb.String()
			s := with(verb, e.start(k))
			s.Delay, s.Result = long, []byte("r")
			e.ok(s)
			en := e.state(k, want)
			if en.Left != 0 || en.Note != "why" {
				e.Fatalf("%v left %v of a lease, note %q", verb, en.Left, en.Note)
			}
			due := verb == reconcile.VerbAccept || verb == reconcile.VerbDoubt
			if due != !en.Due.IsZero() || due && en.Due.Sub(en.Read) < long/2 {
				e.Fatalf("%v: due %v", verb, en.Due)
			}
			if kept := verb == reconcile.VerbAccept || verb == reconcile.VerbConfirm; kept && string(en.Result) != "r" {
				e.Fatalf("%v: result %q", verb, en.Result)
			}
			if want.Ended() != !en.Expires.IsZero() {
				e.Fatalf("%v: expires %v", verb, en.Expires)
			}
			if (verb == reconcile.VerbAsk) != (en.Review == "why") {
				e.Fatalf("%v: review %q", verb, en.Review)
			}
		}
	}},
	{name: "SettledTwiceSucceeds", once: true, run: func(e *env) {
		for _, v := range owners[:6] {
			en := e.start(v.String())
			e.ok(with(v, en))
			e.tick()
			before := e.get(v.String())
			e.ok(with(v, en))
			e.same(before, e.get(v.String()))
		}
	}},
	{name: "OtherTokenIsStale", run: func(e *env) {
		for _, v := range owners {
			en := e.start(v.String())
			en.Token--
			e.refused(with(v, en), reconcile.ErrStale)
			en.Token += 2
			e.refused(with(v, en), reconcile.ErrStale)
		}
	}},
	{name: "NoRecordIsStale", run: func(e *env) {
		for _, v := range owners {
			e.refused(with(v, reconcile.Entry{Op: reconcile.Op{Key: "none"}, Token: 7}), reconcile.ErrStale)
		}
	}},
	{name: "StaleOwnerChangesNothing", run: func(e *env) {
		old := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.wait()
		e.claimOne(e.p, "k")
		for _, v := range owners {
			e.refused(with(v, old), reconcile.ErrStale)
		}
	}},
	{name: "AnotherEndIsStale", run: func(e *env) {
		for _, first := range owners[:6] {
			for _, second := range owners[:6] {
				en := e.start(fmt.Sprint(first, second))
				e.ok(with(first, en))
				if second != first {
					e.refused(with(second, en), reconcile.ErrStale)
				}
			}
		}
	}},
	{name: "LateOwnerMaySettle", run: func(e *env) {
		old := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.wait()
		e.ok(with(reconcile.VerbConfirm, old))
		e.state("k", reconcile.Confirmed)
	}},
	{name: "SendNeedsARunningLook", run: func(e *env) {
		e.doubt("k")
		look := e.claimOne(e.brief(), "k")
		e.wait()
		e.refused(with(reconcile.VerbSend, look), reconcile.ErrStale)
	}},
	{name: "SendTwiceIsOneAttempt", once: true, run: func(e *env) {
		e.doubt("k")
		look := e.claimOne(e.p, "k")
		e.ok(with(reconcile.VerbSend, look))
		e.tick()
		before := e.get("k")
		e.ok(with(reconcile.VerbSend, look))
		e.same(before, e.get("k"))
		if before.Attempts != 2 {
			e.Fatalf("%d attempts", before.Attempts)
		}
	}},
	{name: "ExtendedIsLeased", run: func(e *env) {
		en := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.ok(with(reconcile.VerbExtend, en))
		e.wait()
		if en = e.state("k", reconcile.Started); en.Left <= 0 || en.Due.Before(en.Read) {
			e.Fatalf("left %v, due %v at %v", en.Left, en.Due, en.Read)
		}
		e.want(e.p, "k", reconcile.AsIs, reconcile.Started)
	}},
	{name: "DeferCountsLooks", run: func(e *env) {
		e.doubt("k")
		for i, looked := range []bool{true, false, true} {
			s := with(reconcile.VerbDefer, e.claimOne(e.p, "k"))
			s.Looked = looked
			e.ok(s)
			if en := e.state("k", reconcile.Unknown); en.Looks != []int{1, 1, 2}[i] || en.Attempts != 1 {
				e.Fatalf("%d looks and %d attempts after %d deferrals", en.Looks, en.Attempts, i+1)
			}
		}
	}},
	{name: "ErrorsArePositioned", run: func(e *env) {
		a, b := e.start("a"), e.start("b")
		bad := b
		bad.Token++
		errs := e.settle(e.p, with(reconcile.VerbConfirm, a), with(reconcile.VerbConfirm, bad), with(reconcile.VerbConfirm, b))
		if errs[0] != nil || !errors.Is(errs[1], reconcile.ErrStale) || errs[2] != nil {
			e.Fatalf("%v", errs)
		}
	}},
	{name: "EndedIsForgottenAfterRetention", run: func(e *env) {
		p := e.p
		p.Retention = e.short
		confirmed, failed := e.start("c"), e.start("f")
		e.settle(p, with(reconcile.VerbConfirm, confirmed), with(reconcile.VerbFail, failed))
		e.wait()
		if es := e.list(reconcile.Query{}); len(es) != 0 {
			e.Fatalf("%q are still there", keys(es))
		}
		if en := e.start("c"); en.Attempts != 1 || en.Token <= confirmed.Token || en.Dropped != 0 || len(en.Log) != 1 {
			e.Fatalf("new as %+v", en)
		}
	}},
	{name: "OpenIsNeverForgotten", run: func(e *env) {
		p := e.p
		p.Retention = e.short
		e.settle(p, with(reconcile.VerbAccept, e.start("accepted")), with(reconcile.VerbDoubt, e.start("unknown")), with(reconcile.VerbAsk, e.start("review")))
		c := e.start("contradicted")
		e.settle(p, with(reconcile.VerbConfirm, c), receipt("contradicted", reconcile.Failed))
		e.wait()
		if es := e.list(reconcile.Query{}); len(es) != 4 {
			e.Fatalf("only %q are still there", keys(es))
		}
	}},
	{name: "NotForgottenBeforeRetention", run: func(e *env) {
		en := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.ok(with(reconcile.VerbConfirm, en))
		e.wait()
		e.want(e.p, "k", reconcile.AsIs, reconcile.Confirmed)
	}},
	{name: "LogIsBounded", run: func(e *env) {
		e.doubt("k")
		for range reconcile.MaxLog {
			look := e.claimOne(e.p, "k")
			e.ok(with(reconcile.VerbSend, look))
			e.ok(with(reconcile.VerbDoubt, look))
		}
		en := e.get("k")
		if len(en.Log) != reconcile.MaxLog || en.Dropped != 2+2*reconcile.MaxLog-reconcile.MaxLog {
			e.Fatalf("%d transitions and %d dropped", len(en.Log), en.Dropped)
		}
		if first, last := en.Log[0], en.Log[len(en.Log)-1]; first.Verb != reconcile.VerbSend || first.At != en.Created ||
			last.Verb != reconcile.VerbDoubt || last.Token != en.Token || last.By != "suite" || last.Note != "why" || last.State != reconcile.Unknown {
			e.Fatalf("the log begins %+v and ends %+v", first, last)
		}
	}, once: true},
}
