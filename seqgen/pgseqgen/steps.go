package pgseqgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/seqgen"
)

// A route is how calls reach the server: each in a transaction of its own, or
// all in the caller's.
type route struct {
	call func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error
	mode int // of seqgen_lock in schema/0001_sequences.sql
}

const (
	modeWait  = 0 // for a key that is locked, and fail as a whole when that takes long
	modeBusy  = 1 // wait as long, and answer for such a key that it is busy
	modeBound = 2 // to the caller's transaction
)

// unbound is the route of calls in transactions of their own. Where the
// database's default isolation is above READ COMMITTED the call refuses it, and
// is sent again with the isolation it needs. Where a key stays locked, nothing
// was done, and the call is sent again to do what can be done without that key.
func (s *Store) unbound() route {
	var do func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error
	do = func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
		err := call(ctx, s.pool, read, sql, args...)
		if hasCode(err, "25000") {
			err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return call(ctx, tx, read, sql, args...)
			})
		}
		if hasCode(err, "55P03") && args[1] == modeWait {
			args = slices.Clone(args)
			args[1] = modeBusy
			return do(ctx, read, sql, args...)
		}
		return err
	}
	return route{call: do}
}

// within is the route of calls in the caller's transaction.
func within(tx pgx.Tx) route {
	return route{mode: modeBound, call: func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
		return call(ctx, tx, read, sql, args...)
	}}
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func call(ctx context.Context, q querier, read func(pgx.Rows) error, sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type statements struct{ reserve, settle, look, voids, sweep string }

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		reserve: "SELECT n, outcome, at_epoch, lo, hi, at_token, void_epoch, void_lo, void_hi, mode FROM " + q +
			".seqgen_reserve($1::text, $2::integer, $3::bigint, $4::text[], $5::smallint[], $6::integer[], $7::bytea[]," +
			" $8::bigint[], $9::bigint[], $10::boolean[], $11::bigint[], $12::bigint[])",
		settle: "SELECT n, outcome, new_epoch, void_epoch, void_lo, void_hi FROM " + q +
			".seqgen_settle($1::text, $2::integer, $3::bigint, $4::text[], $5::smallint[], $6::bigint[], $7::bigint[]," +
			" $8::bigint[], $9::bigint[], $10::bytea[], $11::smallint[])",
		look: "SELECT key, epoch, last, mode, token, owned, used FROM " + q +
			".seqgen_keys WHERE scope = $1::text AND key = ANY ($2::text[])",
		voids: "SELECT epoch, lo, hi, kind, reason, at FROM " + q + ".seqgen_voids WHERE scope = $1::text AND key = $2::text" +
			" AND epoch = $3::bigint AND lo <= $5::bigint AND hi >= $4::bigint ORDER BY scope, key, epoch, lo LIMIT $6::integer",
		sweep: "SELECT " + q + ".seqgen_sweep($1::integer)",
	}
}

func (s *Store) reserve(ctx context.Context, r route, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
	n := len(asks)
	sorted := byKey(n, func(i int) string { return asks[i].Key })
	keys, modes, counts, nonces := make([]string, n), make([]int16, n), make([]int32, n), make([][]byte, n)
	seenEpochs, seenNumbers, opens := make([]int64, n), make([]int64, n), make([]bool, n)
	tokens, useds := make([]int64, n), make([]int64, n)
	for k, i := range sorted {
		a := &asks[i]
		keys[k], modes[k], counts[k], nonces[k] = a.Key, int16(a.Mode), int32(a.N), a.Nonce[:]
		seenEpochs[k], seenNumbers[k] = int64(a.Seen.Epoch), int64(a.Seen.Number)
		opens[k], tokens[k], useds[k] = a.Open, int64(a.Token), int64(a.Used)
	}
	grants := make([]seqgen.Grant, n)
	read := 0
	err := r.call(ctx, func(rows pgx.Rows) error {
		var k int
		var outcome, mode int16
		var epoch, lo, hi, token, voidEpoch, voidLo, voidHi int64
		if err := rows.Scan(&k, &outcome, &epoch, &lo, &hi, &token, &voidEpoch, &voidLo, &voidHi, &mode); err != nil {
			return err
		}
		g := &grants[sorted[k-1]]
		switch outcome {
		case 0:
			*g = seqgen.Grant{Epoch: uint64(epoch), Lo: uint64(lo), Hi: uint64(hi), Token: uint64(token),
				Orphaned: seqgen.Range{Epoch: uint64(voidEpoch), Lo: uint64(voidLo), Hi: uint64(voidHi)}}
		case 2:
			*g = seqgen.Grant{Err: seqgen.ErrRolledBack, Stored: seqgen.Position{Epoch: uint64(epoch), Number: uint64(lo)}}
		default:
			*g = seqgen.Grant{Err: refusals[outcome], Mode: seqgen.Mode(mode)}
		}
		read++
		return nil
	}, s.sql.reserve, p.Scope, r.mode, p.Retention.Microseconds(), keys, modes, counts, nonces, seenEpochs, seenNumbers, opens, tokens, useds)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d asks", read, n)
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

var refusals = map[int16]error{
	1: seqgen.ErrStale, 3: seqgen.ErrExhausted, 4: seqgen.ErrMode, 5: ErrBusy,
}

func (s *Store) settle(ctx context.Context, r route, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
	n := len(changes)
	sorted := byKey(n, func(i int) string { return changes[i].Key })
	keys, kinds, reasons, nonces := make([]string, n), make([]int16, n), make([]int16, n), make([][]byte, n)
	epochs, tokens, los, his := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for k, i := range sorted {
		c := &changes[i]
		keys[k], kinds[k], reasons[k], nonces[k] = c.Key, int16(c.Kind), int16(c.Reason), c.Nonce[:]
		epochs[k], tokens[k], los[k], his[k] = int64(c.Epoch), int64(c.Token), int64(c.Lo), int64(c.Hi)
	}
	outcomes := make([]seqgen.Outcome, n)
	read := 0
	err := r.call(ctx, func(rows pgx.Rows) error {
		var k int
		var outcome int16
		var epoch, voidEpoch, lo, hi int64
		if err := rows.Scan(&k, &outcome, &epoch, &voidEpoch, &lo, &hi); err != nil {
			return err
		}
		o := &outcomes[sorted[k-1]]
		switch outcome {
		case 0:
			*o = seqgen.Outcome{Epoch: uint64(epoch), Void: seqgen.Range{Epoch: uint64(voidEpoch), Lo: uint64(lo), Hi: uint64(hi)}}
		case 2:
			*o = seqgen.Outcome{Err: seqgen.ErrRolledBack, Stored: seqgen.Position{Epoch: uint64(voidEpoch), Number: uint64(lo)}}
		default:
			*o = seqgen.Outcome{Err: refusals[outcome]}
		}
		read++
		return nil
	}, s.sql.settle, p.Scope, r.mode, p.Retention.Microseconds(), keys, kinds, epochs, tokens, los, his, nonces, reasons)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d changes", read, n)
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *Store) look(ctx context.Context, r route, scope string, keys []string) ([]seqgen.State, error) {
	states := make([]seqgen.State, len(keys))
	places := map[string][]int{}
	for i, key := range keys {
		states[i].Key = key
		places[key] = append(places[key], i)
	}
	err := r.call(ctx, func(rows pgx.Rows) error {
		var st seqgen.State
		var epoch, last, token, used int64
		var mode int16
		err := rows.Scan(&st.Key, &epoch, &last, &mode, &token, &st.Owned, &used)
		st.Epoch, st.Last, st.Token, st.Used, st.Mode = uint64(epoch), uint64(last), uint64(token), uint64(used), seqgen.Mode(mode)
		for _, i := range places[st.Key] {
			states[i] = st
		}
		return err
	}, s.sql.look, scope, keys)
	if err != nil {
		return nil, err
	}
	return states, nil
}

func (s *Store) voids(ctx context.Context, r route, q seqgen.VoidQuery) (voids []seqgen.Void, err error) {
	err = r.call(ctx, func(rows pgx.Rows) error {
		var epoch, lo, hi, at int64
		var kind, reason int16
		err := rows.Scan(&epoch, &lo, &hi, &kind, &reason, &at)
		voids = append(voids, seqgen.Void{Key: q.Key, Epoch: uint64(epoch), Lo: uint64(lo), Hi: uint64(hi),
			Kind: seqgen.VoidKind(kind), Reason: seqgen.Reason(reason), At: micros(at)})
		return err
	}, s.sql.voids, q.Scope, q.Key, int64(q.Epoch), int64(q.From), int64(q.To), q.Limit)
	return voids, err
}

// byKey returns the places of a batch, sorted by key, and each key's in order.
func byKey(n int, key func(int) string) []int {
	sorted := make([]int, n)
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return strings.Compare(key(a), key(b)) })
	return sorted
}

// wrap adds the package and the operation to an error of the server, and what to
// do where the functions are missing.
func (s *Store) wrap(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case hasCode(err, "25000"):
		return fmt.Errorf("pgseqgen: %s: %w: %w: %w", step, seqgen.ErrInvalid, ErrIsolation, err)
	case hasCode(err, "42883", "42P01", "3F000"): // undefined function, table, schema
		return fmt.Errorf("pgseqgen: %s: schema %q: %w: %w", step, s.schema, pgschema.ErrNotMigrated, err)
	case hasCode(err, "55P03"):
		return fmt.Errorf("pgseqgen: %s: %w: %w", step, ErrBusy, err)
	}
	return fmt.Errorf("pgseqgen: %s: %w", step, err)
}

// hasCode says whether the server ended the statement with one of the codes of
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
func hasCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
