package dlq

import (
	"context"
	"errors"
	"fmt"
)

// Get returns the newest letter with an ID, opened; [ErrNotFound] if there is none. A
// body that cannot be opened is Letter.Unopened. Get asks nobody for permission: for
// persons there is [Review.Reveal].
func (q *Queue) Get(ctx context.Context, stream, id string) (Letter, error) {
	if err := validName("stream", stream); err != nil {
		return Letter{}, err
	}
	if err := validID("ID", id); err != nil {
		return Letter{}, err
	}
	r, err := q.find(ctx, stream, id, 0)
	if err != nil {
		return Letter{}, err
	}
	return q.letter(&r), nil
}

// Totals counts the letters of at most n streams by state, by ascending name, beginning
// behind the stream after; fewer than n mean that there are no more. It asks the
// store; [Queue.Stats] does not.
func (q *Queue) Totals(ctx context.Context, after string, n int) ([]Totals, error) {
	if err := errors.Join(validAfter("stream", after), validPage(n)); err != nil {
		return nil, err
	}
	t, err := q.store.Totals(ctx, after, n)
	if err != nil {
		return nil, unavailable(ctx, "count", err)
	}
	return t, nil
}

// find returns the record of a letter; seq zero: the newest of the ID.
func (q *Queue) find(ctx context.Context, stream, id string, seq uint64) (found Record, err error) {
	query := Query{Stream: stream, ID: id, N: maxPage, Heads: true} // which is the newest
	for more := seq == 0; more; more = query.After > 0 {
		p, err := q.store.List(ctx, query)
		if err != nil {
			return Record{}, unavailable(ctx, "read letter "+short(id), err)
		}
		for _, r := range p.Records {
			seq = r.Seq
		}
		query.After = p.Next
	}
	for query = (Query{Stream: stream, ID: id, After: seq - 1, N: 1}); seq > 0; {
		p, err := q.store.List(ctx, query)
		if err != nil {
			return Record{}, unavailable(ctx, "read letter "+short(id), err)
		}
		if len(p.Records) > 0 && p.Records[0].Seq == seq {
			return p.Records[0], nil
		}
		if query.After = p.Next; len(p.Records) > 0 || p.Next == 0 || p.Next >= seq {
			break
		}
	}
	return Record{}, fmt.Errorf("letter %s: %w", short(id), ErrNotFound)
}
