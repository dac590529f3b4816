package pgdlq

import (
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// How the functions of schema/*.sql are called, and how their numbers are written.

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, modeBusy) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, modeBound, dlq.ErrInvalid) }

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

var errorsOf = pgcall.Package{
	Name: "pgdlq", Invalid: dlq.ErrInvalid, AtRisk: dlq.ErrAtRisk, Unchecked: dlq.ErrUnchecked, Isolation: ErrIsolation, Busy: ErrBusy,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

type statements struct {
	put, claim, settle, change, saveJob, alert, list, groups, audit, jobs, totals, sweep string
}

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		put: "SELECT n, answer FROM " + q + ".dlq_put($1::integer, $2::bigint, $3::integer[], $4::smallint[], $5::bytea[], $6::text[], $7::text[], $8::text[]," +
			" $9::bytea[], $10::bytea[], $11::bigint[], $12::text[], $13::bytea[], $14::bigint[], $15::boolean[])",
		claim: "SELECT * FROM " + q + ".dlq_claim($1::text, $2::bytea, $3::integer, $4::bigint, $5::bigint)",
		settle: "SELECT n, outcome FROM " + q + ".dlq_settle($1::integer, $2::boolean, $3::bigint, $4::integer[], $5::smallint[], $6::text[]," +
			" $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::bytea[], $13::bigint[])",
		change: "SELECT n, outcome FROM " + q + ".dlq_change($1::integer, $2::boolean, $3::bigint, $4::bigint, $5::smallint[], $6::bytea[]," +
			" $7::text[], $8::text[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[], $13::text[], $14::text[], $15::text[], $16::text[])",
		saveJob: "SELECT * FROM " + q + ".dlq_save_job($1::bigint, $2::text, $3::text, $4::bytea, $5::bigint, $6::bytea, $7::boolean)",
		alert:   "SELECT n, first FROM " + q + ".dlq_alert($1::bytea[], $2::text[], $3::text[], $4::bigint[])",
		list: "SELECT * FROM " + q + ".dlq_list($1::text, $2::text, $3::text, $4::smallint, $5::text, $6::text, $7::bigint, $8::bigint," +
			" $9::bigint, $10::integer, $11::integer, $12::boolean)",
		groups: "SELECT print, waiting, review, first, last FROM " + q + ".dlq_groups($1::text, $2::text, $3::integer)",
		audit: "SELECT what, seq, at, verb, id, letter, job, actor, reason, before, after FROM " + q +
			".dlq_audit($1::text, $2::text, $3::text, $4::bigint, $5::integer, $6::integer)",
		jobs: "SELECT * FROM " + q + ".dlq_list_jobs($1::text, $2::text, false, $3::integer)",
		totals: "SELECT stream, waiting, review, resolved, discarded, rejected, coalesce(oldest, 0) FROM " + q +
			".dlq_totals($1::text, $2::integer)",
		sweep: "SELECT removed, looked, next_stream, next_lane FROM " + q + ".dlq_sweep($1::integer, $2::text, $3::text)",
	}
}

// refusals collects the errors of a batch.
type refusals struct {
	n    int
	errs []error
}

func (r *refusals) refuse(i int, err error) error {
	if i < 0 || i >= r.n || err == nil {
		return fmt.Errorf("an answer to item %d of %d", i+1, r.n)
	}
	if r.errs == nil {
		r.errs = make([]error, r.n)
	}
	r.errs[i] = err
	return nil
}

// bigint is a token, or the number of a letter. None above MaxInt64 is ever given out.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

func at(micro *int64) time.Time {
	if micro == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micro)
}
