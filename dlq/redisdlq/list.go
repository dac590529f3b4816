package redisdlq

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/dlq"
)

//go:embed list.lua
var listText string

//go:embed read.lua
var readText string

var (
	listScript = script(listText)
	readScript = script(readText)
)

// Bounds of one call: how many rows a script looks at, and how many jobs, which can
// have 16 KiB each, it returns.
const (
	maxLook = 1000
	maxJobs = 256
)

// List implements [dlq.Store]. It is one round trip, which looks at no more than 1,000
// letters, and ends a page with the letter that brings its bodies and logs to 8 MiB.
//
// Letters are found by ID, by redrive job, by fingerprint, by key and by state, whichever
// comes first in this order and is asked for, and what else is asked for is looked for
// among those. A query from some time on begins there.
func (s *Store) List(ctx context.Context, q dlq.Query) (dlq.Page, error) {
	if q.After >= maxNumber || q.N < 1 {
		return dlq.Page{}, ended(ctx, "list")
	}
	from, until, state := digits(0), digits(maxNumber), ""
	if !q.From.IsZero() {
		from = instant(q.From)
	}
	if !q.Until.IsZero() {
		until = instant(q.Until)
	}
	if q.State != 0 {
		state = strconv.Itoa(int(q.State))
	}
	r, err := s.call(ctx, listScript, q.Stream, q.Stream, digits(q.After+1), decimal(int64(q.N)), decimal(maxLook), decimal(maxBytes),
		flag(q.Heads), from, until, q.ID, q.Key, state, q.Fingerprint, q.Job)
	if err != nil {
		return dlq.Page{}, failed(ctx, "list", err)
	}
	p := dlq.Page{Next: r.uint()}
	for r.more() {
		l, err := r.letter(q.Stream)
		if err != nil {
			return dlq.Page{}, failed(ctx, "list", err)
		}
		p.Records = append(p.Records, l)
	}
	if r.bad {
		return dlq.Page{}, failed(ctx, "list", errReply)
	}
	return p, nil
}

// Audit implements [dlq.Store]. It is one round trip, which looks at no more than 1,000
// entries.
func (s *Store) Audit(ctx context.Context, q dlq.AuditQuery) ([]dlq.Entry, uint64, error) {
	if q.After >= maxNumber || q.N < 1 {
		return nil, 0, ended(ctx, "audit")
	}
	r, err := s.call(ctx, readScript, q.Stream, "e", q.Stream, digits(q.After+1), decimal(int64(q.N)), decimal(maxLook), q.ID, q.Job)
	if err != nil {
		return nil, 0, failed(ctx, "audit", err)
	}
	next := r.uint()
	var found []dlq.Entry
	for r.more() {
		e := dlq.Entry{Stream: q.Stream, Seq: r.uint()}
		if !readEntry(&e, r.text()) {
			return nil, 0, failed(ctx, "audit", errRow)
		}
		found = append(found, e)
	}
	if r.bad {
		return nil, 0, failed(ctx, "audit", errReply)
	}
	return found, next, nil
}

// ended is the answer of a list of nothing, or behind the last number that there can be.
func ended(ctx context.Context, step string) error {
	if err := ctx.Err(); err != nil {
		return failed(ctx, step, err)
	}
	return nil
}

// Groups implements [dlq.Store]. The counts are kept, and not counted when they are
// asked for. It is one round trip for each 1,000 groups.
func (s *Store) Groups(ctx context.Context, stream, after string, n int) ([]dlq.Group, error) {
	return pages(ctx, "groups", n, maxLook, after,
		func(after string, n int) (*reader, error) {
			return s.call(ctx, readScript, stream, "u", stream, after, decimal(int64(n)))
		},
		func(r *reader) (g dlq.Group, name string, err error) {
			g.Stream, g.Fingerprint = stream, r.text()
			if !readGroup(&g, r.text()) {
				err = errRow
			}
			return g, g.Fingerprint, err
		})
}

// Jobs implements [dlq.Store]. It is one round trip for each 256 jobs.
func (s *Store) Jobs(ctx context.Context, stream, after string, n int) ([]dlq.Job, error) {
	return pages(ctx, "jobs", n, maxJobs, after,
		func(after string, n int) (*reader, error) {
			return s.call(ctx, readScript, stream, "j", stream, after, decimal(int64(n)))
		},
		func(r *reader) (j dlq.Job, name string, err error) {
			id := r.text()
			j, err = r.job(stream, id)
			return j, id, err
		})
}

// pages reads n things behind a name, at most most of them in a call.
func pages[T any](ctx context.Context, step string, n, most int, after string,
	call func(after string, n int) (*reader, error), read func(*reader) (T, string, error)) (found []T, err error) {
	for len(found) < n {
		want, got := min(n-len(found), most), 0
		r, err := call(after, want)
		if err != nil {
			return nil, failed(ctx, step, err)
		}
		for ; r.more(); got++ {
			var one T
			if one, after, err = read(r); err != nil {
				return nil, failed(ctx, step, err)
			}
			found = append(found, one)
		}
		if got < want {
			break
		}
	}
	return found, nil
}

// Totals implements [dlq.Store]. The counts are kept, and not counted when they are
// asked for. It asks each partition, so it is not one atomic step.
func (s *Store) Totals(ctx context.Context, after string, n int) (found []dlq.Totals, err error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "totals", err)
	}
	for len(found) < n {
		want := min(n-len(found), maxLook)
		page, err := s.totals(ctx, after, want)
		if err != nil {
			return nil, failed(ctx, "totals", err)
		}
		found = append(found, page...)
		if len(page) < want {
			break
		}
		after = page[want-1].Stream
	}
	return found, nil
}

// totals asks every partition for the streams behind one, and returns the first n.
func (s *Store) totals(ctx context.Context, after string, n int) (found []dlq.Totals, err error) {
	replies, err := s.everywhere(ctx, readScript, "c", "", after, decimal(int64(n)))
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		now := r.int()
		for r.more() {
			t := dlq.Totals{Stream: r.text()}
			for _, n := range []*int{&t.Waiting, &t.Review, &t.Resolved, &t.Discarded, &t.Rejected} {
				*n = int(r.int())
			}
			if oldest := r.int(); oldest > 0 {
				t.Oldest = micros(now - oldest)
			}
			found = append(found, t)
		}
		if r.bad {
			return nil, errReply
		}
	}
	slices.SortFunc(found, func(a, b dlq.Totals) int { return cmp.Compare(a.Stream, b.Stream) })
	return found[:min(n, len(found))], nil
}
