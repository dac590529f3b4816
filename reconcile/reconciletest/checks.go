package reconciletest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// CheckConfig is [Config] for a [reconcile.CheckStore].
type CheckConfig struct {
	New    func(t *testing.T) reconcile.CheckStore
	Sleep  func(time.Duration)
	Bubble bool

	// Sweep removes what has expired, from the store that New returned last, looking at
	// up to n of each kind. Nil: that of a [reconcile.CheckSweeper], or it is not tested.
	Sweep func(ctx context.Context, n int) (removed int, err error)

	// Once leaves the subtests of "Twice" out, as Config.Once does.
	Once bool
}

// RunChecks tests the stores that c.New makes, as [Run] does: with every call sent once, and
// with every call sent twice and the first answer lost. What a second claim answers is not
// what the first did, so claims are sent once.
func RunChecks(t *testing.T, c CheckConfig) {
	t.Helper()
	if c.New == nil {
		t.Fatal("reconciletest: CheckConfig.New is nil")
	}
	for name, twice := range map[string]bool{"Once": false, "Twice": true} {
		if twice && c.Once {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, tc := range slices.Concat(findingCases, volumeCases) {
				t.Run(tc.name, func(t *testing.T) {
					if c.Sleep == nil {
						t.Parallel()
					}
					if c.Bubble {
						synctest.Test(t, func(t *testing.T) { tc.run(c.env(t, twice)) })
						return
					}
					tc.run(c.env(t, twice))
				})
			}
		})
	}
}

type checkCase struct {
	name string
	run  func(e *checkEnv)
}

type checkEnv struct {
	*testing.T
	store reconcile.CheckStore
	p     reconcile.CheckParams
	short time.Duration // what wait outlasts
	sleep func(time.Duration)
	twice bool
	sweep func(ctx context.Context, n int) (removed int, err error) // nil: there is none
}

func (c CheckConfig) env(t *testing.T, twice bool) *checkEnv {
	e := &checkEnv{T: t, store: c.New(t), sleep: c.Sleep, twice: twice, short: 100 * time.Millisecond}
	if e.store == nil {
		t.Fatal("reconciletest: CheckConfig.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if c.Bubble || c.Sleep != nil {
		e.short = time.Minute
	}
	e.sweep = c.Sweep
	if s, ok := e.store.(reconcile.CheckSweeper); ok && e.sweep == nil {
		e.sweep = s.SweepChecks
	}
	e.p = reconcile.CheckParams{Kind: newKind(), Most: 100, Lull: long, Retention: 24 * time.Hour, Keep: 24 * time.Hour}
	return e
}

// wait outlasts e.short, whatever the machine is doing.
func (e *checkEnv) wait() { e.sleep(2 * e.short) }

// report makes one about a subject of the check "c".
func report(v reconcile.ReportVerb, subject string) reconcile.Report {
	return reconcile.Report{Verb: v, Check: "c", Subject: subject, Nonce: nonce(), N: 1, Delay: long, Account: "acct", Detail: "wrong"}
}

func raise(subject string) reconcile.Report   { return report(reconcile.ReportRaise, subject) }
func suspect(subject string) reconcile.Report { return report(reconcile.ReportSuspect, subject) }

func byPerson(v reconcile.ReportVerb, f reconcile.Finding) reconcile.Report {
	return reconcile.Report{Verb: v, Check: f.Check, Subject: f.Subject, Nonce: nonce(), Version: f.Version, By: "alice", Note: "seen to"}
}

// send reports, and returns what became of each.
func (e *checkEnv) send(rs ...reconcile.Report) []reconcile.Outcome {
	e.Helper()
	if e.twice {
		if _, err := e.store.Report(context.Background(), e.p, rs[:1]); err != nil {
			e.Fatalf("Report: %v", err)
		}
	}
	os, err := e.store.Report(context.Background(), e.p, rs)
	if err != nil || len(os) != len(rs) {
		e.Fatalf("Report of %d: %v, %v", len(rs), os, err)
	}
	return os
}

// want reports, and checks the outcome, which is the same when the report was sent twice.
func (e *checkEnv) want(want reconcile.Outcome, rs ...reconcile.Report) {
	e.Helper()
	for i, o := range e.send(rs...) {
		if o != want {
			e.Fatalf("%v of %q (%d) was answered %v, want %v", rs[i].Verb, rs[i].Subject, i, o, want)
		}
	}
}

// erases is want for a report after which there is nothing that could know it again.
func (e *checkEnv) erases(r reconcile.Report) {
	e.Helper()
	want := reconcile.Applied
	if e.twice {
		want = reconcile.Nothing
	}
	e.want(want, r)
	e.none(r.Subject)
}

func (e *checkEnv) list(q reconcile.FindingQuery) []reconcile.Finding {
	e.Helper()
	q.Kind = e.p.Kind
	if q.N == 0 {
		q.N = 1000
	}
	fs, err := e.store.List(context.Background(), q)
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	return fs
}

// get reads a finding that has to be there.
func (e *checkEnv) get(subject string) reconcile.Finding {
	e.Helper()
	fs := e.list(reconcile.FindingQuery{Check: "c", Subject: subject})
	if len(fs) != 1 || fs[0].Subject != subject || fs[0].Check != "c" || fs[0].Kind != e.p.Kind {
		e.Fatalf("found %v, want %q", subjects(fs), subject)
	}
	return fs[0]
}

func (e *checkEnv) none(subject string) {
	e.Helper()
	if fs := e.list(reconcile.FindingQuery{Subject: subject}); len(fs) != 0 {
		e.Fatalf("%q is there: %+v", subject, fs[0])
	}
}

func (e *checkEnv) state(subject string, s reconcile.FindingState) reconcile.Finding {
	e.Helper()
	f := e.get(subject)
	if f.State != s {
		e.Fatalf("%q is %v, want %v", subject, f.State, s)
	}
	return f
}

func (e *checkEnv) claim(n int, hold time.Duration) []string {
	e.Helper()
	fs, err := e.store.Claim(context.Background(), e.p, "c", n, hold)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	for _, f := range fs {
		if d := f.Due.Sub(f.Read); d != hold {
			e.Fatalf("%q is claimed for %v, want %v", f.Subject, d, hold)
		}
	}
	return subjects(fs)
}

func (e *checkEnv) open() []reconcile.OpenFindings {
	e.Helper()
	os, err := e.store.Open(context.Background(), e.p.Kind)
	if err != nil {
		e.Fatalf("Open: %v", err)
	}
	return slices.DeleteFunc(os, func(o reconcile.OpenFindings) bool { return o.Suspected+o.Open+o.Acknowledged == 0 })
}

func subjects(fs []reconcile.Finding) []string {
	ss := []string{}
	for _, f := range fs {
		ss = append(ss, f.Subject)
	}
	return ss
}
