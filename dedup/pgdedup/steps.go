package pgdedup

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/internal/pgschema"
)

// How batches become calls of the functions in schema: each ID once per call, in
// ascending order, and not too many in one transaction.

// maxLocks is how many IDs an unbound call claims in one transaction. Each takes
// an entry of the server's lock table, which by default has room for 6400.
const maxLocks = 256

// maxBytes is how many bytes of results one call carries, unless a single result
// is larger: a message to the server is limited to 1 GB.
const maxBytes = 8 << 20

func (s *Store) alone() pgcall.Route { return pgcall.Alone(s.pool, 0) }

func within(tx pgx.Tx) pgcall.Route { return pgcall.Within(tx, 0, dedup.ErrInvalid) }

var errorsOf = pgcall.Package{
	Name: "pgdedup", Invalid: dedup.ErrInvalid, AtRisk: dedup.ErrAtRisk, Unchecked: dedup.ErrUnchecked, Isolation: ErrIsolation,
}

func (s *Store) wrap(step string, err error) error { return errorsOf.Wrap(step, s.schema, err) }

type statements struct{ claim, settle, retain, held, sweep string }

func newStatements(schema string) statements {
	q := pgschema.Quote(schema)
	return statements{
		claim: "SELECT n, state, token, attempt, remains, age, result FROM " + q +
			".dedup_claim($1::text, $2::text[], $3::bytea[], $4::bytea[], $5::bigint, $6::bigint, $7::boolean, $8::boolean, $9::boolean)",
		settle: "SELECT n, outcome FROM " + q +
			".dedup_settle($1::text, $2::text[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint)",
		retain: "SELECT n FROM " + q + ".dedup_retain($1::text, $2::text[], $3::bigint[]) AS n",
		held:   "SELECT id, token, attempt, age FROM " + q + ".dedup_held($1::text, $2::text, $3::integer)",
		sweep:  "SELECT removed, next_page FROM " + q + ".dedup_sweep($1::bigint, $2::integer, $3::integer)",
	}
}

func (s *Store) claim(ctx context.Context, r pgcall.Route, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	claims := make([]dedup.Claim, len(asks))
	id := func(i int) string { return asks[i].ID }
	left, err := inChunks(ctx, r, len(asks), id, nil, func(places []int) error {
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
func (s *Store) claimChunk(ctx context.Context, r pgcall.Route, p dedup.Params, asks []dedup.Ask, places []int, claims []dedup.Claim) error {
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
	answers := newAnswers(p, len(places))
	err := r.Call(ctx, answers.read, s.sql.claim, p.Scope, ids, nonces, fingerprints,
		p.Lease.Microseconds(), p.Retention.Microseconds(), p.OnLapse == dedup.Hold, p.Complete, r.Bound)
	if err != nil {
		return err
	}
	granted, err := answers.all()
	if err != nil {
		return err
	}
	for n, i := range places {
		claims[i] = granted[n]
		claims[i].ID = asks[i].ID
	}
	return nil
}

// answers are the rows of dedup_claim: what is common to the first attempts in
// one row, and one row for every other ask.
type answers struct {
	claims          []dedup.Claim
	first           dedup.Claim
	granted, others int // how many there were of each
}

func newAnswers(p dedup.Params, asked int) *answers {
	a := &answers{claims: make([]dedup.Claim, asked), first: dedup.Claim{State: dedup.Acquired, Attempt: 1, Left: p.Lease}, granted: -1}
	if p.Complete {
		a.first.Left = 0
	}
	return a
}

func (a *answers) read(rows pgx.Rows) error {
	var n, attempt int
	var state int16
	var token, left, age int64
	var result []byte
	if err := rows.Scan(&n, &state, &token, &attempt, &left, &age, &result); err != nil {
		return err
	}
	if n == 0 {
		a.first.Token, a.granted = uint64(token), attempt
		return nil
	}
	a.others++
	c := dedup.Claim{State: dedup.State(state), Token: uint64(token), Attempt: attempt, Left: micros(left), Age: micros(age)}
	if c.State == dedup.Done {
		c.Result = append([]byte{}, result...)
	}
	a.claims[n-1] = c
	return nil
}

func (a *answers) all() ([]dedup.Claim, error) {
	if a.granted+a.others != len(a.claims) {
		return nil, fmt.Errorf("%d answers to %d asks", a.granted+a.others, len(a.claims))
	}
	for n := range a.claims {
		if a.claims[n].State == 0 {
			a.claims[n] = a.first
		}
	}
	return a.claims, nil
}

func (s *Store) settle(ctx context.Context, r pgcall.Route, p dedup.Params, settlements []dedup.Settlement) ([]error, error) {
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(settlements))
		}
		errs[i] = err
	}
	id := func(i int) string { return settlements[i].ID }
	size := func(i int) int { return len(settlements[i].Result) }
	left, err := inChunks(ctx, r, len(settlements), id, size, func(places []int) error {
		return s.settleChunks(ctx, r, p, settlements, places, fail)
	})
	if len(left) == len(settlements) && err != nil {
		return nil, err
	}
	for _, i := range left {
		fail(i, s.wrap("settle", err))
	}
	return errs, nil
}

// settleChunks settles distinct IDs in one call, or in two if some are retained, and
// reports those that were not applied to fail.
func (s *Store) settleChunks(ctx context.Context, r pgcall.Route, p dedup.Params, settlements []dedup.Settlement, places []int, fail func(int, error)) error {
	var retained, others []int
	for _, i := range places {
		if settlements[i].Kind == dedup.KindRetain {
			retained = append(retained, i)
		} else {
			others = append(others, i)
		}
	}
	if len(others) > 0 {
		if err := s.settleChunk(ctx, r, p, settlements, others, fail); err != nil {
			return err
		}
	}
	if len(retained) == 0 {
		return nil
	}
	return s.retainChunk(ctx, r, p, settlements, retained, fail)
}

func (s *Store) retainChunk(ctx context.Context, r pgcall.Route, p dedup.Params, settlements []dedup.Settlement, places []int, fail func(int, error)) error {
	ids, retentions := make([]string, len(places)), make([]int64, len(places))
	for n, i := range places {
		ids[n], retentions[n] = settlements[i].ID, settlements[i].Retention.Microseconds()
	}
	var busy []int
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var n int
		err := rows.Scan(&n)
		busy = append(busy, n)
		return err
	}, s.sql.retain, p.Scope, ids, retentions)
	if err != nil {
		return err
	}
	for _, n := range busy {
		fail(places[n-1], ErrBusy)
	}
	return nil
}

// settleChunk settles distinct IDs in one call and reports those that were not
// applied to fail.
func (s *Store) settleChunk(ctx context.Context, r pgcall.Route, p dedup.Params, settlements []dedup.Settlement, places []int, fail func(int, error)) error {
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
	refused := make([]error, len(places))
	applied, others := -1, 0 // a row says how many were applied, and one each stands for the others
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var n, outcome int
		if err := rows.Scan(&n, &outcome); err != nil {
			return err
		}
		switch {
		case n == 0:
			applied = outcome
			return nil
		case outcome == 1:
			refused[n-1] = dedup.ErrStale
		default:
			refused[n-1] = ErrBusy
		}
		others++
		return nil
	}, s.sql.settle, p.Scope, ids, kinds, tokens, leases, results, p.Retention.Microseconds())
	if err == nil && applied+others != len(places) {
		err = fmt.Errorf("%d answers to %d settlements", applied+others, len(places))
	}
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

// inChunks calls do for all places, 0 to n-1, in chunks of distinct IDs that
// ascend. A repeated ID comes in a later round, so that it is answered as if
// asked alone afterwards. A server that has no room for so many locks gets
// chunks of half the size, and where there is not even room for one, a second
// to make some.
//
// After another error it stops, and returns the places that have no answer.
func inChunks(ctx context.Context, r pgcall.Route, n int, id func(int) string, size func(int) int, do func(places []int) error) (left []int, err error) {
	rounds := inRounds(n, id)
	most, pauses := maxLocks, 0
	if r.Bound {
		most = math.MaxInt
	}
	for k, places := range rounds {
		for len(places) > 0 {
			chunk := places[:chunkLen(places, most, size)]
			err := do(chunk)
			if pgcall.HasCode(err, pgcall.OutOfMemory) && !r.Bound { // nothing was done
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
