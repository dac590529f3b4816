package pgdedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// How batches become calls of the functions in schema/0001_claims.sql: each ID
// once per call, in ascending order, and not too many in one transaction.

// maxLocks is how many IDs an unbound call claims in one transaction. Each takes
// an entry of the server's lock table, which by default has room for 6400.
const maxLocks = 256

// maxBytes is how many bytes of results one call carries, unless a single result
// is larger: a message to the server is limited to 1 GB.
const maxBytes = 8 << 20

// A route is how calls reach the server: each in a transaction of its own, or
// all in the caller's.
type route struct {
	call  func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error
	most  int  // IDs per call
	bound bool // to the caller's transaction, which any error aborts
}

// unbound is the route of calls in transactions of their own. Where the
// database's default isolation is above READ COMMITTED the call refuses it, and
// is sent again with the isolation it needs.
func (s *Store) unbound() route {
	return route{most: maxLocks, call: func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
		err := call(ctx, s.pool, read, sql, args...)
		if !hasCode(err, "25000") {
			return err
		}
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return call(ctx, tx, read, sql, args...)
		})
	}}
}

// within is the route of calls in the caller's transaction.
func within(tx pgx.Tx) route {
	return route{bound: true, most: math.MaxInt, call: func(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
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
	return read(rows)
}

type statements struct{ claim, settle, held, sweep string }

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		claim: "SELECT n, state, token, attempt, remains, age, result FROM " + q +
			".dedup_claim($1::text, $2::text[], $3::bytea[], $4::bytea[], $5::bigint, $6::bigint, $7::boolean, $8::boolean, $9::boolean)",
		settle: "SELECT n, outcome FROM " + q +
			".dedup_settle($1::text, $2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint)",
		held:  "SELECT id, token, attempt, age FROM " + q + ".dedup_held($1::text, $2::text, $3::integer)",
		sweep: "SELECT removed, next_page FROM " + q + ".dedup_sweep($1::bigint, $2::integer, $3::integer)",
	}
}

func (s *Store) claim(ctx context.Context, r route, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	claims := make([]dedup.Claim, len(asks))
	id := func(i int) string { return asks[i].ID }
	left, err := r.inChunks(ctx, len(asks), id, nil, func(places []int) error {
		return s.claimChunk(ctx, r, p, asks, places, claims)
	})
	if len(left) == len(asks) && err != nil {
		return nil, err
	}
	for _, i := range left {
		claims[i] = dedup.Claim{ID: asks[i].ID, Err: s.wrap("claim", err)}
	}
	return claims, nil
}

// claimChunk asks for distinct IDs in one call and writes the answers to their
// places in claims.
func (s *Store) claimChunk(ctx context.Context, r route, p dedup.Params, asks []dedup.Ask, places []int, claims []dedup.Claim) error {
	ids := make([]string, len(places))
	nonces := make([][]byte, len(places))
	var fingerprints [][]byte // nil while all are zero
	for n, i := range places {
		ids[n] = asks[i].ID
		nonces[n] = asks[i].Nonce[:]
		if asks[i].Fingerprint != [32]byte{} {
			if fingerprints == nil {
				fingerprints = make([][]byte, len(places))
			}
			fingerprints[n] = asks[i].Fingerprint[:]
		}
	}
	var answers []dedup.Claim
	err := r.call(ctx, func(rows pgx.Rows) (err error) {
		answers, err = readClaims(rows, p, len(places))
		return err
	}, s.sql.claim, p.Scope, ids, nonces, fingerprints,
		p.Lease.Microseconds(), p.Retention.Microseconds(), p.OnLapse == dedup.Hold, p.Complete, r.bound)
	if err != nil {
		return err
	}
	for n, i := range places {
		claims[i] = answers[n]
		claims[i].ID = asks[i].ID
	}
	return nil
}

// readClaims reads the rows of dedup_claim: what is common to the first attempts
// in one row, and one row for every other ask.
func readClaims(rows pgx.Rows, p dedup.Params, asked int) ([]dedup.Claim, error) {
	first := dedup.Claim{State: dedup.Acquired, Attempt: 1, Left: p.Lease}
	if p.Complete {
		first.Left = 0
	}
	answers := make([]dedup.Claim, asked)
	granted, others := -1, 0
	for rows.Next() {
		var n, attempt int
		var state int16
		var token, left, age int64
		var result []byte
		if err := rows.Scan(&n, &state, &token, &attempt, &left, &age, &result); err != nil {
			return nil, err
		}
		if n == 0 {
			first.Token, granted = uint64(token), attempt
			continue
		}
		others++
		c := dedup.Claim{State: dedup.State(state), Token: uint64(token), Attempt: attempt, Left: micros(left), Age: micros(age)}
		if c.State == dedup.Done {
			c.Result = append([]byte{}, result...)
		}
		answers[n-1] = c
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if granted+others != asked {
		return nil, fmt.Errorf("%d answers to %d asks", granted+others, asked)
	}
	for n := range answers {
		if answers[n].State == 0 {
			answers[n] = first
		}
	}
	return answers, nil
}

func (s *Store) settle(ctx context.Context, r route, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(settlements))
		}
		errs[i] = err
	}
	id := func(i int) string { return settlements[i].ID }
	size := func(i int) int { return len(settlements[i].Result) }
	left, err := r.inChunks(ctx, len(settlements), id, size, func(places []int) error {
		return s.settleChunk(ctx, r, p, settlements, places, fail)
	})
	if len(left) == len(settlements) && err != nil {
		return nil, err
	}
	for _, i := range left {
		fail(i, s.wrap("settle", err))
	}
	return errs, nil
}

// settleChunk settles distinct IDs in one call and reports those that were not
// applied to fail.
func (s *Store) settleChunk(ctx context.Context, r route, p dedup.Params, settlements []dedup.Settlement, places []int, fail func(int, error)) error {
	ids := make([]string, len(places))
	kinds := make([]int16, len(places))
	tokens := make([]int64, len(places))
	leases := make([]int64, len(places))
	results := make([][]byte, len(places))
	for n, i := range places {
		t := &settlements[i]
		ids[n], kinds[n], tokens[n], leases[n] = t.ID, int16(t.Kind), int64(t.Token), t.Lease.Microseconds()
		if len(t.Result) > 0 {
			results[n] = t.Result
		}
	}
	var refused []error
	err := r.call(ctx, func(rows pgx.Rows) (err error) {
		refused, err = readSettled(rows, len(places))
		return err
	}, s.sql.settle, p.Scope, ids, kinds, tokens, leases, results, p.Retention.Microseconds())
	if err != nil {
		return err
	}
	for n, i := range places {
		if refused[n] != nil {
			fail(i, refused[n])
		}
	}
	return nil
}

// readSettled reads the rows of dedup_settle: the number of settlements that
// were applied, and one row for every other one.
func readSettled(rows pgx.Rows, sent int) ([]error, error) {
	refused := make([]error, sent)
	applied, others := -1, 0
	for rows.Next() {
		var n, outcome int
		if err := rows.Scan(&n, &outcome); err != nil {
			return nil, err
		}
		switch {
		case n == 0:
			applied = outcome
			continue
		case outcome == 1:
			refused[n-1] = dedup.ErrStale
		default:
			refused[n-1] = ErrBusy
		}
		others++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if applied+others != sent {
		return nil, fmt.Errorf("%d answers to %d settlements", applied+others, sent)
	}
	return refused, nil
}

// inChunks calls do for all places, 0 to n-1, in chunks of distinct IDs that
// ascend. A repeated ID comes in a later round, so that it is answered as if
// asked alone afterwards. A server that has no room for so many locks gets
// chunks of half the size, and where there is not even room for one, a second
// to make some.
//
// After another error it stops, and returns the places that have no answer.
func (r route) inChunks(ctx context.Context, n int, id func(int) string, size func(int) int, do func(places []int) error) (left []int, err error) {
	rounds := inRounds(n, id)
	most, pauses := r.most, 0
	for k, places := range rounds {
		for len(places) > 0 {
			chunk := places[:chunkLen(places, most, size)]
			err := do(chunk)
			if hasCode(err, "53200") && !r.bound { // out of shared memory: nothing was done
				if len(chunk) > 1 {
					most = len(chunk) / 2
					continue
				}
				if pauses++; pauses <= 100 && pause(ctx, 10*time.Millisecond) {
					continue
				}
			}
			if err != nil {
				rounds[k] = places
				return slices.Concat(rounds[k:]...), err
			}
			places = places[len(chunk):]
		}
	}
	return nil, nil
}

// pause waits for d, and says whether ctx still stands.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// inRounds sorts the places by ID and deals repeated IDs out to further rounds.
// Its order is also that of the index, which makes inserting cheaper.
func inRounds(n int, id func(int) string) [][]int {
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int {
		return cmp.Or(strings.Compare(id(a), id(b)), a-b)
	})
	repeated := false
	for k := 1; k < n && !repeated; k++ {
		repeated = id(places[k]) == id(places[k-1])
	}
	if !repeated {
		return [][]int{places}
	}
	var rounds [][]int
	round := 0
	for k, i := range places {
		if k > 0 && id(i) == id(places[k-1]) {
			round++
		} else {
			round = 0
		}
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], i)
	}
	return rounds
}

// chunkLen returns how many of the places go into the next call.
func chunkLen(places []int, most int, size func(int) int) int {
	if size == nil {
		return min(most, len(places))
	}
	bytes := 0
	for n, i := range places[:min(most, len(places))] {
		if bytes += size(i); bytes > maxBytes && n > 0 {
			return n
		}
	}
	return min(most, len(places))
}

// wrap adds the package and the operation to an error of the server, and what to
// do where the functions are missing.
func (s *Store) wrap(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case hasCode(err, "25000"):
		return fmt.Errorf("pgdedup: %s: %w: %w: %w", step, dedup.ErrInvalid, ErrIsolation, err)
	case hasCode(err, "42883", "42P01", "3F000"): // undefined function, table, schema
		return fmt.Errorf("pgdedup: %s: schema %q: %w: %w", step, s.schema, pgschema.ErrNotMigrated, err)
	}
	return fmt.Errorf("pgdedup: %s: %w", step, err)
}

// hasCode says whether the server ended the statement with one of the codes of
// https://www.postgresql.org/docs/15/errcodes-appendix.html.
func hasCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
