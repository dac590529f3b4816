package pgwatchdog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

type statements struct{ beat, list, act string }

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		beat: "SELECT n, outcome, at_token FROM " + q + ".watchdog_beat($1::text, $2::integer, $3::text[], $4::bytea[], $5::boolean[]," +
			" $6::boolean[], $7::bigint[], $8::bigint[], $9::smallint[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[]," +
			" $14::bigint[], $15::boolean[])",
		list: "SELECT now, coalesce((worker).name, ''), coalesce((worker).token, 0), coalesce((worker).seq, 0), coalesce((worker).every, 0)," +
			" coalesce((worker).said, 0), coalesce((worker).detail, ''), coalesce((worker).position, 0), coalesce((worker).pending, 0)," +
			" coalesce((worker).busy, false), coalesce((worker).has_left, false), coalesce((worker).joined_at, 0)," +
			" coalesce((worker).state_at, 0), coalesce((worker).beat_at, 0), coalesce((worker).stalled, 0), coalesce((worker).quiet, 0)," +
			" coalesce((worker).running, 0), coalesce((worker).attempts, 0), coalesce((worker).given_up, false)," +
			" coalesce((worker).claim, 0), coalesce((worker).next_at, 0), coalesce((worker).acted_at, 0)" +
			" FROM " + q + ".watchdog_list($1::text, $2::text, $3::integer)",
		act: "SELECT n, outcome, at_claim, attempt, first FROM " + q + ".watchdog_act($1::text, $2::text[], $3::smallint[], $4::bytea[]," +
			" $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[])",
	}
}

// route is how steps reach the server: each in a transaction of its own.
func (s *Store) route() pgcall.Route { return pgcall.Alone(s.pool, 0) }

var refusals = map[int16]error{1: watchdog.ErrGone, 2: watchdog.ErrFenced, 3: watchdog.ErrFull}

// Beat implements [watchdog.Store]. It is one round trip and one transaction.
func (s *Store) Beat(ctx context.Context, p watchdog.Params, beats []watchdog.Beat) ([]watchdog.Ack, error) {
	if err := ctx.Err(); err != nil {
		return nil, s.wrap("beat", err)
	}
	n := len(beats)
	sorted := byName(n, func(i int) string { return beats[i].Name })
	names, nonces, details := make([]string, n), make([][]byte, n), make([]string, n)
	joins, leaves, busies, states := make([]bool, n), make([]bool, n), make([]bool, n), make([]int16, n)
	seqs, everies, positions := make([]int64, n), make([]int64, n), make([]int64, n)
	pendings, turns, handlers := make([]int64, n), make([]int64, n), make([]int64, n)
	for k, i := range sorted {
		b := &beats[i]
		names[k], nonces[k], details[k] = b.Name, b.Nonce[:], b.Detail
		joins[k], leaves[k], busies[k], states[k] = b.Join, b.Leave, b.Busy, int16(b.State)
		seqs[k], everies[k], positions[k] = int64(b.Seq), micros(b.Interval), int64(b.Position)
		pendings[k], turns[k], handlers[k] = int64(b.Pending), int64(b.Turns), int64(b.Handler)
	}
	acks := make([]watchdog.Ack, n)
	read := 0
	err := s.route().Call(ctx, func(rows pgx.Rows) error {
		var k int
		var outcome int16
		var token int64
		if err := rows.Scan(&k, &outcome, &token); err != nil {
			return err
		}
		acks[sorted[k-1]] = watchdog.Ack{Token: uint64(token), Err: refusals[outcome]}
		read++
		return nil
	}, s.sql.beat, p.Scope, p.Most, names, nonces, joins, leaves, seqs, everies, states, details, positions, pendings, turns, handlers, busies)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d beats", read, n)
	}
	if err != nil {
		return nil, s.wrap("beat", err)
	}
	return acks, nil
}

// List implements [watchdog.Store].
func (s *Store) List(ctx context.Context, scope, after string, limit int) (watchdog.Page, error) {
	var page watchdog.Page
	if err := ctx.Err(); err != nil {
		return page, s.wrap("list", err)
	}
	err := s.route().Call(ctx, func(rows pgx.Rows) error {
		var e watchdog.Entry
		var now, token, seq, every, position, pending, joined, state, beat, stalled, quiet, running, claim, next, acted int64
		var said int16
		err := rows.Scan(&now, &e.Name, &token, &seq, &every, &said, &e.Detail, &position, &pending, &e.Busy, &e.Left, &joined, &state, &beat,
			&stalled, &quiet, &running, &e.Attempts, &e.GivenUp, &claim, &next, &acted)
		if err != nil || e.Name == "" {
			page.Now = at(now)
			return err
		}
		e.Token, e.Seq, e.Interval, e.Said = uint64(token), uint64(seq), duration(every), watchdog.State(said)
		e.Position, e.Pending, e.Claim = uint64(position), uint64(pending), uint64(claim)
		e.JoinedAt, e.StateAt, e.BeatAt, e.NextAt, e.ActedAt = at(joined), at(state), at(beat), at(next), at(acted)
		e.Stalled, e.Quiet, e.Running = duration(stalled), duration(quiet), duration(running)
		page.Records = append(page.Records, e)
		return nil
	}, s.sql.list, scope, after, limit)
	if err != nil {
		return watchdog.Page{}, s.wrap("list", err)
	}
	return page, nil
}

var actRefusals = map[int16]error{1: watchdog.ErrGone, 2: watchdog.ErrChanged, 3: watchdog.ErrBusy, 4: watchdog.ErrGivenUp}

// Act implements [watchdog.Store]. It is one round trip and one transaction.
func (s *Store) Act(ctx context.Context, scope string, actions []watchdog.Action) ([]watchdog.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, s.wrap("act", err)
	}
	n := len(actions)
	sorted := byName(n, func(i int) string { return actions[i].Name })
	names, kinds, nonces, mosts := make([]string, n), make([]int16, n), make([][]byte, n), make([]int32, n)
	tokens, seqs, stalleds := make([]int64, n), make([]int64, n), make([]int64, n)
	quiets, claims, waits := make([]int64, n), make([]int64, n), make([]int64, n)
	for k, i := range sorted {
		a := &actions[i]
		names[k], kinds[k], nonces[k], mosts[k] = a.Name, int16(a.Kind), a.Nonce[:], int32(a.Most)
		tokens[k], seqs[k], stalleds[k] = int64(a.Token), int64(a.Seq), micros(a.Stalled)
		quiets[k], claims[k], waits[k] = micros(a.Quiet), int64(a.Claim), micros(a.Wait)
	}
	outcomes := make([]watchdog.Outcome, n)
	read := 0
	err := s.route().Call(ctx, func(rows pgx.Rows) error {
		var k int
		var outcome int16
		var claim int64
		var o watchdog.Outcome
		if err := rows.Scan(&k, &outcome, &claim, &o.Attempt, &o.First); err != nil {
			return err
		}
		o.Claim, o.Err = uint64(claim), actRefusals[outcome]
		outcomes[sorted[k-1]] = o
		read++
		return nil
	}, s.sql.act, scope, names, kinds, nonces, tokens, seqs, stalleds, quiets, claims, waits, mosts)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d actions", read, n)
	}
	if err != nil {
		return nil, s.wrap("act", err)
	}
	return outcomes, nil
}

// byName returns the places of a batch, sorted by name, and each name's in order.
func byName(n int, name func(int) string) []int {
	sorted := make([]int, n)
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return strings.Compare(name(a), name(b)) })
	return sorted
}

// micros rounds up, so that nothing ends early.
func micros(d time.Duration) int64 {
	return int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond)
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }

func at(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
