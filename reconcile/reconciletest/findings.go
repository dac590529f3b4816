package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

var findingCases = []checkCase{
	{"RaisedOnce", func(e *checkEnv) {
		e.want(reconcile.Raised, raise("s"))
		first := e.state("s", reconcile.Open)
		if first.Account != "acct" || first.Detail != "wrong" || first.Count != 1 || first.Times != 1 || first.By != "" || len(first.Log) != 1 ||
			first.Log[0].State != reconcile.Open || first.Version == 0 || !first.Expires.IsZero() {
			e.Fatalf("raised: %+v", first)
		}
		if !first.First.Equal(first.Last) || !first.First.Equal(first.Opened) || !first.Log[0].At.Equal(first.First) || first.Due.Sub(first.Last) != long || first.Read.Before(first.First) {
			e.Fatalf("times: %+v", first)
		}
		e.sleep(2 * time.Millisecond)
		again := raise("s")
		again.N, again.Detail, again.Account, again.Delay = 4, "worse", "other", 2*long
		e.want(reconcile.Counted, again)
		f := e.state("s", reconcile.Open)
		if f.Count != 5 || f.Times != 1 || f.Detail != "worse" || f.Account != "other" || f.Version != first.Version || len(f.Log) != 1 {
			e.Fatalf("seen again: %+v", f)
		}
		if !f.First.Equal(first.First) || !f.Opened.Equal(first.Opened) || !f.Last.After(first.Last) || f.Due.Sub(f.Last) != 2*long {
			e.Fatalf("times when seen again: %+v", f)
		}
	}},
	{"SentAgain", func(e *checkEnv) {
		for v, want := range map[reconcile.ReportVerb]reconcile.Outcome{
			reconcile.ReportRaise: reconcile.Raised, reconcile.ReportSuspect: reconcile.Doubtful,
		} {
			r := report(v, v.String())
			e.want(want, r)
			before := e.get(v.String())
			e.sleep(2 * time.Millisecond)
			e.want(want, r)
			if f := e.get(v.String()); f.Count != 1 || !f.Last.Equal(before.Last) || !f.Due.Equal(before.Due) || f.Version != before.Version {
				e.Fatalf("a report that was sent again changed the finding: %+v", f)
			}
		}
		r := raise("s")
		e.want(reconcile.Raised, r)
		for _, v := range []reconcile.ReportVerb{reconcile.ReportAcknowledge, reconcile.ReportResolve} {
			p := byPerson(v, e.get("s"))
			e.want(reconcile.Applied, p)
			e.want(reconcile.Applied, p) // although the version has moved on
		}
		if f := e.get("s"); len(f.Log) != 3 {
			e.Fatalf("log of %d", len(f.Log))
		}
	}},
	{"InOneBatch", func(e *checkEnv) {
		a, b := raise("s"), raise("s")
		b.Detail = "b"
		got := e.send(a, b, report(reconcile.ReportClear, "s"), raise("t"), raise("s"))
		want := []reconcile.Outcome{reconcile.Raised, reconcile.Counted, reconcile.Applied, reconcile.Raised, reconcile.Reopened}
		if !slices.Equal(got, want) {
			e.Fatalf("outcomes %v, want %v", got, want)
		}
		if f := e.get("s"); f.Count != 3 || f.Times != 2 || len(f.Log) != 3 {
			e.Fatalf("%+v", f)
		}
	}},
	{"SuspectedIsErasedWhenCleared", func(e *checkEnv) {
		e.want(reconcile.Doubtful, suspect("s"))
		f := e.state("s", reconcile.Suspected)
		if f.Times != 0 || !f.Opened.IsZero() || f.Due.Sub(f.Last) != long || f.Count != 1 || f.Detail != "wrong" {
			e.Fatalf("suspected: %+v", f)
		}
		again := suspect("s")
		again.Delay, again.Detail, again.N = 2*long, "other", 2
		e.sleep(2 * time.Millisecond)
		e.want(reconcile.Counted, again)
		if g := e.get("s"); !g.Due.Equal(f.Due) || g.Count != 3 || g.Detail != "wrong" || !g.Last.After(f.Last) {
			e.Fatalf("suspected again: %+v", g)
		}
		e.erases(report(reconcile.ReportClear, "s"))
	}},
	{"SuspectedIsRaised", func(e *checkEnv) {
		e.want(reconcile.Doubtful, suspect("s"))
		e.want(reconcile.Raised, raise("s"))
		e.want(reconcile.Counted, suspect("s"))
		if f := e.state("s", reconcile.Open); f.Times != 1 || f.Count != 3 || len(f.Log) != 2 {
			e.Fatalf("%+v", f)
		}
	}},
	{"ClearedAndReopened", func(e *checkEnv) {
		e.want(reconcile.Raised, raise("s"))
		c := report(reconcile.ReportClear, "s")
		c.Note = "arrived"
		e.want(reconcile.Applied, c)
		f := e.state("s", reconcile.Resolved)
		if f.Note != "arrived" || f.By != "" || !f.Due.IsZero() || f.Expires.Before(f.Last.Add(e.p.Retention)) {
			e.Fatalf("cleared: %+v", f)
		}
		e.want(reconcile.Nothing, report(reconcile.ReportClear, "s"), report(reconcile.ReportWait, "s"), report(reconcile.ReportAcknowledge, "s"), report(reconcile.ReportResolve, "s"))
		e.want(reconcile.Reopened, raise("s"))
		g := e.state("s", reconcile.Open)
		if g.Times != 2 || g.Count != 2 || !g.First.Equal(f.First) || g.Version <= f.Version || !g.Expires.IsZero() || len(g.Log) != 3 || g.Note != "" {
			e.Fatalf("reopened: %+v", g)
		}
		e.want(reconcile.Applied, report(reconcile.ReportClear, "s"))
		e.want(reconcile.Doubtful, suspect("s"))
		e.want(reconcile.Applied, report(reconcile.ReportClear, "s"))
		e.state("s", reconcile.Resolved) // it was open once, so it is kept
	}},
	{"WaitMovesDue", func(e *checkEnv) {
		e.want(reconcile.Raised, raise("s"))
		w := report(reconcile.ReportWait, "s")
		w.Delay = 3 * long
		e.want(reconcile.Applied, w)
		if f := e.get("s"); f.Due.Sub(f.Last) < 3*long || f.Count != 1 || f.Detail != "wrong" || len(f.Log) != 1 {
			e.Fatalf("%+v", f)
		}
		e.want(reconcile.Nothing, report(reconcile.ReportWait, "nobody"), report(reconcile.ReportClear, "nobody"))
		e.none("nobody")
	}},
	{"Persons", func(e *checkEnv) {
		e.want(reconcile.Raised, raise("s"))
		open := e.get("s")
		e.want(reconcile.Applied, byPerson(reconcile.ReportAcknowledge, open))
		f := e.state("s", reconcile.Acknowledged)
		if f.By != "alice" || f.Note != "seen to" || f.Version <= open.Version || !f.Due.Equal(open.Due) {
			e.Fatalf("acknowledged: %+v", f)
		}
		e.want(reconcile.Counted, raise("s"))
		e.state("s", reconcile.Acknowledged)
		e.want(reconcile.Changed, byPerson(reconcile.ReportResolve, open))
		e.want(reconcile.Changed, byPerson(reconcile.ReportForget, open))
		e.want(reconcile.Nothing, byPerson(reconcile.ReportAcknowledge, f))
		e.want(reconcile.Applied, byPerson(reconcile.ReportResolve, f))
		g := e.state("s", reconcile.Resolved)
		if g.By != "alice" || !g.Due.IsZero() || len(g.Log) != 3 || g.Log[2].By != "alice" || g.Log[2].Note != "seen to" || g.Log[2].State != reconcile.Resolved {
			e.Fatalf("resolved: %+v", g)
		}
		e.want(reconcile.Changed, byPerson(reconcile.ReportResolve, reconcile.Finding{Check: "c", Subject: "nobody", Version: 1}))
	}},
	{"DismissedForAsLongAsItHolds", func(e *checkEnv) {
		e.p.Lull = long
		e.want(reconcile.Raised, raise("s"))
		e.want(reconcile.Applied, byPerson(reconcile.ReportResolve, e.get("s")))
		before := e.get("s")
		e.sleep(2 * time.Millisecond)
		e.want(reconcile.Counted, raise("s"))
		e.want(reconcile.Counted, suspect("s"))
		f := e.state("s", reconcile.Resolved)
		if f.Count != 3 || !f.Due.IsZero() || f.Times != 1 || !f.Last.After(before.Last) || !f.Expires.After(before.Expires) || f.Version != before.Version {
			e.Fatalf("seen after a person had seen to it: %+v", f)
		}
		e.p.Lull = e.short
		e.wait()
		e.want(reconcile.Reopened, raise("s"))
		if f := e.state("s", reconcile.Open); f.Times != 2 || f.By != "" {
			e.Fatalf("came again: %+v", f)
		}
	}},
	{"Forgotten", func(e *checkEnv) {
		e.want(reconcile.Applied, report(reconcile.ReportForget, "s"))
		e.want(reconcile.Raised, raise("s"))
		e.want(reconcile.Applied, report(reconcile.ReportForget, "s"))
		e.none("s")
		e.want(reconcile.Raised, raise("s"))
		if f := e.get("s"); f.Count != 1 || f.Times != 1 || len(f.Log) != 1 {
			e.Fatalf("something was left: %+v", f)
		}
	}},
	{"ResolvedExpires", func(e *checkEnv) {
		e.p.Retention, e.p.Lull = e.short, 0
		e.want(reconcile.Raised, raise("s"))
		e.want(reconcile.Raised, raise("t"))
		e.send(report(reconcile.ReportClear, "s")) // sent twice, it may have expired before
		e.wait()
		e.none("s")
		e.state("t", reconcile.Open)
		e.want(reconcile.Raised, raise("s"))
		if f := e.get("s"); f.Count != 1 || f.Times != 1 {
			e.Fatalf("something was left: %+v", f)
		}
	}},
	{"Bounded", func(e *checkEnv) {
		e.p.Most = 3
		e.want(reconcile.Raised, raise("a"), raise("b"))
		e.want(reconcile.Doubtful, suspect("c"))
		e.want(reconcile.TooMany, raise("d"), suspect("e"))
		e.none("d")
		e.want(reconcile.Counted, raise("a"))
		e.want(reconcile.Raised, raise("c"))
		other := raise("d")
		other.Check = "other"
		e.want(reconcile.Raised, other)
		e.want(reconcile.Applied, report(reconcile.ReportClear, "a"))
		e.want(reconcile.Raised, raise("d"))
		e.want(reconcile.TooMany, raise("a"))
		e.state("a", reconcile.Resolved)
		e.want(reconcile.Applied, report(reconcile.ReportForget, "b"))
		e.want(reconcile.Reopened, raise("a"))
	}},
	{"LogIsBounded", func(e *checkEnv) {
		for i := range reconcile.MaxLog {
			r, c := raise("s"), report(reconcile.ReportClear, "s")
			r.Note, c.Note = fmt.Sprint("r", i), fmt.Sprint("c", i)
			e.send(r)
			e.send(c)
		}
		f := e.get("s")
		if len(f.Log) != reconcile.MaxLog || f.Dropped != reconcile.MaxLog || f.Log[0].Note != "r0" || f.Log[3].Note != "c1" ||
			f.Log[reconcile.MaxLog-1].Note != fmt.Sprint("c", reconcile.MaxLog-1) || f.Log[4].Note != "r18" {
			e.Fatalf("log of %d, %d dropped: %+v", len(f.Log), f.Dropped, f.Log)
		}
	}},
	{"ClaimedInTheOrderOfDue", func(e *checkEnv) {
		for _, s := range []string{"b", "a", "c"} {
			r := raise(s)
			r.Delay = 0
			e.want(reconcile.Raised, r)
			e.sleep(2 * time.Millisecond)
		}
		e.want(reconcile.Raised, raise("later"))
		other := raise("other")
		other.Check, other.Delay = "d", 0
		e.want(reconcile.Raised, other)
		gone := raise("gone")
		gone.Delay = 0
		e.want(reconcile.Raised, gone)
		e.want(reconcile.Applied, report(reconcile.ReportClear, "gone"))
		e.sleep(2 * time.Millisecond)
		if got := e.claim(2, long); !slices.Equal(got, []string{"b", "a"}) {
			e.Fatalf("claimed %q", got)
		}
		if got := e.claim(9, e.short); !slices.Equal(got, []string{"c"}) {
			e.Fatalf("then claimed %q", got)
		}
		if got := e.claim(9, long); len(got) != 0 && e.short > time.Second {
			e.Fatalf("claimed %q twice", got)
		}
	}},
	{"ClaimedAgainAfterTheHold", func(e *checkEnv) {
		r := suspect("s")
		r.Delay = 0
		e.want(reconcile.Doubtful, r)
		before := e.get("s")
		e.sleep(2 * time.Millisecond)
		if got := e.claim(1, e.short); len(got) != 1 {
			e.Fatalf("claimed %q", got)
		}
		e.wait()
		if got := e.claim(1, long); len(got) != 1 {
			e.Fatalf("after the hold %q", got)
		}
		f := e.state("s", reconcile.Suspected)
		if f.Version != before.Version || f.Count != 1 {
			e.Fatalf("a claim changed %+v", f)
		}
	}},
	{"ClaimsAtTheSameTime", func(e *checkEnv) {
		for i := range 32 {
			r := raise(fmt.Sprintf("s%02d", i))
			r.Delay = 0
			e.want(reconcile.Raised, r)
		}
		e.sleep(2 * time.Millisecond)
		var mu sync.Mutex
		var wg sync.WaitGroup
		times := map[string]int{}
		for range 8 {
			wg.Go(func() {
				for range 8 {
					fs, err := e.store.Claim(context.Background(), e.p, "c", 4, long)
					if err != nil {
						e.Errorf("Claim: %v", err)
					}
					mu.Lock()
					for _, f := range fs {
						times[f.Subject]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for s, n := range times {
			if n != 1 {
				e.Errorf("%q was claimed %d times", s, n)
			}
		}
		if rest := e.claim(100, long); len(times)+len(rest) != 32 {
			e.Fatalf("claimed %d and %d", len(times), len(rest))
		}
	}},
	{"RaisedAtTheSameTime", func(e *checkEnv) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		of := map[reconcile.Outcome]int{}
		for range 16 {
			wg.Go(func() {
				os, err := e.store.Report(context.Background(), e.p, []reconcile.Report{raise("s")})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(os) != 1 {
					e.Errorf("Report: %v, %v", os, err)
					return
				}
				of[os[0]]++
			})
		}
		wg.Wait()
		if f := e.state("s", reconcile.Open); of[reconcile.Raised] != 1 || of[reconcile.Counted] != 15 || f.Count != 16 || f.Times != 1 {
			e.Fatalf("outcomes %v, count %d, opened %d times", of, f.Count, f.Times)
		}
	}},
	{"Listed", func(e *checkEnv) {
		long := strings.Repeat("é", reconcile.MaxSubject/2)
		for _, s := range []string{"b", "a", "Z", "\u202e<b>\x01\"'\\", long} {
			r := raise(s)
			r.Account = string([]rune(s)[:1])
			if s == long {
				r.Account = ""
			}
			e.want(reconcile.Raised, r)
		}
		early := suspect("z")
		early.Check = "B"
		e.want(reconcile.Doubtful, early)
		e.want(reconcile.Applied, byPerson(reconcile.ReportResolve, e.get("b")))
		all := []string{"z", "Z", "a", "b", long, "\u202e<b>\x01\"'\\"}
		for query, want := range map[reconcile.FindingQuery][]string{
			{}:                               all,
			{Check: "c"}:                     all[1:],
			{Check: "B"}:                     {"z"},
			{Account: "a"}:                   {"a"},
			{State: reconcile.Resolved}:      {"b"},
			{State: reconcile.Suspected}:     {"z"},
			{Unresolved: true}:               {"z", "Z", "a", long, all[5]},
			{Unresolved: true, Account: "b"}: nil,
			{Subject: "a"}:                   {"a"},
			{Check: "B", Subject: "a"}:       nil,
			{N: 3}:                           all[:3],
			{N: 3, After: reconcile.FindingKey{Check: "c", Subject: "a"}}:             all[3:],
			{After: reconcile.FindingKey{Check: "B", Subject: "z"}, N: 1}:             {"Z"},
			{After: reconcile.FindingKey{Check: "B", Subject: "zz"}, N: 1}:            {"Z"},
			{After: reconcile.FindingKey{Check: "c", Subject: all[5]}}:                nil,
			{After: reconcile.FindingKey{Check: "c", Subject: "a"}, Unresolved: true}: {long, all[5]},
		} {
			if got := subjects(e.list(query)); !slices.Equal(got, want) && len(got)+len(want) > 0 {
				e.Errorf("%+v lists %q, want %q", query, got, want)
			}
		}
	}},
	{"OpenIsCounted", func(e *checkEnv) {
		if os := e.open(); len(os) != 0 {
			e.Fatalf("of nothing: %+v", os)
		}
		e.want(reconcile.Raised, raise("a"))
		e.wait()
		e.want(reconcile.Raised, raise("b"), raise("c"), raise("d"))
		e.want(reconcile.Doubtful, suspect("e"))
		e.want(reconcile.Applied, byPerson(reconcile.ReportAcknowledge, e.get("a")), report(reconcile.ReportClear, "b"))
		other := suspect("z")
		other.Check = "B"
		e.want(reconcile.Doubtful, other)
		os := e.open()
		if len(os) != 2 || os[1].Oldest < e.short {
			e.Fatalf("%+v", os)
		}
		os[1].Oldest = 0
		if os[0] != (reconcile.OpenFindings{Check: "B", Suspected: 1}) || os[1] != (reconcile.OpenFindings{Check: "c", Suspected: 1, Open: 2, Acknowledged: 1}) {
			e.Fatalf("%+v", os)
		}
		e.want(reconcile.Applied, report(reconcile.ReportClear, "a"), report(reconcile.ReportForget, "d"))
		if os = e.open(); len(os) != 2 || os[1].Open != 1 || os[1].Acknowledged != 0 {
			e.Fatalf("then %+v", os)
		}
	}},
	{"FindingsOfKindsAreSeparate", func(e *checkEnv) {
		e.want(reconcile.Raised, raise("s"))
		e.p.Kind = newKind()
		e.none("s")
		if os := e.open(); len(os) != 0 {
			e.Fatalf("%+v", os)
		}
		e.want(reconcile.Raised, raise("s"))
	}},
	{"FindingsCancelledContext", func(e *checkEnv) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err1 := e.store.Report(ctx, e.p, []reconcile.Report{raise("s")})
		_, err2 := e.store.Claim(ctx, e.p, "c", 1, long)
		_, err3 := e.store.List(ctx, reconcile.FindingQuery{Kind: e.p.Kind, N: 1})
		_, err4 := e.store.Open(ctx, e.p.Kind)
		err5 := e.store.Tally(ctx, e.p, []reconcile.Cell{{Series: "s", Start: time.Now(), N: 1}})
		_, err6 := e.store.Volumes(ctx, e.p, "", 1, nil)
		for i, err := range []error{err1, err2, err3, err4, err5, err6} {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("method %d: %v", i, err)
			}
		}
	}},
}
