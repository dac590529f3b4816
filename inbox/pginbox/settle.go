package pginbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// maxSettlements is how many settlements one call carries.
const maxSettlements = 4096

// settle sends settlements in as few calls as it can.
func (s *Store) settle(ctx context.Context, r pgcall.Route, p inbox.Params, settlements []inbox.Settlement) ([]error, error) {
	var refused []error
	for from := 0; from < len(settlements); from += maxSettlements {
		some := settlements[from:min(from+maxSettlements, len(settlements))]
		err := s.settleChunk(ctx, r, p, some, func(i int, err error) {
			if refused == nil {
				refused = make([]error, len(settlements))
			}
			refused[from+i] = err
		})
		if err != nil {
			return nil, err // what was applied is found to be so when it is sent again
		}
	}
	return refused, nil
}

// A move is what one call does about a key: end a record, and then go on with the
// next, or give the key back, or extend its lease.
type move struct {
	round        int
	stream, key  string
	end, follow  *inbox.Settlement // either may be nil
	endAt, folAt int               // their places in the batch
}

// token is that of both.
func (m *move) token() uint64 {
	if m.end != nil {
		return m.end.Token
	}
	return m.follow.Token
}

// takes adds a settlement to the move, if it can be part of it.
func (m *move) takes(s *inbox.Settlement, at int) bool {
	switch {
	case m.token() != s.Token || m.follow != nil || m.end.Kind == inbox.KindRetry:
		return false
	case s.Kind == inbox.KindBegin && s.ID == m.end.ID: // it is stale once the end has been applied
		return false
	case s.Kind == inbox.KindBegin, s.Kind == inbox.KindRelease, s.Kind == inbox.KindExtend:
		m.follow, m.folAt = s, at
		return true
	}
	return false
}

// moves makes a batch into moves. Those of a key have rising rounds, and take
// effect one after another.
func moves(settlements []inbox.Settlement) []move {
	type name struct{ stream, key string }
	all := make([]move, 0, len(settlements))
	last := make(map[name]int, len(settlements))
	for i := range settlements {
		s := &settlements[i]
		k := name{s.Stream, s.Key}
		at, known := last[k]
		if known && all[at].takes(s, i) {
			continue
		}
		m := move{round: 1, stream: s.Stream, key: s.Key}
		if known {
			m.round = all[at].round + 1
		}
		switch s.Kind {
		case inbox.KindBegin, inbox.KindRelease, inbox.KindExtend:
			m.follow, m.folAt = s, i
		default:
			m.end, m.endAt = s, i
		}
		last[k] = len(all)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b move) int {
		return cmp.Or(a.round-b.round, strings.Compare(a.stream, b.stream), strings.Compare(a.key, b.key))
	})
	return all
}

func (s *Store) settleChunk(ctx context.Context, r pgcall.Route, p inbox.Params, settlements []inbox.Settlement, refuse func(int, error)) error {
	all := moves(settlements)
	n := len(all)
	rounds, ends, follows := make([]int16, n), make([]int16, n), make([]int16, n)
	streams, keys, ids := make([]string, n), make([]string, n), make([]string, n)
	tokens := make([]int64, n)
	var errors, followIDs []string
	var failures [][]byte
	var times, seqs, followSeqs []int64
	for k := range all {
		m := &all[k]
		rounds[k], streams[k], keys[k], tokens[k] = int16(m.round), m.stream, m.key, bigint(m.token())
		if e := m.end; e != nil {
			ends[k], ids[k] = int16(e.Kind), e.ID
			set(&seqs, n, k, bigint(e.Seq))
			set(&errors, n, k, e.Error)
			set(&times, n, k, e.Delay.Microseconds())
			if len(e.Failures) > 0 && e.Kind != inbox.KindDone {
				if failures == nil {
					failures = make([][]byte, n)
				}
				failures[k] = packFailures(e.Failures)
			}
		}
		if f := m.follow; f != nil {
			follows[k] = int16(f.Kind)
			set(&followIDs, n, k, f.ID)
			set(&followSeqs, n, k, bigint(f.Seq))
			set(&times, n, k, f.Lease.Microseconds())
		}
	}
	read := func(rows pgx.Rows) error {
		var k, ended, followed int
		if err := rows.Scan(&k, &ended, &followed); err != nil {
			return err
		}
		if k < 1 || k > n {
			return fmt.Errorf("an answer to settlement %d of %d", k, n)
		}
		m := &all[k-1]
		if err := refusals[ended]; err != nil && m.end != nil {
			refuse(m.endAt, err)
		}
		if err := refusals[followed]; err != nil && m.follow != nil {
			refuse(m.folAt, err)
		}
		return nil
	}
	send := func(mode int) error {
		return r.Call(ctx, read, s.sql.settle, mode, p.Retention.Microseconds(), p.Keep.Microseconds(), p.Bodies.Microseconds(),
			rounds, streams, keys, tokens, ends, ids, errors, failures, follows, followIDs, times, seqs, followSeqs)
	}
	if r.Bound {
		return send(modeBusy)
	}
	err := send(modeWait)
	if pgcall.HasCode(err, pgcall.Locked) {
		err = send(modeBusy)
	}
	return err
}

var refusals = map[int]error{
	1: inbox.ErrStale,
	2: fmt.Errorf("pginbox: settle: %w", ErrBusy),
}
