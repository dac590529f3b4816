package ordertest

import (
	"context"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/order"
)

// A watchedStore looks at the account of every key that a step concerned, after
// every step: both sums and that of the arrivals hold, and no cursor, head or
// count went back.
type watchedStore struct {
	order.Store
	t    testing.TB
	mu   sync.Mutex
	seen map[string]order.Account
}

func newWatchedStore(t testing.TB, s order.Store) *watchedStore {
	return &watchedStore{Store: s, t: t, seen: map[string]order.Account{}}
}

func (w *watchedStore) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers, err := w.Store.Push(ctx, p, arrivals)
	keys := map[string]bool{}
	for _, a := range arrivals {
		keys[a.Key] = true
	}
	w.look(p.Scope, keys)
	return answers, err
}

func (w *watchedStore) Claim(ctx context.Context, p order.Params, a order.Ask) (order.Claimed, error) {
	c, err := w.Store.Claim(ctx, p, a)
	keys := map[string]bool{}
	for _, k := range c.Claims {
		keys[k.Key] = true
	}
	w.look(p.Scope, keys)
	return c, err
}

func (w *watchedStore) Settle(ctx context.Context, p order.Params, settlements []order.Settlement) ([]error, error) {
	keys := map[string]bool{}
	w.mu.Lock()
	for _, s := range settlements {
		keys[s.Key] = true
		if s.Kind == order.KindForget {
			delete(w.seen, p.Scope+"/"+s.Key)
		}
	}
	w.mu.Unlock()
	errs, err := w.Store.Settle(ctx, p, settlements)
	w.look(p.Scope, keys)
	return errs, err
}

// look checks the accounts of keys. It looks at one after another, so that
// concurrent callers cannot see a key go back that did not.
func (w *watchedStore) look(scope string, keys map[string]bool) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range keys {
		a, err := w.Store.Account(context.Background(), scope, key)
		if err != nil {
			w.t.Errorf("Account of %q: %v", key, err)
			return
		}
		w.check(a, w.seen[scope+"/"+key])
		w.seen[scope+"/"+key] = a
	}
}

func (w *watchedStore) check(a, before order.Account) {
	w.t.Helper()
	in := a.Arrivals
	if sum := in.Accepted + in.Duplicate + in.Conflict + in.Late + in.Stale + in.Full + in.TooFar; in.Pushed != sum {
		w.t.Errorf("of key %q %d were pushed, and the answers are %d: %+v", a.Key, in.Pushed, sum, in)
	}
	if in.Pushed < before.Arrivals.Pushed {
		w.t.Errorf("of key %q %d were pushed, after %d", a.Key, in.Pushed, before.Arrivals.Pushed)
	}
	open, ended := 0, 0
	for i, l := range a.Ledgers {
		if l.Base > l.Cursor || l.Cursor > l.Head || l.Ended && l.Cursor != l.Head {
			w.t.Errorf("key %q, epoch %d: base, cursor and head are out of order: %+v", a.Key, l.Epoch, l)
		}
		if l.Delivered+l.Void+l.Skipped+l.Late != l.Cursor-l.Base {
			w.t.Errorf("key %q, epoch %d: the sum below the cursor does not hold: %+v", a.Key, l.Epoch, l)
		}
		if l.Buffered+l.Parked+l.Unordered+l.VoidAhead+l.Missing != l.Head-l.Cursor {
			w.t.Errorf("key %q, epoch %d: the sum above the cursor does not hold: %+v", a.Key, l.Epoch, l)
		}
		if l.OutOfOrder > l.Delivered+l.Late {
			w.t.Errorf("key %q, epoch %d: out of order are more than delivered: %+v", a.Key, l.Epoch, l)
		}
		if l.Ended {
			ended++
		} else {
			open++
		}
		if i > 0 && !ascends(a.Ledgers[i-1], l) {
			w.t.Errorf("key %q: the ledgers are out of order: %+v", a.Key, a.Ledgers)
		}
		for _, old := range before.Ledgers {
			if old.Epoch == l.Epoch && (old.Base != l.Base || old.Cursor > l.Cursor || old.Head > l.Head || old.Ended && !l.Ended) {
				w.t.Errorf("key %q: a ledger went back from %+v to %+v", a.Key, old, l)
			}
		}
	}
	if len(a.Ledgers) > 0 && open == 0 || open > order.MaxEpochs || ended > order.MaxEpochs {
		w.t.Errorf("key %q has %d open and %d ended epochs", a.Key, open, ended)
	}
}

// ascends says whether two neighbours are in the order of [order.Store.Account].
func ascends(a, b order.Ledger) bool {
	switch {
	case !a.Ended && !b.Ended:
		return a.Epoch < b.Epoch
	case a.Ended && b.Ended:
		return a.Epoch > b.Epoch
	}
	return !a.Ended && a.Epoch > b.Epoch
}
