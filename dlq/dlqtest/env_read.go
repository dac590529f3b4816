package dlqtest

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl/dlq"
)

// record returns the newest letter of an ID.
func (e *env) record(id string) dlq.Record {
	e.Helper()
	rs := e.list(dlq.Query{ID: id})
	if len(rs) == 0 {
		e.Fatalf("there is no letter %q", id)
	}
	return rs[len(rs)-1]
}

// wantState checks the state and the tries of the newest letter of an ID.
func (e *env) wantState(id string, s dlq.State, tries int) dlq.Record {
	e.Helper()
	r := e.record(id)
	if r.State != s || r.Tries != tries {
		e.Fatalf("the letter %q is %v after %d tries, want %v after %d", id, r.State, r.Tries, s, tries)
	}
	return r
}

// list lists all letters that a query selects.
func (e *env) list(q dlq.Query) (all []dlq.Record) {
	e.Helper()
	if q.Stream == "" {
		q.Stream = stream
	}
	if q.N == 0 {
		q.N = 100
	}
	for {
		p, err := e.store.List(context.Background(), q)
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if len(p.Records) > q.N {
			e.Fatalf("List of %d letters returned %d", q.N, len(p.Records))
		}
		for i, r := range p.Records {
			if r.Seq <= q.After || i > 0 && r.Seq <= p.Records[i-1].Seq {
				e.Fatalf("List behind %d returned the number %d in the %d. place", q.After, r.Seq, i)
			}
		}
		all = append(all, p.Records...)
		if p.Next == 0 {
			return all
		}
		if p.Next <= q.After {
			e.Fatalf("List behind %d goes on behind %d", q.After, p.Next)
		}
		q.After = p.Next
	}
}

// in lists the IDs that a query selects.
func (e *env) in(q dlq.Query) (ids []string) {
	e.Helper()
	for _, r := range e.list(q) {
		ids = append(ids, r.ID)
	}
	return ids
}

// wantIn checks which letters a query selects.
func (e *env) wantIn(q dlq.Query, ids ...string) {
	e.Helper()
	if got := e.in(q); !slices.Equal(got, ids) {
		e.Fatalf("the query %+v selects %q, want %q", q, got, ids)
	}
}

// totals returns the totals of all streams.
func (e *env) totals() []dlq.Totals {
	e.Helper()
	t, err := e.store.Totals(context.Background(), "", 100)
	if err != nil {
		e.Fatalf("Totals: %v", err)
	}
	return slices.DeleteFunc(t, func(t dlq.Totals) bool { return t.Waiting+t.Review+t.Resolved+t.Discarded+t.Rejected == 0 })
}

// wantTotals checks the numbers of letters in the stream by state.
func (e *env) wantTotals(waiting, review, resolved, discarded, rejected int) dlq.Totals {
	e.Helper()
	t := dlq.Totals{Stream: stream}
	if all := e.totals(); len(all) == 1 {
		t = all[0]
	}
	want := dlq.Totals{Stream: stream, Waiting: waiting, Review: review, Resolved: resolved, Discarded: discarded, Rejected: rejected, Oldest: t.Oldest}
	if t != want {
		e.Fatalf("the totals are %+v, want %+v", t, want)
	}
	return t
}

// groups returns the groups of the stream.
func (e *env) groups() []dlq.Group {
	e.Helper()
	g, err := e.store.Groups(context.Background(), stream, "", 100)
	if err != nil {
		e.Fatalf("Groups: %v", err)
	}
	return g
}
