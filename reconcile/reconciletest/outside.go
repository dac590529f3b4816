package reconciletest

import (
	"github.com/pawl-go/pawl/reconcile"
)

// What comes from outside: receipts, and persons.
var outsideCases = []testCase{
	{name: "AReceiptTakesAFailedOneFromItsLook", run: func(e *env) {
		for _, said := range []reconcile.State{reconcile.Failed, reconcile.Confirmed} {
			for _, verb := range []reconcile.Verb{reconcile.VerbSend, reconcile.VerbDefer, reconcile.VerbAsk} {
				key := said.String() + verb.String()
				e.check(e.begin(e.p, later(key))[0], reconcile.AsIs, reconcile.Failed)
				look := e.claimOne(e.p, key)
				e.settle(e.p, receipt(key, said))
				e.ended(with(verb, look), reconcile.Failed)
				if en := e.state(key, reconcile.Failed); en.Again || !en.Due.IsZero() || en.Attempts != 0 || (en.Review != "") != (said == reconcile.Confirmed) {
					e.Fatalf("after a receipt that says %v, and %v: %+v", said, verb, en)
				}
			}
		}
	}},
	{name: "ReceiptEndsWhatIsOpen", run: func(e *env) {
		for _, s := range []reconcile.State{reconcile.Confirmed, reconcile.Failed} {
			e.start("started" + s.String())
			e.ok(with(reconcile.VerbAccept, e.start("accepted"+s.String())))
			e.doubt("unknown" + s.String())
			for _, k := range []string{"started", "accepted", "unknown"} {
				r := receipt(k+s.String(), s)
				r.Result = []byte("read")
				e.ok(r)
				if en := e.state(r.Key, s); string(en.Result) != "read" || !en.Due.IsZero() || en.Left != 0 || en.Expires.IsZero() {
					e.Fatalf("%v became %+v", k, en)
				}
			}
		}
		if es := e.claim(e.p, 10); len(es) != 0 {
			e.Fatalf("claimed %q", keys(es))
		}
	}},
	{name: "ReceiptBeforeTheAnswer", run: func(e *env) {
		for _, s := range []reconcile.State{reconcile.Confirmed, reconcile.Failed} {
			en := e.start(s.String())
			e.ok(receipt(s.String(), s))
			for _, v := range []reconcile.Verb{reconcile.VerbAccept, reconcile.VerbDoubt, reconcile.VerbDefer, reconcile.VerbAsk} {
				e.ended(with(v, en), s)
			}
			e.ok(with(reconcile.VerbExtend, en))
			if s == reconcile.Confirmed {
				e.ok(with(reconcile.VerbConfirm, en))
				e.ended(with(reconcile.VerbFail, en), s)
			} else {
				e.ok(with(reconcile.VerbFail, en))
				e.ended(with(reconcile.VerbConfirm, en), s)
			}
			e.state(s.String(), s)
		}
	}},
	{name: "ReceiptWhileSomebodyLooks", run: func(e *env) {
		e.doubt("k")
		look := e.claimOne(e.p, "k")
		e.ok(receipt("k", reconcile.Confirmed))
		e.ended(with(reconcile.VerbSend, look), reconcile.Confirmed)
		e.state("k", reconcile.Confirmed)
	}},
	{name: "ReceiptOfNothing", run: func(e *env) {
		e.refused(receipt("none", reconcile.Confirmed), reconcile.ErrNotFound)
		if es := e.list(reconcile.Query{}); len(es) != 0 {
			e.Fatal("a receipt made a record")
		}
	}},
	{name: "ReceiptAgain", run: func(e *env) {
		en := e.start("k")
		first := with(reconcile.VerbConfirm, en)
		first.Result = []byte("first")
		e.ok(first)
		before := e.get("k")
		s := receipt("k", reconcile.Confirmed)
		s.Result = []byte("second")
		e.ok(s)
		e.same(before, e.get("k"))
	}},
	{name: "ReceiptsThatContradict", run: func(e *env) {
		for _, s := range []reconcile.State{reconcile.Confirmed, reconcile.Failed} {
			other := reconcile.Confirmed + reconcile.Failed - s
			k := s.String()
			en := e.start(k)
			if s == reconcile.Failed { // and may be sent again
				f := with(reconcile.VerbFail, en)
				f.Again = true
				e.ok(f)
			} else {
				e.ok(with(reconcile.VerbConfirm, en))
			}
			r := receipt(k, other)
			e.ended(r, s)
			got := e.state(k, s)
			if got.Review != reconcile.Contradicting || got.Again || len(got.Log) != 3 || got.Log[2].Verb != reconcile.VerbReceipt {
				e.Fatalf("contradicted: %+v", got)
			}
			e.ended(r, s) // sent again
			e.same(got, e.get(k))
			e.want(e.p, k, reconcile.AsIs, s)
		}
	}},
	{name: "FailedReceiptStopsSending", run: func(e *env) {
		f := with(reconcile.VerbFail, e.start("k"))
		f.Again = true
		e.ok(f, receipt("k", reconcile.Failed))
		e.want(e.p, "k", reconcile.AsIs, reconcile.Failed)
	}},
	{name: "ResolveEnds", run: func(e *env) {
		for _, s := range []reconcile.State{reconcile.Confirmed, reconcile.Failed} {
			k := s.String()
			e.ok(with(reconcile.VerbAsk, e.start(k)))
			seen := e.get(k)
			r := resolve(seen, s)
			r.Result = []byte("seen")
			e.ok(r)
			got := e.state(k, s)
			if got.Token <= seen.Token || got.Review != "" || string(got.Result) != "seen" || got.Note != r.Note || got.Log[len(got.Log)-1].By != "alice" || !got.Due.IsZero() {
				e.Fatalf("resolved %+v", got)
			}
			e.want(e.p, k, reconcile.AsIs, s)
		}
	}},
	{name: "ResolveTakesItFromItsWorker", run: func(e *env) {
		en := e.start("k")
		e.ok(resolve(en, reconcile.Failed))
		for _, v := range owners {
			e.refused(with(v, en), reconcile.ErrStale)
		}
	}},
	{name: "ResolveNeedsWhatWasSeen", run: func(e *env) {
		seen := e.doubt("k")
		look := e.claimOne(e.p, "k")
		e.refused(resolve(seen, reconcile.Confirmed), reconcile.ErrChanged)
		e.ok(resolve(look, reconcile.Confirmed))
	}},
	{name: "ResolveOfTheEnded", run: func(e *env) {
		e.ok(with(reconcile.VerbConfirm, e.start("k")))
		e.ended(resolve(e.get("k"), reconcile.Failed), reconcile.Confirmed)
		e.state("k", reconcile.Confirmed)
		e.refused(resolve(reconcile.Entry{Op: reconcile.Op{Key: "none"}, Token: 1}, reconcile.Failed), reconcile.ErrNotFound)
	}},
	{name: "ResolveOfContradictions", run: func(e *env) {
		e.ok(with(reconcile.VerbConfirm, e.start("k")))
		e.ended(receipt("k", reconcile.Failed), reconcile.Confirmed)
		e.ok(resolve(e.get("k"), reconcile.Failed))
		if got := e.state("k", reconcile.Failed); got.Review != "" {
			e.Fatalf("review %q", got.Review)
		}
	}},
	{name: "ForgetErases", run: func(e *env) {
		en := e.start("k")
		f := reconcile.Settlement{Verb: reconcile.VerbForget, Key: "k"}
		e.ok(f)
		if es := e.list(reconcile.Query{}); len(es) != 0 {
			e.Fatal("it is still there")
		}
		e.refused(with(reconcile.VerbConfirm, en), reconcile.ErrStale)
		e.ok(f)
		if fresh := e.start("k"); fresh.Token <= en.Token || fresh.Attempts != 1 {
			e.Fatalf("new as %+v", fresh)
		}
		e.refused(with(reconcile.VerbConfirm, en), reconcile.ErrStale)
	}},
}
