package pgreconcile

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

func (s *Store) claim(ctx context.Context, p reconcile.Params, a reconcile.ClaimAsk) (entries []reconcile.Entry, next time.Duration, err error) {
	w := newRow()
	err = again(s.alone(), modeWait, func(int) error {
		entries, next = nil, 0
		return s.alone().Call(ctx, func(rows pgx.Rows) error {
			if err := rows.Scan(w.dest[:]...); err != nil {
				return err
			}
			if value(w.n) > 0 {
				entries = append(entries, w.entry(p.Kind))
			} else if w.due != nil {
				next = max(micros(*w.due-value(w.now)), time.Microsecond)
			}
			return nil
		}, s.sql.claim, p.Kind, p.Lease.Microseconds(), a.Nonce[:], a.N)
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, next, nil
}

func (s *Store) list(ctx context.Context, r pgcall.Route, q reconcile.Query) (entries []reconcile.Entry, err error) {
	w := newRow()
	err = r.Call(ctx, func(rows pgx.Rows) error {
		err := rows.Scan(w.dest[:]...)
		entries = append(entries, w.entry(q.Kind))
		return err
	}, s.sql.list, q.Kind, q.Key, q.Account, int(q.State), q.Open, q.Review, q.After, q.N)
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (s *Store) counts(ctx context.Context, r pgcall.Route, kind, after string, first bool, n int) (counts []reconcile.Counts, err error) {
	if first {
		after = ""
	}
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var c reconcile.Counts
		var age int64
		err := rows.Scan(&c.Account, &c.Started, &c.Accepted, &c.Confirmed, &c.Failed, &c.Unknown, &c.Review, &c.Resent, &c.ResentConfirmed, &c.Waiting, &age)
		c.Oldest = micros(age)
		counts = append(counts, c)
		return err
	}, s.sql.counts, kind, after, first, n)
	if err != nil {
		return nil, err
	}
	return counts, nil
}
