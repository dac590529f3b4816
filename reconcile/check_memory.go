package reconcile

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// CheckMemory is a [CheckStore] in the memory of this process, for tests and examples. A
// claim and a list look at all findings of the kind. It is safe for concurrent use.
type CheckMemory struct {
	start  time.Time
	micros int64

	mu    sync.Mutex
	kinds map[string]*checked
}

type checked struct {
	findings map[FindingKey]*finding
	open     map[string]int // unresolved findings, by check
	series   map[string]map[cellKey]*cell
}

type cellKey struct {
	start  int64
	writer [16]byte
}

type cell struct{ n, expires int64 }

// NewCheckMemory returns an empty store.
func NewCheckMemory() *CheckMemory {
	now := time.Now()
	return &CheckMemory{start: now, micros: now.UnixMicro(), kinds: map[string]*checked{}}
}

// Report implements [CheckStore].
func (m *CheckMemory) Report(ctx context.Context, p CheckParams, rs []Report) ([]Outcome, error) {
	now, k, unlock, err := m.lock(ctx, p.Kind)
	if err != nil {
		return nil, err
	}
	defer unlock()
	outcomes := make([]Outcome, len(rs))
	for i := range rs {
		key := FindingKey{rs[i].Check, rs[i].Subject}
		before := k.findings[key].counts()
		outcomes[i] = k.report(now, p, key, &rs[i])
		k.open[strings.Clone(key.Check)] += k.findings[key].counts() - before
	}
	return outcomes, nil
}

func (k *checked) report(now int64, p CheckParams, key FindingKey, r *Report) Outcome {
	f := k.findings[key]
	if f != nil && f.expired(now) {
		delete(k.findings, key)
		f = nil
	}
	switch {
	case f != nil && f.nonce == r.Nonce: // rule 1
		return f.outcome
	case r.Version != 0 && (f == nil || f.Version != r.Version): // rule 2
		return Changed
	case r.Verb == ReportForget:
		delete(k.findings, key)
		return Applied
	case f == nil && r.Verb != ReportSuspect && r.Verb != ReportRaise:
		return Nothing
	case f == nil || f.wakes(now, p, r.Verb):
		if k.open[r.Check] >= p.Most { // rule 3
			return TooMany
		}
	}
	if f == nil {
		f = &finding{Finding: Finding{Kind: strings.Clone(p.Kind), Check: strings.Clone(r.Check), Subject: strings.Clone(r.Subject)}, first: now}
		k.findings[FindingKey{f.Check, f.Subject}] = f
	}
	outcome, erase := f.report(now, p, r)
	if outcome != Nothing {
		f.nonce, f.outcome = r.Nonce, outcome
	}
	if erase {
		delete(k.findings, key)
	}
	return outcome
}

// Claim implements [CheckStore].
func (m *CheckMemory) Claim(ctx context.Context, p CheckParams, check string, n int, hold time.Duration) ([]Finding, error) {
	now, k, unlock, err := m.lock(ctx, p.Kind)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var due []*finding
	for _, f := range k.findings {
		if f.Check == check && f.unresolved() && f.due != 0 && f.due <= now {
			due = append(due, f)
		}
	}
	slices.SortFunc(due, func(a, b *finding) int {
		return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.Subject, b.Subject))
	})
	taken := make([]Finding, min(len(due), n))
	for i := range taken {
		due[i].due = now + hold.Microseconds()
		taken[i] = due[i].read(now)
	}
	return taken, nil
}

// List implements [CheckStore].
func (m *CheckMemory) List(ctx context.Context, q FindingQuery) ([]Finding, error) {
	now, k, unlock, err := m.lock(ctx, q.Kind)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []*finding
	for key, f := range k.findings {
		if !f.expired(now) && key.compare(q.After) > 0 && f.selected(&q) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b *finding) int {
		return FindingKey{a.Check, a.Subject}.compare(FindingKey{b.Check, b.Subject})
	})
	page := make([]Finding, min(len(found), q.N))
	for i := range page {
		page[i] = found[i].read(now)
	}
	return page, nil
}

func (k FindingKey) compare(o FindingKey) int {
	return cmp.Or(strings.Compare(k.Check, o.Check), strings.Compare(k.Subject, o.Subject))
}

// Open implements [CheckStore].
func (m *CheckMemory) Open(ctx context.Context, kind string) ([]OpenFindings, error) {
	now, k, unlock, err := m.lock(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer unlock()
	of := map[string]*OpenFindings{}
	for _, f := range k.findings {
		if !f.unresolved() {
			continue
		}
		o := of[f.Check]
		if o == nil {
			o = &OpenFindings{Check: f.Check}
			of[f.Check] = o
		}
		*[]*int{Suspected: &o.Suspected, Open: &o.Open, Acknowledged: &o.Acknowledged}[f.State]++
		if f.State != Suspected {
			o.Oldest = max(o.Oldest, micros(now-f.opened))
		}
	}
	all := make([]OpenFindings, 0, len(of))
	for _, o := range of {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b OpenFindings) int { return strings.Compare(a.Check, b.Check) })
	return all, nil
}

// Tally implements [CheckStore].
func (m *CheckMemory) Tally(ctx context.Context, p CheckParams, cells []Cell) error {
	now, k, unlock, err := m.lock(ctx, p.Kind)
	if err != nil {
		return err
	}
	defer unlock()
	for _, c := range cells {
		start, keep := c.Start.UnixMicro(), p.Keep.Microseconds()
		if start < now-keep || start > now+keep {
			continue
		}
		s := k.series[c.Series]
		if s == nil {
			s = map[cellKey]*cell{}
			k.series[strings.Clone(c.Series)] = s
		}
		at := cellKey{start, c.Writer}
		if s[at] == nil {
			s[at] = &cell{}
		}
		s[at].n = max(s[at].n, c.N)
		s[at].expires = start + keep
	}
	return nil
}

// Volumes implements [CheckStore].
func (m *CheckMemory) Volumes(ctx context.Context, p CheckParams, after string, n int, starts []time.Time) ([]Volume, error) {
	_, k, unlock, err := m.lock(ctx, p.Kind)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var names []string
	for name := range k.series {
		if name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	volumes := make([]Volume, min(len(names), n))
	for i := range volumes {
		sums, since := map[int64]int64{}, int64(0)
		for at, c := range k.series[names[i]] {
			sums[at.start] += c.n
			if since == 0 || at.start < since {
				since = at.start
			}
		}
		v := Volume{Series: names[i], Since: at(since), N: make([]int64, len(starts))}
		for j, start := range starts {
			v.N[j] = sums[start.UnixMicro()]
		}
		volumes[i] = v
	}
	return volumes, nil
}

// SweepChecks implements [CheckSweeper]. It begins anywhere.
func (m *CheckMemory) SweepChecks(ctx context.Context, n int) (removed int, err error) {
	now, _, unlock, err := m.lock(ctx, "")
	if err != nil {
		return 0, err
	}
	defer unlock()
	findings, cells := n, n
	for _, k := range m.kinds {
		for key, f := range k.findings {
			if findings--; findings < 0 {
				break
			}
			if f.expired(now) {
				delete(k.findings, key)
				removed++
			}
		}
		for name, s := range k.series {
			for at, c := range s {
				if cells--; cells < 0 {
					return removed, nil
				}
				if c.expires < now {
					delete(s, at)
					removed++
				}
			}
			if len(s) == 0 {
				delete(k.series, name)
			}
		}
	}
	return removed, nil
}

func (m *CheckMemory) lock(ctx context.Context, kind string) (now int64, k *checked, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, nil, err
	}
	m.mu.Lock()
	if k = m.kinds[kind]; k == nil {
		k = &checked{findings: map[FindingKey]*finding{}, open: map[string]int{}, series: map[string]map[cellKey]*cell{}}
		if kind != "" {
			m.kinds[strings.Clone(kind)] = k
		}
	}
	return m.micros + time.Since(m.start).Microseconds(), k, m.mu.Unlock, nil
}
