package reconciletest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/reconciletest"
)

// A broken check store is the memory store with one flaw, and the subtest that has to
// find it.
var brokenChecks = []struct {
	flaw, found string
	store       badChecks
}{
	{"counts a report that was sent again", "Twice/RaisedOnce", badChecks{report: func(b *badChecks, _ *reconcile.CheckParams, r *reconcile.Report) {
		b.calls++
		r.Nonce[0] ^= byte(b.calls)
	}}},
	{"raises each time", "Once/RaisedOnce", badChecks{outcome: func(o *reconcile.Outcome) {
		if *o == reconcile.Counted {
			*o = reconcile.Raised
		}
	}}},
	{"believes a stale version", "Once/Persons", badChecks{report: func(_ *badChecks, _ *reconcile.CheckParams, r *reconcile.Report) { r.Version = 0 }}},
	{"forgets who resolved it", "Once/DismissedForAsLongAsItHolds", badChecks{report: func(_ *badChecks, _ *reconcile.CheckParams, r *reconcile.Report) { r.By = "" }}},
	{"never opens what was dismissed", "Once/DismissedForAsLongAsItHolds", badChecks{report: func(_ *badChecks, p *reconcile.CheckParams, _ *reconcile.Report) {
		p.Lull = reconcile.MaxDuration
	}}},
	{"unbounded", "Once/Bounded", badChecks{report: func(_ *badChecks, p *reconcile.CheckParams, _ *reconcile.Report) { p.Most = 1 << 30 }}},
	{"bounds all checks together", "Once/Bounded", badChecks{report: func(_ *badChecks, _ *reconcile.CheckParams, r *reconcile.Report) {
		r.Check = "c"
	}}},
	{"keeps what expired", "Once/ResolvedExpires", badChecks{report: func(_ *badChecks, p *reconcile.CheckParams, _ *reconcile.Report) { p.Retention = time.Hour }}},
	{"does not hold what was claimed", "Once/ClaimsAtTheSameTime", badChecks{claim: func(hold *time.Duration) { *hold = 0 }}},
	{"claims in the order of subjects", "Once/ClaimedInTheOrderOfDue", badChecks{claimed: func(fs []reconcile.Finding) {
		slices.SortFunc(fs, func(a, b reconcile.Finding) int { return strings.Compare(a.Subject, b.Subject) })
	}}},
	{"suspicions are findings", "Once/SuspectedIsErasedWhenCleared", badChecks{report: func(_ *badChecks, _ *reconcile.CheckParams, r *reconcile.Report) {
		if r.Verb == reconcile.ReportSuspect {
			r.Verb = reconcile.ReportRaise
		}
	}}},
	{"the log forgets its beginning", "Once/LogIsBounded", badChecks{list: func(fs []reconcile.Finding) {
		for i := range fs {
			fs[i].Log = fs[i].Log[max(0, len(fs[i].Log)-8):]
		}
	}}},
	{"resolved ones are listed as unresolved", "Once/Listed", badChecks{query: func(q *reconcile.FindingQuery) { q.Unresolved = false }}},
	{"pages begin at the subject alone", "Once/Listed", badChecks{query: func(q *reconcile.FindingQuery) {
		if q.After.Subject == "zz" {
			q.After = reconcile.FindingKey{Check: "c", Subject: "zz"}
		}
	}}},
	{"kinds run together", "Once/FindingsOfKindsAreSeparate", badChecks{report: func(_ *badChecks, p *reconcile.CheckParams, _ *reconcile.Report) { p.Kind = "one" },
		query: func(q *reconcile.FindingQuery) { q.Kind = "one" }}},
	{"writers overwrite each other", "Once/CellsAreSummed", badChecks{cell: func(_ *badChecks, c *reconcile.Cell) { c.Writer = [16]byte{} }}},
	{"cells are added", "Twice/TheGreatestCounts", badChecks{cell: func(b *badChecks, c *reconcile.Cell) {
		b.calls++
		c.Writer[0] ^= byte(b.calls)
	}}},
	{"absurd starts are kept", "Once/AbsurdStartsAreNotKept", badChecks{tally: func(p *reconcile.CheckParams) { p.Keep = reconcile.MaxDuration }}},
	{"sweeps what is open", "Once/SweepTakesWhatExpiredOnly", badChecks{sweep: func(b *badChecks) {
		_, _ = b.CheckStore.Report(context.Background(), b.p, []reconcile.Report{{Verb: reconcile.ReportForget, Check: "c", Subject: "open"}})
	}}},
	{"sweeps nothing", "Once/SweepTakesWhatExpiredOnly", badChecks{sweep: func(*badChecks) {}}},
	{"since is what was asked for", "Once/CellsAreSummed", badChecks{volumes: func(vs []reconcile.Volume) {
		for i := range vs {
			if len(vs[i].N) == 0 {
				vs[i].Since = time.Time{}
			}
		}
	}}},
}

// The suite has to fail each of them, with the subtest that is named for it.
func TestTheCheckSuiteFindsFlaws(t *testing.T) {
	if flaw := os.Getenv("PAWL_FLAW"); flaw != "" {
		for _, b := range brokenChecks {
			if b.flaw == flaw {
				reconciletest.RunChecks(t, reconciletest.CheckConfig{Bubble: true, New: func(*testing.T) reconcile.CheckStore {
					bad := b.store
					bad.CheckStore = reconcile.NewCheckMemory()
					return &bad
				}})
			}
		}
		return
	}
	for _, b := range brokenChecks {
		t.Run(b.flaw, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestTheCheckSuiteFindsFlaws$/^"+strings.ReplaceAll(b.found, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), "PAWL_FLAW="+b.flaw)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestTheCheckSuiteFindsFlaws/"+b.found) {
				t.Errorf("not found by %s: %v\n%s", b.found, err, out)
			}
		})
	}
}

// badChecks alter what goes through them.
type badChecks struct {
	reconcile.CheckStore
	calls   int
	p       reconcile.CheckParams
	sweep   func(b *badChecks)
	report  func(b *badChecks, p *reconcile.CheckParams, r *reconcile.Report)
	outcome func(o *reconcile.Outcome)
	claim   func(hold *time.Duration)
	claimed func(fs []reconcile.Finding)
	query   func(q *reconcile.FindingQuery)
	list    func(fs []reconcile.Finding)
	cell    func(b *badChecks, c *reconcile.Cell)
	tally   func(p *reconcile.CheckParams)
	volumes func(vs []reconcile.Volume)
}

func (b *badChecks) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	rs, b.p = slices.Clone(rs), p
	if b.report != nil {
		for i := range rs {
			b.report(b, &p, &rs[i])
		}
	}
	os, err := b.CheckStore.Report(ctx, p, rs)
	if b.outcome != nil {
		for i := range os {
			b.outcome(&os[i])
		}
	}
	return os, err
}

func (b *badChecks) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) ([]reconcile.Finding, error) {
	asked := hold
	if b.claim != nil {
		b.claim(&hold)
	}
	fs, err := b.CheckStore.Claim(ctx, p, check, n, hold)
	for i := range fs {
		fs[i].Due = fs[i].Read.Add(asked)
	}
	if b.claimed != nil {
		b.claimed(fs)
	}
	return fs, err
}

func (b *badChecks) List(ctx context.Context, q reconcile.FindingQuery) ([]reconcile.Finding, error) {
	if b.query != nil {
		b.query(&q)
	}
	fs, err := b.CheckStore.List(ctx, q)
	if b.list != nil {
		b.list(fs)
	}
	return fs, err
}

func (b *badChecks) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	cells = slices.Clone(cells)
	if b.cell != nil {
		for i := range cells {
			b.cell(b, &cells[i])
		}
	}
	if b.tally != nil {
		b.tally(&p)
	}
	return b.CheckStore.Tally(ctx, p, cells)
}

func (b *badChecks) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) ([]reconcile.Volume, error) {
	vs, err := b.CheckStore.Volumes(ctx, p, after, n, starts)
	if b.volumes != nil {
		b.volumes(vs)
	}
	return vs, err
}

// SweepChecks sweeps nothing, and does what the flaw says.
func (b *badChecks) SweepChecks(context.Context, int) (int, error) {
	if b.sweep != nil {
		b.sweep(b)
	}
	return 0, nil
}
