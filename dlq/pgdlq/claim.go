package pgdlq

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

func (s *Store) claim(ctx context.Context, a dlq.Ask) (c dlq.Claimed, err error) {
	w := newRow()
	read := func(rows pgx.Rows) error {
		r, end, err := w.scan(rows)
		switch {
		case err != nil:
			return err
		case end:
			c.Next = micros(value(w.remains))
		default:
			c.Claims = append(c.Claims, dlq.Claim{Record: r, Lane: w.lane, Token: uint64(value(w.token)), Left: micros(value(w.remains))})
		}
		return nil
	}
	err = again(s.alone(), modeWait, func(int) error {
		c = dlq.Claimed{}
		return s.alone().Call(ctx, read, s.sql.claim, a.Stream, a.Nonce[:], a.N, int64(a.Bytes), a.Lease.Microseconds())
	})
	if err != nil {
		return dlq.Claimed{}, err
	}
	return c, nil
}

// look is how many letters or entries a page looks at.
const look = 10_000

func (s *Store) list(ctx context.Context, r pgcall.Route, q dlq.Query) (p dlq.Page, err error) {
	w := newRow()
	err = r.Call(ctx, func(rows pgx.Rows) error {
		record, end, err := w.scan(rows)
		switch {
		case err != nil:
			return err
		case end:
			p.Next = uint64(value(w.seq))
		default:
			p.Records = append(p.Records, record)
		}
		return nil
	}, s.sql.list, q.Stream, q.ID, q.Key, int16(q.State), q.Fingerprint, q.Job, limit(q.From), limit(q.Until), bigint(q.After), q.N,
		max(look, q.N+1), q.Heads)
	if err != nil {
		return dlq.Page{}, err
	}
	return p, nil
}

// limit is a time that a query asks for. Record.Put is in whole microseconds: what
// is at or after a time, or before it, is so of the next whole one.
func limit(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	micro := t.UnixMicro()
	if time.UnixMicro(micro).Before(t) {
		micro++
	}
	return &micro
}

// A row is a letter as it is read, of the type dlq_row in schema/0004_claim.sql.
type row struct {
	dest [28]any

	what                        int16
	token, remains, seq         *int64
	stream, id, key, job, print *string
	lane                        string
	laneAt                      *string
	state                       *int16
	aside                       *bool
	tries, others               *int32
	put                         *int64
	next, settled, expires      *int64
	digest, original, body      []byte
	times                       []int64
	prints                      []string
	details                     [][]byte
	foldPrints                  []string
	foldCounts                  []int32
	foldFirsts, foldLasts       []int64
}

// newRow returns a row that is scanned into again and again.
func newRow() *row {
	w := &row{}
	w.dest = [...]any{
		&w.what, &w.token, &w.remains, &w.seq, &w.stream, &w.id, &w.key, &w.laneAt, &w.state, &w.aside, &w.tries, &w.job, &w.print,
		&w.put, &w.next, &w.settled, &w.expires, &w.digest, &w.times, &w.prints, &w.details,
		&w.foldPrints, &w.foldCounts, &w.foldFirsts, &w.foldLasts, &w.others, &w.original, &w.body,
	}
	return w
}

// scan reads a row. The last one of an answer is its end.
func (w *row) scan(rows pgx.Rows) (r dlq.Record, end bool, err error) {
	if err := rows.Scan(w.dest[:]...); err != nil {
		return r, false, err
	}
	if w.what == 2 {
		return r, true, nil
	}
	w.lane = value(w.laneAt)
	r = dlq.Record{
		Stream: value(w.stream), ID: value(w.id), Key: value(w.key), Seq: uint64(value(w.seq)), State: dlq.State(value(w.state)),
		Aside: value(w.aside), Body: w.body, Original: w.original, Fingerprint: value(w.print), Tries: int(value(w.tries)),
		Job: value(w.job), Put: at(w.put), Next: at(w.next), Settled: at(w.settled), Expires: at(w.expires),
	}
	copy(r.Digest[:], w.digest)
	for i, micro := range w.times {
		if i >= len(w.prints) || i >= len(w.details) {
			break
		}
		f := dlq.Failure{At: time.UnixMicro(micro), Fingerprint: w.prints[i], Detail: w.details[i]}
		if i == 0 {
			r.Log.First = f
		} else {
			r.Log.Last = append(r.Log.Last, f)
		}
	}
	for i, print := range w.foldPrints {
		if i >= len(w.foldCounts) || i >= len(w.foldFirsts) || i >= len(w.foldLasts) {
			break
		}
		r.Log.Folds = append(r.Log.Folds, dlq.Fold{
			Fingerprint: print, Count: int(w.foldCounts[i]), First: time.UnixMicro(w.foldFirsts[i]), Last: time.UnixMicro(w.foldLasts[i])})
	}
	r.Log.Others = int(value(w.others))
	return r, false, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
