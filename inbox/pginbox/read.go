package pginbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// change sends all changes in one call.
func (s *Store) change(ctx context.Context, r pgcall.Route, p inbox.Params, changes []inbox.Change) ([]error, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	n := len(changes)
	kinds, seqs := make([]int16, n), make([]int64, n)
	nonces := make([][]byte, n)
	ids, actors, reasons := make([]string, n), make([]string, n), make([]string, n)
	for i := range changes {
		c := &changes[i]
		kinds[i], nonces[i], ids[i], seqs[i], actors[i], reasons[i] = int16(c.Kind), c.Nonce[:], c.ID, bigint(c.Seq), c.Actor, c.Reason
	}
	var refused []error
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var i, outcome int
		if err := rows.Scan(&i, &outcome); err != nil {
			return err
		}
		if i < 1 || i > n || outcome < 1 || outcome > len(unchanged) {
			return fmt.Errorf("outcome %d of change %d of %d", outcome, i, n)
		}
		if refused == nil {
			refused = make([]error, n)
		}
		refused[i-1] = unchanged[outcome-1]
		return nil
	}, s.sql.change, p.Retention.Microseconds(), p.Bodies.Microseconds(), kinds, nonces, ids, seqs, actors, reasons)
	if err != nil {
		return nil, err
	}
	return refused, nil
}

var unchanged = [...]error{inbox.ErrNotFound, inbox.ErrState, fmt.Errorf("pginbox: change: %w", ErrBusy)}

func (s *Store) list(ctx context.Context, r pgcall.Route, q inbox.Query) (records []inbox.Record, err error) {
	w := newRow()
	err = r.Call(ctx, func(rows pgx.Rows) error {
		record, err := w.scan(rows, false)
		records = append(records, record)
		return err
	}, s.sql.list, q.ID, q.MessageID, q.ExternalID, int32(q.State), bigint(q.After), q.N)
	if err != nil {
		return nil, err
	}
	return records, nil
}

func (s *Store) totals(ctx context.Context, r pgcall.Route) (t inbox.Totals, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var oldest int64
		err := rows.Scan(&t.Pending, &t.Done, &t.Dead, &t.Quarantined, &t.Conflicts, &t.Unknown, &oldest)
		t.Oldest = micros(oldest)
		return err
	}, s.sql.totals)
	return t, err
}
