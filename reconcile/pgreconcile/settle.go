package pgreconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pgcall"
	"github.com/pawl-go/pawl/reconcile"
)

// maxSettlements is how many settlements one call carries.
const maxSettlements = 1000

// settle sends settlements in as few calls as it can. Each is a transaction of its own.
func (s *Store) settle(ctx context.Context, r pgcall.Route, p reconcile.Params, all []reconcile.Settlement) ([]error, error) {
	errs := make([]error, len(all))
	refused := false
	for from := 0; from < len(all); {
		rest := all[from:]
		n := batch(len(rest), maxSettlements, func(i int) int { return len(rest[i].Result) + len(rest[i].Note) })
		some, err := s.settleSome(ctx, r, p, rest[:n], errs[from:from+n])
		if err != nil {
			return nil, err // what was applied is found to be so when it is sent again
		}
		refused = refused || some
		from += n
	}
	if !refused {
		return nil, nil
	}
	return errs, nil
}

func (s *Store) settleSome(ctx context.Context, r pgcall.Route, p reconcile.Params, all []reconcile.Settlement, errs []error) (refused bool, err error) {
	n := len(all)
	places, alone := sorted(n, func(i int) string { return all[i].Key })
	plain, agains, lookeds := make([]bool, n), make([]bool, n), make([]bool, n)
	verbs, states := make([]int16, n), make([]int16, n)
	keys, bys, notes := make([]string, n), make([]string, n), make([]string, n)
	tokens, delays, leases := make([]int64, n), make([]int64, n), make([]int64, n)
	nonces, results := make([][]byte, n), make([][]byte, n)
	for k, place := range places {
		t := &all[place]
		plain[k] = alone[place] && t.Verb >= reconcile.VerbAccept && t.Verb <= reconcile.VerbDoubt
		verbs[k], keys[k], tokens[k], bys[k], notes[k] = int16(t.Verb), t.Key, bigint(t.Token), t.By, t.Note
		agains[k], lookeds[k], delays[k], leases[k] = t.Again, t.Looked, t.Delay.Microseconds(), t.Lease.Microseconds()
		results[k] = t.Result
		if t.Verb == reconcile.VerbReceipt || t.Verb == reconcile.VerbResolve {
			nonces[k], states[k] = t.Nonce[:], int16(t.State)
		}
	}
	err = locking(r, func(mode int) error {
		refused = false
		clear(errs)
		return r.Call(ctx, func(rows pgx.Rows) error {
			var k, outcome int
			if err := rows.Scan(&k, &outcome); err != nil {
				return err
			}
			if k < 1 || k > n || unsettled[outcome] == nil {
				return errAnswers(k, n, "settlement")
			}
			refused = true
			errs[places[k-1]] = unsettled[outcome]
			return nil
		}, s.sql.settle, mode, p.Kind, p.Quiet.Microseconds(), p.Retention.Microseconds(), plain, verbs, keys, tokens, nonces, states, results,
			agains, lookeds, delays, leases, bys, notes)
	})
	return refused, err
}

// unsettled are the outcomes of reconcile_settle.
var unsettled = map[int]error{
	1: reconcile.ErrStale, 2: reconcile.ErrNotFound, 3: reconcile.ErrChanged, locked: fmt.Errorf("pgreconcile: settle: %w", ErrBusy),
	10 + int(reconcile.Confirmed): &reconcile.EndedError{State: reconcile.Confirmed},
	10 + int(reconcile.Failed):    &reconcile.EndedError{State: reconcile.Failed},
}
