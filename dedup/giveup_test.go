package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

// What becomes of a claim whose caller never hears of it.

// Under Hold, a grant whose answers were lost would be held for ever, though
// nothing ran.
func TestHoldReleasesAGrantThatWasNeverTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory(), claimAfter: 2}
		g := newGuard(t, store, &dedup.Options{OnLapse: dedup.Hold})
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { t.Error("ran"); return nil })
		wantErr(t, err, dedup.ErrUnavailable)
		synctest.Wait()
		wantState(t, claim(t, g, "a"), dedup.Acquired)

		store.set(func(f *flaky) { f.claimAfter = 2 })
		_, err = g.ClaimBatch(t.Context(), []dedup.Request{{ID: "b"}, {ID: "c"}})
		wantErr(t, err, dedup.ErrUnavailable)
		synctest.Wait()
		wantState(t, claim(t, g, "b"), dedup.Acquired)
		wantState(t, claim(t, g, "c"), dedup.Acquired)
	})
}

// The store need not be well at once.
func TestHoldFindsOutWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const always = 1 << 30
		store := &flaky{Store: dedup.NewMemory(), claimAfter: always}
		g := newGuard(t, store, &dedup.Options{OnLapse: dedup.Hold, Lease: 30 * time.Second})
		_, err := g.Claim(t.Context(), dedup.Request{ID: "a"})
		wantErr(t, err, dedup.ErrUnavailable)
		time.Sleep(15 * time.Second)
		store.set(func(f *flaky) { f.claimAfter = 0 })
		time.Sleep(10 * time.Second)
		wantState(t, claim(t, g, "a"), dedup.Acquired)

		// Longer than the lease: it is held, and can be listed.
		store.set(func(f *flaky) { f.claimAfter = always })
		_, err = g.Claim(t.Context(), dedup.Request{ID: "b"})
		wantErr(t, err, dedup.ErrUnavailable)
		time.Sleep(time.Minute)
		store.set(func(f *flaky) { f.claimAfter = 0 })
		held, err := g.Held(t.Context(), "a", 10)
		if err != nil || len(held) != 1 || held[0].ID != "b" {
			t.Errorf("held: %+v, %v", held, err)
		}
	})
}

// The caller gives up, and then its answer is lost as well.
func TestAGrantIsReleasedThatWasGivenUpAndLost(t *testing.T) {
	for _, policy := range []dedup.Lapse{dedup.Rerun, dedup.Hold} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := dedup.NewMemory()
				sent := 0
				store := &patched{Store: m, claim: func(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
					claims, err := m.Claim(ctx, p, asks)
					if sent++; sent == 1 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return claims, err
				}}
				g := newGuard(t, store, &dedup.Options{OnLapse: policy, Lease: time.Minute})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := g.Claim(ctx, dedup.Request{ID: "a"})
				wantErr(t, err, context.DeadlineExceeded)
				time.Sleep(15 * time.Second) // the round trip is given up after 10
				wantState(t, claim(t, g, "a"), dedup.Acquired)
			})
		})
	}
}

// The first of several callers that asked together gives up: the grant goes to
// one that still waits.
func TestAGrantGoesToACallerThatStillWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		g := newGuard(t, &flaky{Store: dedup.NewMemory(), block: gate}, nil)
		var wg sync.WaitGroup
		wg.Go(func() { claim(t, g, "occupies the line") })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := g.Claim(ctx, dedup.Request{ID: "a"})
			wantErr(t, err, context.Canceled)
		})
		synctest.Wait()
		var got dedup.Claim
		wg.Go(func() { got = claim(t, g, "a") })
		synctest.Wait()
		gate <- struct{}{} // the next round trip carries both asks
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(gate)
		wg.Wait()
		wantState(t, got, dedup.Acquired)
		synctest.Wait()
		wantState(t, claim(t, g, "a"), dedup.InFlight) // and was not released behind its back
	})
}

// Nothing was sent, so the store has not failed.
func TestGivingUpIsNoErrorOfTheStore(t *testing.T) {
	g := newGuard(t, &flaky{Store: dedup.NewMemory()}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.Claim(ctx, dedup.Request{ID: "a"})
	wantErr(t, err, context.Canceled)
	if n := g.Stats().Errors; n != 0 {
		t.Errorf("Errors is %d", n)
	}
}

// What is done for callers that are gone is bounded; what finds no room lapses,
// and is logged.
func TestGivingUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &flaky{Store: dedup.NewMemory(), claimAfter: 1 << 30}
		g := newGuard(t, store, &dedup.Options{OnLapse: dedup.Hold, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		requests := make([]dedup.Request, 10_010)
		for i := range requests {
			requests[i].ID = fmt.Sprint("id-", i)
		}
		_, err := g.ClaimBatch(t.Context(), requests)
		wantErr(t, err, dedup.ErrUnavailable)
		store.set(func(f *flaky) { f.claimAfter = 0 })
		time.Sleep(time.Minute)
		n, _, err := g.HeldStats(t.Context(), 100)
		if err != nil || n != 10 {
			t.Errorf("%d are held, %v; want the 10 for which there was no room", n, err)
		}
		if got := strings.Count(log.String(), "too many callers"); got != 10 {
			t.Errorf("%d were logged, want 10", got)
		}
	})
}

// Duplicates of one message arrive together and the answer to their claim is
// lost. The one whose nonce was granted finds it again and releases it, whatever
// the others ask.
func TestHoldReleasesWhatManyDuplicatesLost(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			store := &flaky{Store: dedup.NewMemory(), block: gate}
			g := newGuard(t, store, &dedup.Options{OnLapse: dedup.Hold})
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = g.Claim(t.Context(), dedup.Request{ID: "first"}) })
			synctest.Wait() // under way; what follows is joined
			for range 5 {
				wg.Go(func() {
					_, err := g.Claim(t.Context(), dedup.Request{ID: "x"})
					if !errors.Is(err, dedup.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
				})
			}
			synctest.Wait()
			store.set(func(f *flaky) { f.block, f.claimAfter = nil, 4 }) // both sendings of each call
			close(gate)
			wg.Wait()
			store.set(func(f *flaky) { f.claimAfter = 0 })
			time.Sleep(time.Minute)
			wantState(t, claim(t, g, "x"), dedup.Acquired)
		})
	}
}
