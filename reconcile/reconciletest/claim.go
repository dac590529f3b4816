package reconciletest

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl/reconcile"
)

var claimCases = []testCase{
	{name: "ClaimTakesWhatIsDue", run: func(e *env) {
		later := with(reconcile.VerbDoubt, e.start("later"))
		later.Delay = long
		accepted := e.start("accepted")
		e.ok(later, with(reconcile.VerbAccept, accepted))
		e.tick()
		e.doubt("unknown")
		e.start("leased")
		e.ok(with(reconcile.VerbConfirm, e.start("confirmed")), with(reconcile.VerbFail, e.start("failed")), with(reconcile.VerbAsk, e.start("review")))
		again := with(reconcile.VerbFail, e.start("again"))
		again.Again = true
		e.ok(again)
		es := e.claim(e.p, 10)
		if got := keys(es); !slices.Equal(got, []string{"accepted", "unknown"}) {
			e.Fatalf("claimed %q", got)
		}
		if en := es[0]; en.State != reconcile.Accepted || en.Token <= accepted.Token || en.Attempts != 1 || en.Left <= 0 || en.Fenced.IsZero() {
			e.Fatalf("claimed %+v", en)
		}
		if got := e.claim(e.p, 10); len(got) != 0 {
			e.Fatalf("claimed %q while they are leased", keys(got))
		}
	}},
	{name: "ClaimTakesTheDeadOnesWork", run: func(e *env) {
		first := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.wait()
		en := e.claimOne(e.p, "k")
		if en.State != reconcile.Unknown || en.Token <= first.Token {
			e.Fatalf("claimed %+v", en)
		}
		e.refused(with(reconcile.VerbConfirm, first), reconcile.ErrStale)
	}},
	{name: "LapsedLookIsClaimedAgain", run: func(e *env) {
		e.doubt("k")
		first := e.claimOne(e.brief(), "k")
		e.wait()
		second := e.claimOne(e.p, "k")
		if second.Token <= first.Token || second.Fenced != first.Fenced {
			e.Fatalf("token %d then %d, fenced %v then %v", first.Token, second.Token, first.Fenced, second.Fenced)
		}
	}},
	{name: "ClaimIsBoundedAndInOrder", run: func(e *env) {
		for _, k := range []string{"c", "a", "b"} {
			e.doubt(k)
			e.tick()
		}
		if got := keys(e.claim(e.p, 2)); !slices.Equal(got, []string{"c", "a"}) {
			e.Fatalf("claimed %q", got)
		}
		if got := keys(e.claim(e.p, 2)); !slices.Equal(got, []string{"b"}) {
			e.Fatalf("claimed %q", got)
		}
	}},
	{name: "SameNonceSameClaim", once: true, run: func(e *env) {
		e.doubt("a")
		e.doubt("b")
		a := reconcile.ClaimAsk{Nonce: nonce(), N: 1}
		one := func() reconcile.Entry {
			es, _, err := e.store.Claim(context.Background(), e.p, a)
			if err != nil || len(es) != 1 {
				e.Fatalf("claimed %q, %v", keys(es), err)
			}
			return es[0]
		}
		first := one()
		e.tick()
		e.same(first, one())
		e.ok(with(reconcile.VerbConfirm, first))
		if next := one(); next.Key == first.Key {
			e.Fatal("an ended operation was claimed again")
		}
	}},
	{name: "NextSaysWhen", run: func(e *env) {
		s := with(reconcile.VerbDoubt, e.start("k"))
		s.Delay = long
		e.ok(s)
		es, next, err := e.store.Claim(context.Background(), e.p, reconcile.ClaimAsk{Nonce: nonce(), N: 5})
		if err != nil || len(es) != 0 || next < 0 || next > long {
			e.Fatalf("%d entries, next in %v, %v", len(es), next, err)
		}
	}},
	{name: "FenceStaysUntilTheNextSend", run: func(e *env) {
		e.doubt("k")
		look := e.claimOne(e.p, "k")
		e.ok(with(reconcile.VerbDefer, look))
		e.tick()
		second := e.claimOne(e.p, "k")
		if second.Fenced != look.Fenced || !second.Read.After(look.Read) {
			e.Fatalf("fenced %v, then %v", look.Fenced, second.Fenced)
		}
		e.tick()
		e.ok(with(reconcile.VerbSend, second))
		sent := e.state("k", reconcile.Started)
		if !sent.Fenced.IsZero() || sent.Attempts != 2 || sent.Token != second.Token || !sent.Sent.After(second.Sent) || sent.First != second.First {
			e.Fatalf("sent %+v", sent)
		}
		e.ok(with(reconcile.VerbDoubt, second))
		if third := e.claimOne(e.p, "k"); third.Fenced.Before(sent.Sent) {
			e.Fatal("fenced before the last send")
		}
	}},
	{name: "FailedWithDelayIsClaimed", run: func(e *env) {
		s := with(reconcile.VerbFail, e.start("k"))
		s.Again, s.Delay = true, e.short
		e.ok(s)
		if en := e.get("k"); en.Due.Sub(en.Read) > e.short || en.Due.IsZero() {
			e.Fatalf("due %v, read %v", en.Due, en.Read)
		}
		e.wait()
		e.claimOne(e.p, "k")
		never := with(reconcile.VerbFail, e.start("never"))
		never.Delay = e.short
		e.ok(never)
		if en := e.get("never"); !en.Due.IsZero() {
			e.Fatalf("due %v although it is not sent again", en.Due)
		}
	}},
	{name: "FailedInReviewIsAsIs", run: func(e *env) {
		s := resolve(e.doubt("k"), reconcile.Failed)
		s.Again = true
		e.ok(s)
		e.ok(with(reconcile.VerbAsk, e.claimOne(e.p, "k")))
		e.want(e.p, "k", reconcile.AsIs, reconcile.Failed)
		if es := e.claim(e.p, 10); len(es) != 0 {
			e.Fatal("claimed what waits for a person")
		}
	}},
	{name: "FailedWithDueIsClaimed", run: func(e *env) {
		s := resolve(e.doubt("k"), reconcile.Failed)
		s.Again = true
		e.ok(s)
		en := e.claimOne(e.p, "k")
		if en.State != reconcile.Failed || !en.Again {
			e.Fatalf("claimed %+v", en)
		}
		e.tick()
		e.ok(with(reconcile.VerbSend, en))
		if sent := e.state("k", reconcile.Started); !sent.First.After(en.First) || sent.Again {
			e.Fatalf("sent %+v", sent)
		}
	}},
}
