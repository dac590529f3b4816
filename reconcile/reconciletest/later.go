package reconciletest

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl/reconcile"
)

func later(key string) reconcile.Ask {
	a := ask(key)
	a.Later = true
	return a
}

var laterCases = []testCase{
	{name: "LaterIsRecordedAndClaimed", run: func(e *env) {
		a := later("k")
		a.Payload = []byte("body")
		en := e.check(e.begin(e.p, a)[0], reconcile.AsIs, reconcile.Failed)
		if !en.Again || en.Attempts != 0 || en.Left != 0 || en.Token == 0 || en.Due != en.Created || !en.First.IsZero() || !en.Sent.IsZero() ||
			!en.Expires.IsZero() || len(en.Log) != 1 || en.Log[0].Verb != reconcile.VerbFail || en.Log[0].State != reconcile.Failed {
			e.Fatalf("recorded %+v", en)
		}
		e.tick()
		e.same(en, e.check(e.begin(e.p, a)[0], reconcile.AsIs, reconcile.Failed))
		if open := keys(e.list(reconcile.Query{Open: true})); !slices.Equal(open, []string{"k"}) {
			e.Fatalf("open are %q", open)
		}
		look := e.claimOne(e.p, "k")
		if look.State != reconcile.Failed || look.Token <= en.Token || string(look.Payload) != "body" {
			e.Fatalf("claimed %+v", look)
		}
		e.ok(with(reconcile.VerbSend, look))
		sent := e.state("k", reconcile.Started)
		if sent.Attempts != 1 || sent.First.IsZero() || sent.First != sent.Sent || sent.Again {
			e.Fatalf("sent %+v", sent)
		}
		e.ok(with(reconcile.VerbConfirm, look))
		cs, err := e.store.Counts(context.Background(), e.p.Kind, "", true, 10)
		if err != nil || len(cs) != 1 || cs[0] != (reconcile.Counts{Account: "acct", Confirmed: 1}) {
			e.Fatalf("counted %+v, %v", cs, err)
		}
	}},
	{name: "LaterIsSentByABegin", run: func(e *env) {
		e.check(e.begin(e.p, later("k"))[0], reconcile.AsIs, reconcile.Failed)
		if en := e.want(e.p, "k", reconcile.Send, reconcile.Started); en.Attempts != 1 {
			e.Fatalf("sent %+v", en)
		}
	}},
	{name: "LaterOfWhatIsKnownChangesNothing", run: func(e *env) {
		e.populate()
		for _, k := range []string{"accepted", "again", "confirmed", "failed", "review", "started", "unknown"} {
			before := e.get(k)
			e.same(before, e.check(e.begin(e.p, later(k))[0], reconcile.AsIs, before.State))
			e.same(before, e.get(k))
		}
		a, b := later("print"), later("print")
		a.Fingerprint, b.Fingerprint = [32]byte{31: 1}, [32]byte{31: 2}
		e.check(e.begin(e.p, a)[0], reconcile.AsIs, reconcile.Failed)
		e.check(e.begin(e.p, b)[0], reconcile.Conflict, reconcile.Failed)
	}},
	{name: "ClaimIsByDueAndNotByLease", run: func(e *env) {
		e.doubt("older")
		e.claimOne(e.brief(), "older")
		e.tick()
		e.doubt("newer")
		e.wait()
		if got := keys(e.claim(e.p, 5)); !slices.Equal(got, []string{"older", "newer"}) {
			e.Fatalf("claimed %q", got)
		}
	}},
	{name: "SameClaimHasWhatWasSent", once: true, run: func(e *env) {
		e.doubt("a")
		e.tick()
		e.doubt("b")
		a := reconcile.ClaimAsk{Nonce: nonce(), N: 2}
		es, _, err := e.store.Claim(context.Background(), e.p, a)
		if err != nil || len(es) != 2 {
			e.Fatalf("claimed %q, %v", keys(es), err)
		}
		e.ok(with(reconcile.VerbSend, es[0]))
		es, _, err = e.store.Claim(context.Background(), e.p, a)
		slices.SortFunc(es, func(a, b reconcile.Entry) int { return int(a.State) - int(b.State) })
		if err != nil || len(es) != 2 || es[0].State != reconcile.Started || es[0].Key != "a" {
			e.Fatalf("the same claim has %q, %v", keys(es), err)
		}
	}},
}

var expiryCases = []testCase{
	{name: "ExpiredIsNone", once: true, run: func(e *env) {
		p := e.p
		p.Retention = e.short
		c, f := e.start("c"), e.start("f")
		e.settle(p, with(reconcile.VerbConfirm, c), with(reconcile.VerbFail, f))
		e.wait()
		e.refused(with(reconcile.VerbConfirm, c), reconcile.ErrStale)
		e.refused(receipt("c", reconcile.Confirmed), reconcile.ErrNotFound)
		e.refused(resolve(f, reconcile.Confirmed), reconcile.ErrNotFound)
		if got := keys(e.list(reconcile.Query{})); len(got) != 0 {
			e.Fatalf("listed %q", got)
		}
		if en := e.start("c"); en.Token <= c.Token || en.Attempts != 1 || len(en.Log) != 1 {
			e.Fatalf("begun anew as %+v", en)
		}
		e.start("f")
		e.ok(with(reconcile.VerbConfirm, e.get("c")), with(reconcile.VerbConfirm, e.get("f")))
		e.counted(reconcile.Counts{Account: "acct", Confirmed: 2})
	}},
	{name: "LaterThatARemoteRefusesExpires", run: func(e *env) {
		en := e.check(e.begin(e.p, later("k"))[0], reconcile.AsIs, reconcile.Failed)
		e.ok(receipt("k", reconcile.Failed))
		got := e.state("k", reconcile.Failed)
		if got.Again || !got.Due.IsZero() || got.Expires.Before(en.Created.Add(e.p.Retention)) {
			e.Fatalf("after its receipt %+v", got)
		}
	}},
	{name: "SweepTakesWhatExpiredOnly", run: func(e *env) {
		if e.sweeper == nil {
			e.Skip("the store has no Sweep")
		}
		p := e.p
		p.Retention = e.short
		e.settle(p, with(reconcile.VerbConfirm, e.start("expired")))
		// In one batch: it must not expire between the two.
		e.settle(p, with(reconcile.VerbConfirm, e.start("review")), receipt("review", reconcile.Failed))
		again := resolve(e.start("again"), reconcile.Failed)
		again.Again = true
		e.settle(p, again)
		e.ok(with(reconcile.VerbConfirm, e.start("kept")), with(reconcile.VerbAccept, e.start("open")))
		e.check(e.begin(p, later("later"))[0], reconcile.AsIs, reconcile.Failed)
		e.start("started")
		e.wait()
		for range 100 {
			if n, err := e.sweeper.Sweep(context.Background(), 1000); err != nil {
				e.Fatalf("Sweep: %v", err)
			} else if n == 0 {
				break
			}
		}
		if got, want := keys(e.list(reconcile.Query{})), []string{"again", "kept", "later", "open", "review", "started"}; !slices.Equal(got, want) {
			e.Fatalf("left %q, want %q", got, want)
		}
	}},
	{name: "CountsFollowForget", run: func(e *env) {
		for _, k := range []string{"a", "b"} {
			e.ok(with(reconcile.VerbConfirm, e.start(k)))
		}
		other := ask("other")
		other.Account = "z"
		e.begin(e.p, other)
		e.ok(reconcile.Settlement{Verb: reconcile.VerbForget, Key: "a"}, reconcile.Settlement{Verb: reconcile.VerbForget, Key: "other"})
		e.counted(reconcile.Counts{Account: "acct", Confirmed: 1})
		e.ok(reconcile.Settlement{Verb: reconcile.VerbForget, Key: "b"})
		e.counted()
	}},
}

// counted checks the counts of all accounts of which there is anything.
func (e *env) counted(want ...reconcile.Counts) {
	e.Helper()
	cs, err := e.store.Counts(context.Background(), e.p.Kind, "", true, 10)
	if err != nil || !slices.Equal(cs, want) {
		e.Fatalf("counted %+v, %v; want %+v", cs, err, want)
	}
}
