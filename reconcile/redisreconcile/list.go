package redisreconcile

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/reconcile"
)

//go:embed list.lua
var listText string

var listScript = script(ledgerText, listText)

// fetch is how many operations are read in one round trip, and maxLook how many a script
// looks at: each may have a payload of megabytes, and a script stops its server.
const (
	fetch   = 64
	maxLook = 1000
)

// List implements [reconcile.Store]. It asks every partition for keys, then reads the
// operations, 64 in a round trip; so it is not one atomic step, and what changes meanwhile
// is listed as it is then, or not at all. A page ends early when it has 8 MiB. An account's operations and open ones, those of a
// state and those that wait for a person are found without a look at others, except
// that one of these is chosen when several are asked for.
func (s *Store) List(ctx context.Context, q reconcile.Query) ([]reconcile.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "list", err)
	}
	var found []reconcile.Entry
	size := 0
	for more := true; more && len(found) < q.N && size < maxBytes; {
		var keys []string
		var err error
		keys, q.After, more, err = s.find(ctx, q, min(q.N-len(found), maxLook))
		for len(keys) > 0 && size < maxBytes && err == nil {
			var entries []reconcile.Entry
			entries, err = s.read(ctx, q.Kind, keys[:min(len(keys), fetch)])
			keys = keys[len(entries):]
			for _, e := range entries {
				if e.State != 0 && selected(&q, &e) {
					found = append(found, e)
					size += len(e.Payload) + len(e.Result)
				}
			}
		}
		if err != nil {
			return nil, failed(ctx, "list", err)
		}
	}
	return found, nil
}

func selected(q *reconcile.Query, e *reconcile.Entry) bool {
	return (q.Account == "" || q.Account == e.Account) && (q.State == 0 || q.State == e.State) &&
		(!q.Open || e.Open()) && (!q.Review || e.Review != "")
}

// find returns keys of at most n operations, in order, and the key behind which there may
// be more.
func (s *Store) find(ctx context.Context, q reconcile.Query, n int) (keys []string, after string, more bool, err error) {
	if q.Key != "" {
		if q.Key > q.After {
			keys = []string{q.Key}
		}
		return keys, "", false, nil
	}
	account, state := "", ""
	if q.Account != "" {
		account = "1" + q.Account
	}
	if q.State != 0 {
		state = strconv.Itoa(int(q.State))
	}
	yes := map[bool]string{true: "1"}
	args := []any{"find", q.Kind, q.After, decimal(int64(n)), decimal(maxLook), account, state, yes[q.Open], yes[q.Review]}
	replies, err := s.everywhere(ctx, listScript, s.ledger, append(args, lists(&q)...)...)
	if err != nil {
		return nil, "", false, err
	}
	for _, r := range replies {
		_ = r.int() // the time
		all, upTo := r.flag(), r.text()
		if !all && (!more || upTo < after) {
			more, after = true, upTo
		}
		keys = append(keys, r.values...)
		if r.bad {
			return nil, "", false, errReply
		}
	}
	slices.Sort(keys)
	if more { // of partitions that have looked further, what lies behind comes later
		end, _ := slices.BinarySearch(keys, after+"\x00")
		keys = keys[:end]
	}
	if len(keys) > n {
		keys, after, more = keys[:n], keys[n-1], true
	}
	return keys, after, more, nil
}

// lists says in which lists of ledger.lua the operations of a query are: the shortest that
// have all of them.
func lists(q *reconcile.Query) []any {
	ofState := func(states ...reconcile.State) (names []any) {
		for _, s := range states {
			names = append(names, "p"+q.Kind+"\x00"+strconv.Itoa(int(s)))
		}
		return names
	}
	open := ofState(reconcile.Started, reconcile.Accepted, reconcile.Unknown)
	switch {
	case q.Review:
		return []any{"v" + q.Kind + "\x00"}
	case q.State != 0 && !q.State.Ended(), q.State == reconcile.Failed && !q.Open:
		return ofState(q.State)
	case q.Open:
		return append(open, "f"+q.Kind+"\x00")
	case q.Account != "":
		return []any{"a" + q.Kind + "\x00" + q.Account + "\x00"}
	case q.State != 0:
		return ofState(q.State)
	}
	return append(open, ofState(reconcile.Confirmed, reconcile.Failed)...)
}

// read returns the operations with these keys, in their order; those that are not there
// have no state. It stops when it has 8 MiB, and returns the first of them then.
func (s *Store) read(ctx context.Context, kind string, keys []string) ([]reconcile.Entry, error) {
	entries, answered, size := make([]reconcile.Entry, len(keys)), make([]bool, len(keys)), 0
	err := send(ctx, s, keys, batch[string]{
		script: listScript, keys: s.ledger, header: []any{"read", kind, decimal(int64(maxBytes / len(s.ledger)))},
		part:   func(key *string) int { return s.part(kind, *key) },
		size:   func(*string) int { return 0 },
		encode: func(args []any, key *string) []any { return append(args, *key) },
		read: func(reply []string, places []int) (int, error) {
			r := &reader{values: reply}
			now, n := r.int(), 0
			for ; n < len(places) && r.more(); n++ {
				i := places[n]
				e, found, err := r.entry(kind, keys[i], now)
				if err != nil {
					return 0, err
				}
				answered[i] = true
				if found {
					entries[i] = e
					size += len(e.Payload) + len(e.Result)
				}
			}
			if r.bad || r.more() {
				return 0, errReply
			}
			return n, nil
		},
		enough: func() bool { return size >= maxBytes && answered[0] },
	})
	for i, ok := range answered {
		if !ok {
			return entries[:i], err
		}
	}
	return entries, err
}

// Counts implements [reconcile.Store]. The counts are kept, and not counted when they are
// asked for; an operation that has expired is counted until it is swept. It asks each
// partition, in one round trip for 1,000 accounts, so it is not one atomic step.
func (s *Store) Counts(ctx context.Context, kind, after string, first bool, n int) (found []reconcile.Counts, err error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "counts", err)
	}
	for len(found) < n {
		want := min(n-len(found), maxLook)
		page, err := s.counts(ctx, kind, after, first, want)
		if err != nil {
			return nil, failed(ctx, "counts", err)
		}
		found = append(found, page...)
		if len(page) < want {
			break
		}
		after, first = page[want-1].Account, false
	}
	return found, nil
}

// counts asks every partition for the accounts behind one, and returns the first n: what a
// partition has of them is among its own first n.
func (s *Store) counts(ctx context.Context, kind, after string, first bool, n int) (found []reconcile.Counts, err error) {
	replies, err := s.everywhere(ctx, listScript, s.ledger, "count", kind, after, flag(first), decimal(int64(n)))
	if err != nil {
		return nil, err
	}
	of := map[string]*reconcile.Counts{}
	for _, r := range replies {
		now := r.int()
		for r.more() {
			account := r.text()
			c := of[account]
			if c == nil {
				c = &reconcile.Counts{Account: account}
				of[account] = c
			}
			w := words(r.text(), 10)
			for _, n := range []*int{&c.Started, &c.Accepted, &c.Confirmed, &c.Failed, &c.Unknown, &c.Review, &c.Resent, &c.ResentConfirmed, &c.Waiting} {
				*n += int(w.int())
			}
			if w.bad {
				return nil, errRow
			}
			if oldest := r.int(); oldest > 0 {
				c.Oldest = max(c.Oldest, micros(now-oldest))
			}
		}
		if r.bad {
			return nil, errReply
		}
	}
	for _, c := range of {
		found = append(found, *c)
	}
	slices.SortFunc(found, func(a, b reconcile.Counts) int { return cmp.Compare(a.Account, b.Account) })
	return found[:min(n, len(found))], nil
}
