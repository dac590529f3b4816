package pginbox

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// How the functions of schema/*.sql are called, and how their numbers are written.

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, modeBusy) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, modeBusy, inbox.ErrInvalid) }

// The modes of inbox_settle.
const (
	modeWait = 0 // for a locked key, and fail as a whole
	modeBusy = 2 // wait, and answer for the key
)

var errorsOf = pgcall.Package{
	Name: "pginbox", Invalid: inbox.ErrInvalid, AtRisk: inbox.ErrAtRisk, Unchecked: inbox.ErrUnchecked,
	Isolation: ErrIsolation, Busy: ErrBusy,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

type statements struct {
	accept, claim, settle, change, list, totals, sweep string
}

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		accept: "SELECT n, answer FROM " + q + ".inbox_accept($1::bigint, $2::integer, $3::integer[], $4::text[], $5::text[], $6::text[]," +
			" $7::bytea[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[]," +
			" $16::bigint[], $17::integer[], $18::bytea[], $19::bytea[], $20::text[], $21::integer[], $22::smallint[], $23::integer[], $24::text[])",
		claim: "SELECT * FROM " + q + ".inbox_claim($1::text, $2::bytea, $3::integer, $4::integer, $5::bigint, $6::bigint," +
			" $7::bigint, $8::bigint, $9::boolean, $10::bigint, $11::bigint, $12::bigint)",
		settle: "SELECT n, ended, followed FROM " + q + ".inbox_settle($1::integer, $2::bigint, $3::bigint, $4::bigint, $5::smallint[]," +
			" $6::text[], $7::text[], $8::bigint[], $9::smallint[], $10::text[], $11::text[], $12::bytea[], $13::smallint[], $14::text[], $15::bigint[]," +
			" $16::bigint[], $17::bigint[])",
		change: "SELECT n, outcome FROM " + q + ".inbox_change($1::bigint, $2::bigint, $3::smallint[], $4::bytea[], $5::text[], $6::bigint[]," +
			" $7::text[], $8::text[])",
		list:   "SELECT * FROM " + q + ".inbox_list($1::text, $2::text, $3::text, $4::integer, $5::bigint, $6::integer)",
		totals: "SELECT pending, done, dead, quarantined, conflicts, unsure, coalesce(oldest, 0) FROM " + q + ".inbox_totals()",
		sweep:  "SELECT removed, looked, next_after, next_key, next_stream FROM " + q + ".inbox_sweep($1::bigint, $2::integer, $3::text, $4::text)",
	}
}

// bigint is a token or a number of a record. None above MaxInt64 is ever given out.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }

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
