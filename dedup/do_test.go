package dedup_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
)

var errEffect = errors.New("gateway timeout")

func TestDoRunsOnce(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	runs := 0
	for range 3 {
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { runs++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("the effect ran %d times", runs)
	}
}

func TestDoErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Scope: "rerun"})
		h := newGuard(t, dedup.NewMemory(), &dedup.Options{Scope: "hold", OnLapse: dedup.Hold})
		r := dedup.Request{ID: "a"}
		fail := func(context.Context) error { return errEffect }

		// Rerun: an error releases, so the next one runs it.
		wantErr(t, g.Do(t.Context(), r, fail), errEffect)
		if err := g.Do(t.Context(), r, nop); err != nil {
			t.Errorf("after an error under Rerun: %v", err)
		}

		// Hold: an error holds.
		wantErr(t, h.Do(t.Context(), r, fail), errEffect)
		err := h.Do(t.Context(), r, nop)
		wantErr(t, err, dedup.ErrHeld)
		var ce *dedup.ClaimError
		if !errors.As(err, &ce) || ce.Claim.Token == 0 {
			t.Errorf("no token to settle with in %#v", err)
		}

		// Hold: NotDone releases.
		r.ID = "b"
		wantErr(t, h.Do(t.Context(), r, func(context.Context) error { return dedup.NotDone(errEffect) }), errEffect)
		if err := h.Do(t.Context(), r, nop); err != nil {
			t.Errorf("after NotDone under Hold: %v", err)
		}
		if dedup.NotDone(nil) != nil {
			t.Error("NotDone(nil) is not nil")
		}
	})
}

func TestDoInFlightAndConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), nil)
		wantState(t, claim(t, g, "a"), dedup.Acquired)
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop)
		wantErr(t, err, dedup.ErrInFlight)
		var ce *dedup.ClaimError
		if !errors.As(err, &ce) || ce.Claim.Left != 30*time.Second {
			t.Errorf("Left is not told: %v", err)
		}
		one, other := dedup.Fingerprint([]byte("1")), dedup.Fingerprint([]byte("2"))
		if err := g.Do(t.Context(), dedup.Request{ID: "b", Fingerprint: one}, nop); err != nil {
			t.Fatal(err)
		}
		wantErr(t, g.Do(t.Context(), dedup.Request{ID: "b", Fingerprint: other}, nop), dedup.ErrConflict)
	})
}

func TestDoWaitsForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Wait: 10 * time.Second})
		var runs atomic.Int32
		fn := func(ctx context.Context) (string, error) {
			runs.Add(1)
			time.Sleep(3 * time.Second)
			return "receipt", nil
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				v, err := dedup.DoValue(t.Context(), g, dedup.Request{ID: "a"}, fn)
				if err != nil || v != "receipt" {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("the effect ran %d times", runs.Load())
		}

		// The wait is bounded, and by the context.
		wantState(t, claim(t, g, "b"), dedup.Acquired)
		start := time.Now()
		wantErr(t, g.Do(t.Context(), dedup.Request{ID: "b"}, nop), dedup.ErrInFlight)
		if d := time.Since(start); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("waited %v, want 10s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Do(ctx, dedup.Request{ID: "b"}, nop)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, err, dedup.ErrInFlight)
	})
}

// A duplicate of a short effect does not wait for long.
func TestDoLooksAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Wait: 5 * time.Second})
		go func() {
			_ = g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { time.Sleep(60 * time.Millisecond); return nil })
		}()
		synctest.Wait()
		start := time.Now()
		if err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("an effect of 60ms made its duplicate wait for %v", d)
		}
	})
}

func TestDoRenewsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Lease: time.Second})
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(ctx context.Context) error {
			for range 20 {
				time.Sleep(500 * time.Millisecond)
				if c := claim(t, g, "a"); c.State != dedup.InFlight {
					t.Fatalf("at %v a duplicate was answered %v", time.Now(), c.State)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDoCancelsWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory()}
		g := newGuard(t, store, &dedup.Options{Lease: time.Second})
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(ctx context.Context) error {
			if err := g.Forget(ctx, "a"); err != nil { // the owner is stale from now on
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, err, dedup.ErrStale)
		synctest.Wait() // a loss is counted after the cancellation, when Do may be back
		if n := g.Stats().LeasesLost; n != 1 {
			t.Errorf("LeasesLost is %d", n)
		}

		// A store that stops answering: cancelled no later than the lease ends.
		start := time.Now()
		err = g.Do(t.Context(), dedup.Request{ID: "b"}, func(ctx context.Context) error {
			store.set(func(f *flaky) { f.down = true })
			<-ctx.Done()
			if d := time.Since(start); d < 900*time.Millisecond || d > 1200*time.Millisecond {
				t.Errorf("cancelled after %v, want about the lease", d)
			}
			return context.Cause(ctx)
		})
		wantErr(t, err, dedup.ErrStale)
		wantErr(t, err, dedup.ErrUnavailable)
	})
}

func TestDoReportsAnEffectThatRanTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		slow := newGuard(t, &deaf{m}, &dedup.Options{Lease: time.Second})
		other := newGuard(t, m, &dedup.Options{Lease: time.Minute})
		err := slow.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			time.Sleep(2 * time.Second) // a pause: its renewals do not reach the store
			wantState(t, claim(t, other, "a"), dedup.Acquired)
			return nil
		})
		wantErr(t, err, dedup.ErrStale)
		wantState(t, claim(t, other, "a"), dedup.InFlight) // the new owner is not disturbed
	})
}

// deaf drops renewals.
type deaf struct{ dedup.Store }

func (d *deaf) Settle(ctx context.Context, p dedup.Params, s []dedup.Settlement) ([]error, error) {
	if s[0].Kind == dedup.KindExtend {
		return nil, nil
	}
	return d.Store.Settle(ctx, p, s)
}

func TestDoSettlesAlthoughCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, &flaky{Store: dedup.NewMemory()}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		if err := g.Do(ctx, dedup.Request{ID: "a"}, func(context.Context) error { cancel(); return nil }); err != nil {
			t.Fatal(err)
		}
		wantState(t, claim(t, g, "a"), dedup.Done)

		ctx, cancel = context.WithCancel(t.Context())
		err := g.Do(ctx, dedup.Request{ID: "b"}, func(ctx context.Context) error { cancel(); return ctx.Err() })
		wantErr(t, err, context.Canceled)
		wantState(t, claim(t, g, "b"), dedup.Acquired) // released
	})
}

func TestDoSettlesAfterAPanic(t *testing.T) {
	for _, policy := range []dedup.Lapse{dedup.Rerun, dedup.Hold} {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{OnLapse: policy})
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not go on")
				}
			}()
			_ = g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error { panic("boom") })
		}()
		want := dedup.Acquired
		if policy == dedup.Hold {
			want = dedup.Unknown
		}
		wantState(t, claim(t, g, "a"), want)
	}
}

func TestDoRetriesTheSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory()}
		g := newGuard(t, store, nil)
		err := g.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			store.set(func(f *flaky) { f.settleBefore, f.settleAfter = 2, 1 })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, claim(t, g, "a"), dedup.Done)

		// A store that stays away: the error says that the effect ran.
		err = g.Do(t.Context(), dedup.Request{ID: "b"}, func(context.Context) error {
			store.set(func(f *flaky) { f.down = true })
			return nil
		})
		wantErr(t, err, dedup.ErrUnavailable)
		wantErr(t, err, errLost)
		if !strings.Contains(err.Error(), "the effect ran") {
			t.Errorf("the error does not say that the effect ran: %v", err)
		}
	})
}

type someKey struct{}

// The token is found through contexts made from the effect's.
func TestTokenFrom(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	var first, second uint64
	_ = g.Do(t.Context(), dedup.Request{ID: "a"}, func(ctx context.Context) error {
		first, _ = dedup.TokenFrom(ctx)
		return errEffect
	})
	_ = g.Do(t.Context(), dedup.Request{ID: "a"}, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, someKey{}, "v"), time.Minute)
		defer cancel()
		second, _ = dedup.TokenFrom(ctx)
		return nil
	})
	if first == 0 || second <= first {
		t.Errorf("tokens %d, %d do not rise", first, second)
	}
	if _, ok := dedup.TokenFrom(t.Context()); ok {
		t.Error("a token outside of Do")
	}
}

func TestDoValueResults(t *testing.T) {
	type receipt struct{ Number int }
	g := newGuard(t, dedup.NewMemory(), &dedup.Options{ResultSize: 64})
	do := func(id string) (receipt, error) {
		return dedup.DoValue(t.Context(), g, dedup.Request{ID: id}, func(context.Context) (receipt, error) { return receipt{7}, nil })
	}
	for range 2 {
		if r, err := do("a"); err != nil || r.Number != 7 {
			t.Errorf("got %v, %v", r, err)
		}
	}

	// A stored result that does not decode is an error, not a second run.
	_, err := dedup.DoValue(t.Context(), g, dedup.Request{ID: "a"}, func(context.Context) ([]string, error) {
		t.Error("ran again")
		return nil, nil
	})
	wantErr(t, err, dedup.ErrResult)
	if err := g.Do(t.Context(), dedup.Request{ID: "b"}, nop); err != nil {
		t.Fatal(err)
	}
	_, err = do("b") // completed without a result
	wantErr(t, err, dedup.ErrResult)

	// A result over the limit: the effect has happened, and is not run again.
	long := func(context.Context) (string, error) { return strings.Repeat("x", 100), nil }
	v, err := dedup.DoValue(t.Context(), g, dedup.Request{ID: "c"}, long)
	var size *dedup.ResultSizeError
	if !errors.As(err, &size) || size.Limit != 64 || len(v) != 100 {
		t.Errorf("got %d bytes, %v", len(v), err)
	}
	wantState(t, claim(t, g, "c"), dedup.Done)

	// A value that does not encode.
	_, err = dedup.DoValue(t.Context(), g, dedup.Request{ID: "d"}, func(context.Context) (func(), error) { return func() {}, nil })
	wantErr(t, err, dedup.ErrResult)
	wantState(t, claim(t, g, "d"), dedup.Done)
}
