package pgreconcile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

// A CheckStore keeps findings and counts in the schema of a [Store]. It is safe for
// concurrent use.
type CheckStore struct {
	s *Store
	r pgcall.Route
}

var (
	_ reconcile.CheckStore   = (*CheckStore)(nil)
	_ reconcile.CheckSweeper = (*CheckStore)(nil)
)

// Checks returns the part of the store that keeps what checks found. It costs nothing to
// make.
func (s *Store) Checks() *CheckStore { return &CheckStore{s, s.alone()} }

// Tx returns a view that works within the caller's transaction, as [Store.Tx] does. A call
// that fails has aborted it, also with [ErrBusy]. It claims nothing.
func (c *CheckStore) Tx(tx pgx.Tx) reconcile.CheckStore { return &CheckStore{c.s, within(tx)} }

// maxReports is how many reports or cells one call carries.
const maxReports = 1000

// Report implements [reconcile.CheckStore]. It waits for another transaction that is at work
// on one of the findings for at most a few seconds, and then fails with [ErrBusy].
func (c *CheckStore) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	outcomes := make([]reconcile.Outcome, 0, len(rs))
	for from := 0; from < len(rs); from += maxReports {
		some := rs[from:min(from+maxReports, len(rs))]
		if err := again(c.r, modeWait, func(int) (err error) {
			outcomes, err = c.report(ctx, p, some, outcomes[:from])
			return err
		}); err != nil {
			return nil, c.wrap("report", err)
		}
	}
	return outcomes, nil
}

func (c *CheckStore) report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report, outcomes []reconcile.Outcome) ([]reconcile.Outcome, error) {
	n := len(rs)
	verbs, nonces := make([]int16, n), make([][]byte, n)
	versions, ns, delays := make([]int64, n), make([]int64, n), make([]int64, n)
	names, subjects, accounts, details, bys, notes := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i := range rs {
		r := &rs[i]
		verbs[i], nonces[i], versions[i], ns[i], delays[i] = int16(r.Verb), r.Nonce[:], bigint(r.Version), r.N, r.Delay.Microseconds()
		names[i], subjects[i], accounts[i], details[i], bys[i], notes[i] = r.Check, r.Subject, r.Account, r.Detail, r.By, r.Note
	}
	before := len(outcomes)
	err := c.r.Call(ctx, func(rows pgx.Rows) error {
		var o int16
		err := rows.Scan(&o)
		outcomes = append(outcomes, reconcile.Outcome(o))
		return err
	}, c.s.sql.report, p.Kind, p.Most, p.Lull.Microseconds(), p.Retention.Microseconds(), verbs, names, subjects, nonces, versions, ns, delays,
		accounts, details, bys, notes)
	if got := len(outcomes) - before; err == nil && got != n {
		err = fmt.Errorf("%d outcomes of %d reports", got, n)
	}
	return outcomes, err
}

// Claim implements [reconcile.CheckStore]. It passes over findings that other transactions
// have locked.
func (c *CheckStore) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) (findings []reconcile.Finding, err error) {
	if c.r.Bound {
		return nil, fmt.Errorf("pgreconcile: %w: findings are claimed outside of transactions", reconcile.ErrInvalid)
	}
	err = again(c.r, modeWait, func(int) (err error) {
		findings, err = c.findings(ctx, c.s.sql.claimFindings, p.Kind, check, n, hold.Microseconds())
		return err
	})
	return findings, c.wrap("claim findings", err)
}

// List implements [reconcile.CheckStore].
func (c *CheckStore) List(ctx context.Context, q reconcile.FindingQuery) ([]reconcile.Finding, error) {
	findings, err := c.findings(ctx, c.s.sql.listFindings, q.Kind, q.Check, q.Subject, q.Account, int(q.State), q.Unresolved,
		q.After.Check, q.After.Subject, q.N)
	return findings, c.wrap("list findings", err)
}

func (c *CheckStore) findings(ctx context.Context, sql string, args ...any) (findings []reconcile.Finding, err error) {
	err = c.r.Call(ctx, func(rows pgx.Rows) error {
		var f reconcile.Finding
		var now int64
		var first, last, opened, due, expires *int64
		var log []string
		err := rows.Scan(&now, &f.Version, &first, &last, &opened, &due, &expires, &f.Count, &f.Times, &f.Dropped, &f.State,
			&f.Kind, &f.Check, &f.Subject, &f.Account, &f.Detail, &f.By, &f.Note, &log)
		f.Read, f.First, f.Last, f.Opened, f.Due, f.Expires = at(&now), at(first), at(last), at(opened), at(due), at(expires)
		for _, line := range log {
			t := transition(line)
			f.Log = append(f.Log, reconcile.Change{At: t.At, State: reconcile.FindingState(t.State), By: t.By, Note: t.Note})
		}
		findings = append(findings, f)
		return err
	}, sql, args...)
	if err != nil {
		return nil, err
	}
	return findings, nil
}

// Open implements [reconcile.CheckStore]. It looks at all that is unresolved.
func (c *CheckStore) Open(ctx context.Context, kind string) (open []reconcile.OpenFindings, err error) {
	err = c.r.Call(ctx, func(rows pgx.Rows) error {
		var o reconcile.OpenFindings
		var age int64
		err := rows.Scan(&o.Check, &o.Suspected, &o.Open, &o.Acknowledged, &age)
		o.Oldest = micros(age)
		open = append(open, o)
		return err
	}, c.s.sql.openFindings, kind)
	if err != nil {
		return nil, c.wrap("count findings", err)
	}
	return open, nil
}

// Tally implements [reconcile.CheckStore]. It waits as Report does.
func (c *CheckStore) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	all := slices.Clone(cells)
	slices.SortFunc(all, func(a, b reconcile.Cell) int {
		return cmp.Or(strings.Compare(a.Series, b.Series), a.Start.Compare(b.Start), bytes.Compare(a.Writer[:], b.Writer[:]), cmp.Compare(b.N, a.N))
	})
	all = slices.CompactFunc(all, func(a, b reconcile.Cell) bool { // the greatest of each comes first
		return a.Series == b.Series && a.Writer == b.Writer && a.Start.UnixMicro() == b.Start.UnixMicro()
	})
	for some := range slices.Chunk(all, maxReports) {
		n := len(some)
		series, starts, writers, ns := make([]string, n), make([]int64, n), make([][]byte, n), make([]int64, n)
		for i := range some {
			series[i], starts[i], writers[i], ns[i] = some[i].Series, some[i].Start.UnixMicro(), some[i].Writer[:], some[i].N
		}
		err := again(c.r, modeWait, func(int) error {
			return c.r.Call(ctx, func(pgx.Rows) error { return nil }, c.s.sql.count, p.Kind, p.Keep.Microseconds(), series, starts, writers, ns)
		})
		if err != nil {
			return c.wrap("tally", err)
		}
	}
	return nil
}

// Volumes implements [reconcile.CheckStore].
func (c *CheckStore) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) (volumes []reconcile.Volume, err error) {
	micro := make([]int64, len(starts))
	for i, start := range starts {
		micro[i] = start.UnixMicro()
	}
	err = c.r.Call(ctx, func(rows pgx.Rows) error {
		var v reconcile.Volume
		var since int64
		err := rows.Scan(&v.Series, &since, &v.N)
		v.Since = at(&since)
		volumes = append(volumes, v)
		return err
	}, c.s.sql.volumes, p.Kind, after, n, micro)
	if err != nil {
		return nil, c.wrap("volumes", err)
	}
	return volumes, nil
}

// SweepChecks implements [reconcile.CheckSweeper]. [Store.Sweep] does it too.
func (c *CheckStore) SweepChecks(ctx context.Context, n int) (removed int, err error) {
	if n < 1 {
		return 0, fmt.Errorf("pgreconcile: sweep of %d findings: %w", n, reconcile.ErrInvalid)
	}
	for n > 0 {
		size, gone, looked := min(n, stretch), 0, 0
		err := c.r.Call(ctx, func(rows pgx.Rows) error { return rows.Scan(&gone, &looked) }, c.s.sql.sweepChecks, size)
		removed += gone
		if err != nil {
			return removed, c.wrap("sweep checks", err)
		}
		if looked < size {
			break
		}
		n -= size
	}
	return removed, nil
}

func (c *CheckStore) wrap(step string, err error) error {
	if c.r.Bound {
		step += " in a transaction"
	}
	return c.s.wrap(step, err)
}
