package pgorder

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
	"github.com/pawl-go/pawl/order"
)

// How the functions of schema/*.sql are called, and how their numbers are written.

// modeBusy is the mode of order_lock in schema/0001_tables.sql in which a key that
// stays locked is answered for, and does not fail the call.
const modeBusy = 2

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, modeBusy) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, modeBusy, order.ErrInvalid) }

var errorsOf = pgcall.Package{
	Name: "pgorder", Invalid: order.ErrInvalid, AtRisk: order.ErrAtRisk, Unchecked: order.ErrUnchecked,
	Isolation: ErrIsolation, Busy: ErrBusy,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

type statements struct {
	push, claim, settle, deliver, account, find, gaps, parked, totals, sweep string
}

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		push: "SELECT n, answer, at_epoch, at_place, elsewhere FROM " + q + ".order_push($1::text, $2::integer, $3::bigint, $4::bigint," +
			" $5::bigint, $6::boolean, $7::boolean, $8::bigint, $9::bigint, $10::text[], $11::bigint[], $12::bigint[], $13::text[]," +
			" $14::bytea[], $15::bytea[], $16::bytea[], $17::boolean[])",
		claim: "SELECT what, at_key, coalesce(at_token, 0), coalesce(remains, 0), coalesce(at_epoch, 0), coalesce(at_place, 0)," +
			" coalesce(stop, 0), coalesce(tries, 0), coalesce(age, 0), coalesce(flag, false), coalesce(old, false)," +
			" has_id, has_payload, has_context, has_error FROM " + q + ".order_claim($1::text, $2::bytea, $3::integer, $4::integer, $5::integer, $6::bigint, $7::bigint)",
		settle: "SELECT n, outcome FROM " + q + ".order_settle($1::text, $2::integer, $3::bigint, $4::bigint, $5::boolean, $6::bigint," +
			" $7::bigint, $8::bigint, $9::text[], $10::smallint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[]," +
			" $16::bigint[], $17::bigint[], $18::boolean[], $19::integer[], $20::smallint[], $21::smallint[], $22::text[], $23::text[])",
		deliver: "SELECT " + q + ".order_deliver($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::boolean, $8::bigint, $9::bigint)",
		account: "SELECT epoch, base, cursor, head, ended, voids, skipped, late, buffered, parked, unordered, void_ahead, out_of_order," +
			" counts, coalesce(oldest, 0), late_held, at_cursor, claimed FROM " + q + ".order_account($1::text, $2::text)",
		find: "SELECT n, state, at_key, at_epoch, at_place, known, coalesce(tries, 0), coalesce(age, 0), coalesce(is_late, false)," +
			" has_id, has_payload, has_context, has_error, gap_lo, coalesce(gap_hi, 0), coalesce(gap_age, 0), coalesce(alerted, false)," +
			" coalesce(asked, 0), coalesce(reason, 0), coalesce(arrived, 0), coalesce(resolution, 0), coalesce(actor, ''), coalesce(note, '')" +
			" FROM " + q + ".order_find($1::text, $2::bigint, $3::text[], $4::text[], $5::bigint[], $6::bigint[])",
		gaps:   "SELECT * FROM " + q + ".order_list_gaps($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::integer, $7::boolean)",
		parked: "SELECT * FROM " + q + ".order_list_parked($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::integer)",
		totals: "SELECT keys, buffered::bigint, parked::bigint, late_held, open_gaps, unresolved, coalesce(oldest, 0) FROM " + q + ".order_totals($1::text)",
		sweep: "SELECT * FROM " + q + ".order_sweep($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::bigint," +
			" $7::bigint, $8::integer)",
	}
}

// place is a number as it is stored. It makes 0, which is no number, -1.
func place(number uint64) int64 { return int64(number - 1) }

// number is the reverse of place.
func number(place int64) uint64 { return uint64(place) + 1 }

// bigint is a number that is not one of a sequence. None above MaxInt64 makes a
// difference there.
func bigint(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
