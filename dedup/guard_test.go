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

func TestNewRefuses(t *testing.T) {
	var none *dedup.Memory
	for name, s := range map[string]dedup.Store{"nil": nil, "nil pointer": none} {
		if _, err := dedup.New(s, nil); !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("%s store: %v", name, err)
		}
	}
	bad := map[string]dedup.Options{
		"scope":               {Scope: "a b"},
		"long scope":          {Scope: strings.Repeat("x", 65)},
		"policy":              {OnLapse: 7},
		"negative lease":      {Lease: -1},
		"tiny lease":          {Lease: time.Microsecond},
		"endless lease":       {Lease: dedup.MaxDuration + 1},
		"negative retention":  {Retention: -time.Hour},
		"endless retention":   {Retention: dedup.MaxDuration + 1},
		"horizon":             {Retention: 7 * 24 * time.Hour, Horizon: 7 * 24 * time.Hour},
		"default and horizon": {Horizon: 8 * 24 * time.Hour},
		"negative horizon":    {Horizon: -1},
		"negative wait":       {Wait: -1},
		"negative size":       {ResultSize: -1},
		"huge size":           {ResultSize: 1 << 30},
		"negative timeout":    {SettleTimeout: -1},
	}
	for name, o := range bad {
		before := o
		if _, err := dedup.New(dedup.NewMemory(), &o); !errors.Is(err, dedup.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if o != before {
			t.Errorf("%s: New changed the caller's options", name)
		}
	}
	if _, err := dedup.New(dedup.NewMemory(), &dedup.Options{Horizon: 7 * 24 * time.Hour}); err != nil {
		t.Errorf("the default retention exceeds seven days: %v", err)
	}
}

func TestBadIDsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	store := &flaky{Store: dedup.NewMemory()}
	g := newGuard(t, store, nil)
	bad := map[string]string{"empty": "", "long": strings.Repeat("x", 513), "NUL": "a\x00b", "not UTF-8": "a\xff"}
	ctx := t.Context()
	for name, id := range bad {
		r := dedup.Request{ID: id}
		_, claimErr := g.Claim(ctx, r)
		_, batchErr := g.ClaimBatch(ctx, []dedup.Request{{ID: "good"}, r})
		_, firstErr := g.FirstSeen(ctx, "good", id)
		for _, err := range []error{claimErr, batchErr, firstErr, g.Do(ctx, r, nop), g.Forget(ctx, id), g.Retain(ctx, time.Hour, "good", id),
			g.Settle(ctx, dedup.Claim{ID: id, Token: 1}.Release())} {
			if !errors.Is(err, dedup.ErrInvalid) {
				t.Errorf("%s ID: %v", name, err)
			}
			if id != "" && strings.Contains(err.Error(), id) {
				t.Errorf("%s ID: the error shows it: %v", name, err)
			}
		}
	}
	c := dedup.Claim{ID: "a", Token: 1}
	wantErr(t, g.Settle(ctx, c.Extend(0)), dedup.ErrInvalid)
	wantErr(t, g.Settle(ctx, c.Extend(-1)), dedup.ErrInvalid)
	wantErr(t, g.Settle(ctx, dedup.Settlement{ID: "a", Token: 1}), dedup.ErrInvalid)
	wantErr(t, g.Settle(ctx, dedup.Claim{ID: "a"}.Complete(nil)), dedup.ErrInvalid)
	wantErr(t, g.Do(ctx, dedup.Request{ID: "a"}, nil), dedup.ErrInvalid)
	for _, d := range []time.Duration{-1, 0, time.Millisecond - 1, dedup.MaxDuration + 1} {
		wantErr(t, g.Retain(ctx, d, "a"), dedup.ErrInvalid)
	}
	var size *dedup.ResultSizeError
	if err := g.Settle(ctx, c.Complete(make([]byte, 64<<10+1))); !errors.As(err, &size) {
		t.Errorf("result over the limit: %v", err)
	}
	for _, n := range []int{0, -1, 1001} {
		_, err := g.Held(ctx, "", n)
		wantErr(t, err, dedup.ErrInvalid)
	}
	if store.claimCalls != 0 || store.settleCalls != 0 {
		t.Errorf("%d claims and %d settlements were sent", store.claimCalls, store.settleCalls)
	}
	if _, err := g.Claim(ctx, dedup.Request{ID: strings.Repeat("x", 512)}); err != nil {
		t.Errorf("the longest ID: %v", err)
	}
}

// One upstream message that is pulled through two accounts has one effect,
// because both pulls see the provider's ID.
func TestOneMessageThroughTwoAccounts(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	runs := 0
	for range []string{"account A", "account B"} {
		err := g.Do(t.Context(), dedup.Request{ID: "wamid.HBgLMTU1NTAwMDEwMDE"}, func(context.Context) error { runs++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("%d effects", runs)
	}
}

// The same account and number under two business types are two messages.
func TestTwoBusinessTypesAreTwoMessages(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	runs := 0
	for _, biz := range []string{"wa", "marketing"} {
		id := dedup.MessageID(biz, "acct-1", 7)
		if err := g.Do(t.Context(), dedup.Request{ID: id}, func(context.Context) error { runs++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 2 {
		t.Errorf("%d effects", runs)
	}
}

func TestClaimBatch(t *testing.T) {
	g := newGuard(t, &flaky{Store: dedup.NewMemory()}, nil)
	claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "a"}, {ID: "b"}, {ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []dedup.State{dedup.Acquired, dedup.Acquired, dedup.InFlight} {
		wantState(t, claims[i], want)
	}
	if err := g.Settle(t.Context(), claims[0].Complete([]byte("r")), claims[1].Release()); err != nil {
		t.Fatal(err)
	}
	claims, err = g.ClaimBatch(t.Context(), []dedup.Request{{ID: "b"}, {ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if claims[0].Attempt != 2 || claims[1].State != dedup.Done || string(claims[1].Result) != "r" {
		t.Errorf("got %+v", claims)
	}
	if claims, err := g.ClaimBatch(t.Context(), nil); err != nil || len(claims) != 0 {
		t.Errorf("empty batch: %v, %v", claims, err)
	}
}

func TestSettleNamesWhatFailed(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	a, b := claim(t, g, "a"), claim(t, g, "b")
	stale := b
	stale.Token--
	err := g.Settle(t.Context(), a.Complete(nil), stale.Complete(nil))
	wantErr(t, err, dedup.ErrStale)
	var se *dedup.SettleError
	if !errors.As(err, &se) || se.Index != 1 {
		t.Errorf("got %v", err)
	}
	wantState(t, claim(t, g, "a"), dedup.Done)
	wantState(t, claim(t, g, "b"), dedup.InFlight)
}

func TestFirstSeen(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	wantState(t, claim(t, g, "busy"), dedup.Acquired)
	first, err := g.FirstSeen(t.Context(), "a", "b", "a", "busy")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(first), "[true true false false]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantState(t, claim(t, g, "a"), dedup.Done)
}

// A stampede of duplicates is one ask.
func TestConcurrentCallsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &flaky{Store: dedup.NewMemory(), block: gate}
		g := newGuard(t, store, nil)
		var mu sync.Mutex
		states := map[dedup.State]int{}
		var wg sync.WaitGroup
		for i := range 65 {
			id := "same"
			if i%2 == 1 {
				id = fmt.Sprint("other-", i)
			}
			wg.Go(func() {
				c := claim(t, g, id)
				mu.Lock()
				states[c.State]++
				mu.Unlock()
			})
		}
		synctest.Wait()
		store.set(func(f *flaky) { f.block = nil })
		close(gate)
		wg.Wait()
		if store.claimCalls > 2 || store.asked > 34 {
			t.Errorf("%d calls with %d asks", store.claimCalls, store.asked)
		}
		if states[dedup.Acquired] != 33 || states[dedup.InFlight] != 32 {
			t.Errorf("answers %v", states)
		}
	})
}

func TestLostAnswerIsAskedAgain(t *testing.T) {
	store := &flaky{Store: dedup.NewMemory(), claimAfter: 1}
	g := newGuard(t, store, nil)
	if c := claim(t, g, "a"); c.State != dedup.Acquired || c.Attempt != 1 {
		t.Errorf("the owner became its own rival: %+v", c)
	}
	store.set(func(f *flaky) { f.claimAfter = 1 })
	claims, err := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "b"}, {ID: "c"}})
	if err != nil || claims[0].State != dedup.Acquired || claims[1].State != dedup.Acquired {
		t.Errorf("batch: %+v, %v", claims, err)
	}
	store.set(func(f *flaky) { f.claimAfter = 1 })
	if first, err := g.FirstSeen(t.Context(), "d"); err != nil || !first[0] {
		t.Errorf("FirstSeen: %v, %v", first, err)
	}
}

// A store error is never read as "new", and asking again tells the fate.
func TestStoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: dedup.NewMemory(), claimAfter: 2}
		g := newGuard(t, store, nil)
		c, err := g.Claim(t.Context(), dedup.Request{ID: "secret-49151"})
		wantErr(t, err, dedup.ErrUnavailable)
		wantErr(t, err, errLost)
		if c.State != 0 || strings.Contains(err.Error(), "49151") {
			t.Errorf("got %+v, %v", c, err)
		}
		// It was granted, so it is in flight until the lease has lapsed.
		wantState(t, claim(t, g, "secret-49151"), dedup.InFlight)
		time.Sleep(30 * time.Second)
		wantState(t, claim(t, g, "secret-49151"), dedup.Acquired)

		store.set(func(f *flaky) { f.down = true })
		ran := false
		err = g.Do(t.Context(), dedup.Request{ID: "b"}, func(context.Context) error { ran = true; return nil })
		wantErr(t, err, dedup.ErrUnavailable)
		first, err := g.FirstSeen(t.Context(), "c")
		wantErr(t, err, dedup.ErrUnavailable)
		_, err2 := g.ClaimBatch(t.Context(), []dedup.Request{{ID: "b"}, {ID: "c"}})
		wantErr(t, err2, dedup.ErrUnavailable)
		if ran || first[0] {
			t.Error("a store error was read as new")
		}
		_, err = g.Held(t.Context(), "", 10)
		wantErr(t, err, dedup.ErrUnavailable)
	})
}

// A caller that gives up, before, during or after the round trip, leaves nothing
// in flight.
func TestCancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &flaky{Store: dedup.NewMemory(), block: gate}
		g := newGuard(t, store, nil)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Claim(ctx, dedup.Request{ID: "before"})
		wantErr(t, err, context.Canceled)
		_, err = g.ClaimBatch(ctx, []dedup.Request{{ID: "before"}, {ID: "x"}})
		wantErr(t, err, context.Canceled)
		if store.claimCalls != 0 {
			t.Error("a cancelled claim was sent")
		}

		ctx, cancel = context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := g.Claim(ctx, dedup.Request{ID: "during"})
			wantErr(t, err, context.Canceled)
		})
		wg.Go(func() {
			_, err := g.ClaimBatch(ctx, []dedup.Request{{ID: "during 2"}, {ID: "during 3"}})
			wantErr(t, err, context.Canceled)
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		store.set(func(f *flaky) { f.block = nil })
		close(gate)
		wg.Wait()
		synctest.Wait()
		for _, id := range []string{"before", "during", "during 2", "during 3"} {
			wantState(t, claim(t, g, id), dedup.Acquired)
		}
	})
}

func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold, Lease: time.Second, Retention: time.Minute})
		for _, id := range []string{"c", "a", "b"} {
			wantState(t, claim(t, g, id), dedup.Acquired)
		}
		if held, err := g.Held(t.Context(), "", 10); err != nil || len(held) != 0 {
			t.Fatalf("running claims are listed: %v, %v", held, err)
		}
		time.Sleep(time.Hour) // longer than the retention: held IDs never expire
		held, err := g.Held(t.Context(), "", 2)
		if err != nil || len(held) != 2 || held[0].ID != "a" || held[1].ID != "b" {
			t.Fatalf("got %v, %v", held, err)
		}
		n, oldest, err := g.HeldStats(t.Context(), 1000)
		if err != nil || n != 3 || oldest != time.Hour {
			t.Errorf("HeldStats: %d, %v, %v", n, oldest, err)
		}
		if n, _, _ := g.HeldStats(t.Context(), 2); n != 2 {
			t.Errorf("HeldStats counted %d of at most 2", n)
		}
		if err := g.Settle(t.Context(), held[0].Complete([]byte("by hand")), held[1].Release()); err != nil {
			t.Fatal(err)
		}
		if c := claim(t, g, "a"); c.State != dedup.Done || string(c.Result) != "by hand" {
			t.Errorf("got %+v", c)
		}
		if c := claim(t, g, "b"); c.State != dedup.Acquired || c.Token <= held[1].Token {
			t.Errorf("got %+v", c)
		}
		wantErr(t, g.Settle(t.Context(), held[1].Complete(nil)), dedup.ErrStale) // the slow owner comes back
	})
}

func TestForget(t *testing.T) {
	g := newGuard(t, dedup.NewMemory(), nil)
	if err := g.Do(t.Context(), dedup.Request{ID: "a"}, nop); err != nil {
		t.Fatal(err)
	}
	owner := claim(t, g, "b")
	if err := g.Forget(t.Context(), "a", "b", "never seen"); err != nil {
		t.Fatal(err)
	}
	wantState(t, claim(t, g, "a"), dedup.Acquired)
	wantErr(t, g.Settle(t.Context(), owner.Complete(nil)), dedup.ErrStale)
}

// TestRetain keeps what is done for longer than the guard does, and changes nothing of
// what is not done.
func TestRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var settled []string
		hooks := &dedup.Hooks{Settled: func(_ context.Context, s dedup.Settlement, err error) {
			settled = append(settled, fmt.Sprint(s.Kind, " ", s.ID, " ", s.Retention, " ", err))
		}}
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Hooks: hooks})
		if _, err := dedup.DoValue(t.Context(), g, dedup.Request{ID: "done"}, func(context.Context) (int, error) { return 42, nil }); err != nil {
			t.Fatal(err)
		}
		settled = nil
		if err := g.Retain(t.Context(), 30*day, "done", "never seen"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(settled); got != "[retain done 720h0m0s <nil> retain never seen 720h0m0s <nil>]" {
			t.Errorf("the hook was told %s", got)
		}
		if s := g.Stats(); s.Retained != 2 || s.Completed != 1 {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(29 * day)
		if c := claim(t, g, "done"); c.State != dedup.Done || string(c.Result) != "42" || c.Age != 29*day {
			t.Errorf("got %+v", c)
		}
		wantState(t, claim(t, g, "never seen"), dedup.Acquired)
		time.Sleep(2 * day)
		wantState(t, claim(t, g, "done"), dedup.Acquired)
		if err := g.Retain(t.Context(), time.Hour); err != nil {
			t.Errorf("no IDs: %v", err)
		}
	})
}

func TestWithNeitherRenewsNorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		g := newGuard(t, m, &dedup.Options{Lease: time.Second, Wait: time.Minute})
		store := &flaky{Store: m}
		view := g.With(store)
		err := view.Do(t.Context(), dedup.Request{ID: "a"}, func(context.Context) error {
			time.Sleep(10 * time.Second)
			start := time.Now()
			wantErr(t, view.Do(t.Context(), dedup.Request{ID: "b"}, func(context.Context) error {
				return view.Do(t.Context(), dedup.Request{ID: "b"}, nop)
			}), dedup.ErrInFlight)
			if time.Since(start) != 0 {
				t.Error("the view waited")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if store.settleCalls != 2 {
			t.Errorf("%d settlements, want the completion and the release alone", store.settleCalls)
		}
		if s := g.Stats(); s.Completed != 1 || s.Released != 1 {
			t.Errorf("the view does not share the counters: %+v", s)
		}
	})
}

func TestStatsHooksAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var claimed, settled []string
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Hooks: &dedup.Hooks{
				Claimed: func(_ context.Context, c dedup.Claim) { claimed = append(claimed, c.State.String()) },
				Settled: func(_ context.Context, s dedup.Settlement, err error) {
					settled = append(settled, fmt.Sprint(s.Kind, errors.Is(err, dedup.ErrStale)))
				},
			},
		})
		id := "wamid-4915112345678"
		_ = g.Do(t.Context(), dedup.Request{ID: id}, func(context.Context) error { return errEffect })
		_ = g.Do(t.Context(), dedup.Request{ID: id}, nop)
		time.Sleep(time.Hour)
		_ = g.Do(t.Context(), dedup.Request{ID: id}, nop)
		_ = g.Do(t.Context(), dedup.Request{ID: id + "2"}, func(ctx context.Context) error { return g.Forget(ctx, id+"2") })

		if got, want := strings.Join(claimed, " "), "acquired acquired done acquired"; got != want {
			t.Errorf("Claimed saw %s, want %s", got, want)
		}
		if got, want := strings.Join(settled, " "), "release false complete false forget false complete true"; got != want {
			t.Errorf("Settled saw %s, want %s", got, want)
		}
		s := g.Stats()
		want := dedup.Stats{Acquired: 3, Done: 1, Reruns: 1, Completed: 1, Released: 1, Forgotten: 1, Stale: 1,
			OldestDuplicate: time.Hour, Retention: 8 * 24 * time.Hour}
		if s != want {
			t.Errorf("got  %+v\nwant %+v", s, want)
		}
		if out := log.String(); !strings.Contains(out, "more than once") || strings.Contains(out, "49151") {
			t.Errorf("log: %s", out)
		}
	})
}
