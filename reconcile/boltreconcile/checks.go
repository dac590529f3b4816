package boltreconcile

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// CheckStore is a [reconcile.CheckStore] in the bucket of a [Store]. Get it from
// [Store.Checks]. It is safe for concurrent use.
type CheckStore struct{ s *Store }

// Checks returns the store for checks in the same bucket. It costs nothing.
func (s *Store) Checks() *CheckStore { return &CheckStore{s} }

// Report implements [reconcile.CheckStore]. A batch is one commit: when it fails, nothing
// was recorded. One that changes nothing costs none. Most is never exceeded.
func (c *CheckStore) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	return run(ctx, c.s.update, "report", func(st *step) ([]reconcile.Outcome, error) { return st.report(&p, rs) })
}

// Claim implements [reconcile.CheckStore]. A claim that finds nothing costs no commit.
func (c *CheckStore) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) ([]reconcile.Finding, error) {
	return run(ctx, c.s.update, "claim findings", func(st *step) ([]reconcile.Finding, error) {
		return st.claimFindings(p.Kind, check, n, hold)
	})
}

// List implements [reconcile.CheckStore]. It takes no lock that a writer waits for. What
// is unresolved is found without a look at the rest.
func (c *CheckStore) List(ctx context.Context, q reconcile.FindingQuery) ([]reconcile.Finding, error) {
	return run(ctx, c.s.view, "list findings", func(st *step) ([]reconcile.Finding, error) { return st.listFindings(&q) })
}

// Open implements [reconcile.CheckStore]. The counts are stored, and read as they are.
func (c *CheckStore) Open(ctx context.Context, kind string) ([]reconcile.OpenFindings, error) {
	return run(ctx, c.s.view, "count findings", func(st *step) ([]reconcile.OpenFindings, error) { return st.openFindings(kind) })
}

// Tally implements [reconcile.CheckStore]. A batch is one commit, as in Report.
func (c *CheckStore) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	return c.s.update(ctx, "tally", func(st *step) error { return st.tallyAll(&p, cells) })
}

// Volumes implements [reconcile.CheckStore]. It looks at the cells that were asked for, and
// at one more of each series.
func (c *CheckStore) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) ([]reconcile.Volume, error) {
	return run(ctx, c.s.view, "volumes", func(st *step) ([]reconcile.Volume, error) { return st.volumes(p.Kind, after, n, starts) })
}

// SweepChecks implements [reconcile.CheckSweeper]. It is [Store.Sweep], which serves all
// stores of the bucket: one of them has to be swept.
func (c *CheckStore) SweepChecks(ctx context.Context, n int) (removed int, err error) {
	return c.s.Sweep(ctx, n)
}

func (st *step) report(p *reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	outcomes := make([]reconcile.Outcome, len(rs))
	for i := range rs {
		var err error
		if outcomes[i], err = st.reportOne(p, &rs[i]); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (st *step) reportOne(p *reconcile.CheckParams, r *reconcile.Report) (reconcile.Outcome, error) {
	before, err := st.finding(p.Kind, r.Check, r.Subject)
	if err == nil && before != nil && before.expired(st.now) {
		err = st.rewriteFinding(before, nil)
		before = nil
	}
	switch {
	case err != nil:
		return 0, err
	case before != nil && before.nonce == r.Nonce: // rule 1
		return before.outcome, nil
	case r.Version != 0 && (before == nil || before.version != r.Version): // rule 2
		return reconcile.Changed, nil
	case r.Verb == reconcile.ReportForget && before == nil:
		return reconcile.Applied, nil
	case r.Verb == reconcile.ReportForget:
		return reconcile.Applied, st.rewriteFinding(before, nil)
	case before == nil && r.Verb != reconcile.ReportSuspect && r.Verb != reconcile.ReportRaise:
		return reconcile.Nothing, nil
	case before == nil || before.wakes(st.now, p, r.Verb):
		t, err := decodeFindings(st.checks.Get(nameKey(p.Kind, r.Check)))
		if err != nil {
			return 0, err
		}
		if t.unresolved() >= p.Most { // rule 3
			return reconcile.TooMany, nil
		}
	}
	after := finding{kind: p.Kind, check: r.Check, subject: r.Subject, first: st.now, version: st.findings.Sequence()}
	if before != nil {
		after = *before
	}
	outcome, erase := after.report(st.now, p, r) // rule 4
	switch {
	case outcome == reconcile.Nothing:
		return outcome, nil
	case erase:
		return outcome, st.rewriteFinding(before, nil)
	}
	after.nonce, after.outcome = r.Nonce, outcome
	return outcome, st.rewriteFinding(before, &after)
}

func (st *step) claimFindings(kind, check string, n int, hold time.Duration) (taken []reconcile.Finding, err error) {
	var subjects []string
	for place := range behind(st.looks, nameKey(kind, check, ""), nil) {
		if len(subjects) >= n || int64(binary.BigEndian.Uint64(place)) > st.now {
			break
		}
		subjects = append(subjects, string(place[8:]))
	}
	for _, subject := range subjects {
		before, err := st.listedFinding(kind, check, subject)
		if err != nil {
			return nil, err
		}
		after := *before
		after.due = st.now + hold.Microseconds()
		if err := st.rewriteFinding(before, &after); err != nil {
			return nil, err
		}
		f, err := st.whole(&after)
		if err != nil {
			return nil, err
		}
		taken = append(taken, f)
	}
	return taken, nil
}

func (st *step) listFindings(q *reconcile.FindingQuery) (found []reconcile.Finding, err error) {
	if q.N < 1 {
		return nil, nil
	}
	bucket, all := st.findings, nameKey(q.Kind)
	if q.Unresolved || q.State != 0 && q.State != reconcile.Resolved {
		bucket, all = st.index, nameKey(q.Kind, unresolved, "")
	}
	prefix := all
	if q.Check != "" {
		prefix = append(append(bytes.Clone(all), q.Check...), 0)
	}
	var from []byte
	if q.After != (reconcile.FindingKey{}) {
		from = append(append(append(bytes.Clone(all), q.After.Check...), 0), q.After.Subject...)
	}
	if q.Check != "" && q.Subject != "" { // there is one, at most
		prefix = append(prefix, q.Subject...)
	}
	for rest := range behind(bucket, prefix, from) {
		check, subject, _ := bytes.Cut(append(bytes.Clone(prefix[len(all):]), rest...), []byte{0})
		f, err := st.listedFinding(q.Kind, string(check), string(subject))
		if err != nil {
			return nil, err
		}
		if !f.expired(st.now) && f.selected(q) {
			r, err := st.whole(f)
			if err != nil {
				return nil, err
			}
			found = append(found, r)
		}
		if len(found) == q.N || q.Check != "" && q.Subject != "" {
			break
		}
	}
	return found, nil
}

func (st *step) openFindings(kind string) (open []reconcile.OpenFindings, err error) {
	for check, b := range behind(st.checks, nameKey(kind), nil) {
		t, err := decodeFindings(b)
		if err != nil {
			return nil, err
		}
		o := reconcile.OpenFindings{
			Check: string(check), Suspected: t[reconcile.Suspected], Open: t[reconcile.Open], Acknowledged: t[reconcile.Acknowledged],
		}
		for place := range behind(st.opened, nameKey(kind, o.Check, ""), nil) {
			o.Oldest = micros(st.now - int64(binary.BigEndian.Uint64(place)))
			break
		}
		open = append(open, o)
	}
	return open, nil
}

// finding returns a finding; nil if there is none.
func (st *step) finding(kind, check, subject string) (*finding, error) {
	b := st.findings.Get(nameKey(kind, check, subject))
	if b == nil {
		return nil, nil
	}
	f, err := decodeFinding(kind, check, subject, b)
	return &f, err
}

// listedFinding is finding for one that was found in a list: it must be there.
func (st *step) listedFinding(kind, check, subject string) (*finding, error) {
	f, err := decodeFinding(kind, check, subject, st.findings.Get(nameKey(kind, check, subject)))
	return &f, err
}

// rewriteFinding is rewrite for findings. What comes in the place of one that was
// removed has a greater version.
func (st *step) rewriteFinding(before, after *finding) error {
	some := after
	if some == nil {
		some = before
	}
	key := some.key()
	from, to := st.findingPlaces(before), st.findingPlaces(after)
	for i := range from {
		if err := st.relist(from[i].bucket, from[i].row, to[i].row); err != nil {
			return err
		}
	}
	if err := st.recountFindings(before, after); err != nil {
		return err
	}
	if after == nil {
		if err := st.raise(st.findings, before.version); err != nil {
			return err
		}
		if err := st.erase(st.changes, key); err != nil {
			return err
		}
		return st.erase(st.findings, key)
	}
	if len(after.said) > 0 {
		h, err := decodeChanges(st.changes.Get(key))
		if err != nil {
			return err
		}
		for _, c := range after.said {
			h.add(c)
		}
		if err := st.write(st.changes, key, h.append(nil)); err != nil {
			return err
		}
	}
	return st.write(st.findings, key, after.append(nil))
}

// findingPlaces are where a finding is listed, as [step.places].
func (st *step) findingPlaces(f *finding) [4]place {
	p := [4]place{{bucket: st.index}, {bucket: st.looks}, {bucket: st.opened}, {bucket: st.expiring}}
	if f == nil {
		return p
	}
	if f.unresolved() {
		p[0].key = nameKey(f.kind, unresolved, f.check, f.subject)
		if f.due != 0 {
			p[1].key = timeKey(f.kind, f.check, f.due, f.subject)
		}
		if f.state != reconcile.Suspected {
			p[2].key = timeKey(f.kind, f.check, f.opened, f.subject)
		}
	}
	p[3].key = expiringKey(f.expires, findingExpires, f.key())
	return p
}

// recountFindings counts the unresolved findings of a check.
func (st *step) recountFindings(before, after *finding) error {
	was, is := before.counts(), after.counts()
	if was == is {
		return nil
	}
	some := after
	if some == nil {
		some = before
	}
	key := nameKey(some.kind, some.check)
	t, err := decodeFindings(st.checks.Get(key))
	if err != nil {
		return err
	}
	for i := range t {
		t[i] += is[i] - was[i]
	}
	if t == (findings{}) {
		return st.erase(st.checks, key)
	}
	return st.write(st.checks, key, t.append(nil))
}

// whole returns a finding that shares no bytes with the file.
func (st *step) whole(f *finding) (reconcile.Finding, error) {
	h, err := decodeChanges(st.changes.Get(f.key()))
	return reconcile.Finding{
		Kind: f.kind, Check: f.check, Subject: f.subject, Account: f.account, State: f.state, Version: f.version, Detail: f.detail,
		Count: f.count, Times: f.times, By: f.by, Note: f.note, Read: moment(st.now), First: moment(f.first), Last: moment(f.last),
		Opened: moment(f.opened), Due: moment(f.due), Expires: moment(f.expires), Log: h.said, Dropped: h.dropped,
	}, err
}
