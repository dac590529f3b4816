package pgorder

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

func (s *Store) account(ctx context.Context, r pgcall.Route, scope, key string) (order.Account, error) {
	a := order.Account{Key: key}
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var epoch, base, cursor, head, voids, skipped, late, buffered, parked, unordered, ahead, outOfOrder, oldest int64
		var ended, claimed bool
		var counts []int64
		var lateHeld int
		var atCursor int16
		err := rows.Scan(&epoch, &base, &cursor, &head, &ended, &voids, &skipped, &late, &buffered, &parked, &unordered, &ahead, &outOfOrder,
			&counts, &oldest, &lateHeld, &atCursor, &claimed)
		if err != nil {
			return err
		}
		if len(a.Ledgers) == 0 { // the active epoch comes first
			c := counts
			a.Arrivals = order.Arrivals{Accepted: uint64(c[0]), Duplicate: uint64(c[1]), Conflict: uint64(c[2]), Late: uint64(c[3]),
				Stale: uint64(c[4]), Full: uint64(c[5]), TooFar: uint64(c[6])}
			for _, n := range c {
				a.Arrivals.Pushed += uint64(n)
			}
			a.Oldest, a.LateWaiting, a.Parked, a.Claimed = micros(oldest), lateHeld, atCursor == 2, claimed
		}
		a.Ledgers = append(a.Ledgers, order.Ledger{
			Epoch: uint64(epoch), Base: number(base), Cursor: number(cursor), Head: number(head), Ended: ended,
			Delivered: uint64(cursor - base - voids - skipped - late), Void: uint64(voids), Skipped: uint64(skipped), Late: uint64(late),
			Buffered: uint64(buffered), Parked: uint64(parked), Unordered: uint64(unordered), VoidAhead: uint64(ahead),
			Missing:    uint64(head - cursor - buffered - parked - unordered - ahead),
			OutOfOrder: uint64(outOfOrder),
		})
		return nil
	}, s.sql.account, scope, key)
	return a, err
}

func (s *Store) find(ctx context.Context, r pgcall.Route, p order.Params, places []order.Place) ([]order.Found, error) {
	ids, keys := make([]string, len(places)), make([]string, len(places))
	epochs, at := make([]int64, len(places)), make([]int64, len(places))
	for i, q := range places {
		ids[i], keys[i], epochs[i], at[i] = q.ID, q.Key, int64(q.Position.Epoch), place(q.Position.Number)
	}
	found := make([]order.Found, len(places))
	read := 0
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var n, tries, asked int
		var state, reason, resolution int16
		var epoch, at, age, gapTo, gapAge, arrived int64
		var gapFrom *int64
		var known, late, alerted bool
		var key, actor, note string
		var id, text *string
		var payload, context []byte
		err := rows.Scan(&n, &state, &key, &epoch, &at, &known, &tries, &age, &late, &id, &payload, &context, &text,
			&gapFrom, &gapTo, &gapAge, &alerted, &asked, &reason, &arrived, &resolution, &actor, &note)
		if err != nil {
			return err
		}
		f := order.Found{State: order.State(state), Key: key, Position: order.Position{Epoch: uint64(epoch), Number: number(at)}}
		if known {
			f.Message = &order.Message{Key: key, Position: f.Position, Payload: payload, Context: context,
				Attempt: tries, Age: micros(age), Late: late, ID: orEmpty(id), Error: orEmpty(text)}
		}
		if gapFrom != nil {
			f.Gap = &order.Gap{Key: key, Epoch: uint64(epoch), From: number(*gapFrom), To: number(gapTo), Age: micros(gapAge),
				Alerted: alerted, Asked: asked, Reason: order.Reason(reason), Arrived: uint64(arrived),
				Resolution: order.Resolution(resolution), Actor: actor, Note: note}
		}
		found[n-1] = f
		read++
		return nil
	}, s.sql.find, p.Scope, int64(p.Window), ids, keys, epochs, at)
	if err == nil && read != len(places) {
		err = fmt.Errorf("%d answers to %d places", read, len(places))
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *Store) gaps(ctx context.Context, r pgcall.Route, scope string, q order.Query) (gaps []order.Gap, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var g order.Gap
		var epoch, lo, hi, age, since, arrived int64
		var reason, resolution int16
		err := rows.Scan(&g.Key, &epoch, &lo, &hi, &age, &since, &g.Open, &g.Old, &g.Alerted, &g.Asked, &reason, &arrived, &resolution, &g.Actor, &g.Note)
		g.Epoch, g.From, g.To, g.Age, g.Since, g.Arrived = uint64(epoch), number(lo), number(hi), micros(age), micros(since), uint64(arrived)
		g.Reason, g.Resolution = order.Reason(reason), order.Resolution(resolution)
		gaps = append(gaps, g)
		return err
	}, s.sql.gaps, scope, orNil(q.Key), q.After.Key, int64(q.After.Position.Epoch), place(q.After.Position.Number), q.N, q.Unresolved)
	return gaps, err
}

func (s *Store) parked(ctx context.Context, r pgcall.Route, scope string, q order.Query) (parked []order.Message, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var m order.Message
		var epoch, at, age int64
		var text *string
		err := rows.Scan(&m.Key, &epoch, &at, &m.Attempt, &age, &m.Late, &m.ID, &m.Payload, &m.Context, &text)
		m.Position = order.Position{Epoch: uint64(epoch), Number: number(at)}
		m.Age, m.Error = micros(age), orEmpty(text)
		parked = append(parked, m)
		return err
	}, s.sql.parked, scope, orNil(q.Key), q.After.Key, int64(q.After.Position.Epoch), place(q.After.Position.Number), q.N)
	return parked, err
}

func (s *Store) totals(ctx context.Context, r pgcall.Route, scope string) (t order.Totals, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		var oldest int64
		err := rows.Scan(&t.Keys, &t.Buffered, &t.Parked, &t.LateWaiting, &t.OpenGaps, &t.Unresolved, &oldest)
		t.Oldest = micros(oldest)
		return err
	}, s.sql.totals, scope)
	return t, err
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
