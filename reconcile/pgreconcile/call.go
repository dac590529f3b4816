package pgreconcile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/reconcile"
)

// How the functions of schema/*.sql are called, and how their numbers are written.

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, modeBusy) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, modeBound, reconcile.ErrInvalid) }

// The modes of a step.
const (
	modeWait  = 0 // for what is locked, and fail as a whole
	modeBound = 1 // in the caller's transaction: wait, and answer for what stays locked
	modeBusy  = 2 // wait, and answer for it
)

// deadlock is how a server ends a transaction that waits in a circle.
const deadlock = "40P01"

// mode is that of a first attempt.
func mode(r pgcall.Route) int {
	if r.Bound {
		return modeBound
	}
	return modeWait
}

// again sends a step. Alone, one that was ended by a deadlock has done nothing, and is
// sent again.
func again(r pgcall.Route, mode int, send func(mode int) error) error {
	err := send(mode)
	for range 5 {
		if r.Bound || !pgcall.HasCode(err, deadlock) {
			break
		}
		err = send(mode)
	}
	return err
}

// locking is again for steps that can answer for what is locked. One that waited too
// long is sent again in the busy mode, which is dearer.
func locking(r pgcall.Route, send func(mode int) error) error {
	err := again(r, mode(r), send)
	if !r.Bound && pgcall.HasCode(err, pgcall.Locked) {
		err = again(r, modeBusy, send)
	}
	return err
}

// locked is the answer of a step for what another transaction has locked.
const locked = 9

var errorsOf = pgcall.Package{
	Name: "pgreconcile", Invalid: reconcile.ErrInvalid, AtRisk: reconcile.ErrAtRisk, Unchecked: reconcile.ErrUnchecked, Isolation: ErrIsolation, Busy: ErrBusy,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

type statements struct {
	begin, claim, settle, list, counts, sweep, appends, history, forget, sweepTimeline string
	report, claimFindings, listFindings, openFindings, count, volumes, sweepChecks     string
}

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	const finding = "SELECT now, (f).version, (f).first, (f).last, (f).opened, (f).due, (f).expires, (f).count, (f).times, (f).dropped, (f).state," +
		" (f).kind, (f).name, (f).subject, (f).account, (f).detail, (f).told_by, (f).note, (f).log FROM "
	return statements{
		begin: "SELECT * FROM " + q + ".reconcile_begin($1::integer, $2::text, $3::bigint, $4::bigint, $5::boolean[]," +
			" $6::bytea[], $7::text[], $8::text[], $9::bytea[], $10::bytea[])",
		claim: "SELECT * FROM " + q + ".reconcile_claim($1::text, $2::bigint, $3::bytea, $4::integer)",
		settle: "SELECT n, outcome FROM " + q + ".reconcile_settle($1::integer, $2::text, $3::bigint, $4::bigint, $5::boolean[], $6::smallint[], $7::text[]," +
			" $8::bigint[], $9::bytea[], $10::smallint[], $11::bytea[], $12::boolean[], $13::boolean[], $14::bigint[], $15::bigint[], $16::text[], $17::text[])",
		list: "SELECT * FROM " + q + ".reconcile_list($1::text, $2::text, $3::text, $4::integer, $5::boolean, $6::boolean, $7::text, $8::integer)",
		counts: "SELECT account, t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], coalesce(age, 0) FROM " + q +
			".reconcile_counted($1::text, $2::text, $3::boolean, $4::integer)",
		sweep: "SELECT removed, looked, next_kind, next_key FROM " + q + ".reconcile_sweep($1::integer, $2::text, $3::text)",
		appends: "SELECT n, answer FROM " + q + ".reconcile_append($1::text, $2::bigint, $3::bigint, $4::integer, $5::bigint, $6::integer[], $7::bigint[]," +
			" $8::bytea[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])",
		history: "SELECT nth, received, said, absurd, digest, event, subject, own, status, participant, source, code FROM " + q +
			".reconcile_history($1::text, $2::text, $3::text, $4::text, $5::integer)",
		report: "SELECT * FROM " + q + ".reconcile_report($1::text, $2::integer, $3::bigint, $4::bigint, $5::smallint[], $6::text[], $7::text[], $8::bytea[]," +
			" $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[])",
		claimFindings: finding + q + ".reconcile_claim_findings($1::text, $2::text, $3::integer, $4::bigint)",
		listFindings: finding + q + ".reconcile_list_findings($1::text, $2::text, $3::text, $4::text, $5::integer, $6::boolean, $7::text, $8::text," +
			" $9::integer)",
		openFindings:  "SELECT name, suspected, open, acknowledged, coalesce(age, 0) FROM " + q + ".reconcile_open_findings($1::text)",
		count:         "SELECT " + q + ".reconcile_count($1::text, $2::bigint, $3::text[], $4::bigint[], $5::bytea[], $6::bigint[])",
		volumes:       "SELECT series, since, sums FROM " + q + ".reconcile_volumes($1::text, $2::text, $3::integer, $4::bigint[])",
		sweepChecks:   "SELECT removed, looked FROM " + q + ".reconcile_sweep_checks($1::integer)",
		forget:        "SELECT " + q + ".reconcile_forget($1::text, $2::text, $3::text, $4::text)",
		sweepTimeline: "SELECT removed, looked, next_kind, next_subject FROM " + q + ".reconcile_sweep_timeline($1::integer, $2::text, $3::text)",
	}
}

// batch says how many items go into one call: at most most, and bytes of them, unless a
// single item is larger. A message to the server is limited to 1 GB.
func batch(items, most int, size func(i int) int) int {
	bytes := 0
	for i := range items {
		if bytes += size(i); i > 0 && (bytes > maxBytes || i >= most) {
			return i
		}
	}
	return items
}

const maxBytes = 32 << 20

// sorted returns the places of n items in the order of their names, in which they lock;
// those of one name stay in order. alone says of each place whether it is the only one
// of its name.
func sorted(n int, name func(i int) string) (places []int, alone []bool) {
	places, alone = make([]int, n), make([]bool, n)
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(i, j int) int {
		return cmp.Or(strings.Compare(name(i), name(j)), cmp.Compare(i, j)) // faster than a stable sort
	})
	for k, i := range places {
		alone[i] = (k == 0 || name(places[k-1]) != name(i)) && (k == n-1 || name(places[k+1]) != name(i))
	}
	return places, alone
}

// errAnswers is of a server whose functions are not those of this package.
func errAnswers(n, of int, what string) error {
	return fmt.Errorf("an answer to %s %d of %d", what, n, of)
}

var errNoAnswer = errors.New("the server answered nothing")

// bigint is a token. None above MaxInt64 is ever given out.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
