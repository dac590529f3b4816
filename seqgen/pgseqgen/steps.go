package pgseqgen

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/seqgen"
)

// Modes of seqgen_lock in schema/0001_sequences.sql.
const (
	modeBusy  = 1 // a key that stays locked is answered for, and does not fail the call
	modeBound = 2 // to the caller's transaction
)

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, modeBusy) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, modeBound, seqgen.ErrInvalid) }

var errorsOf = pgcall.Package{
	Name: "pgseqgen", Invalid: seqgen.ErrInvalid, AtRisk: seqgen.ErrAtRisk, Unchecked: seqgen.ErrUnchecked,
	Isolation: ErrIsolation, Busy: ErrBusy,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

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

func (s *Store) reserve(ctx context.Context, r pgcall.Route, p seqgen.Params, asks []seqgen.Ask) ([]seqgen.Grant, error) {
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
	err := r.CallLocking(ctx, func(rows pgx.Rows) error {
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
	}, s.sql.reserve, p.Scope, p.Retention.Microseconds(), keys, modes, counts, nonces, seenEpochs, seenNumbers, opens, tokens, useds)
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

func (s *Store) settle(ctx context.Context, r pgcall.Route, p seqgen.Params, changes []seqgen.Change) ([]seqgen.Outcome, error) {
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
	err := r.CallLocking(ctx, func(rows pgx.Rows) error {
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
	}, s.sql.settle, p.Scope, p.Retention.Microseconds(), keys, kinds, epochs, tokens, los, his, nonces, reasons)
	if err == nil && read != n {
		err = fmt.Errorf("%d answers to %d changes", read, n)
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *Store) look(ctx context.Context, r pgcall.Route, scope string, keys []string) ([]seqgen.State, error) {
	states := make([]seqgen.State, len(keys))
	places := map[string][]int{}
	for i, key := range keys {
		states[i].Key = key
		places[key] = append(places[key], i)
	}
	err := r.Call(ctx, func(rows pgx.Rows) error {
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

func (s *Store) voids(ctx context.Context, r pgcall.Route, q seqgen.VoidQuery) (voids []seqgen.Void, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
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
