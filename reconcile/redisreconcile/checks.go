package redisreconcile

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

//go:embed checks.lua
var checksText string

//go:embed report.lua
var reportText string

//go:embed look.lua
var lookText string

//go:embed tally.lua
var tallyText string

//go:embed volumes.lua
var volumesText string

var (
	reportScript  = script(checksText, reportText)
	lookScript    = script(checksText, lookText)
	tallyScript   = script(checksText, tallyText)
	volumesScript = script(checksText, volumesText)
)

// A CheckStore keeps the findings and counts of [reconcile.Checks] in Redis. It implements
// [reconcile.CheckStore] and [reconcile.CheckSweeper], and is safe for concurrent use.
// [Store.Checks] makes one.
//
// All of a kind lies in one partition, so a check never has more unresolved findings than it
// may.
type CheckStore struct{ store *Store }

var (
	_ reconcile.CheckStore   = (*CheckStore)(nil)
	_ reconcile.CheckSweeper = (*CheckStore)(nil)
)

func (c *CheckStore) keys(kind string) []string { return c.store.checks[c.store.parts.Of(kind)] }

// Report implements [reconcile.CheckStore]. It is one round trip for up to 512 reports.
func (c *CheckStore) Report(ctx context.Context, p reconcile.CheckParams, rs []reconcile.Report) ([]reconcile.Outcome, error) {
	outcomes := make([]reconcile.Outcome, len(rs))
	part := c.store.parts.Of(p.Kind)
	err := send(ctx, c.store, rs, batch[reconcile.Report]{
		script: reportScript, keys: c.store.checks, header: []any{p.Kind, decimal(int64(p.Most)), span(p.Lull), span(p.Retention)},
		part: func(*reconcile.Report) int { return part },
		size: func(r *reconcile.Report) int { return len(r.Subject) + len(r.Detail) + len(r.Note) },
		encode: func(args []any, r *reconcile.Report) []any {
			return append(args, strconv.Itoa(int(r.Verb)), r.Check, r.Subject, hexadecimal(r.Nonce), strconv.FormatUint(r.Version, 10),
				decimal(max(r.N, 0)), span(r.Delay), r.Account, r.Detail, r.By, r.Note)
		},
		read: letters(func(i int, letter byte) error {
			outcomes[i] = reconcile.Outcome(letter - '0')
			switch {
			case letter == 'x':
				return errRow
			case outcomes[i] < reconcile.Nothing || outcomes[i] > reconcile.TooMany:
				return errReply
			}
			return nil
		}),
	})
	if err != nil {
		return nil, failed(ctx, "report", err)
	}
	return outcomes, nil
}

// Claim implements [reconcile.CheckStore]. It takes at most 512 findings.
func (c *CheckStore) Claim(ctx context.Context, p reconcile.CheckParams, check string, n int, hold time.Duration) ([]reconcile.Finding, error) {
	r, err := c.store.call(ctx, lookScript, c.keys(p.Kind), "claim", p.Kind, check, decimal(int64(min(n, maxBatch))), span(hold))
	if err != nil {
		return nil, failed(ctx, "claim findings", err)
	}
	taken, err := r.findings(p.Kind, r.int())
	if err != nil {
		return nil, failed(ctx, "claim findings", err)
	}
	return taken, nil
}

// List implements [reconcile.CheckStore]. It is one round trip for 1,000 findings that are
// looked at, and 8 MiB: the unresolved ones if only these are asked for, otherwise all of the
// check, or the kind.
func (c *CheckStore) List(ctx context.Context, q reconcile.FindingQuery) (found []reconcile.Finding, err error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "list findings", err)
	}
	prefix := "f" + q.Kind + "\x00"
	if q.Unresolved || q.State != 0 && q.State != reconcile.Resolved {
		prefix = "u" + q.Kind + "\x00"
	}
	after := ""
	if q.After != (reconcile.FindingKey{}) {
		after = prefix + q.After.Check + "\x00" + q.After.Subject
	}
	if q.Check != "" {
		prefix += q.Check + "\x00"
	}
	from := "[" + prefix
	if q.Check != "" && q.Subject != "" { // there is one at most
		prefix += q.Subject
		from = "[" + prefix
	}
	if after >= prefix {
		from = "(" + after
	}
	state, account := "", ""
	if q.State != 0 {
		state = strconv.Itoa(int(q.State))
	}
	if q.Account != "" {
		account = "1" + q.Account
	}
	for len(found) < q.N {
		look := maxLook
		if q.Check != "" && q.Subject != "" {
			look = 1
		}
		r, err := c.store.call(ctx, lookScript, c.keys(q.Kind), "list", q.Kind, from, prefix, decimal(int64(q.N-len(found))),
			decimal(int64(look)), decimal(maxBytes), q.Subject, state, account)
		if err != nil {
			return nil, failed(ctx, "list findings", err)
		}
		now, last := r.int(), r.text()
		page, err := r.findings(q.Kind, now)
		if err != nil {
			return nil, failed(ctx, "list findings", err)
		}
		found = append(found, page...)
		if last == "" || look == 1 {
			break
		}
		from = "(" + last
	}
	return found, nil
}

// Open implements [reconcile.CheckStore]. The counts are kept, and not counted when they are
// asked for.
func (c *CheckStore) Open(ctx context.Context, kind string) (all []reconcile.OpenFindings, err error) {
	for after := ""; ; {
		r, err := c.store.call(ctx, lookScript, c.keys(kind), "open", kind, after, decimal(maxLook))
		if err != nil {
			return nil, failed(ctx, "open findings", err)
		}
		now, n := r.int(), 0
		for ; r.more(); n++ {
			o := reconcile.OpenFindings{Check: r.text()}
			w := words(r.text(), 4)
			o.Suspected, o.Open, o.Acknowledged = int(w.int()), int(w.int()), int(w.int())
			if oldest := r.int(); oldest > 0 {
				o.Oldest = micros(now - oldest)
			}
			if w.bad {
				return nil, failed(ctx, "open findings", errRow)
			}
			all, after = append(all, o), o.Check
		}
		if r.bad {
			return nil, failed(ctx, "open findings", errReply)
		}
		if n < maxLook {
			return all, nil
		}
	}
}

// Tally implements [reconcile.CheckStore]. It is one round trip for up to 512 cells.
func (c *CheckStore) Tally(ctx context.Context, p reconcile.CheckParams, cells []reconcile.Cell) error {
	part := c.store.parts.Of(p.Kind)
	err := send(ctx, c.store, cells, batch[reconcile.Cell]{
		script: tallyScript, keys: c.store.checks, header: []any{p.Kind, span(p.Keep)},
		part: func(*reconcile.Cell) int { return part },
		size: func(c *reconcile.Cell) int { return len(c.Series) },
		encode: func(args []any, c *reconcile.Cell) []any {
			return append(args, c.Series, start(c.Start), hexadecimal(c.Writer), decimal(max(c.N, 0)))
		},
		read: letters(func(_ int, letter byte) error {
			switch letter {
			case '.':
				return nil
			case 'x':
				return errRow
			}
			return errReply
		}),
	})
	if err != nil {
		return failed(ctx, "tally", err)
	}
	return nil
}

// start is a time in microseconds; one that cannot be written so lies too far away, as this
// year does.
func start(t time.Time) string {
	if said := said(t); said != none {
		return said
	}
	return decimal(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// Volumes implements [reconcile.CheckStore]. It is one round trip for about 1,000 sums.
func (c *CheckStore) Volumes(ctx context.Context, p reconcile.CheckParams, after string, n int, starts []time.Time) ([]reconcile.Volume, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "volumes", err)
	}
	var times []any
	for _, t := range starts {
		times = append(times, start(t))
	}
	var found []reconcile.Volume
	for len(found) < n {
		want := min(n-len(found), max(maxLook/(1+len(starts)), 1))
		r, err := c.store.call(ctx, volumesScript, c.keys(p.Kind), append([]any{p.Kind, after, decimal(int64(want))}, times...)...)
		if err != nil {
			return nil, failed(ctx, "volumes", err)
		}
		got := 0
		for ; r.more(); got++ {
			v := reconcile.Volume{Series: r.text(), Since: time.UnixMicro(r.int()), N: make([]int64, len(starts))}
			for i := range v.N {
				v.N[i] = r.sum()
			}
			found, after = append(found, v), v.Series
		}
		if r.bad {
			return nil, failed(ctx, "volumes", errReply)
		}
		if got < want {
			break
		}
	}
	return found, nil
}

// sum reads the sum of numbers.
func (r *reader) sum() (sum int64) {
	for part := range strings.FieldsSeq(r.text()) {
		n, err := strconv.ParseInt(part, 10, 64)
		r.bad = r.bad || err != nil
		sum += n
	}
	return sum
}

// findings reads findings to the end of a reply.
func (r *reader) findings(kind string, now int64) (found []reconcile.Finding, err error) {
	for r.more() {
		f := reconcile.Finding{Kind: kind, Check: r.text(), Subject: r.text()}
		row, log := r.text(), r.text()
		if !r.bad && !readFinding(&f, row, log, now) {
			return nil, errRow
		}
		found = append(found, f)
	}
	if r.bad {
		return nil, errReply
	}
	return found, nil
}

// readFinding reads the rows f and l of checks.lua.
func readFinding(f *reconcile.Finding, row, log string, now int64) bool {
	w := words(row, 18)
	f.State, f.Version, f.Count, f.Times = reconcile.FindingState(w.int()), w.uint(), w.int(), int(w.int())
	f.Read, f.First, f.Last, f.Opened, f.Due, f.Expires = time.UnixMicro(now), w.at(), w.at(), w.at(), w.at(), w.at()
	for range 3 { // the nonce and the outcome of the last report; how long the log is
		_ = w.text()
	}
	f.Dropped = int(w.int())
	account, detail, by := w.int(), w.int(), w.int()
	f.Account, f.Detail, f.By = w.cut(account), w.cut(detail), w.cut(by)
	f.Note = w.text()
	entries, ok := logEntries(log)
	for _, entry := range entries {
		e := words("1 "+entry, 4)
		c := reconcile.Change{At: e.at(), State: reconcile.FindingState(e.int())}
		c.By = e.sized()
		c.Note = e.text()
		w.bad = w.bad || e.bad
		f.Log = append(f.Log, c)
	}
	return ok && !w.bad
}
