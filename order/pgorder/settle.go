package pgorder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/order"
)

// settle sends all settlements in one call, sorted by key. Columns that nobody
// uses are not sent.
func (s *Store) settle(ctx context.Context, r pgcall.Route, p order.Params, settlements []order.Settlement) ([]error, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	n := len(settlements)
	sorted := make([]int, n)
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		return strings.Compare(settlements[a].Key, settlements[b].Key)
	})
	keys, kinds := make([]string, n), make([]int16, n)
	tokens, epochs, froms, tos := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	var errors, actors, notes []string
	var delays, leases []int64
	var flags []bool
	var asked []int32
	var reasons, resolutions []int16
	for k, i := range sorted {
		a := &settlements[i]
		keys[k], kinds[k] = a.Key, int16(a.Kind)
		tokens[k], epochs[k], froms[k], tos[k] = bigint(a.Token), int64(a.Epoch), place(a.From), place(a.To)
		set(&errors, n, k, a.Error)
		set(&actors, n, k, a.Actor)
		set(&notes, n, k, a.Note)
		set(&delays, n, k, a.Delay.Microseconds())
		set(&leases, n, k, a.Lease.Microseconds())
		set(&flags, n, k, a.Alerted && (a.Kind == order.KindWait || a.Kind == order.KindSkip) || a.Unbegun && a.Kind == order.KindRelease)
		set(&asked, n, k, int32(a.Asked))
		set(&reasons, n, k, int16(a.Reason))
		set(&resolutions, n, k, int16(a.Resolution))
	}
	var refused []error
	err := r.CallLocking(ctx, func(rows pgx.Rows) error {
		var k, outcome int
		if err := rows.Scan(&k, &outcome); err != nil {
			return err
		}
		if k < 1 || k > n {
			return fmt.Errorf("an answer to settlement %d of %d", k, n)
		}
		if refused == nil {
			refused = make([]error, n)
		}
		refused[sorted[k-1]] = refusals[outcome]
		return nil
	}, s.sql.settle, p.Scope, place(p.Start), bigint(p.MaxAhead), p.Abandon, int64(p.Window), p.GapLook.Microseconds(), p.KeepBody.Microseconds(),
		keys, kinds, tokens, epochs, froms, tos, errors, delays, leases, flags, asked, reasons, resolutions, actors, notes)
	if err != nil {
		return nil, err
	}
	return refused, nil
}

var refusals = map[int]error{
	1: order.ErrStale,
	2: order.ErrNotFound,
	3: order.ErrTooFar,
	4: fmt.Errorf("pgorder: settle: %w", ErrBusy),
}

// set writes an item of a column that is nil as long as all are zero.
func set[T comparable](column *[]T, n, k int, v T) {
	var zero T
	if v == zero {
		return
	}
	if *column == nil {
		*column = make([]T, n)
	}
	(*column)[k] = v
}
