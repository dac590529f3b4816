package redisinbox

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed list.lua
var listText string

//go:embed totals.lua
var totalsText string

var (
	listScript   = script(listText)
	totalsScript = script(totalsText)
)

// fetch is how many records are read in one round trip: each may have a body of
// megabytes.
const fetch = 64

// List implements [inbox.Store]. It asks every partition for numbers, then reads the
// records, 64 in a round trip; so it is not one atomic step, and what changes
// meanwhile is listed as it is then, or not at all.
func (s *Store) List(ctx context.Context, q inbox.Query) ([]inbox.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "list", err)
	}
	var found []inbox.Record
	for len(found) < q.N {
		want := q.N - len(found)
		seqs, err := s.numbers(ctx, q, want)
		if err != nil {
			return nil, failed(ctx, "list", err)
		}
		for from := 0; from < len(seqs); from += fetch {
			records, err := s.records(ctx, seqs[from:min(from+fetch, len(seqs))])
			if err != nil {
				return nil, failed(ctx, "list", err)
			}
			for _, r := range records {
				if selected(&q, &r) {
					found = append(found, r)
				}
			}
		}
		if len(seqs) < want {
			break
		}
		q.After = seqs[len(seqs)-1] // some were changed while they were read: look behind them
	}
	return found, nil
}

// selected says whether a record still is what the query selects. Whether the time
// of Outside has come was asked of the server.
func selected(q *inbox.Query, r *inbox.Record) bool {
	switch {
	case q.ID != "":
		return r.ID == q.ID
	case q.MessageID != "":
		return r.MessageID == q.MessageID
	case q.ExternalID != "":
		return r.ExternalID == q.ExternalID
	case q.State != 0:
		return r.State == q.State
	}
	return r.Form&inbox.FormOutside != 0 && !r.Erases.IsZero()
}

// numbers returns the first n numbers of what the query selects.
func (s *Store) numbers(ctx context.Context, q inbox.Query, n int) ([]uint64, error) {
	what, selector := "z", ""
	switch {
	case q.ID != "":
		what, selector = "i", q.ID
	case q.MessageID != "":
		selector = "m" + q.MessageID + "\x00"
	case q.ExternalID != "":
		selector = "y" + q.ExternalID + "\x00"
	case q.State != 0:
		selector = "p" + digit(q.State)
	default:
		what = "o"
	}
	var all []uint64
	asked := upTo(len(s.keys))
	for len(asked) > 0 {
		var again []int
		err := s.run(ctx, listScript, []any{what, selector}, asked, func(part int) int { return part },
			func(args []any, part int) []any {
				x, ok := lowest(part, q.After)
				if !ok {
					return append(args, digits(maxNumber), "0")
				}
				return append(args, digits(x), decimal(int64(n)))
			},
			func(part int, _ []int, reply []string) error {
				if what == "o" && len(reply) > 0 {
					if reply[0] == "1" {
						again = append(again, part)
						return nil
					}
					reply = reply[1:]
				}
				for _, v := range reply {
					x, err := strconv.ParseUint(v, 10, 64)
					if err != nil {
						return errReply
					}
					all = append(all, seqOf(part, x))
				}
				return nil
			})
		if err != nil {
			return nil, err
		}
		asked = again
	}
	slices.Sort(all)
	return all[:min(n, len(all))], nil
}

// records reads records, those that are still there.
func (s *Store) records(ctx context.Context, seqs []uint64) (found []inbox.Record, err error) {
	err = s.run(ctx, listScript, []any{"r", "", ""}, upTo(len(seqs)), func(i int) int { return int(seqs[i] & (1<<partBits - 1)) },
		func(args []any, i int) []any { return append(args, digits(seqs[i]>>partBits)) },
		func(part int, _ []int, reply []string) error {
			if len(reply) == 0 {
				return errReply
			}
			now, err := strconv.ParseInt(reply[0], 10, 64)
			if err != nil {
				return errReply
			}
			records, err := s.readRecords(part, now, reply[1:])
			found = append(found, records...)
			return err
		})
	slices.SortFunc(found, func(a, b inbox.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return found, err
}

// Totals implements [inbox.Store]. It asks each partition, so it is not one atomic
// step.
func (s *Store) Totals(ctx context.Context) (t inbox.Totals, err error) {
	if err := ctx.Err(); err != nil {
		return t, failed(ctx, "totals", err)
	}
	err = s.everywhere(ctx, totalsScript, func(_ int, reply []string) error {
		r := &reader{values: reply}
		now := r.int()
		for _, n := range []*int{&t.Pending, &t.Done, &t.Dead, &t.Quarantined, &t.Conflicts, &t.Unknown} {
			*n += int(r.int())
		}
		if oldest := r.int(); oldest > 0 {
			t.Oldest = max(t.Oldest, span(now-oldest))
		}
		if r.bad {
			return errReply
		}
		return nil
	})
	if err != nil {
		return inbox.Totals{}, failed(ctx, "totals", err)
	}
	return t, nil
}
