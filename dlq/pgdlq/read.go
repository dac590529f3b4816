package pgdlq

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

func (s *Store) groups(ctx context.Context, r pgcall.Route, stream, after string, n int) (groups []dlq.Group, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		g := dlq.Group{Stream: stream}
		var first, last *int64
		err := rows.Scan(&g.Fingerprint, &g.Waiting, &g.Review, &first, &last)
		g.First, g.Last = at(first), at(last)
		groups = append(groups, g)
		return err
	}, s.sql.groups, stream, after, n)
	if err != nil {
		return nil, err
	}
	return groups, nil
}

func (s *Store) audit(ctx context.Context, r pgcall.Route, q dlq.AuditQuery) (entries []dlq.Entry, next uint64, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		e := dlq.Entry{Stream: q.Stream}
		var what int
		var seq *int64
		var micro, letter int64
		var before, after []byte
		if err := rows.Scan(&what, &seq, &micro, &e.Verb, &e.ID, &letter, &e.Job, &e.Actor, &e.Reason, &before, &after); err != nil {
			return err
		}
		if what == 2 {
			next = uint64(value(seq))
			return nil
		}
		e.Seq, e.At, e.Letter = uint64(value(seq)), time.UnixMicro(micro), uint64(letter)
		copy(e.Before[:], before)
		copy(e.After[:], after)
		entries = append(entries, e)
		return nil
	}, s.sql.audit, q.Stream, q.ID, q.Job, bigint(q.After), q.N, max(look, q.N+1))
	if err != nil {
		return nil, 0, err
	}
	return entries, next, nil
}

func (s *Store) totals(ctx context.Context, r pgcall.Route, after string, n int) (totals []dlq.Totals, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var t dlq.Totals
		var oldest int64
		err := rows.Scan(&t.Stream, &t.Waiting, &t.Review, &t.Resolved, &t.Discarded, &t.Rejected, &oldest)
		t.Oldest = micros(oldest)
		totals = append(totals, t)
		return err
	}, s.sql.totals, after, n)
	if err != nil {
		return nil, err
	}
	return totals, nil
}
