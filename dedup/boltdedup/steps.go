package boltdedup

import (
	"cmp"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/dedup"
)

// The three steps of [dedup.Store] within a transaction, whosever it is.

func (s *Store) claim(tx *bbolt.Tx, p dedup.Params, asks []dedup.Ask) (claims []dedup.Claim, changed bool, err error) {
	sc, err := s.makeScope(tx, p.Scope)
	if err != nil {
		return nil, false, err
	}
	claims = make([]dedup.Claim, len(asks))
	at := now()
	for _, i := range inOrder(asks, func(a *dedup.Ask) string { return a.ID }) {
		a, id := &asks[i], []byte(asks[i].ID)
		r, err := sc.read(id)
		if err != nil {
			claims[i] = dedup.Claim{ID: a.ID, Err: unreadable(p.Scope, a.ID, err)}
			continue
		}
		before := r
		c, granted := r.ask(at, p, a)
		claims[i] = c
		if granted {
			if err := sc.write(id, &before, &r); err != nil {
				return nil, false, err
			}
			changed = true
		}
	}
	return claims, changed, nil
}

func (s *Store) settle(tx *bbolt.Tx, p dedup.Params, settlements []dedup.Settlement) (errs []error, changed bool, err error) {
	sc, err := s.makeScope(tx, p.Scope)
	if err != nil {
		return nil, false, err
	}
	errs = make([]error, len(settlements))
	at := now()
	for _, i := range inOrder(settlements, func(t *dedup.Settlement) string { return t.ID }) {
		t, id := &settlements[i], []byte(settlements[i].ID)
		if t.Kind == dedup.KindForget {
			forgot, err := sc.forget(id)
			if err != nil {
				return nil, false, err
			}
			changed = changed || forgot
			continue
		}
		r, err := sc.read(id)
		if err != nil {
			errs[i] = unreadable(p.Scope, t.ID, err)
			continue
		}
		before := r
		applied, err := r.settle(at, p, t)
		errs[i] = err
		if applied {
			if err := sc.write(id, &before, &r); err != nil {
				return nil, false, err
			}
			changed = true
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		errs = nil
	}
	return errs, changed, nil
}

func (s *Store) held(tx *bbolt.Tx, name, after string, n int) ([]dedup.Claim, error) {
	sc, err := s.scope(tx, name)
	if err != nil || sc.open == nil {
		return nil, err
	}
	var claims []dedup.Claim
	at := now()
	c := sc.open.Cursor()
	for id, b := c.Seek([]byte(after)); id != nil && len(claims) < n; id, b = c.Next() {
		if string(id) == after {
			continue
		}
		r, err := decode(b)
		switch {
		case err != nil:
			claims = append(claims, dedup.Claim{ID: string(id), Err: unreadable(name, string(id), err)})
		case r.unknown(at):
			claims = append(claims, dedup.Claim{State: dedup.Unknown, ID: string(id), Token: r.token,
				Attempt: int(r.attempt), Age: micros(at - r.since)})
		}
	}
	return claims, nil
}

// inOrder returns the places of the items in the order in which a batch takes
// them: by ID, so that neighbours in the tree are visited one after the other,
// and items of one ID as they came.
func inOrder[T any](items []T, id func(*T) string) []int {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(id(&items[a]), id(&items[b])) })
	return order
}
