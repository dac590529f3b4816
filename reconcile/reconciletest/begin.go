package reconciletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/pawl-go/pawl/reconcile"
)

var beginCases = []testCase{
	{name: "FirstIsGranted", run: func(e *env) {
		a := ask("k")
		a.Payload, a.Fingerprint = []byte("body"), [32]byte{1}
		en := e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)
		if en.Token == 0 || en.Attempts != 1 || en.Left <= 0 || en.Left > long || en.Account != "acct" ||
			!bytes.Equal(en.Payload, a.Payload) || en.Fingerprint != a.Fingerprint {
			e.Fatalf("granted %+v", en)
		}
		if en.Created != en.First || en.Created != en.Sent || !en.Fenced.IsZero() || !en.Expires.IsZero() {
			e.Fatalf("created %v, first %v, sent %v, fenced %v, expires %v", en.Created, en.First, en.Sent, en.Fenced, en.Expires)
		}
		if d := en.Due.Sub(en.Created); d != long {
			e.Fatalf("due %v after its beginning, want the lease and no quiet period, %v", d, long)
		}
	}},
	{name: "QuietFollowsTheLease", run: func(e *env) {
		p := e.p
		p.Quiet = 2 * long
		if en := e.want(p, "k", reconcile.Send, reconcile.Started); en.Due.Sub(en.Created) != 3*long {
			e.Fatalf("due %v after its beginning, want %v", en.Due.Sub(en.Created), 3*long)
		}
	}},
	{name: "SecondIsAsIs", run: func(e *env) {
		first := e.start("k")
		en := e.want(e.p, "k", reconcile.AsIs, reconcile.Started)
		e.same(first, en)
		if en.Left <= 0 {
			e.Fatal("no lease is left")
		}
	}},
	{name: "SameNonceSameGrant", once: true, run: func(e *env) {
		a := ask("k")
		first := e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)
		e.tick()
		e.same(first, e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started))
		e.ok(with(reconcile.VerbDoubt, first))
		b := ask("k")
		look := e.check(e.begin(e.p, b)[0], reconcile.Look, reconcile.Unknown)
		e.tick()
		e.same(look, e.check(e.begin(e.p, b)[0], reconcile.Look, reconcile.Unknown))
	}},
	{name: "SpentNonceIsAsIs", run: func(e *env) {
		a := ask("k")
		en := e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)
		s := with(reconcile.VerbFail, en)
		s.Again = true
		e.ok(s)
		e.check(e.begin(e.p, a)[0], reconcile.AsIs, reconcile.Failed)
	}},
	{name: "OtherFingerprintIsConflict", run: func(e *env) {
		a, b, c := ask("k"), ask("k"), ask("k")
		a.Fingerprint, b.Fingerprint = [32]byte{31: 1}, [32]byte{31: 2}
		first := e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)
		e.same(first, e.check(e.begin(e.p, b)[0], reconcile.Conflict, reconcile.Started))
		e.check(e.begin(e.p, c)[0], reconcile.AsIs, reconcile.Started)
		e.ok(with(reconcile.VerbConfirm, first))
		e.check(e.begin(e.p, b)[0], reconcile.Conflict, reconcile.Confirmed)
	}},
	{name: "LapsedIsLookedAt", run: func(e *env) {
		first := e.want(e.brief(), "k", reconcile.Send, reconcile.Started)
		e.wait()
		en := e.want(e.p, "k", reconcile.Look, reconcile.Unknown)
		if en.Token <= first.Token || en.Attempts != 1 || en.Fenced.IsZero() || en.Fenced.Before(first.Due) {
			e.Fatalf("looked at %+v", en)
		}
	}},
	{name: "QuietIsLeftAlone", run: func(e *env) {
		p := e.brief()
		p.Quiet = long
		e.want(p, "k", reconcile.Send, reconcile.Started)
		e.wait()
		e.want(e.p, "k", reconcile.AsIs, reconcile.Started)
	}},
	{name: "FailedAgainIsSentAgain", run: func(e *env) {
		first := e.start("k")
		s := with(reconcile.VerbFail, first)
		s.Again = true
		e.ok(s)
		e.tick()
		en := e.want(e.p, "k", reconcile.Send, reconcile.Started)
		if en.Attempts != 2 || en.Token <= first.Token || en.Again || !en.First.After(first.First) || en.Sent != en.First || !en.Expires.IsZero() {
			e.Fatalf("sent again as %+v", en)
		}
		if en.Created != first.Created {
			e.Fatal("Created changed")
		}
	}},
	{name: "EndedIsAsIs", run: func(e *env) {
		s := with(reconcile.VerbConfirm, e.start("c"))
		s.Result = []byte("ok")
		e.ok(s, with(reconcile.VerbFail, e.start("f")))
		if en := e.want(e.p, "c", reconcile.AsIs, reconcile.Confirmed); string(en.Result) != "ok" {
			e.Fatalf("result %q", en.Result)
		}
		e.want(e.p, "f", reconcile.AsIs, reconcile.Failed)
	}},
	{name: "ReviewIsAsIs", run: func(e *env) {
		e.ok(with(reconcile.VerbAsk, e.start("k")))
		if en := e.want(e.p, "k", reconcile.AsIs, reconcile.Unknown); en.Review != "why" {
			e.Fatalf("review %q", en.Review)
		}
	}},
	{name: "BatchInOrder", run: func(e *env) {
		as := e.begin(e.p, ask("a"), ask("b"), ask("a"))
		e.check(as[0], reconcile.Send, reconcile.Started)
		e.check(as[1], reconcile.Send, reconcile.Started)
		e.check(as[2], reconcile.AsIs, reconcile.Started)
	}, once: true},
	{name: "KindsAreSeparate", run: func(e *env) {
		e.start("k")
		q := e.p
		q.Kind = newKind()
		e.want(q, "k", reconcile.Send, reconcile.Started)
		if n := len(e.list(reconcile.Query{})); n != 1 {
			e.Fatalf("%d records in a kind of one", n)
		}
	}},
	{name: "KeysAreComparedByteByByte", run: func(e *env) {
		ks := []string{"a", "A", "a ", " a", "é", "e\u0301", strings.Repeat("x", 512), strings.Repeat("x", 511) + "y", "%", "a:b", "\u202eabc", "<b>\r\n\t\x01"}
		for _, k := range ks {
			if en := e.start(k); en.Attempts != 1 {
				e.Fatalf("%q is not new", k)
			}
		}
		if got := e.list(reconcile.Query{}); len(got) != len(ks) {
			e.Fatalf("%d records of %d keys", len(got), len(ks))
		}
	}},
	{name: "ConcurrentAsksElectOne", run: func(e *env) {
		for round := range 10 {
			var mu sync.Mutex
			granted := 0
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					as, err := e.store.Begin(context.Background(), e.p, []reconcile.Ask{ask(fmt.Sprint("k", round))})
					mu.Lock()
					defer mu.Unlock()
					if err != nil || as[0].Err != nil {
						e.Errorf("Begin: %v, %v", err, as)
					} else if as[0].Grant == reconcile.Send {
						granted++
					}
				})
			}
			wg.Wait()
			if granted != 1 {
				e.Fatalf("%d of 8 may send", granted)
			}
		}
	}},
	{name: "SlicesAreNotShared", run: func(e *env) {
		a := ask("k")
		a.Payload = []byte("body")
		en := e.check(e.begin(e.p, a)[0], reconcile.Send, reconcile.Started)
		clear(a.Payload)
		clear(en.Payload)
		s := with(reconcile.VerbAccept, en)
		s.Result = []byte("result")
		e.ok(s)
		clear(s.Result)
		got := e.get("k")
		if string(got.Payload) != "body" || string(got.Result) != "result" {
			e.Fatalf("payload %q, result %q", got.Payload, got.Result)
		}
	}, once: true},
	{name: "CancelledContext", run: func(e *env) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err1 := e.store.Begin(ctx, e.p, []reconcile.Ask{ask("k")})
		_, _, err2 := e.store.Claim(ctx, e.p, reconcile.ClaimAsk{Nonce: nonce(), N: 1})
		_, err3 := e.store.Settle(ctx, e.p, []reconcile.Settlement{receipt("k", reconcile.Failed)})
		_, err4 := e.store.List(ctx, reconcile.Query{Kind: e.p.Kind, N: 1})
		_, err5 := e.store.Counts(ctx, e.p.Kind, "", true, 1)
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("method %d of a cancelled context: %v", i+1, err)
			}
		}
	}},
}
