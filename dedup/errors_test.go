package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// Errors say what happened, to which ID, and what was not done. The ID is a
// person's, so a hash stands for it.

const person = "wamid-4915112345678"

// hash is how an ID appears in errors.
func hash(id string) string { return dedup.ShortID(id)[:12] }

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestTextsOfClaimErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), nil)
		r := dedup.Request{ID: person, Fingerprint: dedup.Fingerprint([]byte("1"))}
		c, err := g.Claim(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantText(t, g.Do(t.Context(), r, nop),
			"dedup: in flight: "+hash(person)+", attempt 1, lease ends in 20s; not run here, ask again later")
		if err := g.Settle(t.Context(), c.Hold()); err != nil {
			t.Fatal(err)
		}
		wantText(t, g.Do(t.Context(), r, nop),
			"dedup: held, the outcome is unknown: "+hash(person)+", attempt 1, for 10s; not run, settle it first")
		r.Fingerprint = dedup.Fingerprint([]byte("2"))
		wantText(t, g.Do(t.Context(), r, nop),
			"dedup: another message has this ID: "+hash(person)+", with another fingerprint; not run")
	})
}

func TestTextsOfStoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory()}
		guard := newGuard(t, store, &dedup.Options{SettleTimeout: 100 * time.Millisecond})
		c := claim(t, guard, person)
		store.set(func(f *flaky) { f.down = true })
		for _, g := range []*dedup.Guard{guard, guard.With(store)} {
			_, err := g.Claim(t.Context(), dedup.Request{ID: person})
			wantText(t, err, "dedup: the store gave no answer: claim "+hash(person)+": connection reset; it may have been applied, ask again")
			_, err = g.ClaimBatch(t.Context(), []dedup.Request{{ID: person}, {ID: "b"}})
			wantText(t, err, "dedup: the store gave no answer: claim of 2 IDs: connection reset; it may have been applied, ask again")
			wantText(t, g.Settle(t.Context(), c.Complete(nil)), "dedup: settlement 1: dedup: the store gave no answer: complete "+
				hash(person)+": connection reset; it may have been applied, ask again")
			_, err = g.Held(t.Context(), "", 1)
			wantText(t, err, "dedup: the store gave no answer: list held claims: connection reset; it may have been applied, ask again")
		}
		store.set(func(f *flaky) { f.down = false })
		c.Token--
		for _, g := range []*dedup.Guard{guard, guard.With(store)} {
			wantText(t, g.Settle(t.Context(), c.Release()), "dedup: settlement 1: dedup: stale claim: release "+hash(person)+"; nothing was changed")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := guard.Claim(ctx, dedup.Request{ID: person})
		wantText(t, err, "dedup: claim "+hash(person)+": given up: context canceled")
	})
}

// A full store is an error of its own, with the ID, whatever asks.
func TestErrFullReachesTheCaller(t *testing.T) {
	m := dedup.NewMemory()
	m.SetLimit(1)
	for name, store := range map[string]dedup.Store{"memory": m, "another store": &flaky{Store: m}} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, store, nil)
			_, _ = g.Claim(t.Context(), dedup.Request{ID: "fills it"})
			_, err := g.Claim(t.Context(), dedup.Request{ID: person})
			wantErr(t, err, dedup.ErrFull)
			wantText(t, err, "dedup: no room for another ID (claim "+hash(person)+")")
			wantErr(t, g.Do(t.Context(), dedup.Request{ID: person}, func(context.Context) error { t.Error("ran"); return nil }), dedup.ErrFull)
			first, err := g.FirstSeen(t.Context(), person)
			wantErr(t, err, dedup.ErrFull)
			claims, batchErr := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "fills it"}, {ID: person}})
			if batchErr != nil || claims[0].State != dedup.InFlight || !errors.Is(claims[1].Err, dedup.ErrFull) {
				t.Errorf("batch: %+v, %v", claims, batchErr)
			}
			if first[0] || g.Stats().Errors != 0 {
				t.Errorf("first %v, errors %d: the store has answered", first, g.Stats().Errors)
			}
		})
	}
}

func TestAViewOnNoStore(t *testing.T) {
	guard := newGuard(t, dedup.NewMemory(), nil)
	var none *dedup.Memory
	for _, store := range []dedup.Store{nil, none} {
		g := guard.With(store)
		_, claimErr := g.Claim(t.Context(), dedup.Request{ID: "a"})
		_, firstErr := g.FirstSeen(t.Context(), "a", "b")
		_, heldErr := g.Held(t.Context(), "", 1)
		ran := false
		for _, err := range []error{claimErr, firstErr, heldErr, g.Forget(t.Context(), "a"), g.Retain(t.Context(), time.Hour, "a"),
			g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { ran = true; return nil })} {
			wantErr(t, err, dedup.ErrInvalid)
			if !strings.Contains(err.Error(), "nil store") {
				t.Errorf("the error does not say why: %v", err)
			}
		}
		if ran {
			t.Error("ran")
		}
	}
}

// A view works in a transaction, and gives up with it.
func TestAViewObeysItsContext(t *testing.T) {
	m := dedup.NewMemory()
	g := newGuard(t, m, nil)
	view := g.With(m)
	c := claim(t, view, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, view.Settle(ctx, c.Complete(nil)), context.Canceled)
	wantState(t, claim(t, g, "a"), dedup.InFlight)
	if err := g.Settle(ctx, c.Complete(nil)); err != nil {
		t.Errorf("a guard that is no view settles all the same: %v", err)
	}
}

// An error of the effect in a view is returned as it is: the transaction may have
// failed with it, and then cannot be settled any more.
func TestAViewReturnsTheEffectsError(t *testing.T) {
	store := &flaky{Store: dedup.NewMemory()}
	view := newGuard(t, store, nil).With(store)
	err := view.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
		store.set(func(f *flaky) { f.down = true })
		return errEffect
	})
	wantText(t, err, errEffect.Error())
}

func TestHeldStats(t *testing.T) {
	m := dedup.NewMemory()
	store := &patched{Store: m}
	g := newGuard(t, store, &dedup.Options{OnLapse: dedup.Hold})
	requests := make([]dedup.Request, 2500)
	for i := range requests {
		requests[i].ID = fmt.Sprint("id-", i)
	}
	claims, err := g.ClaimBatch(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	holds := make([]dedup.Settlement, len(claims))
	for i, c := range claims {
		holds[i] = c.Hold()
	}
	if err := g.Settle(t.Context(), holds...); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{1: 1, 1000: 1000, 1001: 1001, 2500: 2500, 1 << 30: 2500} {
		if n, _, err := g.HeldStats(t.Context(), limit); err != nil || n != want {
			t.Errorf("HeldStats of at most %d: %d, %v", limit, n, err)
		}
	}
	for _, limit := range []int{0, -1} {
		_, _, err := g.HeldStats(t.Context(), limit)
		wantErr(t, err, dedup.ErrInvalid)
	}
	pages := 0
	store.held = func(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
		if pages++; pages == 2 {
			return nil, errLost
		}
		return m.Held(ctx, scope, after, n)
	}
	n, _, err := g.HeldStats(t.Context(), 2500)
	wantErr(t, err, dedup.ErrUnavailable)
	if n != 1000 {
		t.Errorf("%d were counted before the error", n)
	}
}
