package pgdlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// maxSettlements is how many settlements one call carries.
const maxSettlements = 1000

// settle sends settlements in as few calls as it can.
func (s *Store) settle(ctx context.Context, r pgcall.Route, p dlq.Params, settlements []dlq.Settlement) ([]error, error) {
	refused := &refusals{n: len(settlements)}
	for from := 0; from < len(settlements); from += maxSettlements {
		some := settlements[from:min(from+maxSettlements, len(settlements))]
		if err := s.settleChunk(ctx, r, p, some, from, refused); err != nil {
			return nil, err // what was applied is found to be so when it is sent again
		}
	}
	return refused.errs, nil
}

func (s *Store) settleChunk(ctx context.Context, r pgcall.Route, p dlq.Params, settlements []dlq.Settlement, from int, refused *refusals) error {
	n := len(settlements)
	places := sorted(settlements)
	kinds, tokens, seqs, times, delays := make([]int16, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	streams, lanes, prints := make([]string, n), make([]string, n), make([]string, n)
	details := make([][]byte, n)
	resolves, seen := true, make(map[uint64]bool, n)
	for k, place := range places {
		t := &settlements[place]
		kinds[k], streams[k], lanes[k], tokens[k], seqs[k] = int16(t.Kind), t.Stream, t.Lane, bigint(t.Token), bigint(t.Seq)
		resolves = resolves && t.Kind == dlq.KindResolve && t.Token > 0 && !seen[t.Seq] &&
			(k == 0 || lanes[k] != lanes[k-1] || streams[k] != streams[k-1])
		seen[t.Seq] = true
		switch t.Kind {
		case dlq.KindRetry, dlq.KindReview:
			times[k], prints[k], details[k], delays[k] = t.Failure.At.UnixMicro(), t.Failure.Fingerprint, t.Failure.Detail, t.Delay.Microseconds()
		case dlq.KindExtend:
			delays[k] = t.Lease.Microseconds()
		}
	}
	return locking(r, func(mode int) error {
		return r.Call(ctx, func(rows pgx.Rows) error {
			var k, outcome int
			if err := rows.Scan(&k, &outcome); err != nil {
				return err
			}
			if k < 1 || k > n {
				return fmt.Errorf("an answer to settlement %d of %d", k, n)
			}
			return refused.refuse(from+int(places[k-1]), unsettled[outcome])
		}, s.sql.settle, mode, resolves, p.Retention.Microseconds(), places, kinds, streams, lanes, tokens, seqs, times, prints, details, delays)
	})
}

var unsettled = map[int]error{1: dlq.ErrStale, 2: fmt.Errorf("pgdlq: settle: %w", ErrBusy)}

// sorted returns the places of settlements in the order in which they lock.
func sorted(settlements []dlq.Settlement) []int32 {
	places := make([]int32, len(settlements))
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortFunc(places, func(i, j int32) int {
		a, b := &settlements[i], &settlements[j]
		return cmp.Or(strings.Compare(a.Stream, b.Stream), strings.Compare(a.Lane, b.Lane), cmp.Compare(i, j))
	})
	return places
}
